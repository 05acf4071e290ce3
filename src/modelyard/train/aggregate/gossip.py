"""Decentralised SGD (D-PSGD, Lian et al., 2017): members average with neighbours, not with all.

    x_i ← Σ_j W_ij x_j − rate · g_i(x_i)

W is doubly stochastic, so the mean of all parameters moves as with SGD, while members differ by as
much as the graph mixes slowly. Every graph here looks the same from each member: it receives from
those `hop` ranks before it and sends to those `hop` ranks after it, with equal weights, and so rows
and columns sum to one whatever the number of members.

| graph         | neighbours of a member of n     | mixes                                          |
|---------------|---------------------------------|------------------------------------------------|
| `ring`        | one before, one after           | slowly: the gap shrinks as 1/n²                |
| `exponential` | 1, 2, 4 … ranks before          | the gap shrinks as 1/log n (Ying et al., 2021) |
| `one-peer`    | one of these, another each step | as `exponential`, for one message a step       |

Members' parameters differ: a joiner begins with the mean of those who are there, and a checkpoint
keeps the mean over all. Moments of optimizers stay where they are; a joiner gets those of one
member. What a lost member was ahead of the mean is lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial

import torch

from modelyard.train.aggregate.before import Before
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.compress.feedback import size_of
from modelyard.train.group import Group


class Graph(StrEnum):
    """Who averages with whom."""

    RING = "ring"
    EXPONENTIAL = "exponential"
    ONE_PEER = "one-peer"


def hops(graph: Graph, size: int, step: int) -> list[int]:
    """How many ranks before a member those are from whom it receives at a step."""
    if size == 1:
        return []
    if graph is Graph.RING:
        return sorted({1, size - 1})
    powers = [1 << power for power in range((size - 1).bit_length())]
    return powers if graph is Graph.EXPONENTIAL else [powers[step % len(powers)]]


class Gossip:
    """Parameters that are averaged with neighbours, updates that are one's own."""

    name = "decentralised"
    local = True
    updates = 1
    gradient_norm = None

    def __init__(self, *, graph: Graph = Graph.EXPONENTIAL) -> None:
        self._graph = graph
        self._trained: Trained | None = None
        self._parameters: list[torch.nn.Parameter] = []
        self._group: Group | None = None
        self._share: Share | None = None
        self._mixed: torch.Tensor | None = None
        #: only where the update was made before the vote, because the step is to be kept
        self._before: Before | None = None
        self._mean: torch.Tensor | None = None
        self.bytes_sent = 0

    def attach(self, trained: Trained) -> None:
        self._trained, self._parameters = trained, trained.parameters()

    def meet(self, group: Group, behind: Sequence[int]) -> None:
        """Those who have just come begin with the mean of the others."""
        present = group.size - len(behind)
        if not behind or present < 1:
            return
        flat = self._flat()
        if group.rank in behind:
            flat.zero_()
        group.finish([group.sum_begin(flat)])
        if group.rank in behind:
            self._fill(flat / present)

    def begin(self, group: Group, share: Share) -> None:
        assert self._trained is not None
        self.discard()
        self._group, self._share, self._mean = group, share, None
        self._trained.optimizer.zero_grad()

    def last_pass(self) -> None:
        """Gradients do not travel."""

    def piece_end(self) -> None:
        """The update waits for the commit."""

    def finish(self) -> None:
        """The mean of one's own parameters and the neighbours'."""
        assert self._group is not None
        assert self._share is not None
        group, own = self._group, self._flat()
        chosen = hops(self._graph, group.size, self._share.step)
        incoming = [torch.empty_like(own) for _ in chosen]
        if chosen:
            swap = partial(
                group.swap,
                [(own, (group.rank + hop) % group.size) for hop in chosen],
                [
                    (tensor, (group.rank - hop) % group.size)
                    for tensor, hop in zip(incoming, chosen, strict=True)
                ],
            )
            group.patiently(swap)
            self.bytes_sent += size_of((own,)) * len(chosen)
        self._mixed = torch.stack([own, *incoming]).mean(0)
        if self._share.kept:
            self._find_mean(group, self._share.step)

    def _find_mean(self, group: Group, step: int) -> None:
        """What is kept is the mean after the update, so that comes before the vote."""
        assert self._trained is not None
        assert self._mixed is not None
        self._before = Before(self._parameters, self._trained.optimizer)
        self._fill(self._mixed)
        self._trained.update(step)
        total = self._flat()
        if group.size > 1:
            group.finish([group.sum_begin(total)])
            self.bytes_sent += size_of((total,))
        self._mean = total / group.size

    def apply(self) -> None:
        """One's own update, from the averaged parameters."""
        assert self._share is not None
        assert self._trained is not None
        assert self._mixed is not None
        if self._before is None:
            self._fill(self._mixed)
            self._trained.update(self._share.step)
        self._mixed, self._before = None, None

    def discard(self) -> None:
        """Parameters have changed only where they were about to be kept."""
        if self._before is not None:
            self._before.restore()
        self._mixed, self._before = None, None

    def state(self) -> Mapping[str, object]:
        return {}

    def load(self, state: Mapping[str, object]) -> None:
        """There is nothing to remember."""

    def gather(self, group: Group) -> None:
        """The mean is everywhere."""

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """The mean of all members' parameters, where they met for it."""
        if self._mean is None:
            return state
        parts = self._mean.split([one.numel() for one in self._parameters])
        means = {
            own.data_ptr(): part.view_as(own)
            for own, part in zip(self._parameters, parts, strict=True)
        }
        model = state["model"]
        assert isinstance(model, Mapping)
        # Tied parameters have several names and one place.
        named = {name: means.get(one.data_ptr(), one) for name, one in model.items()}
        return {**state, "model": named}

    def _flat(self) -> torch.Tensor:
        return torch.cat([one.detach().reshape(-1) for one in self._parameters])

    def _fill(self, flat: torch.Tensor) -> None:
        sizes = [one.numel() for one in self._parameters]
        with torch.no_grad():
            for parameter, part in zip(self._parameters, flat.split(sizes), strict=True):
                parameter.copy_(part.view_as(parameter))
