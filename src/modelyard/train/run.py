"""The run of one worker: steps that are committed together or repeated, whoever dies or joins.

    with elastic(address, token=…, worker=…, data_size=…, batch=…) as run:
        run.train(model, optimizer)
        for step in run.steps():
            for chosen in step.microbatches():
                step.backward(loss_of(model, chosen), samples=len(chosen))
            step.commit()

A step that is not committed comes again with the same samples, divided among those who are left.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import torch

from modelyard.train.aggregate.all_reduce import AllReduce
from modelyard.train.conductor.messages import Generation, Hello, Next, Phase, Vote
from modelyard.train.group import Disturbed, Group, connect, open_store
from modelyard.train.member import Dismissal, Member, Standing
from modelyard.train.order import Positions, samples
from modelyard.train.state import receive_state, send_state


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What every worker of a job knows."""

    address: tuple[str, int]
    token: str
    worker: str
    #: samples in the data set, of a step, and of one forward pass
    data_size: int
    batch: int
    micro_batch: int
    seed: int = 0
    host: str = "127.0.0.1"
    beat_seconds: float = 0.1


class Run:
    """One worker's part in a job."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.applied = -1
        self._pending = -1
        self._lineage = 0
        self._store = open_store(settings.host)
        self._member = Member(
            settings.address,
            hello=Hello(
                settings.token,
                settings.worker,
                socket.gethostname(),
                settings.host,
                self._store.port,
                -1,
            ),
            standing=lambda: Standing(self.applied, self._pending, self._lineage),
            beat_seconds=settings.beat_seconds,
        )
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._update: Callable[[int], object] | None = None
        self._reducer: AllReduce | None = None
        self._group: Group | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._member.__exit__(kind, error, traceback)

    def train(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        update: Callable[[int], object] | None = None,
        applied: int = -1,
        lineage: int = 0,
    ) -> None:
        """What is trained; a restored state says how many steps it has seen, of which lineage.

        `update` applies summed gradients at a step, and does the same on every member;
        `optimizer.step()` when it is not given.
        """
        self._model, self._optimizer = model, optimizer
        self._update = update or (lambda _: optimizer.step())
        self.applied, self._lineage = applied, lineage
        self._reducer = AllReduce.of(model.parameters())

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        state: object,
        *,
        update: Callable[[int], object] | None = None,
        applied: int,
    ) -> None:
        """Train on from what `state` gave, after so many steps."""
        assert isinstance(state, dict)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        self.train(model, optimizer, update=update, applied=applied, lineage=state["lineage"])

    def state(self) -> dict[str, object]:
        """Everything that a worker needs to go on from here."""
        assert self._model is not None
        assert self._optimizer is not None
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "lineage": self._lineage,
        }

    def leave(self) -> None:
        """Take part in the step in flight, and in no other; `steps` ends then."""
        self._member.leave()

    def steps(self) -> Iterator[Step]:
        """Every step in turn, until the job is done; one that failed comes again."""
        assert self._reducer is not None, "say what is trained first"
        self._member.__enter__()
        while True:
            try:
                generation = self._member.next_generation()
            except Dismissal:
                return
            try:
                group = self._join(generation)
                yield from self._generation(generation, group)
            except Disturbed as error:
                self._member.trouble(str(error))
                continue
            except StopRun:
                return

    def _generation(self, generation: Generation, group: Group) -> Iterator[Step]:
        number, position = generation.step, generation.position
        while True:
            step = Step(self, group, generation.number, number, position)
            yield step
            if step.outcome is None:
                raise Disturbed("the step was not committed")
            if step.outcome is Next.STOP:
                raise StopRun
            if step.outcome is Next.REGROUP:
                return
            number, position = number + 1, position + self.settings.batch

    def _join(self, generation: Generation) -> Group:
        """Connect to the others and bring everyone to the generation's step."""
        member = self._member
        known = generation.peers[self._rank(generation)].applied
        if 0 <= self._pending == self.applied == known - 1:
            # The step was committed, and the word of it was lost with the conductor.
            self._apply(self._pending)
        self._pending = -1
        group = connect(generation, self.settings.worker, self._store, member.disturbed)
        member.on_disturbance = group.wake
        self._heal(generation, group)
        self._group = group
        return group

    def _heal(self, generation: Generation, group: Group) -> None:
        assert self._model is not None
        assert self._optimizer is not None
        source = generation.source
        if source < 0:
            # Nobody has trained yet: all take what the first one begins with.
            behind, source = list(range(1, group.size)), 0
        else:
            behind = [
                rank
                for rank, peer in enumerate(generation.peers)
                if peer.applied != generation.step
            ]
        if group.rank == source:
            state = self.state()
            for rank in behind:
                group.patiently(partial(send_state, group, rank, state))
        elif group.rank in behind:
            state = group.patiently(partial(receive_state, group, source))
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
        self.applied, self._lineage = generation.step, generation.lineage

    def _rank(self, generation: Generation) -> int:
        return [peer.worker for peer in generation.peers].index(self.settings.worker)

    def _apply(self, step: int) -> None:
        assert self._update is not None
        self._update(step)
        self.applied, self._pending = step + 1, -1


class StopRun(Exception):
    """All steps are done."""


@dataclass(slots=True)
class Step:
    """One step of one worker: its share of the samples, and the way to a commit."""

    run: Run
    group: Group
    generation: int
    number: int
    #: of the step's first sample
    position: int
    outcome: Next | None = None
    _left: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _loss: float = 0.0
    _samples: int = 0
    _tokens: int = 0

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def stop(self) -> int:
        """The position after the step's last sample."""
        return self.position + self.run.settings.batch

    @property
    def last(self) -> bool:
        """Whether it was the last step of the job."""
        return self.outcome is Next.STOP

    def microbatches(self) -> Iterator[Positions]:
        """The samples of this worker, a forward pass at a time."""
        settings, group, reducer = self.run.settings, self.group, self.run._reducer
        assert reducer is not None
        self.run._member.enter(Phase.COMPUTING)
        reducer.begin(group)
        first = self.position + settings.batch * group.rank // group.size
        last = self.position + settings.batch * (group.rank + 1) // group.size
        own = samples(np.arange(first, last, dtype=np.int64), settings.data_size, settings.seed)
        for start in range(0, len(own), settings.micro_batch):
            if self.run._member.disturbed.is_set():
                return
            if start + settings.micro_batch >= len(own):
                reducer.last_pass()
            yield own[start : start + settings.micro_batch]

    def backward(self, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> None:
        """Add the gradients of some samples, of whose losses `loss` is the mean."""
        (loss * (samples / self.run.settings.batch)).backward()
        self._loss += loss.item() * samples
        self._samples += samples
        self._tokens += tokens

    def commit(self) -> bool:
        """Sum, vote, and apply the step when all have voted; whether that was so."""
        run, member = self.run, self.run._member
        assert run._reducer is not None
        busy = time.perf_counter() - self._began
        member.enter(Phase.REDUCING)
        try:
            run._reducer.finish()
        except Disturbed as error:
            member.trouble(str(error))
            return False
        run._pending = self.number
        loss = self._loss if math.isfinite(self._loss) else None
        member.vote(Vote(self.generation, self.number, loss, self._samples, self._tokens, busy))
        self.outcome = member.verdict(self.number)
        if self.outcome is None:
            return False
        run._apply(self.number)
        return True
