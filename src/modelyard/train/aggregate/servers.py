"""Parameter servers in step (BSP): each keeps the optimizer of some tensors (Li et al., 2014).

The first `count` members serve beside their own work. Tensors are divided among them so that they
have about the same number of bytes. In each step members push their gradients of a tensor to its
server; the server sums them, updates, and everybody pulls the new values. So moments take memory on
servers alone, and all of it happens before the vote: what is pulled waits for the commit.

Moments of a tensor are also on the member after its server, which makes the same updates: when a
server dies, its tensors lose nothing. When both die at once, the moments of their tensors begin
anew, and a warning says so; parameters are everywhere. When members change, tensors are divided
anew and moments move to where they are needed. A checkpoint gets all of them.

A tensor stays whole, because LAMB and Adafactor look at whole tensors; one that is larger than a
fair share makes its server's share larger.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from modelyard.train.aggregate.before import Before
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.compress.feedback import Compressor, Payload, State, for_joiner, size_of
from modelyard.train.group import Group
from modelyard.train.optimise.norms import squares_of
from modelyard.train.state import receive_state, send_state

_log = logging.getLogger(__name__)


def divided(sizes: Sequence[int], servers: int) -> list[int]:
    """For each tensor its server: the largest first, each to whoever has least (Graham, 1969)."""
    loads = [0] * servers
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda one: (-sizes[one], one)):
        chosen[index] = loads.index(min(loads))
        loads[chosen[index]] += sizes[index]
    return chosen


class Servers:
    """Gradients pushed to those who keep the optimizer, parameters pulled from them."""

    name = "servers"
    local = False
    updates = 1

    def __init__(self, *, count: int | None = None, compressor: Compressor | None = None) -> None:
        """`count` members serve; all of them when it is not given."""
        self._count = count
        self._compressor = compressor
        self._trained: Trained | None = None
        self._parameters: list[torch.nn.Parameter] = []
        self._group: Group | None = None
        self._share: Share | None = None
        #: by parameter, the rank of its server
        self._server_of: list[int] = []
        #: by parameter, what compression has dropped of its gradients
        self._states: list[State] = []
        self._after: list[State] | None = None
        self._before: Before | None = None
        self._pulled: list[torch.Tensor] = []
        #: on rank 0, moments of all tensors after a step that is to be kept
        self._moments: dict[int, Any] | None = None
        self.gradient_norm: float | None = None
        self.bytes_sent = 0

    def attach(self, trained: Trained) -> None:
        self._trained, self._parameters = trained, trained.parameters()

    # When members change.

    def meet(self, group: Group, _behind: Sequence[int], /) -> None:
        """Divide tensors anew, and bring their moments to where they are needed."""
        assert self._trained is not None
        states = self._trained.optimizer.state
        servers = min(self._count or group.size, group.size)
        server_of = divided([size_of((one,)) for one in self._parameters], servers)
        here = [len(states.get(one, ())) > 0 for one in self._parameters]
        table = torch.stack(group.gather(torch.tensor(here, dtype=torch.uint8))).bool()
        moves: dict[tuple[int, int], list[int]] = {}
        for index, server in enumerate(server_of):
            holders = table[:, index].nonzero().flatten().tolist()
            for rank in {server, _backup(server, group)}:
                if holders and rank not in holders:
                    moves.setdefault((holders[0], rank), []).append(index)
        # Everybody goes through all pairs in one order, so nobody waits in a circle.
        for (source, target), chosen in sorted(moves.items()):
            if group.rank == source:
                own = {index: states[self._parameters[index]] for index in chosen}
                group.patiently(partial(send_state, group, target, own))
            elif group.rank == target:
                for index, state in group.patiently(partial(receive_state, group, source)).items():
                    states[self._parameters[index]] = state
        lost = int((~table.any(0)).sum())
        if 0 < lost < len(self._parameters):
            _log.warning(
                "moments of %d tensors were lost with their servers: they begin anew", lost
            )
        for index, parameter in enumerate(self._parameters):
            if group.rank not in (server_of[index], _backup(server_of[index], group)):
                states.pop(parameter, None)
        self._server_of = server_of

    # A step.

    def begin(self, group: Group, share: Share) -> None:
        assert self._trained is not None
        self.discard()
        self._group, self._share, self._moments = group, share, None
        self._trained.optimizer.zero_grad()

    def last_pass(self) -> None:
        """Gradients leave when all are there."""

    def piece_end(self) -> None:
        """The sum is what counts."""

    def finish(self) -> None:
        """Push, update where the moments are, pull."""
        assert self._group is not None
        assert self._trained is not None
        assert self._share is not None
        group = self._group
        sums = group.patiently(partial(self._push, group))
        held = [self._parameters[index] for index in sums]
        self._before = Before(held, self._trained.optimizer)
        self.gradient_norm = self._norm(group, sums)
        for index, parameter in enumerate(self._parameters):
            parameter.grad = sums.get(index)
        self._trained.update(self._share.step)
        self._pulled = [one.detach().clone() for one in self._parameters]
        if group.size > 1:
            group.finish(
                [
                    group.broadcast_begin(value, server)
                    for value, server in zip(self._pulled, self._server_of, strict=True)
                ]
            )
            self.bytes_sent += size_of(tuple(self._pulled[index] for index in self._served(group)))
        if self._share.kept:
            self.gather(group)

    def apply(self) -> None:
        """What was pulled holds."""
        with torch.no_grad():
            for parameter, value in zip(self._parameters, self._pulled, strict=True):
                parameter.copy_(value)
        self._before, self._pulled = None, []
        if self._after is not None:
            self._states, self._after = self._after, None

    def discard(self) -> None:
        """What servers have updated goes back."""
        if self._before is not None:
            self._before.restore()
        self._before, self._pulled, self._after = None, [], None

    def state(self) -> Mapping[str, object]:
        """Moments travel with the optimizer's own state, and to servers when members meet."""
        return {"compression": [for_joiner(state) for state in self._states]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._states, self._after = [dict(one) for one in state["compression"]], None

    def gather(self, group: Group) -> None:
        """All moments on rank 0, as they are now."""
        assert self._trained is not None
        states = self._trained.optimizer.state
        own = {index: states[self._parameters[index]] for index in self._served(group)}
        if group.rank > 0:
            if own:
                group.patiently(partial(send_state, group, 0, own))
            return
        self._moments = own
        for rank in sorted({server for server in self._server_of if server > 0}):
            self._moments.update(group.patiently(partial(receive_state, group, rank)))

    def kept(self, state: dict[str, object]) -> dict[str, object]:
        """Moments of all tensors, where members met for it."""
        optimizer = state["optimizer"]
        if self._moments is None or not isinstance(optimizer, Mapping):
            return state
        assert self._trained is not None
        groups = self._trained.optimizer.param_groups
        order = {one: at for at, one in enumerate(one for each in groups for one in each["params"])}
        moments = {order[self._parameters[at]]: one for at, one in self._moments.items()}
        return {**state, "optimizer": {**optimizer, "state": dict(sorted(moments.items()))}}

    # Parts of a step.

    def _served(self, group: Group) -> list[int]:
        return [index for index, server in enumerate(self._server_of) if server == group.rank]

    def _push(self, group: Group) -> dict[int, torch.Tensor]:
        """Sums of the gradients whose moments are here, by parameter; call it patiently."""
        payloads = self._encoded()
        outgoing = [
            (part, server)
            for payload, server in zip(payloads, self._server_of, strict=True)
            for part in payload
            if server != group.rank
        ]
        received = {
            (index, rank): tuple(torch.empty_like(part) for part in payloads[index])
            for index in self._served(group)
            for rank in range(group.size)
            if rank != group.rank
        }
        incoming = [(part, rank) for (_, rank), parts in received.items() for part in parts]
        group.swap(outgoing, incoming)
        self.bytes_sent += size_of(tuple(part for part, _ in outgoing))
        sums: dict[int, torch.Tensor] = {}
        for index in self._served(group):
            sums[index] = torch.zeros_like(self._parameters[index])
            for rank in range(group.size):
                payload = payloads[index] if rank == group.rank else received[index, rank]
                sums[index] += self._decoded(payload, index)
        if group.size > 1:
            sums.update(self._backed_up(group, sums))
        return sums

    def _backed_up(self, group: Group, sums: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Hand one's own sums to the next member, and take those of the one before."""
        before = (group.rank - 1) % group.size
        theirs = {
            index: torch.empty_like(self._parameters[index])
            for index, server in enumerate(self._server_of)
            if server == before
        }
        outgoing = [(one, _backup(group.rank, group)) for one in sums.values()]
        group.swap(outgoing, [(one, before) for one in theirs.values()])
        self.bytes_sent += size_of(tuple(sums.values()))
        return theirs

    def _encoded(self) -> list[Payload]:
        gradients = [
            one.grad if one.grad is not None else torch.zeros_like(one) for one in self._parameters
        ]
        if self._compressor is None:
            assert self._share is not None
            for gradient in gradients:
                self._share.own(gradient)
            return [(gradient.contiguous(),) for gradient in gradients]
        states = self._states or [self._compressor.start(one.shape) for one in gradients]
        encoded = [
            self._compressor.encode(gradient, state)
            for gradient, state in zip(gradients, states, strict=True)
        ]
        self._after = [one.state for one in encoded]
        return [one.payload for one in encoded]

    def _decoded(self, payload: Payload, index: int) -> torch.Tensor:
        if self._compressor is None:
            return payload[0]
        return self._compressor.decode(payload, self._parameters[index].shape)

    def _norm(self, group: Group, sums: Mapping[int, torch.Tensor]) -> float:
        """Of all gradients together, of which nobody has all."""
        own = squares_of(sums[index] for index in self._served(group))
        total = torch.tensor(own, dtype=torch.float64)
        if group.size > 1:
            group.finish([group.sum_begin(total)])
        return math.sqrt(float(total))


def _backup(server: int, group: Group) -> int:
    return (server + 1) % group.size
