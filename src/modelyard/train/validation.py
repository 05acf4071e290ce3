"""Loss on samples that nobody trains on, found by all members together while training goes on.

Every so many steps, before the step, and after the last one; before the first one where a job
begins with weights, so that one can see what it adds to them. It is always the same samples, so
that losses of different steps can be compared, and a run that is resumed tells what it would have
told. Dropout is off, and nothing is remembered of the passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from modelyard.errors import InputError
from modelyard.spec.job import JobSpec
from modelyard.spec.training import TrainSpec
from modelyard.spec.training_data import DataSource
from modelyard.train.data.luck import Numbers
from modelyard.train.data.sources import JobData
from modelyard.train.materials import batch_for
from modelyard.train.steering import narrowed
from modelyard.train.step import Step


class HeldOut(NamedTuple):
    """Samples that nobody trains on: so many of some data, from `first` on."""

    data: JobData
    first: int
    samples: int


def held_out(train: TrainSpec, data: JobData, folder: Path) -> HeldOut | None:
    """What a job validates with; `InputError` when it says so and there is nothing."""
    wanted = train.validation
    if wanted is None:
        return None
    most = wanted.batches * train.micro_batch
    if wanted.share is not None:
        return HeldOut(data, data.size, min(data.held_out, most))
    if wanted.data is not None:
        found = JobData((DataSource(folder=wanted.data),), train=train, folder=folder)
        if found.header.vocab != data.header.vocab:
            what = f"'{wanted.data}' was prepared with another tokenizer than the training data"
            fix = f"prepare it with --tokenizer {train.data[0].folder}"
            raise InputError(what, fix=fix)
        return HeldOut(found, 0, min(found.size, most))
    try:
        found = JobData(train.data, train=train, folder=folder, split="validation")
    except InputError as error:
        what = f"the data has no part for validation that could be used: {error.message}"
        fix = "write 'validate: {share: 0.01}', or prepare the data with --validation"
        raise InputError(what, fix=fix) from error
    return HeldOut(found, 0, min(found.size, most))


class Validation:
    """What a worker does for the validations of its job; nothing where it wants none."""

    def __init__(self, job: JobSpec, data: JobData, folder: Path, model: torch.nn.Module) -> None:
        assert job.train is not None
        self._train = job.train
        self._held = held_out(job.train, data, folder)
        self._model = model

    def before(self, step: Step) -> None:
        """Validate what the step begins with, if it is time for that."""
        wanted = self._train.validation
        if wanted is None or step.number % wanted.every:
            return
        if step.number or self._train.weights is not None:
            self._validate(step)

    def after(self, step: Step) -> None:
        """Validate what the job ends with."""
        if step.last:
            self._validate(step)

    def _validate(self, step: Step) -> None:
        if self._held is None:
            return
        training = self._model.training
        self._model.eval()
        step.validate(self._held.samples, self._loss)
        self._model.train(training)

    def _loss(self, numbers: Numbers) -> float:
        assert self._held is not None
        batch = batch_for(self._model, self._held.data, numbers + self._held.first)
        with torch.no_grad(), narrowed(self._train):
            return float(self._model.loss(batch))
