"""Sum gradients over all members in fixed buckets, while the backward pass goes on.

Gradients are views of flat buckets, so nothing is copied before it is sent. A bucket leaves when
the last of its gradients is complete, and always after the one before it: everybody sends in the
same order, whatever the order in which gradients come. A failure is kept until the end of the step
and never escapes from `backward()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from modelyard.train.group import Disturbed, Group

#: Smaller ones pay for latency, larger ones leave too late to overlap.
BUCKET_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class _Bucket:
    parameters: list[torch.nn.Parameter]
    flat: torch.Tensor
    missing: int = 0


@dataclass(slots=True)
class AllReduce:
    """Gradients of one model, summed over the members of a group."""

    _buckets: list[_Bucket] = field(default_factory=list)
    _bucket_of: dict[torch.nn.Parameter, int] = field(default_factory=dict)
    _group: Group | None = None
    _works: list[dist.Work] = field(default_factory=list)
    _sending: bool = False
    _trouble: Disturbed | None = None

    @classmethod
    def of(cls, parameters: Iterable[torch.nn.Parameter]) -> AllReduce:
        """Buckets in the reverse order of the parameters: about that in which gradients come."""
        made = cls()
        for chosen in _grouped(reversed([one for one in parameters if one.requires_grad])):
            for parameter in chosen:
                made._bucket_of[parameter] = len(made._buckets)
                parameter.register_post_accumulate_grad_hook(made._arrived)
            made._buckets.append(_Bucket(chosen, torch.empty(0)))
        made.renew()
        return made

    def renew(self) -> None:
        """New memory for all gradients: a collective left behind may still write to the old."""
        for bucket in self._buckets:
            first = bucket.parameters[0]
            sizes = [parameter.numel() for parameter in bucket.parameters]
            bucket.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
            for parameter, part in zip(bucket.parameters, bucket.flat.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def begin(self, group: Group) -> None:
        """A step begins: gradients are zero, nothing is sent yet."""
        if self._trouble is not None or (self._works and group is not self._group):
            self.renew()
        else:
            for bucket in self._buckets:
                bucket.flat.zero_()
        self._group, self._works, self._trouble, self._sending = group, [], None, False

    def last_pass(self) -> None:
        """The next backward pass is the step's last: what it completes may leave."""
        self._sending = True
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def finish(self) -> None:
        """All gradients are sums over all members; `Disturbed` when that cannot be had."""
        assert self._group is not None
        for bucket in self._buckets:
            bucket.missing = 0
        self._send_complete()
        if self._trouble is None:
            try:
                self._group.finish(self._works)
            except Disturbed as error:
                self._trouble = error
        if self._trouble is not None:
            raise self._trouble
        self._works = []

    def _arrived(self, parameter: torch.Tensor) -> None:
        if not self._sending:
            return
        assert isinstance(parameter, torch.nn.Parameter)
        self._buckets[self._bucket_of[parameter]].missing -= 1
        self._send_complete()

    def _send_complete(self) -> None:
        assert self._group is not None
        if self._group.size == 1 or self._trouble is not None:
            return
        try:
            while (at := len(self._works)) < len(self._buckets):
                if self._buckets[at].missing > 0:
                    return
                self._works.append(self._group.sum_begin(self._buckets[at].flat))
        except Disturbed as error:
            self._trouble = error


def _grouped(parameters: Iterable[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    """Parameters of one type and device together, up to the size of a bucket."""
    chosen: list[torch.nn.Parameter] = []
    taken = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        differs = chosen and (parameter.dtype, parameter.device) != (
            chosen[0].dtype,
            chosen[0].device,
        )
        if chosen and (differs or taken + size > BUCKET_BYTES):
            yield chosen
            chosen, taken = [], 0
        chosen.append(parameter)
        taken += size
    if chosen:
        yield chosen
