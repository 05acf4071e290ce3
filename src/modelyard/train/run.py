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
from modelyard.train.aggregate.interface import Aggregation, Share, Trained
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

    def __init__(self, settings: RunSettings, aggregation: Aggregation | None = None) -> None:
        """`aggregation` is how members train together: all-reduce when it is not given."""
        self.settings = settings
        self.aggregation: Aggregation = aggregation or AllReduce()
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
        self._kept: Callable[[int], bool] = lambda _: False
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
        kept: Callable[[int], bool] | None = None,
        applied: int = -1,
        lineage: int = 0,
    ) -> None:
        """What is trained; a restored state says how many steps it has seen, of which lineage.

        `update` applies gradients at a step, and does the same with the same gradients on every
        member; `optimizer.step()` when it is not given. `kept` says, alike on every member, whether
        `state` will be kept after so many steps: where members differ, they then meet for it.
        """
        self._model, self._optimizer = model, optimizer
        self._kept = kept or self._kept
        self.applied, self._lineage = applied, lineage
        self.aggregation.attach(
            Trained(model=model, optimizer=optimizer, update=update or (lambda _: optimizer.step()))
        )

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        state: object,
        *,
        update: Callable[[int], object] | None = None,
        kept: Callable[[int], bool] | None = None,
        applied: int,
    ) -> None:
        """Train on from what `state` gave, after so many steps."""
        assert isinstance(state, dict)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        lineage = state["lineage"]
        self.train(model, optimizer, update=update, kept=kept, applied=applied, lineage=lineage)
        # Older checkpoints have none, and other aggregations have others.
        if state.get("aggregation", {}).get("name") == self.aggregation.name:
            self.aggregation.load(state["aggregation"])

    def state(self) -> dict[str, object]:
        """Everything that a worker needs to go on from here; see `kept` of `train`."""
        return self.aggregation.kept(self._own_state())

    def _own_state(self) -> dict[str, object]:
        assert self._model is not None
        assert self._optimizer is not None
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "lineage": self._lineage,
            "aggregation": {"name": self.aggregation.name, **self.aggregation.state()},
        }

    def leave(self) -> None:
        """Take part in the step in flight, and in no other; `steps` ends then."""
        self._member.leave()

    def steps(self) -> Iterator[Step]:
        """Every step in turn, until the job is done; one that failed comes again."""
        assert self._model is not None, "say what is trained first"
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
        self.aggregation.discard()
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
            state = self._own_state()
            for rank in behind:
                group.patiently(partial(send_state, group, rank, state))
        elif group.rank in behind:
            received = group.patiently(partial(receive_state, group, source))
            self._model.load_state_dict(received["model"])
            self._optimizer.load_state_dict(received["optimizer"])
            self.aggregation.load(received["aggregation"])
        self.aggregation.meet(group, behind)
        self.applied, self._lineage = generation.step, generation.lineage

    def _rank(self, generation: Generation) -> int:
        return [peer.worker for peer in generation.peers].index(self.settings.worker)

    def _apply(self, step: int) -> None:
        self.aggregation.apply()
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
    #: of what a loss's gradients are a mean
    _mean_over: int = 1
    _began: float = field(default_factory=time.perf_counter)
    _loss: float = 0.0
    _samples: int = 0
    _tokens: int = 0
    #: bytes that were sent before this step
    _sent: int = 0
    #: what else was measured: sums over samples, and over how many
    _values: dict[str, tuple[float, int]] = field(default_factory=dict)

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
        run, settings, group = self.run, self.run.settings, self.group
        run._member.enter(Phase.COMPUTING)
        first = self.position + settings.batch * group.rank // group.size
        last = self.position + settings.batch * (group.rank + 1) // group.size
        own = samples(np.arange(first, last, dtype=np.int64), settings.data_size, settings.seed)
        kept = run._kept(self.number + 1)
        aggregation = run.aggregation
        self._sent = aggregation.bytes_sent
        aggregation.begin(
            group, Share(step=self.number, samples=len(own), batch=settings.batch, kept=kept)
        )
        for piece in np.array_split(own, min(aggregation.updates, max(len(own), 1))):
            self._mean_over = len(piece) if aggregation.local else settings.batch
            for start in range(0, len(piece), settings.micro_batch):
                if run._member.disturbed.is_set():
                    return
                if start + settings.micro_batch >= len(piece):
                    aggregation.last_pass()
                yield piece[start : start + settings.micro_batch]
            if len(piece):
                aggregation.piece_end()

    def backward(self, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> None:
        """Add the gradients of some samples, of whose losses `loss` is the mean."""
        (loss * (samples / self._mean_over)).backward()
        self._loss += loss.item() * samples
        self._samples += samples
        self._tokens += tokens

    def measure(self, name: str, value: float, *, samples: int) -> None:
        """Tell a mean over some samples; the journal has that over all which were told.

        What is not a number is left out: no mean could be made of it.
        """
        if math.isfinite(value):
            total, count = self._values.get(name, (0.0, 0))
            self._values[name] = (total + value * samples, count + samples)

    def commit(self) -> bool:
        """Sum, vote, and apply the step when all have voted; whether that was so."""
        run, member = self.run, self.run._member
        busy = time.perf_counter() - self._began
        member.enter(Phase.REDUCING)
        try:
            run.aggregation.finish()
        except Disturbed as error:
            member.trouble(str(error))
            return False
        run._pending = self.number
        loss = self._loss if math.isfinite(self._loss) else None
        vote = Vote(
            generation=self.generation,
            step=self.number,
            loss=loss,
            samples=self._samples,
            tokens=self._tokens,
            busy_seconds=busy,
            bytes_sent=run.aggregation.bytes_sent - self._sent,
            values={name: total / count for name, (total, count) in self._values.items() if count},
        )
        member.vote(vote)
        self.outcome = member.verdict(self.number)
        if self.outcome is None:
            return False
        run._apply(self.number)
        return True
