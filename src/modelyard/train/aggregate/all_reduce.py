"""Sum gradients over all members in fixed buckets, while the backward pass goes on.

Gradients are views of flat buckets, so nothing is copied before it is sent. A bucket leaves when
the last of its gradients is complete, and always after the one before it: everybody sends in the
same order, whatever the order in which gradients come. A failure is kept until the end of the step
and never escapes from `backward()`.

With compression the sum waits for the whole gradient: what was dropped before has to be added
first, and factors are summed in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.aggregate.sums import Sums
from modelyard.train.compress.feedback import Compressor
from modelyard.train.group import Disturbed, Group
from modelyard.train.optimise.norms import square_of, squares_of

#: Smaller ones pay for latency, larger ones leave too late to overlap.
BUCKET_BYTES = 8 * 1024 * 1024

_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


@dataclass(slots=True)
class _Bucket:
    parameters: list[torch.nn.Parameter]
    flat: torch.Tensor
    missing: int = 0


class AllReduce:
    """Gradients of one model, summed over the members of a group."""

    name = "all-reduce"
    local = False
    updates = 1

    def __init__(self, compressor: Compressor | None = None) -> None:
        self._sums = Sums(compressor)
        #: factors are made of matrices; everything else works on whole buckets
        self._by_matrix = compressor is not None and compressor.name == "power-sgd"
        self._trained: Trained | None = None
        self._buckets: list[_Bucket] = []
        self._bucket_of: dict[torch.nn.Parameter, int] = {}
        self._group: Group | None = None
        self._share: Share | None = None
        self._works: list[dist.Work] = []
        self._sending = False
        self._trouble: Disturbed | None = None
        self._bytes_sent = 0
        self.gradient_norm: float | None = None

    @property
    def bytes_sent(self) -> int:
        return self._bytes_sent + self._sums.bytes_sent

    def attach(self, trained: Trained) -> None:
        """Buckets in the reverse order of the parameters: about that in which gradients come."""
        self._trained = trained
        for chosen in grouped(reversed(trained.parameters())):
            for parameter in chosen:
                self._bucket_of[parameter] = len(self._buckets)
                parameter.register_post_accumulate_grad_hook(self._arrived)
            self._buckets.append(_Bucket(chosen, torch.empty(0)))
        self.renew()

    def meet(self, group: Group, behind: Sequence[int]) -> None:
        """All have the same already."""

    def renew(self) -> None:
        """New memory for all gradients: a collective left behind may still write to the old."""
        for bucket in self._buckets:
            first = bucket.parameters[0]
            sizes = [parameter.numel() for parameter in bucket.parameters]
            bucket.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
            for parameter, part in zip(bucket.parameters, bucket.flat.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def begin(self, group: Group, share: Share) -> None:
        """A step begins: gradients are zero, nothing is sent yet."""
        if self._trouble is not None or (self._works and group is not self._group):
            self.renew()
        else:
            for bucket in self._buckets:
                bucket.flat.zero_()
        self._group, self._works, self._trouble, self._sending = group, [], None, False
        self._share = share

    def last_pass(self) -> None:
        """The next backward pass is the step's last: what it completes may leave."""
        self._sending = True
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def piece_end(self) -> None:
        """The sum is what counts."""

    def finish(self) -> None:
        """All gradients are sums over all members; `Disturbed` when that cannot be had."""
        assert self._group is not None
        if self._sums.compressed:
            self._finish_compressed(self._group)
            square = squares_of(bucket.flat for bucket in self._buckets)
        else:
            square = self._finish_buckets(self._group)
        self.gradient_norm = math.sqrt(square)

    def _finish_buckets(self, group: Group) -> float:
        """The squared norm of the sums: of each bucket while those after it are on the way."""
        for bucket in self._buckets:
            bucket.missing = 0
        self._send_complete()
        square = 0.0
        try:
            if self._trouble is not None:
                raise self._trouble
            for bucket, work in zip_longest(self._buckets, self._works):
                group.finish([work] if work is not None else [])
                square += square_of(bucket.flat)
        except Disturbed as error:
            self._trouble = error
            raise
        self._works = []
        return square

    def apply(self) -> None:
        """Every member makes the same step of the same sums."""
        assert self._trained is not None
        assert self._share is not None
        self._sums.apply()
        self._trained.update(self._share.step)

    def discard(self) -> None:
        """Parameters have not changed; gradients are made anew."""
        self._sums.discard()

    def state(self) -> Mapping[str, object]:
        return {"compression": self._sums.state()} if self._sums.compressed else {}

    def load(self, state: Mapping[str, Any]) -> None:
        self._sums.load(state.get("compression", []))

    def gather(self, group: Group) -> None:
        """It is there."""

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """Every member has everything."""
        return state

    def _finish_compressed(self, group: Group) -> None:
        gradients = [bucket.flat for bucket in self._buckets]
        if self._by_matrix:
            gradients = [
                parameter.grad
                for bucket in self._buckets
                for parameter in bucket.parameters
                if parameter.grad is not None
            ]
        for gradient, total in zip(gradients, self._sums.total(group, gradients), strict=True):
            gradient.copy_(total)

    def _arrived(self, parameter: torch.Tensor) -> None:
        if not self._sending or self._sums.compressed:
            return
        assert isinstance(parameter, torch.nn.Parameter)
        self._buckets[self._bucket_of[parameter]].missing -= 1
        self._send_complete()

    def _send_complete(self) -> None:
        assert self._group is not None
        assert self._share is not None
        if self._group.size == 1 or self._trouble is not None:
            return
        try:
            while (at := len(self._works)) < len(self._buckets):
                if self._buckets[at].missing > 0:
                    return
                flat = self._buckets[at].flat
                self._share.own(flat)
                self._works.append(self._group.sum_begin(flat))
                self._bytes_sent += flat.numel() * flat.element_size()
        except Disturbed as error:
            self._trouble = error


def grouped(tensors: Iterable[_Tensor]) -> Iterable[list[_Tensor]]:
    """Tensors of one type and device together, up to the size of a bucket."""
    chosen: list[_Tensor] = []
    taken = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        differs = chosen and (tensor.dtype, tensor.device) != (chosen[0].dtype, chosen[0].device)
        if chosen and (differs or taken + size > BUCKET_BYTES):
            yield chosen
            chosen, taken = [], 0
        chosen.append(tensor)
        taken += size
    if chosen:
        yield chosen
