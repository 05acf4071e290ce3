"""Jobs of different weight on kinds of different speed, alone or two by two.

Each job has offers (kind, size), each pair of jobs that share devices well has them too. The
choice with the largest sum of weight × speed is looked for by shadow prices (`choice.py`), with
pairs matched at those prices (`pairs.py`), and laid out by what a loose placement costs each job
(`layout.py`). What is then left over goes to whoever can use it: free devices first, then places
beside running jobs. Priorities are strict: each is served from what those above it leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from modelyard.schedule.believed import Beliefs
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray
from modelyard.schedule.sizing import room_by_kind
from modelyard.schedule.view import Decision, View
from modelyard.schedule.yard.choice import Market, Supply, choose, shadow_prices, surplus
from modelyard.schedule.yard.layout import Floor, Unit
from modelyard.schedule.yard.offers import offers, present_kinds, value_at
from modelyard.schedule.yard.pairs import Pair, Seeker, Sharing, best_pairs
from modelyard.spec.allocation import Allocation

#: Matching changes prices and prices change the matching; a few rounds settle what can be settled.
MATCHINGS = 2
#: Jobs of one kind and size that look for a partner, those nearest to the margin of being served
#: first: jobs far above it lose too much by sharing, and those far below bring too little.
MOST_SEEKERS = 400
#: What a job keeps of its speed beside a usual partner; only orders who may look for one.
USUALLY_KEPT = 0.7


def mixed(
    view: View, weights: FloatArray, overdue: BoolArray | None = None, *, share: bool = True
) -> dict[int, Allocation]:
    """Who should run where, by position; jobs left out should not run.

    `weights` has the worth of a second at reference speed of each job (see `offers.py`). With
    `share=False` no two jobs share devices.
    """
    if not len(view.jobs):
        return {}
    first = np.zeros(len(view.jobs), dtype=np.bool_) if overdue is None else overdue
    yard = _Yard(view, weights, 2 * view.jobs.priority + first, share=share)
    yard.choose()
    yard.use_free_devices()
    if share:
        yard.seat_riders()
    return yard.allocations()


def changes_with_riders(view: View, wanted: dict[int, Allocation]) -> list[Decision]:
    """The decisions that lead to `wanted`; jobs left out hold nothing.

    A rider whose host goes inherits the devices: if it should have them, nothing need be decided.
    """
    jobs = view.jobs
    decisions = []
    for at in range(len(jobs)):
        before, after = jobs.allocation(at), wanted.get(at)
        if before == after or (after is not None and _inherits(view, wanted, before, after)):
            continue
        decisions.append(Decision(jobs.card(at).id, after))
    return decisions


def _inherits(
    view: View, wanted: dict[int, Allocation], before: Allocation | None, after: Allocation
) -> bool:
    if before is None or before.host is None or after != Allocation(before.parts):
        return False
    host = view.jobs.find(before.host)
    return host is not None and wanted.get(host) != view.jobs.allocation(host)


class _Yard:
    """One decision while it is made."""

    def __init__(self, view: View, weights: FloatArray, tier: IntArray, *, share: bool) -> None:
        self._view = view
        #: served strictly one after the other, the highest first
        self._tier = tier
        beliefs = Beliefs(view)
        self._offers = offers(view, np.asarray(weights, dtype=np.float64), beliefs)
        self._sharing = Sharing(view, beliefs) if share else None
        self._kinds = present_kinds(view)
        self._floor = Floor(view)
        #: by host
        self._riders: dict[int, int] = {}
        self._together = _present_pairs(view)

    # -- the choice -----------------------------------------------------------------------

    def choose(self) -> None:
        """Place what is worth most, the highest priority first."""
        view = self._view
        supply = Supply(room_by_kind(view), _tenant_limits(view))
        able = (self._offers.devices > 0).any(axis=(1, 2))
        units: list[Unit] = []
        for tier in np.unique(self._tier)[::-1].tolist():
            members = np.flatnonzero((self._tier == tier) & able)
            if len(members) and supply.room.any():
                units += self._chosen(members, supply)
        self._floor.lay_out(units)

    def _chosen(self, members: IntArray, supply: Supply) -> list[Unit]:
        pairs: list[Pair] = []
        market = self._market(members, pairs)
        prices = shadow_prices(market, supply.room)
        for _ in range(MATCHINGS if self._sharing else 0):
            if not prices.any():
                break
            pairs = self._matched(members, prices)
            market = self._market(members, pairs)
            prices = shadow_prices(market, supply.room)
        names = _unit_names(members, pairs)
        return [
            self._unit(names[taken.unit], taken.kind, taken.devices)
            for taken in choose(market, prices, supply)
        ]

    def _market(self, members: IntArray, pairs: Sequence[Pair]) -> Market:
        """Single jobs first, then pairs, as `_unit_names` lists them."""
        offered, tenant = self._offers, self._view.jobs.tenant
        paired = [at for pair in pairs for at in (pair.first, pair.second)]
        single = members[~np.isin(members, paired)]
        shape = (len(pairs), *offered.value.shape[1:])
        devices, value = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
        for row, pair in enumerate(pairs):
            for kind in range(shape[1]):
                worth = self._worth_together(pair, kind)
                if worth > 0.0:
                    devices[row, kind, 0], value[row, kind, 0] = pair.devices, worth
        alone = np.column_stack((tenant[single], np.full(len(single), -1, dtype=np.int64)))
        both = np.array([(tenant[pair.first], tenant[pair.second]) for pair in pairs])
        return Market(
            np.concatenate((offered.devices[single], devices)),
            np.concatenate((offered.value[single], value)),
            np.concatenate((alone, both.reshape(-1, 2).astype(np.int64))),
        )

    def _value(self, at: int, kind: int, devices: int) -> float:
        """A job's value on so many devices of a kind; 0 when that is not offered."""
        slots = np.flatnonzero(self._offers.devices[at, kind] == devices)
        return float(self._offers.value[at, kind, slots[0]]) if len(slots) else 0.0

    def _worth_together(self, pair: Pair, kind: int) -> float:
        """What two jobs are worth on the same devices; 0 when they cannot share them."""
        assert self._sharing is not None
        jobs, devices = self._view.jobs, pair.devices
        values = [self._value(at, kind, devices) for at in (pair.first, pair.second)]
        if not all(values):
            return 0.0
        first, second = jobs.card(pair.first).model, jobs.card(pair.second).model
        kept = self._sharing.kept(first, second, kind, devices)
        left = self._sharing.kept(second, first, kind, devices)
        if not kept or not left:
            return 0.0
        exponent = self._offers.exponent
        first_worth = values[0] * math.pow(kept, exponent[pair.first])
        return first_worth + values[1] * math.pow(left, exponent[pair.second])

    def _matched(self, members: IntArray, prices: FloatArray) -> list[Pair]:
        """Pairs that gain at these prices; those that share already come first."""
        assert self._sharing is not None
        seekers = self._seekers(members, prices)
        standing = self._standing(seekers, seekers, prices)
        settled = {at for pair in standing for at in (pair.first, pair.second)}
        seekers = [one for one in seekers if one.at not in settled]
        return standing + best_pairs(self._sharing, seekers, seekers, prices.tolist())

    def _standing(
        self, hosts: Sequence[Seeker], guests: Sequence[Seeker], prices: FloatArray
    ) -> list[Pair]:
        """Pairs that share devices now and gain by going on."""
        offering = {(one.at, one.kind, one.devices): one for one in hosts}
        asking = {(one.at, one.kind, one.devices): one for one in guests}
        found: dict[tuple[int, int], Pair] = {}
        for host, guest in self._together:
            kind, devices = int(self._kinds[host]), int(self._view.jobs.held[host])
            one, other = offering.get((host, kind, devices)), asking.get((guest, kind, devices))
            if one is not None and other is not None:
                cost = one.forgone + other.forgone + float(prices[kind]) * devices
                pair = Pair(min(host, guest), max(host, guest), kind, devices, 0.0)
                if self._worth_together(pair, kind) > cost:
                    found[pair.first, pair.second] = pair
        return list(found.values())

    def _seekers(self, members: IntArray, prices: FloatArray) -> list[Seeker]:
        """Willing jobs on each kind at the size that pays most there."""
        assert self._sharing is not None
        offered = self._offers
        alone = Market(offered.devices[members], offered.value[members], np.zeros((0, 2), np.int64))
        extra = surplus(alone, prices)
        forgone = np.maximum(extra.max(axis=(1, 2)), 0.0)
        best = extra.argmax(axis=2)
        found: list[Seeker] = []
        for row, at in enumerate(members.tolist()):
            if not self._sharing.willing[at]:
                continue
            model = self._view.jobs.card(at).model
            for kind in range(len(prices)):
                devices = int(offered.devices[at, kind, best[row, kind]])
                if devices and prices[kind] > 0.0:
                    value = float(offered.value[at, kind, best[row, kind]])
                    found.append(Seeker(at, model, kind, devices, value, float(forgone[row])))
        return _nearest_to_margin(found)

    # -- units ----------------------------------------------------------------------------

    def _unit(self, jobs: tuple[int, ...], kind: int, devices: int) -> Unit:
        """The unit to place; the job that is there already comes first and is the host."""
        offered = self._offers
        held = self._view.jobs.held
        here = [at for at in jobs if self._kinds[at] == kind and held[at] == devices]
        present = None
        if here:
            staying = max(here, key=lambda at: (self._owns(at), float(offered.weight[at]), -at))
            present = self._view.jobs.allocation(staying)
            jobs = (staying, *(at for at in jobs if at != staying))
        lost = 0.0
        for at in here:
            given = self._view.jobs.allocation(at)
            if given is not None and present is not None and given.parts == present.parts:
                factor = float(offered.change_factor[at])
                lost += self._value(at, kind, devices) * (1.0 - factor)

        def worth(given: Allocation) -> float:
            return self._worth_on(jobs, given)

        return Unit(jobs, kind, devices, present, lost, worth)

    def _owns(self, at: int) -> bool:
        given = self._view.jobs.allocation(at)
        return given is not None and given.host is None

    def _worth_on(self, jobs: tuple[int, ...], given: Allocation) -> float:
        total = 0.0
        for at in jobs:
            partner = next(
                (self._view.jobs.card(other).model for other in jobs if other != at), None
            )
            total += value_at(self._view, self._offers, at, given, partner)
        return total

    # -- what is left over ----------------------------------------------------------------

    def use_free_devices(self) -> None:
        """Jobs that were not chosen, or found no place, on devices that nobody has."""
        offered, jobs = self._offers, self._view.jobs
        limits = self._limits_left()
        density = np.where(
            offered.devices > 0, offered.value / np.maximum(offered.devices, 1), 0.0
        ).max(axis=(1, 2), initial=0.0)
        order = np.lexsort((-density, -jobs.priority))
        served = self._served()
        for at in order.tolist():
            if not self._floor.free.any():
                return
            if at in served or density[at] <= 0.0:
                continue
            self._squeeze_in(at, limits)

    def _squeeze_in(self, at: int, limits: FloatArray) -> None:
        offered, tenant = self._offers, int(self._view.jobs.tenant[at])
        room = self._floor.room_by_kind()
        for slot in np.argsort(-offered.value[at], axis=None, kind="stable").tolist():
            kind, size = divmod(slot, offered.value.shape[2])
            devices = int(offered.devices[at, kind, size])
            if not devices:
                return
            if devices <= min(room[kind], limits[tenant]) and self._floor.fit(
                self._unit((at,), kind, devices)
            ):
                limits[tenant] -= devices
                return

    def seat_riders(self) -> None:
        """Jobs that still wait, beside running ones that lose less than these gain."""
        assert self._sharing is not None
        jobs = self._view.jobs
        served = self._served()
        limits = self._limits_left()
        hosts = self._hosts()
        guests: list[Seeker] = []
        for at in range(len(jobs)):
            if at in served or not self._sharing.willing[at]:
                continue
            if limits[jobs.tenant[at]] >= jobs.card(at).min_devices:
                guests += self._as_guest(at)
        for priority in np.unique(jobs.priority)[::-1].tolist():
            peers = _nearest_to_margin([one for one in hosts if jobs.priority[one.at] == priority])
            callers = _nearest_to_margin(
                [one for one in guests if jobs.priority[one.at] == priority]
            )
            for pair in self._seated(peers, callers):
                host, guest = pair.first, pair.second
                if host not in served:
                    host, guest = guest, host
                if limits[jobs.tenant[guest]] >= pair.devices:
                    limits[jobs.tenant[guest]] -= pair.devices
                    self._riders[host] = guest

    def _seated(self, hosts: Sequence[Seeker], guests: Sequence[Seeker]) -> list[Pair]:
        """Who rides with whom; the devices are paid for by the host."""
        assert self._sharing is not None
        free_of_charge = np.zeros(len(self._view.cluster.kinds))
        standing = self._standing(hosts, guests, free_of_charge)
        settled = {at for pair in standing for at in (pair.first, pair.second)}
        return standing + best_pairs(
            self._sharing,
            [one for one in hosts if one.at not in settled],
            [one for one in guests if one.at not in settled],
            free_of_charge.tolist(),
        )

    def _hosts(self) -> list[Seeker]:
        """Willing jobs that are alone on a tight place: what sharing costs was measured there."""
        assert self._sharing is not None
        found = []
        for unit, given in self._floor.placed.values():
            at = unit.jobs[0]
            if len(unit.jobs) > 1 or not self._sharing.willing[at]:
                continue
            if self._floor.is_tight(unit, given):
                worth = self._value(at, unit.kind, unit.devices)
                model = self._view.jobs.card(at).model
                found.append(Seeker(at, model, unit.kind, unit.devices, worth, worth))
        return found

    def _as_guest(self, at: int) -> Iterable[Seeker]:
        offered, model = self._offers, self._view.jobs.card(at).model
        for kind, size in zip(*np.nonzero(offered.devices[at]), strict=True):
            devices = int(offered.devices[at, kind, size])
            yield Seeker(at, model, int(kind), devices, float(offered.value[at, kind, size]), 0.0)

    # -- the outcome ----------------------------------------------------------------------

    def _served(self) -> set[int]:
        return {at for unit in self._floor.placed for at in unit}

    def _limits_left(self) -> FloatArray:
        """By tenant; riders count like owners, because they inherit."""
        limits = _tenant_limits(self._view)
        for unit, _ in self._floor.placed.values():
            for at in unit.jobs:
                limits[self._view.jobs.tenant[at]] -= unit.devices
        return limits

    def allocations(self) -> dict[int, Allocation]:
        found: dict[int, Allocation] = {}
        for unit, given in self._floor.placed.values():
            host, *guests = unit.jobs
            if host in self._riders:
                guests.append(self._riders[host])
            found[host] = given
            for guest in guests:
                found[guest] = Allocation(given.parts, self._view.jobs.card(host).id)
        return found


def _unit_names(members: IntArray, pairs: Sequence[Pair]) -> list[tuple[int, ...]]:
    paired = {at for pair in pairs for at in (pair.first, pair.second)}
    single = [(at,) for at in members.tolist() if at not in paired]
    return [*single, *((pair.first, pair.second) for pair in pairs)]


def _tenant_limits(view: View) -> FloatArray:
    limits = [view.tenant(name).maximum for name in view.jobs.tenants]
    return np.array([math.inf if limit is None else float(limit) for limit in limits])


def _present_pairs(view: View) -> list[tuple[int, int]]:
    """Host and rider, both ways round: whoever stays may be the host from now on."""
    found = []
    for at in np.flatnonzero(view.jobs.running).tolist():
        given = view.jobs.allocation(at)
        host = view.jobs.find(given.host) if given is not None and given.host else None
        if host is not None:
            found += [(host, at), (at, host)]
    return found


def _nearest_to_margin(seekers: Sequence[Seeker]) -> list[Seeker]:
    """At most `MOST_SEEKERS` for each kind and size."""
    by_place: dict[tuple[int, int], list[Seeker]] = {}
    for one in seekers:
        by_place.setdefault((one.kind, one.devices), []).append(one)
    return [
        one
        for group in by_place.values()
        for one in sorted(group, key=lambda one: (one.forgone - USUALLY_KEPT * one.value, one.at))[
            :MOST_SEEKERS
        ]
    ]
