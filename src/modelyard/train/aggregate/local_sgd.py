"""Rounds of local updates, then one exchange (Stich, 2019; McMahan et al., 2017).

A committed step is a round: its samples are divided over the members, each member's in turn into
`updates` pieces, and each piece makes an update of the member's own parameters with its own
optimizer. At the end of a round members sum how far they went, weighted by their samples, and all
have the same parameters again. So a step of `batch` samples means local batches of
batch / (members × updates).

Moments of optimizers stay where they are (as in DiLoCo): a joiner and a checkpoint get those of one
member. A round that is not committed is undone from a copy of parameters and optimizer states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from modelyard.train.aggregate.before import Before
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.aggregate.sums import Sums
from modelyard.train.compress.feedback import Compressor
from modelyard.train.group import Group


class Outer(Protocol):
    """What becomes of the mean of all members' changes; the same on every member."""

    def step(self, changes: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """By how much the parameters change, for the mean change of each."""

    def state(self) -> list[torch.Tensor]:
        """What a joiner needs."""

    def load(self, state: Sequence[torch.Tensor]) -> None:
        """Take over what `state` gave."""


class Average:
    """The mean itself."""

    def step(self, changes: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return changes

    def state(self) -> list[torch.Tensor]:
        return []

    def load(self, state: Sequence[torch.Tensor]) -> None:
        """There is nothing to remember."""


class Rounds:
    """Local updates with an outer step after each round."""

    local = True
    gradient_norm = None

    def __init__(
        self,
        *,
        updates: int = 8,
        outer: Outer | None = None,
        compressor: Compressor | None = None,
        name: str = "local-sgd",
    ) -> None:
        self.name = name
        self.updates = updates
        self._outer: Outer = outer or Average()
        self._sums = Sums(compressor)
        self._trained: Trained | None = None
        self._parameters: list[torch.nn.Parameter] = []
        self._before: Before | None = None
        self._changes: Sequence[torch.Tensor] = ()
        self._group: Group | None = None
        self._share: Share | None = None

    @property
    def bytes_sent(self) -> int:
        return self._sums.bytes_sent

    def attach(self, trained: Trained) -> None:
        self._trained, self._parameters = trained, trained.parameters()

    def meet(self, group: Group, behind: Sequence[int]) -> None:
        """Between rounds all have the same parameters."""

    def begin(self, group: Group, share: Share) -> None:
        assert self._trained is not None
        self.discard()
        self._group, self._share = group, share
        self._before = Before(self._parameters, self._trained.optimizer)
        self._trained.optimizer.zero_grad()

    def last_pass(self) -> None:
        """Nothing leaves before the round ends."""

    def piece_end(self) -> None:
        """A local update."""
        assert self._trained is not None
        assert self._share is not None
        self._trained.update(self._share.step)
        self._trained.optimizer.zero_grad()

    def finish(self) -> None:
        """The mean of all members' changes."""
        assert self._before is not None
        assert self._share is not None
        assert self._group is not None
        weight = self._share.samples / self._share.batch
        with torch.no_grad():
            changes = [
                (now - before) * weight
                for now, before in zip(self._parameters, self._before.values, strict=True)
            ]
        self._changes = self._sums.total(self._group, changes)

    def apply(self) -> None:
        """From the committed parameters by what the outer step makes of the mean."""
        assert self._before is not None
        self._sums.apply()
        with torch.no_grad():
            for parameter, before, change in zip(
                self._parameters,
                self._before.values,
                self._outer.step(self._changes),
                strict=True,
            ):
                parameter.copy_(before + change)
        self._before, self._changes = None, ()

    def discard(self) -> None:
        """Parameters and moments as they were before the round."""
        self._sums.discard()
        if self._before is not None:
            self._before.restore()
            self._before, self._changes = None, ()

    def state(self) -> Mapping[str, object]:
        return {"outer": self._outer.state(), "compression": self._sums.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._outer.load(state["outer"])
        self._sums.load(state["compression"])

    def gather(self, group: Group) -> None:
        """It is there."""

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """Parameters are the same everywhere; moments are this member's."""
        return state
