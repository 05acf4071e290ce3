"""A script of somebody's own in an elastic job: what stands between its loop and the run.

The same lines train alone, where nobody started the script but its user, and as a worker of a job,
where the environment says what to do. Alone means with a conductor in the same process: the steps,
the order of samples and the results are those of a job with one worker.
"""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import msgspec
import torch

from modelyard.errors import InputError, Problem
from modelyard.keep.retention import Retention
from modelyard.spec.job import JobSpec, read_job
from modelyard.spec.training import AggregateSpec
from modelyard.train.aggregate.choose import aggregation
from modelyard.train.conductor.progress import Settings
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.data.samples import Samples, source_of
from modelyard.train.keeping import Keeper
from modelyard.train.optimise.update import clip
from modelyard.train.post import POST_VARIABLE, Post
from modelyard.train.run import Run, RunSettings
from modelyard.train.snapshots import Snapshots, next_generation, restore_latest
from modelyard.train.step import Step

#: What the numbers of a session must be at least.
LEAST = {"batch": 1, "steps": 1, "micro_batch": 1, "seed": 0, "every": 1, "keep": 1}
_log = logging.getLogger("modelyard.train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a script says, of which a job's file may say something else."""

    batch: int
    steps: int | None = None
    micro_batch: int | None = None
    seed: int = 0
    checkpoints: str | Path | None = None
    every: int = 100
    keep: int = 3


class Session:
    """One script's part in a training; made by `modelyard.train.session`."""

    def __init__(
        self,
        data: Samples | str | Path,
        wishes: Wishes,
        *,
        collate: Callable[[Sequence[Any]], Any] | None = None,
        sequence: int = 0,
    ) -> None:
        self._duty = _duty()
        self._data = source_of(data, sequence, collate)
        self._wishes = _agreed(wishes, self._duty, self._data.size)
        place = self._wishes.checkpoints
        self._place = None if place is None else str(place)
        self._run = self._start()
        self._snapshots: Snapshots | None = None
        self._step: Step | None = None
        #: of the first parameters, by step; None before it is known what is trained
        self._rate: Callable[[int], float] | None = None
        self._after: Callable[[Session], object] | None = None
        #: samples of the batch that the script has and has not called `backward` for yet
        self._owed = 0
        self._given = 0
        self._undo = ExitStack()
        #: whether the lines that run now are the script's
        self._theirs = False
        self._former: Callable[[int, FrameType | None], Any] | int | None = None

    # What a script sees.

    @property
    def step(self) -> int:
        """Steps that are committed."""
        return max(self._run.applied, 0)

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        assert self._wishes.steps is not None
        return self._wishes.steps

    @property
    def done(self) -> bool:
        """Whether all steps are committed."""
        return self.step >= self.steps

    @property
    def rank(self) -> int:
        """This worker's number among the members of now; it changes when members do."""
        return self._step.rank if self._step is not None else 0

    @property
    def size(self) -> int:
        """How many train together now."""
        return self._step.group.size if self._step is not None else 1

    @property
    def on_yard(self) -> bool:
        """Whether this is a worker of a job."""
        return self._duty is not None

    def train(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        schedule: Callable[[int], float] | None = None,
        clip_norm: float = 0.0,
        after: Callable[[Session], object] | None = None,
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        """Say what is trained; gives both back, as far as they were when they were last kept.

        `schedule` gives a factor of the learning rates for the number of a step, and must depend on
        nothing else. `clip_norm` is the largest norm of the gradients, 0 for any. `after` is called
        with this session once after each committed step, on every worker.
        """
        if self._rate is not None:
            fix = "make one model of both, or start two jobs"
            raise InputError("a session trains one model", fix=fix)
        self._after = after
        rates = [group["lr"] for group in optimizer.param_groups]
        self._rate = lambda step: rates[0] * (1.0 if schedule is None else schedule(step))

        def update(step: int) -> None:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate if schedule is None else rate * schedule(step)
            if clip_norm > 0.0:
                held = [one for group in optimizer.param_groups for one in group["params"]]
                if not math.isfinite(clip(held, clip_norm, self._run.aggregation.gradient_norm)):
                    return
            optimizer.step()

        self._guard(optimizer)
        kept = None if self._place is None else restore_latest(self._place, warn=self._run.note)
        self._run.restore(model, optimizer, kept, update=update, keeper=self._keeping())
        return model, optimizer

    def batches(self) -> Iterator[Any]:
        """This worker's samples of step after step; `backward` is called once for each batch.

        A step that was not committed, because a member was lost, comes again: with the same
        samples, divided among those who are left.
        """
        if self._rate is None:
            fix = "call model, optimizer = s.train(model, optimizer) before the loop"
            raise InputError("the session does not know what is trained", fix=fix)
        for step in self._run.steps():
            self._step = step
            for chosen in step.microbatches():
                self._owed = self._given = len(chosen)
                batch = self._data.read(chosen)
                self._theirs = True
                yield batch
                self._theirs = False
                if self._owed:
                    fix = "call s.backward(loss) once for each batch, instead of loss.backward()"
                    raise InputError("a batch was left without a backward pass", fix=fix)
            self._commit(step)

    def backward(self, loss: torch.Tensor, *, tokens: int | None = None) -> None:
        """Add the gradients of a batch, of whose samples `loss` is the mean."""
        if not self._owed or self._step is None:
            fix = "call it once for each batch of s.batches()"
            raise InputError("there is no batch that this backward pass could be of", fix=fix)
        if loss.numel() != 1:
            fix = "give the mean over the samples of the batch, for example loss.mean()"
            raise InputError(f"a loss is one number, and this one has {loss.numel()}", fix=fix)
        if any(one.grad is None for one in self._views()):
            fix = "leave out model.zero_grad(): the session does it when a step begins"
            raise InputError("the loop has thrown the gradients away", fix=fix)
        count, self._owed = self._owed, 0
        read = count * self._data.sample_tokens if tokens is None else tokens
        self._step.backward(loss, samples=count, tokens=read)

    def log(self, **values: float) -> None:
        """Tell more about the batch; the journal has means over all samples of a step."""
        if self._step is not None:
            for name, value in values.items():
                self._step.measure(name, float(value), samples=self._given)

    # What is around it.

    def __enter__(self) -> Self:
        torch.manual_seed(self._wishes.seed)
        self._run.__enter__()
        if self._duty is not None:
            self._former = signal.signal(signal.SIGTERM, lambda *_: self._run.leave())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._theirs = False
        self._undo.close()
        if self._former is not None:
            signal.signal(signal.SIGTERM, self._former)
        if self._snapshots is not None:
            self._snapshots.finish()
        self._run.__exit__(kind, error, traceback)

    def _keeping(self) -> Keeper | None:
        """Who keeps what is trained, if it has a place."""
        if self._place is None:
            return None
        job = "script" if self._duty is None else self._duty.job.name
        retention = Retention(last=self._wishes.keep)
        self._snapshots = Snapshots(self._place, job=job, retention=retention, warn=self._run.note)
        return Keeper(snapshots=self._snapshots, steps=self.steps, every=self._wishes.every)

    def _start(self) -> Run:
        wishes, duty = self._wishes, self._duty
        if duty is None:
            after = 0 if self._place is None else next_generation(self._place) - 1
            alone = Settings(batch=wishes.batch, steps=self.steps, most=1, after_generation=after)
            return Run(self._settings(worker="alone", alone=alone))
        host, _, port = duty.post.address.rpartition(":")
        settings = self._settings(
            address=(host, int(port)),
            token=os.environ[TOKEN_VARIABLE],
            worker=duty.post.worker,
            beat_seconds=duty.post.beat_seconds,
        )
        wanted = duty.job.train.aggregate if duty.job.train is not None else AggregateSpec()
        return Run(settings, aggregation(wanted.name, wanted.options))

    def _settings(
        self,
        *,
        worker: str,
        address: tuple[str, int] = ("", 0),
        token: str = "",
        beat_seconds: float = 0.1,
        alone: Settings | None = None,
    ) -> RunSettings:
        return RunSettings(
            address=address,
            token=token,
            worker=worker,
            data_size=self._data.size,
            batch=self._wishes.batch,
            micro_batch=self._wishes.micro_batch or self._wishes.batch,
            seed=self._wishes.seed,
            beat_seconds=beat_seconds,
            alone=alone,
        )

    def _commit(self, step: Step) -> None:
        assert self._rate is not None
        step.measure("learning_rate", self._rate(step.number), samples=step.batch)
        if not step.commit():
            return
        if step.rank == 0:
            _log.info("step %d of %d: loss %.4f", step.number + 1, self.steps, step.mean_loss)
        if self._after is not None:
            self._after(self)

    def _views(self) -> list[torch.nn.Parameter]:
        """Some parameter whose gradient has a place of its own from the beginning, if any has."""
        held = self._run.aggregation.name == "all-reduce"
        return self._run.trained_parameters()[:1] if held else []

    def _guard(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse, while the session lasts, what a loop without one would do."""
        zero_grad = optimizer.zero_grad

        def refuse(what: str) -> None:
            if self._theirs:
                fix = "leave it out: the session does it when a step is complete"
                raise InputError(f"the loop calls {what}", fix=fix)

        def guarded(*arguments: Any, **named: Any) -> None:
            refuse("zero_grad()")
            zero_grad(*arguments, **named)

        optimizer.zero_grad = guarded
        self._undo.callback(delattr, optimizer, "zero_grad")
        hook = optimizer.register_step_pre_hook(lambda *_: refuse("optimizer.step()"))
        self._undo.callback(hook.remove)


@dataclass(frozen=True, slots=True)
class _Duty:
    """What a worker of a job was told."""

    post: Post
    job: JobSpec


def _duty() -> _Duty | None:
    """None where nobody has told anything."""
    text = os.environ.get(POST_VARIABLE)
    if not text:
        return None
    post = msgspec.json.decode(text, type=Post)
    return _Duty(post, read_job(post.job))


def _agreed(wishes: Wishes, duty: _Duty | None, size: int) -> Wishes:
    """The wishes with what the job's file says instead, all of them numbers that make sense."""
    if duty is not None:
        wishes = replace(wishes, checkpoints=duty.post.checkpoints, **_written(duty))
    problems = [
        Problem(f"{name} is {value!r}", fix=f"use a whole number of {low} or more")
        for name, low in LEAST.items()
        if (value := getattr(wishes, name)) is not None
        and (not isinstance(value, int) or isinstance(value, bool) or value < low)
    ]
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    if wishes.steps is None:
        wishes = replace(wishes, steps=math.ceil(size / wishes.batch))
    return wishes


def _written(duty: _Duty) -> dict[str, Any]:
    """What a job's file says, and not what it is silent about."""
    said: dict[str, Any] = {"steps": duty.post.steps}
    if duty.job.batch is not None:
        said["batch"] = duty.job.batch
    train = duty.job.train
    if train is None:
        return said
    kept = train.checkpoints
    for section, names in ((train, ("micro_batch", "seed")), (kept, ("every", "keep"))):
        written = section.model_fields_set.intersection(names)
        said.update({name: getattr(section, name) for name in written})
    if kept.to is not None:
        said["checkpoints"] = kept.to
    return said
