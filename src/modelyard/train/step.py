"""One step of one worker: its share of the samples, the gradients, and the way to a commit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from modelyard.train.aggregate.interface import Share
from modelyard.train.conductor.messages import Next, Phase, Validated, Vote
from modelyard.train.course import Totals, summed
from modelyard.train.group import Disturbed, Group
from modelyard.train.inside import Word, agreed
from modelyard.train.optimise.norms import square_of, squares_of
from modelyard.train.order import Positions, samples

if TYPE_CHECKING:
    from modelyard.train.run import Run


@dataclass(slots=True)
class Step:
    """One step of one worker: its share of the samples, and the way to a commit."""

    run: Run
    group: Group
    generation: int
    number: int
    #: of the step's first sample
    position: int
    #: samples of all members together
    batch: int
    outcome: Next | None = None
    #: whether the pass in flight only keeps others of the replica company, and counts for nothing
    idle: bool = False
    #: forward passes that every process of the replica makes of its samples
    passes: int = 0
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
    #: squared norm of this worker's own gradients, and of how many samples they are
    _square: float = 0.0
    _square_of: int = 0

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def mean_loss(self) -> float:
        """Over this worker's own samples so far."""
        return self._loss / self._samples if self._samples else math.nan

    @property
    def stop(self) -> int:
        """The position after the step's last sample."""
        return self.position + self.batch

    @property
    def last(self) -> bool:
        """Whether it was the last step of the job."""
        return self.outcome is Next.STOP

    @property
    def weight(self) -> float:
        """What the gradients of a sample's loss count in the step, with the loss scale in it."""
        return self.run.course.scale.scale / self._mean_over

    def microbatches(self) -> Iterator[Positions]:
        """The samples of this worker, a forward pass at a time."""
        run, settings, group = self.run, self.run.settings, self.group
        run._member.enter(Phase.COMPUTING)
        first = self.position + self.batch * group.rank // group.size
        last = self.position + self.batch * (group.rank + 1) // group.size
        own = samples(np.arange(first, last, dtype=np.int64), settings.data_size, settings.seed)
        kept = run.keeper is not None and run.keeper.due(self.number + 1)
        aggregation = run.aggregation
        self._sent = aggregation.bytes_sent
        run.course.begin(self.batch)
        share = Share(
            step=self.number,
            samples=len(own),
            batch=self.batch,
            kept=kept,
            own=self._look_at_own,
        )
        aggregation.begin(group, share)
        for piece in np.array_split(own, min(aggregation.updates, max(len(own), 1))):
            self._mean_over = len(piece) if aggregation.local else self.batch
            passes = self._passes(piece)
            for chosen in passes:
                if not self._agreed(not run._member.disturbed.is_set()):
                    return
                if chosen is passes[-1]:
                    aggregation.last_pass()
                self.idle = not len(chosen)
                found = piece[:1] if self.idle else chosen
                torch.manual_seed(luck_of(settings.seed, self.number, int(found[0])))
                yield found
            if len(piece):
                aggregation.piece_end()

    def validate(self, count: int, loss_of: Callable[[Positions], float]) -> None:
        """Tell the conductor, all members together, the mean loss of `count` held-out samples.

        Each member computes some of them, numbered from 0, with `loss_of`. Nothing is told when
        members change meanwhile: the step comes again, and its validation with it.
        """
        run, member, group = self.run, self.run._member, self.group
        member.enter(Phase.VALIDATING)
        own = np.arange(count * group.rank // group.size, count * (group.rank + 1) // group.size)
        loss, samples = 0.0, 0
        for chosen in self._passes(own):
            if not self._agreed(not member.disturbed.is_set()):
                return
            found = loss_of(chosen if len(chosen) else own[:1])
            if run.inside.counts:
                loss, samples = loss + found * len(chosen), samples + len(chosen)
        member.enter(Phase.REDUCING)
        try:
            totals = summed(group, Totals(*run.inside.summed((loss, samples))))
        except Disturbed as error:
            member.trouble(str(error))
            return
        mean = totals.loss / totals.samples if totals.samples else math.nan
        told = mean if math.isfinite(mean) else None
        member.validated(Validated(self.generation, run.applied, told, round(totals.samples)))
        self._began = time.perf_counter()

    def _passes(self, piece: Positions) -> list[Positions]:
        """The samples of this process, a forward pass at a time.

        All processes of a replica make equally many passes; some may have no samples.
        """
        inside, size = self.run.inside, self.run.settings.micro_batch
        count = self.passes = -(-len(piece) // (inside.parts * size))
        own = np.array_split(piece, inside.parts)[inside.part]
        if inside.at_once:
            return [own] if count else []
        if inside.parts > 1:
            return np.array_split(own, count) if count else []
        return [own[start : start + size] for start in range(0, len(own), size)]

    def _agreed(self, fine: bool) -> bool:
        """Whether all processes of the replica are here, and all is well."""
        return agreed(self.run.inside, Word(self.generation, self.number, fine))

    def backward(self, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> None:
        """Add the gradients of some samples, of whose losses `loss` is the mean."""
        scale = self.run.course.scale.scale
        weight = 0.0 if self.idle else samples / self._mean_over
        (loss * (weight * scale)).backward()
        self.count(loss.item() * samples, samples=samples, tokens=tokens)
        alone = self.group.size == self.run.inside.places == 1 and not self.run.aggregation.local
        if alone and self._samples == samples < self.batch:
            # With nobody to compare with, the first pass is compared with all of them.
            self._square, self._square_of = self._square_so_far(), samples

    def _square_so_far(self) -> float:
        parameters = self.run.trained_parameters()
        return squares_of(one.grad for one in parameters if one.grad is not None)

    def count(self, loss: float, *, samples: int, tokens: int) -> None:
        """Add losses, summed over some samples, whose gradients are there already."""
        if self.idle or not self.run.inside.counts:
            return
        self._loss += loss
        self._samples += samples
        self._tokens += tokens

    def _look_at_own(self, gradient: torch.Tensor) -> None:
        if self.group.size > 1:
            self._square += square_of(gradient)

    def _totals(self) -> Totals:
        """What the course needs to know of this worker's samples."""
        numbers = (self._loss, self._samples, self._square)
        loss, samples, square = self.run.inside.summed(numbers)
        own = Totals(loss, samples)
        of = samples if self.group.size > 1 and square else self._square_of
        if not of:
            return own
        # Gradients are those of a mean over the whole step; parts are compared by their own means.
        mean = square * (self._mean_over / of) ** 2
        return own._replace(squares=mean, inverses=1.0 / of, parts=1.0)

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
            norm = run.aggregation.gradient_norm
            run.course.finish(self.group, self.number, self._totals(), norm)
        except Disturbed as error:
            member.trouble(str(error))
            return False
        run._pending, run._pending_generation = self.number, self.generation
        for name, value in run.course.measured(self.number, norm).items():
            self.measure(name, value, samples=self._samples)
        self.measure("step_seconds", time.perf_counter() - self._began, samples=self._samples)
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
        commit = member.verdict(self.number)
        if not self._agreed(commit is not None) or commit is None:
            # What some have heard of a commit all will hear in the next generation.
            return False
        self.outcome = commit.next
        run._apply(self.number)
        run._position, run._let_go = self.stop, run.settings.worker in commit.leaving
        if run.keeper is not None and self.rank == 0:
            run.keeper.after(run, generation=self.generation, position=self.stop)
        return True


def luck_of(seed: int, step: int, sample: int) -> int:
    """What dropout is drawn from in a pass that begins with a sample: the same when it is repeated.

    Where others are left to repeat it, passes may begin elsewhere and draw other numbers.
    """
    return int(np.random.SeedSequence((seed % 2**64, step, sample)).generate_state(1, np.uint64)[0])
