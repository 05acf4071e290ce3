"""The search for the allocations of least total cost, when each job's cost is its own.

Jobs meet in three places only: the devices of a node, one distributed job per node, and the maxima
of tenants. Without the first two the best sizes are a knapsack, solved exactly; that answer is laid
out, and what fragmentation spoilt is mended: the jobs of a node, together with those that did not
get what the knapsack promised, give their devices back, are sized anew and laid out again, as long
as it helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.jobs import FloatArray, IntArray
from modelyard.schedule.knapsack import best_shares
from modelyard.schedule.separation import Board
from modelyard.spec.allocation import Allocation

#: Total costs closer than this are equal: sums of floats in another order differ by less.
NO_GAIN = 1e-9
#: Passes over all nodes; nearly all of the gain is in the first.
MENDING_PASSES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One job of the search.

    `costs[size]` is the cost on as few nodes as possible, or of `held` where that is the better
    way to have its size; infinite where the size is no option. `costs[0]` is the cost of waiting.
    """

    at: int
    tenant: str
    held: Allocation | None
    costs: FloatArray
    cost_of: Callable[[Allocation], float]

    def best_size(self, most: int) -> int:
        """The cheapest size of at most `most` devices."""
        return int(self.costs[: max(most, 0) + 1].argmin())


def fittest(
    candidates: Sequence[Candidate], available: IntArray, limits: Mapping[str, int]
) -> dict[int, Allocation]:
    """Allocations by position in the view; `limits` are devices left to tenants with a maximum.

    Their total cost is never above that of leaving every job where it is.
    """
    answer = _Answer(candidates, available, limits)
    answer.lay_out(range(len(candidates)))
    answer.grow()
    answer.mend()
    as_is = _Answer(candidates, available, limits)
    as_is.stay()
    if as_is.total_cost() < answer.total_cost() - NO_GAIN:
        as_is.grow()
        answer = as_is
    return {candidates[index].at: given for index, given in answer.placed.items()}


class _Answer:
    """Allocations under construction. Invariant: `board` is what `placed` leaves over."""

    def __init__(
        self, candidates: Sequence[Candidate], available: IntArray, limits: Mapping[str, int]
    ) -> None:
        self.candidates = candidates
        self.board = Board.empty(available)
        self.limits = limits
        self.used = dict.fromkeys(limits, 0)
        self.placed: dict[int, Allocation] = {}
        #: the size of each job in the last knapsack that it took part in
        self.target: dict[int, int] = {}

    def cost(self, index: int) -> float:
        given = self.placed.get(index)
        candidate = self.candidates[index]
        return float(candidate.costs[0]) if given is None else candidate.cost_of(given)

    def total_cost(self) -> float:
        return sum(map(self.cost, range(len(self.candidates))))

    def stay(self) -> None:
        """Leave every job where it is, as far as nodes and tenants still allow it."""
        for index, candidate in enumerate(self.candidates):
            held = candidate.held
            if held is None or held.devices > self._tenant_left(candidate.tenant):
                continue
            if self.board.accepts(held):
                self._take(index, held)

    def lay_out(self, indices: Iterable[int], *, first: Collection[int] = ()) -> None:
        """Size the jobs for the devices that are free and give each the best place left.

        Jobs that keep their devices come before those that need new ones, but after `first`.
        """
        chosen = list(indices)
        sizes = dict(zip(chosen, self._sizes(chosen), strict=True))
        self.target.update(sizes)
        # Large jobs need whole nodes; small ones fit in what they leave.
        waiting = sorted((index for index in chosen if sizes[index]), key=lambda i: -sizes[i])
        for index in waiting:
            if index in first:
                self._place(index, sizes[index])
        for index in waiting:
            held = self.candidates[index].held
            if index not in self.placed and held is not None and held.devices == sizes[index]:
                self._keep(index, held)
        for index in waiting:
            if index not in self.placed:
                self._place(index, sizes[index])

    def grow(self) -> None:
        """Give devices that are left to whoever gains, the job with the highest cost first."""
        improved = True
        while improved and self.board.free.any():
            improved = False
            order = sorted(range(len(self.candidates)), key=lambda index: -self.cost(index))
            for index in order:
                improved |= self._improve(index)

    def mend(self) -> None:
        for _ in range(MENDING_PASSES):
            improved = False
            for node in range(len(self.board.free)):
                spoilt = set(filter(self._is_spoilt, self.target))
                if not spoilt:
                    return
                there = {i for i, given in self.placed.items() if node in given.nodes}
                improved |= self._try_again(sorted(there | spoilt), first=spoilt)
            if not improved:
                return

    def _try_again(self, indices: list[int], *, first: Collection[int]) -> bool:
        """Lay these jobs out anew; everything is as before unless their total cost falls."""
        before = {index: self.placed[index] for index in indices if index in self.placed}
        targets = {index: self.target[index] for index in indices}
        cost = sum(map(self.cost, indices))
        for index in before:
            self._give_back(index)
        self.lay_out(indices, first=first)
        if sum(map(self.cost, indices)) < cost - NO_GAIN:
            return True
        for index in indices:
            if index in self.placed:
                self._give_back(index)
        for index, given in before.items():
            self._take(index, given)
        self.target.update(targets)
        return False

    def _improve(self, index: int) -> bool:
        before, cost = self.placed.get(index), self.cost(index)
        if before is not None:
            self._give_back(index)
        self._place(index, len(self.candidates[index].costs) - 1)
        if self.cost(index) < cost - NO_GAIN:
            return True
        if index in self.placed:
            self._give_back(index)
        if before is not None:
            self._take(index, before)
        return False

    def _place(self, index: int, most: int) -> None:
        """The cheapest of: where it was, on one node, on several; or nowhere."""
        candidate = self.candidates[index]
        most = min(most, self._tenant_left(candidate.tenant))
        board, held = self.board, candidate.held
        options: list[Allocation | None] = []
        if held is not None and held.devices <= most and board.accepts(held):
            options.append(held)
        together = candidate.best_size(min(most, board.most_together()))
        if together:
            options.append(board.together(together))
        apart = candidate.best_size(min(most, board.most_apart()))
        if apart > together:
            options.append(board.apart(apart))
        found = [given for given in options if given is not None]
        if found:
            best = min(found, key=candidate.cost_of)
            if candidate.cost_of(best) < candidate.costs[0]:
                self._take(index, best)

    def _sizes(self, indices: Sequence[int]) -> list[int]:
        """The knapsack; tenants with a maximum are solved first, each as one large job."""
        capacity = int(self.board.free.sum())
        costs = [self.candidates[index].costs for index in indices]
        if not self.limits:
            return best_shares(costs, capacity).sizes(capacity)
        groups: dict[str, list[int]] = {}
        for place, index in enumerate(indices):
            tenant = self.candidates[index].tenant
            groups.setdefault(tenant if tenant in self.limits else "", []).append(place)
        tenants = [name for name in groups if name]
        free = groups.get("", [])
        shares = [
            best_shares(
                [costs[place] for place in groups[name]], min(self._tenant_left(name), capacity)
            )
            for name in tenants
        ]
        rows = [costs[place] for place in free] + [share.cost for share in shares]
        found = best_shares(rows, capacity).sizes(capacity)
        sizes = dict(zip(free, found, strict=False))
        for name, share, total in zip(tenants, shares, found[len(free) :], strict=True):
            sizes.update(zip(groups[name], share.sizes(total), strict=True))
        return [sizes[place] for place in range(len(indices))]

    def _keep(self, index: int, held: Allocation) -> None:
        """Leave a job where it is, if that is possible and as good as its size can be."""
        candidate = self.candidates[index]
        worth = candidate.cost_of(held) <= candidate.costs[held.devices] + NO_GAIN
        if worth and self.board.accepts(held):
            self._take(index, held)

    def _is_spoilt(self, index: int) -> bool:
        """Whether the knapsack promised the job more than it got."""
        promised = float(self.candidates[index].costs[self.target[index]])
        return self.cost(index) > promised + NO_GAIN

    def _tenant_left(self, tenant: str) -> int:
        if tenant not in self.limits:
            return np.iinfo(np.int64).max
        return max(self.limits[tenant] - self.used[tenant], 0)

    def _take(self, index: int, given: Allocation) -> None:
        self.board.take(given)
        self.placed[index] = given
        tenant = self.candidates[index].tenant
        if tenant in self.used:
            self.used[tenant] += given.devices

    def _give_back(self, index: int) -> None:
        given = self.placed.pop(index)
        self.board.give_back(given)
        tenant = self.candidates[index].tenant
        if tenant in self.used:
            self.used[tenant] -= given.devices
