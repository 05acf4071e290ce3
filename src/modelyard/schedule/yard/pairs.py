"""Jobs that share devices: which two do more together than one after the other.

What a job keeps of its speed beside another depends on the two models, the kind and the size, so
the gain of a pair is a sum of two scores that each know only the other's model. Sorting the jobs
of each model by score therefore finds the best pairs without looking at all of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from modelyard.schedule.believed import Beliefs
from modelyard.schedule.sizing import allowed_kinds
from modelyard.schedule.view import View
from modelyard.schedule.yard.offers import twins
from modelyard.spec.allocation import Footprint

#: A model name that no table has: whoever claims a speed beside it does not measure partners.
STRANGER = "\0"
#: A new pair counts for less than was measured: it costs a restart now and another when it parts,
#: and gains that are gone by the next decision are not worth either.
SURE = 0.95


class Pair(NamedTuple):
    """Two jobs on the same devices, the earlier one first."""

    first: int
    second: int
    kind: int
    devices: int
    gain: float


class Sharing:
    """What jobs keep of their speed beside others, by model; answers are kept for one decision."""

    def __init__(self, view: View, beliefs: Beliefs) -> None:
        self._view = view
        self._beliefs = beliefs
        self._kept: dict[tuple[str, str, int, int], float] = {}
        #: one willing job to ask for each model
        self._witness: dict[str, int] = {}
        self._measuring: dict[int, bool] = {}
        self.willing = [self._is_willing(at, twin) for at, twin in enumerate(twins(view))]

    def _is_willing(self, at: int, twin: int) -> bool:
        """Whether the job lets others share, and its speed beside them was measured."""
        card = self._view.jobs.card(at)
        if card.exclusive or not card.model:
            return False
        if not self._measures_partners(twin):
            return False
        self._witness.setdefault(card.model, at)
        return True

    def _measures_partners(self, at: int) -> bool:
        known = self._measuring.get(at)
        if known is None:
            card, belief = self._view.jobs.card(at), self._view.jobs.knowledge(at).belief
            known = self._measuring[at] = not any(
                belief.goodput(self._footprint(kind, card.devices, STRANGER)) > 0.0
                for kind in allowed_kinds(self._view, card)
            )
        return known

    def kept(self, model: str, partner: str, kind: int, devices: int) -> float:
        """The share of its speed that a model keeps beside a partner, packed tightly; 0 to 1."""
        key = (model, partner, kind, devices)
        found = self._kept.get(key)
        if found is None:
            belief = self._view.jobs.knowledge(self._witness[model]).belief
            alone = belief.goodput(self._beliefs.footprint(kind, devices))
            beside = belief.goodput(self._footprint(kind, devices, partner))
            found = self._kept[key] = min(beside / alone, 1.0) if alone > 0.0 else 0.0
        return found

    def _footprint(self, kind: int, devices: int, partner: str) -> Footprint:
        alone = self._beliefs.footprint(kind, devices)
        return Footprint(alone.kind, alone.counts, partner)


@dataclass(frozen=True, slots=True)
class Seeker:
    """A job that might share `devices` devices of a kind."""

    at: int
    model: str
    kind: int
    devices: int
    #: what it is worth alone on these devices
    value: float
    #: what it would be worth otherwise
    forgone: float


def best_pairs(
    sharing: Sharing, hosts: Sequence[Seeker], guests: Sequence[Seeker], prices: Sequence[float]
) -> list[Pair]:
    """Disjoint pairs of a host and a guest, the largest gain first, for as long as pairs gain.

    The gain is what both are worth together, less what both forgo and the price of the devices.
    A job may be host and guest, and seek on several kinds.
    """
    waiting = [
        lists for lists in _all_lists(sharing, hosts, guests, prices) if lists.advance(set())
    ]
    heap = [(-lists.gain, number, lists) for number, lists in enumerate(waiting)]
    heapq.heapify(heap)
    used: set[int] = set()
    found: list[Pair] = []
    while heap:
        loss, number, lists = heapq.heappop(heap)
        if lists.best.isdisjoint(used):
            used |= lists.best
            first, second = sorted(lists.best)
            found.append(Pair(first, second, lists.kind, lists.devices, -loss))
        if lists.advance(used):
            heapq.heappush(heap, (-lists.gain, number, lists))
    return found


class _Lists:
    """Hosts of one model and guests of another for one kind and size, each by falling score.

    Invariant after `advance`: `best` are the host and the guest of the largest sum of scores
    among those not used, and `gain` is that sum less the price.
    """

    __slots__ = ("_guests", "_hosts", "_price", "best", "devices", "gain", "kind")

    def __init__(
        self, kind: int, devices: int, price: float, hosts: _Scores, guests: _Scores
    ) -> None:
        self.kind, self.devices, self._price = kind, devices, price
        # Taken from the end, so the highest score is last; ties go to the earlier job.
        self._hosts = sorted(hosts, key=lambda scored: (scored[0], -scored[1]))
        self._guests = sorted(guests, key=lambda scored: (scored[0], -scored[1]))
        self.best: set[int] = set()
        self.gain = 0.0

    def advance(self, used: set[int]) -> bool:
        """Find the best pair left; False when none gains."""
        for scored in (self._hosts, self._guests):
            while scored and scored[-1][1] in used:
                scored.pop()
        if not self._hosts or not self._guests:
            return False
        options = [(self._hosts[-1], guest) for guest in self._next_two(self._guests, used)]
        options += [(host, self._guests[-1]) for host in self._next_two(self._hosts, used)]
        pairs = [(host[0] + guest[0], host[1], guest[1]) for host, guest in options]
        pairs = [pair for pair in pairs if pair[1] != pair[2]]
        if not pairs:
            return False
        score, host, guest = max(pairs, key=lambda pair: (pair[0], -pair[1], -pair[2]))
        self.best, self.gain = {host, guest}, score - self._price
        return self.gain > 0.0

    @staticmethod
    def _next_two(scored: _Scores, used: set[int]) -> list[tuple[float, int]]:
        """The two highest not used: where one job leads both lists, it cannot pair with itself."""
        return list(islice((one for one in reversed(scored) if one[1] not in used), 2))


_Scores = list[tuple[float, int]]
_Place = tuple[int, int]


def _all_lists(
    sharing: Sharing, hosts: Sequence[Seeker], guests: Sequence[Seeker], prices: Sequence[float]
) -> Iterator[_Lists]:
    """One pair of lists for each place and two models that can share it at all."""
    offered, asked = _by_place(hosts), _by_place(guests)
    for place in sorted(offered.keys() & asked.keys()):
        kind, devices = place
        for model, ones in offered[place].items():
            for partner, others in asked[place].items():
                if hosts is guests and partner < model:
                    continue
                kept = sharing.kept(model, partner, kind, devices)
                left = sharing.kept(partner, model, kind, devices)
                if kept > 0.0 and left > 0.0:
                    yield _Lists(
                        kind,
                        devices,
                        prices[kind] * devices,
                        [(one.value * kept * SURE - one.forgone, one.at) for one in ones],
                        [(one.value * left * SURE - one.forgone, one.at) for one in others],
                    )


def _by_place(seekers: Sequence[Seeker]) -> dict[_Place, dict[str, list[Seeker]]]:
    groups: dict[_Place, dict[str, list[Seeker]]] = {}
    for seeker in seekers:
        by_model = groups.setdefault((seeker.kind, seeker.devices), {})
        by_model.setdefault(seeker.model, []).append(seeker)
    return groups
