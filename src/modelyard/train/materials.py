"""What a worker works with, made of a job's words: its data, its model, and batches of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from modelyard.errors import InputError, Problem
from modelyard.spec.job import JobSpec
from modelyard.spec.layout import Recompute
from modelyard.spec.training import TrainSpec
from modelyard.train.beginning import begun
from modelyard.train.data.luck import Numbers
from modelyard.train.data.sources import JobData, Rows
from modelyard.train.models.batches import unpadded
from modelyard.train.models.hidden_markov import HiddenMarkov
from modelyard.train.models.multitask import PLAIN_TEXT, MultiTask, TaskRows
from modelyard.train.models.registry import (
    HIDDEN_MARKOV,
    VOCABULARY,
    build,
    named_in,
    takes_options,
)
from modelyard.train.optimise.baum_welch import BaumWelch
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for


def prepared(job: JobSpec, folder: Path) -> tuple[TrainSpec, JobData]:
    """The training section and the data of a job; paths are relative to the job's file."""
    if job.train is None or job.model is None:
        fix = "add 'model: …' and 'train: {data: …}', or start its command yourself"
        raise InputError(f"the job '{job.name}' does not say how to train", fix=fix)
    if problems := list(unsaid(job).values()):
        raise InputError(problems[0].what, problems=problems)
    return job.train, data_of(job, job.train, folder)


def unsaid(job: JobSpec) -> dict[str, Problem]:
    """What a job has to say to be trained, and does not, by its key."""
    return {
        name: Problem(f"the job '{job.name}' does not say '{name}'", f"add '{name}: …'")
        for name in ("steps", "batch")
        if getattr(job, name) is None
    }


def data_of(job: JobSpec, train: TrainSpec, folder: Path) -> JobData:
    """The data of a job; paths are relative to the job's file."""
    # Baum–Welch maximises with all samples, each of them once: rounds end with a step.
    steps = (job.batch or 1) if job.model == HIDDEN_MARKOV else 1
    return JobData(
        train.data,
        train=train,
        folder=folder,
        whole_steps=steps,
        held_out=(train.validation and train.validation.share) or 0.0,
    )


def model_of(job: JobSpec, data: JobData, folder: Path) -> torch.nn.Module:
    """The model as the job begins: with the weights that it names, else with fresh ones.

    What a job does not say of tokens comes from its data.
    """
    assert job.model is not None
    assert job.train is not None
    given, source = job.train.model_options, weights_of(job.train, folder)
    name = named_in(job.model, folder)
    options = {**from_data(job.model, given, data), **recomputing(job.train), **given}
    return build(name, options) if source is None else begun(name, options, source)


def weights_of(train: TrainSpec, folder: Path) -> Path | str | None:
    """Where the weights are that a job begins with; paths are relative to the job's file."""
    source = train.weights
    return source if source is None or "://" in source else folder / source


def recomputing(train: TrainSpec) -> dict[str, object]:
    """The option that all models of ours and of Hugging Face have, where a job wants it."""
    return {} if train.recompute is Recompute.NONE else {"recompute": train.recompute.value}


def from_data(model: str, given: Mapping[str, object], data: JobData) -> dict[str, object]:
    """The options of a model that follow from how its data was prepared."""
    shape = trunk_of(model, given)
    found: dict[str, object] = {"vocab": data.header.vocab} if shape in VOCABULARY else {}
    if takes_options(shape):
        special = data.special
        found |= {"pad_token": special.pad, "end_token": special.end}
        found |= {"sentinels": special.sentinels} if special.sentinels else {}
        found |= {"mask_token": special.mask} if special.mask is not None else {}
    return found


def trunk_of(model: str, given: Mapping[str, object]) -> str:
    """The name of what reads tokens in a model."""
    return str(given.get("trunk")) if model == "multitask" else model


def optimizer_of(job: JobSpec, data: JobData, model: torch.nn.Module) -> torch.optim.Optimizer:
    """What makes steps of the gradients of a job."""
    assert job.train is not None
    if isinstance(model, HiddenMarkov):
        batch = job.batch or 1
        return BaumWelch(
            model.parameters(),
            steps=data.places // batch,
            words=batch * (data.sequence + 1),
            smoothing=model.smoothing,
        )
    wanted = job.train.optimizer
    settings = OptimiserSettings(
        name=wanted.name, learning_rate=wanted.learning_rate, weight_decay=wanted.weight_decay
    )
    return optimizer_for(model, settings)


def batch_for(model: torch.nn.Module, data: JobData, chosen: Numbers) -> object:
    """These samples as a model wants them; the same for whoever computes them."""
    rows = data.read(chosen)
    if isinstance(model, MultiTask):
        return model.prepare_tasks(_by_task(data, rows, chosen))
    tokens = torch.from_numpy(rows.tokens)
    prepare = getattr(model, "prepare", None)
    # A user's own module may take rows of tokens as they are.
    batch: object = tokens if prepare is None else prepare(tokens, chosen.tolist())
    return batch if rows.lengths is None else unpadded(batch, torch.from_numpy(rows.lengths))


def _by_task(data: JobData, rows: Rows, chosen: Numbers) -> dict[str, TaskRows]:
    """The rows of each task; sources without one serve all that learn from plain text."""
    found: dict[str, TaskRows] = {}
    for task in dict.fromkeys(source.task or PLAIN_TEXT for source in data.sources):
        own = [at for at, one in enumerate(data.sources) if (one.task or PLAIN_TEXT) == task]
        here = np.isin(rows.source, own)
        if here.any():
            found[task] = TaskRows(
                tokens=torch.from_numpy(rows.tokens[here]),
                samples=chosen[here].tolist(),
                lengths=None if rows.lengths is None else torch.from_numpy(rows.lengths[here]),
                labels=None if rows.labels is None else torch.from_numpy(rows.labels[here]),
            )
    return found
