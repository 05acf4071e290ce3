"""What every way to train together does between the samples of a step and its commit.

    attach                    once: what is trained
    meet                      members have changed: those behind have got `state` from a peer
    begin                     a step: forget what an uncommitted one left
      last_pass, piece_end    around the backward passes of each local update
    finish                    exchange with the others, change nothing that `discard` cannot undo
    apply or discard          the step was committed, or it comes again

Nothing that is committed may depend on what happens after the vote: `apply` talks to nobody, so a
worker that learns late of a commit can still follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from modelyard.train.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What is trained, and what makes a step of the gradients that its parameters hold."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    update: Callable[[int], object]

    def parameters(self) -> list[torch.nn.Parameter]:
        """Those that are trained, in the model's order."""
        return [one for one in self.model.parameters() if one.requires_grad]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One member's part of a step."""

    step: int
    #: of this member, and of all together
    samples: int
    batch: int
    #: whether `state` will be asked for after this step, to be kept
    kept: bool = False
    #: shown each of the member's own gradients, whole and before it meets those of others, where
    #: a way has them so
    own: Callable[[torch.Tensor], None] = lambda _: None


class Aggregation(Protocol):
    """One way to train together."""

    @property
    def name(self) -> str:
        """What people write."""

    @property
    def local(self) -> bool:
        """Whether gradients are means over a member's own samples, and not over the step's."""

    @property
    def updates(self) -> int:
        """Local updates of a step: a member's samples come in so many pieces."""

    @property
    def gradient_norm(self) -> float | None:
        """Of the gradients of all members, summed, from `finish` on; None where nobody has it."""

    @property
    def bytes_sent(self) -> int:
        """What this member has handed to the network so far, once for each payload."""

    def attach(self, trained: Trained) -> None:
        """Train this."""

    def meet(self, group: Group, behind: Sequence[int], /) -> None:
        """Members have changed; those of rank `behind` have just got a peer's state."""

    def begin(self, group: Group, share: Share) -> None:
        """A step begins."""

    def last_pass(self) -> None:
        """The next backward pass is the last of its piece."""

    def piece_end(self) -> None:
        """All gradients of a piece are there."""

    def finish(self) -> None:
        """Exchange what there is to exchange; `Disturbed` when the others cannot be reached."""

    def apply(self) -> None:
        """The step was committed."""

    def discard(self) -> None:
        """Back to the last committed step; nothing happens where that is."""

    def state(self) -> Mapping[str, object]:
        """What a joiner and a checkpoint need beside parameters and optimizer."""

    def load(self, state: Mapping[str, object]) -> None:
        """Take over what `state` gave."""

    def gather(self, group: Group) -> None:
        """Have on the first member, who was another at the last step, all that `kept` gives."""

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """What is kept of "model" and "optimizer" where one member alone does not have all."""
