"""The members of one generation, connected: collectives that end when a member does.

A gloo group among living processes takes milliseconds to build, so it is never repaired: each
generation has a new one. A killed peer makes a collective fail at once; a peer that hangs does not,
so everything is waited for together with the member's `disturbed` event, and a group that has
failed is left behind, with the memory that it may still write to.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from modelyard.train.conductor.messages import Generation

_Result = TypeVar("_Result")

#: The longest that members may come to a collective after each other. Who is too late for the
#: others is the conductor's to judge, which knows how long steps take; this ends what nobody waits
#: for any more.
LONGEST_SECONDS = 3_600.0

#: Groups that have failed, and what they had in flight. That may be for a peer that has left or
#: hangs, and whoever lets go of a group waits until all of its work has ended: so nobody does
#: before. When that happens, on a thread of the group's own, nothing there may let go of the group
#: as the last one: it would wait for itself to end, and the process would be aborted.
_left_behind: list[tuple[dist.ProcessGroup, Sequence[Any]]] = []


def _leave_behind(group: dist.ProcessGroup, flying: Sequence[Any]) -> None:
    """Keep a group that has failed, and let go of those that have nothing in flight any more."""
    others = [one for one in _left_behind if one[0] is not group]
    old = [one for one in others if all(future.done() for future in one[1])]
    _left_behind[:] = [one for one in others if one not in old]
    _left_behind.append((group, flying))
    if old:
        # Threads and connections end here, and nobody waits for that.
        threading.Thread(target=old.clear, name="left-behind", daemon=True).start()


class Disturbed(Exception):
    """The generation is over, or this group has failed: the step cannot be finished."""


class Group:
    """Rank and size of this worker in a generation, and sums over all of its members."""

    def __init__(
        self, backend: dist.ProcessGroup, rank: int, size: int, disturbed: threading.Event
    ) -> None:
        self._backend = backend
        self.rank = rank
        self.size = size
        self._disturbed = disturbed
        #: futures of what was begun and may not have ended
        self._flying: deque[Any] = deque()
        #: set by whatever ends a wait: finished work, or a disturbance
        self._awake = threading.Event()

    def wake(self) -> None:
        """Let whoever waits look around: something has happened."""
        self._awake.set()

    def sum_begin(self, tensor: torch.Tensor) -> dist.Work:
        """Start summing a tensor over all members, in place."""
        return self._begin(lambda: self._backend.allreduce([tensor]))

    def reduce_begin(self, tensor: torch.Tensor, root: int) -> dist.Work:
        """Start summing a tensor over all members; only `root` has the sum, others have a mess."""
        options = dist.ReduceOptions()
        options.rootRank = root
        return self._begin(lambda: self._backend.reduce([tensor], options))

    def broadcast_begin(self, tensor: torch.Tensor, root: int) -> dist.Work:
        """Start filling a tensor with that of `root`."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._begin(lambda: self._backend.broadcast([tensor], options))

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all members, all of one shape, in the order of their ranks."""
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        if self.size == 1:
            return [tensor]
        self.finish([self._begin(lambda: self._backend.allgather([found], [tensor]))])
        return found

    def swap(
        self,
        outgoing: Sequence[tuple[torch.Tensor, int]],
        incoming: Sequence[tuple[torch.Tensor, int]],
    ) -> None:
        """Send and receive tensors at once; call it within `patiently`."""
        works = [self._backend.send([tensor], to, 0) for tensor, to in outgoing]
        works += [self._backend.recv([tensor], source, 0) for tensor, source in incoming]
        for work in works:
            work.wait()

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Hand a tensor to a peer; call it within `patiently`, for it may be stuck."""
        self._backend.send([tensor], to, 0).wait()

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        """Fill a tensor with what a peer sends; call it within `patiently`."""
        self._backend.recv([tensor], source, 0).wait()

    def patiently(self, call: Callable[[], _Result]) -> _Result:
        """The result of a call that waits for peers; `Disturbed` when it cannot end any more."""
        try:
            return _abandonable(call, self._disturbed)
        except Disturbed:
            self._fail()
            raise

    def finish(self, works: list[dist.Work]) -> None:
        """Wait until all of it is done; `Disturbed` as soon as that cannot happen any more."""
        for work in works:
            if self.size == 1:
                continue
            future, awake = work.get_future(), self._awake
            # The callback must not hold the group: see `_left_behind`.
            future.add_done_callback(lambda _, awake=awake: awake.set())
            # The future, not the work, is sure to be done when its callback is called.
            while not future.done():
                if self._disturbed.is_set():
                    self._fail()
                    raise Disturbed("the members have changed")
                awake.wait()
                awake.clear()
            try:
                work.wait()
            except RuntimeError as error:
                self._fail()
                raise Disturbed(str(error)) from error

    def _begin(self, call: Callable[[], dist.Work]) -> dist.Work:
        try:
            work = call()
        except RuntimeError as error:
            self._fail()
            raise Disturbed(str(error)) from error
        while self._flying and self._flying[0].done():
            self._flying.popleft()
        self._flying.append(work.get_future())
        return work

    def _fail(self) -> None:
        _leave_behind(self._backend, tuple(self._flying))


def open_store(host: str) -> dist.TCPStore:
    """A store of this worker's own, through which groups that it leads find each other."""
    return dist.TCPStore(
        host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10)
    )


def connect(
    generation: Generation,
    worker: str,
    own_store: dist.Store,
    disturbed: threading.Event,
    *,
    place: int = 0,
) -> Group:
    """The group of a generation; `Disturbed` when a member is lost meanwhile.

    Members that are several processes have a group for each `place`: the first processes of all
    members are connected with each other, and so are the second ones.
    """
    names = [peer.worker for peer in generation.peers]
    rank, size = names.index(worker), len(names)
    leader = generation.peers[0]

    def build() -> dist.ProcessGroup:
        # A connection for each generation: while one waits for a peer that is dead, and nobody can
        # end that wait, nothing else can be asked through the same connection.
        if rank == 0 and place == 0:
            store = own_store.clone()
        else:
            store = dist.TCPStore(
                leader.host,
                leader.store_port,
                is_master=False,
                wait_for_workers=False,
                timeout=timedelta(seconds=10),
            )
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=LONGEST_SECONDS)
        device = dist.ProcessGroupGloo.create_device(hostname=generation.peers[rank].host)
        options._devices = [device]
        named = dist.PrefixStore(f"generation-{generation.number}-{place}", store)
        return dist.ProcessGroupGloo(named, rank, size, options)

    backend = _abandonable(build, disturbed)
    return Group(backend, rank, size, disturbed)


def _abandonable(call: Callable[[], _Result], disturbed: threading.Event) -> _Result:
    """The result of a call that may be stuck; it is left to itself when a disturbance comes."""
    results: list[_Result] = []
    errors: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=run, name="connect", daemon=True).start()
    # Both ends matter and an event can be waited for alone; building takes milliseconds.
    while not ended.wait(0.005):
        if disturbed.is_set():
            raise Disturbed("the members have changed")
    if errors:
        raise Disturbed(str(errors[0])) from errors[0]
    return results[0]
