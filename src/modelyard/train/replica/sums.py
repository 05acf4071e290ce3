"""Gradients of local shards summed over replicas, each place with its like of the other replicas.

torch makes the gradients itself (FSDP2 reduces them within the replica), so they are copied into
flat buckets after the last backward pass, summed, and copied back. A failure of the sum is kept
until all places of the replica have told each other; then the step is over for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.distributed.tensor import DTensor

from modelyard.train.aggregate.all_reduce import grouped
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.group import Disturbed, Group
from modelyard.train.inside import Inside
from modelyard.train.optimise.norms import squares_of
from modelyard.train.replica.ownership import local

#: told by the places of a replica when they meet after the sum
_FAILED = 1.0


class ShardSums:
    """All-reduce, for replicas of several processes."""

    name = "all-reduce"
    local = False
    updates = 1

    def __init__(
        self,
        inside: Inside,
        *,
        owned: Callable[[str, torch.Tensor], bool],
        complete: Callable[[], None],
    ) -> None:
        """`owned` says for which parameters this place answers.

        `complete` is called before the sum, when gradients that several places make parts of have
        to be put together within the replica.
        """
        self._inside = inside
        self._owned = owned
        self._complete = complete
        self._trained: Trained | None = None
        self._parameters: list[torch.nn.Parameter] = []
        #: by parameter, whether this place answers for it
        self._answers: list[bool] = []
        self._group: Group | None = None
        self._share: Share | None = None
        self.bytes_sent = 0
        self.gradient_norm: float | None = None

    def attach(self, trained: Trained) -> None:
        """Train this."""
        self._trained = trained
        named = [(name, one) for name, one in trained.model.named_parameters() if one.requires_grad]
        self._parameters = [one for _, one in named]
        self._answers = [self._owned(name, one) for name, one in named]

    def meet(self, group: Group, behind: Sequence[int]) -> None:
        """All have the same already."""

    def begin(self, group: Group, share: Share) -> None:
        """A step begins without gradients."""
        self._group, self._share = group, share
        for parameter in self._parameters:
            parameter.grad = None

    def last_pass(self) -> None:
        """Nothing is sent before all is there."""

    def piece_end(self) -> None:
        """The sum is what counts."""

    def finish(self) -> None:
        """All gradients are sums over all replicas; `Disturbed`, on all places or on none."""
        assert self._share is not None
        gradients = self._complete_gradients()
        owned = [one for one, mine in zip(gradients, self._answers, strict=True) if mine]
        for gradient in owned:
            self._share.own(gradient)
        trouble: Disturbed | None = None
        try:
            self._sum(gradients)
        except Disturbed as error:
            trouble = error
        own = 0.0 if trouble else squares_of(owned)
        failures, total = self._inside.summed((_FAILED if trouble else 0.0, own))
        if failures:
            raise trouble or Disturbed("another process of the replica could not sum its gradients")
        self.gradient_norm = math.sqrt(total)

    def apply(self) -> None:
        """Every replica makes the same step of the same sums."""
        assert self._trained is not None
        assert self._share is not None
        self._trained.update(self._share.step)

    def discard(self) -> None:
        """Parameters have not changed; gradients are made anew."""

    def state(self) -> Mapping[str, object]:
        return {}

    def load(self, state: Mapping[str, object]) -> None:
        """There is nothing but parameters and moments."""

    def gather(self, group: Group) -> None:
        """It is there."""

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """Places keep what they own."""
        return state

    def _complete_gradients(self) -> list[torch.Tensor]:
        """What this place has of the replica's gradients, by parameter."""
        for parameter in self._parameters:
            parameter.grad = _as_parameter(parameter.grad, parameter)
        self._complete()
        # The part of a tensor is then its memory, and not something to be differentiated.
        with torch.no_grad():
            return [local(one.grad) for one in self._parameters if one.grad is not None]

    def _sum(self, gradients: Sequence[torch.Tensor]) -> None:
        assert self._group is not None
        if self._group.size == 1:
            return
        buckets = list(grouped(gradients))
        # New memory each time: a collective left behind may still write to the old.
        flats = [torch.cat([one.reshape(-1) for one in bucket]) for bucket in buckets]
        self._group.finish([self._group.sum_begin(flat) for flat in flats])
        self.bytes_sent += sum(flat.numel() * flat.element_size() for flat in flats)
        for bucket, flat in zip(buckets, flats, strict=True):
            for one, part in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
                one.copy_(part.view_as(one))


def _as_parameter(gradient: torch.Tensor | None, parameter: torch.nn.Parameter) -> torch.Tensor:
    """A gradient that is divided as its parameter is."""
    if gradient is None:
        # Nobody had a sample, or this part was not used.
        return torch.zeros_like(parameter)
    if (
        isinstance(gradient, DTensor)
        and isinstance(parameter, DTensor)
        and gradient.placements != parameter.placements
    ):
        # torch leaves some gradients of cut tables whole, or as parts of a sum.
        return gradient.redistribute(placements=parameter.placements)
    return gradient
