"""Who gets which offer: shadow prices for device kinds, then a choice that spends what there is.

At the right price per device of each kind, everyone takes what is worth most to it beyond its
price, and demand meets supply. That is the dual of the linear relaxation of the choice, found by
one-dimensional searches; nothing here grows faster than the number of offers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray

#: Halvings of the interval in which a price lies: finer ones than these change no choice that
#: matters, since whole gangs never meet a price exactly.
HALVINGS = 16
#: Rounds over all kinds; prices of kinds that replace each other settle within a few.
MOST_SWEEPS = 6
#: Prices are this much above what the first to go without would pay, so that it looks elsewhere.
NUDGE = 1e-6
#: Prices that move by less than this share are settled.
SETTLED = 1e-3
#: Exchanges of chosen units for a larger one: each repairs a place where whole gangs did not fit
#: what the prices promised, of which there are about as many as there are kinds.
EXCHANGES_PER_KIND = 8
#: An exchange must win this share of what it costs: rounding must not send units in circles.
SMALLEST_GAIN = 1e-9
#: Devices that cost nothing are still worth counting when units are ranked.
SMALLEST_PRICE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """Units that compete: jobs, or pairs of jobs that share devices.

    `devices` and `value` have the shape units × kinds × sizes; `tenants` has two columns, the
    second -1 for a unit of one job.
    """

    devices: IntArray
    value: FloatArray
    tenants: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """What is left to hand out: devices by kind, and by tenant up to its maximum."""

    room: IntArray
    limits: FloatArray

    def allows(self, kind: int, devices: int, tenants: IntArray) -> bool:
        return bool(self.room[kind] >= devices) and all(
            self.limits[tenant] >= devices * np.count_nonzero(tenants == tenant)
            for tenant in tenants.tolist()
            if tenant >= 0
        )

    def spend(self, kind: int, devices: int, tenants: IntArray) -> None:
        self.room[kind] -= devices
        for tenant in tenants.tolist():
            if tenant >= 0:
                self.limits[tenant] -= devices


def shadow_prices(market: Market, room: IntArray) -> FloatArray:
    """What one device of each kind is worth when demand meets supply; 0 where there is plenty."""
    kinds = market.value.shape[1]
    prices = np.zeros(kinds)
    if not market.value.size:
        return prices
    for _ in range(MOST_SWEEPS):
        before = prices.copy()
        for kind in range(kinds):
            prices[kind] = _price(market, kind, prices, int(room[kind]))
        if np.allclose(prices, before, rtol=SETTLED, atol=0.0):
            break
    return prices


def surplus(market: Market, prices: FloatArray) -> FloatArray:
    """What each offer is worth beyond its price."""
    return np.asarray(market.value - prices[None, :, None] * market.devices)


def _price(market: Market, kind: int, prices: FloatArray, room: int) -> float:
    """The lowest price of one kind at which its demand fits, the other prices standing."""
    others = np.delete(surplus(market, prices), kind, axis=1)
    elsewhere = np.maximum(others.max(axis=(1, 2), initial=0.0), 0.0)
    value, devices = market.value[:, kind], market.devices[:, kind]
    if value.shape[1] == 1:
        return _price_of_one_size(value[:, 0], devices[:, 0], elsewhere, room)

    def demand(price: float) -> int:
        here = value - price * devices
        best = here.argmax(axis=1)
        rows = np.arange(len(here))
        return int(devices[rows, best][here[rows, best] > elsewhere].sum())

    if demand(0.0) <= room:
        return 0.0
    low, high = 0.0, float((value / np.maximum(devices, 1)).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if demand(middle) > room else (low, middle)
    return high


def _price_of_one_size(
    value: FloatArray, devices: IntArray, elsewhere: FloatArray, room: int
) -> float:
    """The same where each unit has one size: what the first to go without would pay."""
    bid = (value - elsewhere) / np.maximum(devices, 1)
    order = np.argsort(-bid, kind="stable")
    order = order[bid[order] > 0.0]
    over = np.cumsum(devices[order]) > room
    return float(bid[order[over.argmax()]]) * (1.0 + NUDGE) if over.any() else 0.0


def choose(market: Market, prices: FloatArray, supply: Supply) -> list[Taken]:
    """Who is served how, within `supply`, which is spent.

    First whoever pays its price, by how well it pays; then whoever makes use of the rest; then a
    unit in place of others that together are worth less; in the end larger sizes for those served.
    """
    if not market.value.size:
        return []
    choice = _Choice(market, prices, supply)
    choice.serve(only_paying=True)
    choice.serve(only_paying=False)
    choice.exchange()
    choice.grow()
    return [choice.taken[unit] for unit in sorted(choice.taken)]


class Taken(NamedTuple):
    """One unit and the offer that it was given."""

    unit: int
    kind: int
    devices: int
    value: float


class _Choice:
    """The units served so far; `supply` is what they leave."""

    def __init__(self, market: Market, prices: FloatArray, supply: Supply) -> None:
        self.taken: dict[int, Taken] = {}
        self._market = market
        self._supply = supply
        units = len(market.value)
        extra = surplus(market, prices).reshape(units, -1)
        self._extra = extra
        self._by_extra = np.argsort(-extra, axis=1, kind="stable")
        cost = np.maximum(prices[None, :, None] * market.devices, SMALLEST_PRICE)
        bargain = np.where(market.value > 0.0, market.value / cost, 0.0).max(axis=(1, 2))
        order = np.argsort(-bargain, kind="stable")
        self._order: list[int] = order[bargain[order] > 0.0].tolist()

    def serve(self, *, only_paying: bool) -> None:
        """Everyone in turn takes the best offer that there is room for."""
        least = 0.0 if only_paying else -np.inf
        for unit in self._order:
            if unit in self.taken:
                continue
            if not self._supply.room.any():
                break
            for slot in self._by_extra[unit].tolist():
                if self._extra[unit, slot] <= least:
                    break
                if self._take(unit, *divmod(slot, self._market.value.shape[2])):
                    break

    def _take(self, unit: int, kind: int, size: int) -> bool:
        devices = int(self._market.devices[unit, kind, size])
        tenants = self._market.tenants[unit]
        if not self._supply.allows(kind, devices, tenants):
            return False
        self._supply.spend(kind, devices, tenants)
        self.taken[unit] = Taken(unit, kind, devices, float(self._market.value[unit, kind, size]))
        return True

    def _leave(self, unit: int) -> None:
        gone = self.taken.pop(unit)
        self._supply.spend(gone.kind, -gone.devices, self._market.tenants[unit])

    def exchange(self) -> None:
        """Give offers to others for as long as that makes the sum of values larger."""
        kinds = self._market.value.shape[1]
        for _ in range(EXCHANGES_PER_KIND * kinds):
            gain, unit, kind, size, leaving = max(
                self._best_exchange(kind) for kind in range(kinds)
            )
            if gain <= 0.0:
                return
            for one in (*leaving, *((unit,) if unit in self.taken else ())):
                self._leave(one)
            if not self._take(unit, kind, size):
                return

    def grow(self) -> None:
        """Give what is left to units that are served, where a device more brings most.

        Equal units step down in size together when prices rise, and leave room for some of them.
        """
        if not self._supply.room.any():
            return
        queue = [step for unit in self.taken if (step := self._next_step(unit)) is not None]
        heapq.heapify(queue)
        while queue:
            _, unit, size = heapq.heappop(queue)
            before = self.taken[unit]
            self._leave(unit)
            if not self._take(unit, before.kind, size):
                self._supply.spend(before.kind, before.devices, self._market.tenants[unit])
                self.taken[unit] = before
                continue
            step = self._next_step(unit)
            if step is not None:
                heapq.heappush(queue, step)

    def _next_step(self, unit: int) -> tuple[float, int, int] | None:
        """The larger offer of the same kind with most gain per device; the best sorts first."""
        now = self.taken[unit]
        devices = self._market.devices[unit, now.kind]
        gain = self._market.value[unit, now.kind] - now.value
        extra = devices - now.devices
        possible = (extra > 0) & (gain > 0.0) & (extra <= self._supply.room[now.kind])
        if not possible.any():
            return None
        density = np.where(possible, gain / np.maximum(extra, 1), -np.inf)
        size = int(density.argmax())
        return -float(density[size]), unit, size

    def _best_exchange(self, kind: int) -> tuple[float, int, int, int, tuple[int, ...]]:
        """The largest gain from one unit that comes to this kind in place of the least worthy."""
        market, supply = self._market, self._supply
        here = [one for one in self.taken.values() if one.kind == kind]
        here.sort(key=lambda one: (one.value / one.devices, one.unit))
        # What leaves in this order frees and loses so much, from nobody to all.
        freed = np.concatenate(([0], np.cumsum([one.devices for one in here]))) + supply.room[kind]
        lost = np.concatenate(([0.0], np.cumsum([one.value for one in here])))
        present = np.zeros(len(market.value))
        for one in self.taken.values():
            present[one.unit] = np.inf if one.kind == kind else one.value
        devices = market.devices[:, kind]
        count = freed.searchsorted(devices)
        possible = (count < len(freed)) & self._within_limits(devices)
        loss = lost[np.minimum(count, len(here))] + present[:, None]
        gain = np.where(possible, market.value[:, kind] - loss * (1.0 + SMALLEST_GAIN), -np.inf)
        unit, size = divmod(int(gain.argmax()), gain.shape[1])
        leaving = tuple(one.unit for one in here[: int(count[unit, size])])
        return float(gain[unit, size]), unit, kind, size, leaving

    def _within_limits(self, devices: IntArray) -> BoolArray:
        """Offers that the tenants of a unit could have beside all that they have now."""
        limits = np.append(self._supply.limits, np.inf)
        # A unit of two jobs of one tenant counts twice against it; so does each unit of two here.
        sharing = (self._market.tenants >= 0).sum(axis=1)
        least = limits[self._market.tenants].min(axis=1)
        return np.asarray(devices * sharing[:, None] <= least[:, None])
