"""One step of one worker: its share of the samples, the gradients, and the way to a commit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from modelyard.train.aggregate.interface import Share
from modelyard.train.conductor.messages import Next, Phase, Vote
from modelyard.train.course import Totals
from modelyard.train.group import Disturbed, Group
from modelyard.train.optimise.norms import square_of
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

    def microbatches(self) -> Iterator[Positions]:
        """The samples of this worker, a forward pass at a time."""
        run, settings, group = self.run, self.run.settings, self.group
        run._member.enter(Phase.COMPUTING)
        first = self.position + self.batch * group.rank // group.size
        last = self.position + self.batch * (group.rank + 1) // group.size
        own = samples(np.arange(first, last, dtype=np.int64), settings.data_size, settings.seed)
        kept = run._kept(self.number + 1)
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
        scale = self.run.course.scale.scale
        (loss * (samples / self._mean_over * scale)).backward()
        self._loss += loss.item() * samples
        self._samples += samples
        self._tokens += tokens
        alone = self.group.size == 1 and not self.run.aggregation.local
        if alone and self._samples == samples < self.batch:
            # With nobody to compare with, the first pass is compared with all of them.
            self._square, self._square_of = square_of(self.run.trained_parameters()), samples

    def _look_at_own(self, gradient: torch.Tensor) -> None:
        if self.group.size > 1:
            self._square += float(gradient.norm()) ** 2
            self._square_of = self._samples

    def _totals(self) -> Totals:
        """What the course needs to know of this worker's samples."""
        own = Totals(self._loss, self._samples)
        if not self._square_of:
            return own
        # Gradients are those of a mean over the whole step; parts are compared by their own means.
        mean = self._square * (self._mean_over / self._square_of) ** 2
        return own._replace(squares=mean, inverses=1.0 / self._square_of, parts=1.0)

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
        run._pending = self.number
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
        self.outcome = member.verdict(self.number)
        if self.outcome is None:
            return False
        run._apply(self.number)
        return True
