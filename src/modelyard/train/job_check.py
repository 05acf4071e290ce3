"""Mistakes of a job, all of them, found before a worker starts: nobody listens to workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from modelyard.errors import InputError, Problem, one_of
from modelyard.spec.job import JobSpec
from modelyard.spec.salvage import salvaged
from modelyard.spec.source import Document, ValuePath, problems_error, read_document
from modelyard.spec.training import Arithmetic, TrainSpec
from modelyard.train import script_job
from modelyard.train.asynchronous.pace import pace
from modelyard.train.data.sources import JobData
from modelyard.train.job import asynchronous, together
from modelyard.train.materials import batch_for, model_of, prepared
from modelyard.train.models.batches import unpadded
from modelyard.train.models.bert import Bert
from modelyard.train.models.hugging_face import HuggingFace, Objective
from modelyard.train.models.multitask import MultiTask, TaskKind
from modelyard.train.models.registry import (
    HIDDEN_MARKOV,
    VOCABULARY,
    build,
    named_in,
    shape_of,
)
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.replica.divide import check_division
from modelyard.train.replica.places import division_of, replicas_of
from modelyard.train.steering import schedule_of
from modelyard.train.validation import held_out

#: ways that sum over all members without leaving anything out
SUMMING = ("all-reduce", "servers")
#: to look at a model's other options while its data, which says how many tokens it has, is missing
ANY_VOCABULARY = 1_024


class Found(NamedTuple):
    """Something wrong, and where in the job's file it was written."""

    path: ValuePath
    problem: Problem


def check_file(
    path: Path, *, workers: Callable[[JobSpec], int], steps: int | None = None
) -> JobSpec:
    """The job of a file; one `InputError` with all that can be known before a worker starts.

    `workers` says how many there will be, `steps` replaces those of the file.
    """
    document = read_document(path)
    job, problems = salvaged(document, JobSpec)
    if job is not None:
        if steps is not None:
            job = job.model_copy(update={"steps": steps})
        found = mistakes(job, path.parent, workers=workers(job))
        problems += tuple(_placed(document, one) for one in found)
    if job is None or problems:
        raise problems_error(document.source, dict.fromkeys(problems))
    return job


def check(job: JobSpec, folder: Path, *, workers: int | None = None) -> None:
    """One `InputError` with everything that is wrong with a job; paths are below `folder`."""
    if problems := [one.problem for one in mistakes(job, folder, workers=workers)]:
        raise InputError(f"{len(problems)} problems with '{job.name}'", problems=problems)


def mistakes(job: JobSpec, folder: Path, *, workers: int | None = None) -> list[Found]:
    """Everything that is wrong with a job whose words are each right."""
    if job.command is not None:
        return []
    if job.script is not None:
        return _gathered(("script",), lambda: script_job.check(job, folder))
    data: list[tuple[TrainSpec, JobData]] = []
    found = _gathered(("train", "data"), lambda: data.append(prepared(job, folder)))
    if (train := job.train) is not None:
        found += _gathered(("train", "aggregate"), lambda: _together(train))
        steps = job.steps
        if steps:
            found += _gathered(("train", "optimizer"), lambda: schedule_of(train, steps))
        found += _gathered(("train", "parallel"), lambda: _replicas(train, workers))
    if job.batch is not None and workers is not None and job.batch < workers:
        what = f"a batch of {job.batch} samples does not divide among {workers} workers"
        fix = "write a larger 'batch', or use fewer workers"
        found.append(Found(("batch",), Problem(what, fix)))
    if data:
        found += _gathered(("train", "validate"), lambda: held_out(*data[0], folder))
        found += _model(job, *data[0], folder)
    elif job.model is not None and train is not None:
        found += _gathered(("train", "model_options"), lambda: _unread(job, folder))
    return found


def _gathered(path: ValuePath, call: Callable[[], object]) -> list[Found]:
    try:
        call()
    except InputError as error:
        return [Found(path, problem) for problem in error.problems]
    return []


def _placed(document: Document, found: Found) -> Problem:
    """The problem with its line: that of a key which it quotes, if there is one."""
    problem, path = found.problem, found.path
    quoted = re.findall(r"'([\w.-]+)'", problem.what)
    inner = [(*path, word) for word in quoted] + [(word,) for word in quoted]
    path = next((one for one in inner if one in document.places), path)
    place = document.place(path)
    what = f"{problem.file}: {problem.what}" if problem.file else problem.what
    return Problem(what, problem.fix, document.source, place.line, place.column)


def _unread(job: JobSpec, folder: Path) -> None:
    """The model's own options, where data that would say the rest cannot be read."""
    assert job.model is not None
    assert job.train is not None
    given = job.train.model_options
    if job.train.weights is None and job.model in VOCABULARY:
        with torch.device("meta"):
            build(named_in(job.model, folder), {"vocab": ANY_VOCABULARY, **given})


def _replicas(train: TrainSpec, workers: int | None) -> None:
    """Whether so many processes make whole replicas."""
    division = division_of(train.parallel)
    if workers is not None:
        replicas_of(workers, division)


def _together(train: TrainSpec) -> None:
    if asynchronous(train):
        pace(train.aggregate.name, train.aggregate.options)
    else:
        together(train)


def _model(job: JobSpec, train: TrainSpec, data: JobData, folder: Path) -> list[Found]:
    """The model is built without memory for its weights, and its samples are looked at."""
    made: list[torch.nn.Module] = []
    options = ("train", "model_options")
    with torch.device("meta"):
        found = _gathered(options, lambda: made.append(model_of(job, data, folder)))
    if found:
        return found
    model = made[0]
    found += [Found(("train", "sequence"), one) for one in _tokens(model, data)]
    found += [Found(("train", "data"), one) for one in _tasks(model, data)]
    found += [Found(("train",), one) for one in _counted(job, train, data)]
    division = division_of(train.parallel)
    found += _gathered(("train", "parallel"), lambda: check_division(model, division))
    if any(True for _ in model.parameters()):
        settings = OptimiserSettings(name=train.optimizer.name)
        found += _gathered(("train", "optimizer"), lambda: optimizer_for(model, settings))
    if not found:
        found += _gathered(("train", "data"), lambda: _first_sample(model, train, data))
    return found


def _first_sample(model: torch.nn.Module, train: TrainSpec, data: JobData) -> None:
    """A model may refuse what it is given only when it sees it; padding comes in any sample."""
    batch = batch_for(model, data, np.arange(1, dtype=np.int64))
    if train.packing and not isinstance(model, MultiTask):
        unpadded(batch, torch.ones(1, dtype=torch.int64))


def _tokens(model: torch.nn.Module, data: JobData) -> list[Problem]:
    """Whether a model can read what the data's tokenizer makes."""
    problems = []
    trunk = model.shared if isinstance(model, MultiTask) else model
    spec = shape_of(trunk)
    longest = spec.traits.positions if spec is not None else 0
    if longest and data.sequence > longest:
        what = f"samples of {data.sequence} tokens are longer than the model's {longest} positions"
        fix = "write a smaller 'sequence', or a larger 'longest' in 'model_options'"
        problems.append(Problem(what, fix))
    vocab = spec.vocab if spec is not None else getattr(trunk, "vocab", None)
    if isinstance(vocab, int) and vocab < data.header.vocab:
        what = f"the data has {data.header.vocab:,} tokens, the model {vocab:,}"
        fix = "prepare the data with the model's own tokenizer: --tokenizer FOLDER"
        problems.append(Problem(what, fix))
    hides = isinstance(trunk, Bert) or (
        isinstance(trunk, HuggingFace) and trunk.objective is Objective.MASKED
    )
    if hides and trunk.options.mask_token < 0:
        what = "the tokenizer of the data has no token that hides others"
        fix = "prepare the data with one that has, or write 'mask_token' in 'model_options'"
        problems.append(Problem(what, fix))
    return problems


def _counted(job: JobSpec, train: TrainSpec, data: JobData) -> list[Problem]:
    """Expected counts are exact sums over all samples, or likelihood might decrease."""
    if job.model != HIDDEN_MARKOV:
        return []
    problems = []
    assert job.batch is not None
    if job.batch > data.size:
        what = f"a batch of {job.batch} samples is more than the {data.size} of the data"
        problems.append(Problem(what, f"write 'batch: {data.size}': a step is then a whole round"))
    if data.mixed or train.packing:
        what = "Baum–Welch counts every sample of one data set once"
        problems.append(Problem(what, "write one folder as 'data', without 'packing'"))
    if train.aggregate.name not in SUMMING or train.aggregate.options.get("compress"):
        what = "Baum–Welch needs exact sums of expected counts over all workers"
        fix = f"write 'aggregate: {{name: …}}' with {one_of(SUMMING)}, without 'compress'"
        problems.append(Problem(what, fix))
    if train.precision is not Arithmetic.FP32:
        problems.append(Problem("Baum–Welch counts in float64", "leave 'precision' out"))
    if train.parallel.places > 1:
        problems.append(Problem("tables of Baum–Welch are not divided", "leave 'parallel' out"))
    if train.batch_scaling.per_worker:
        what = "rounds of Baum–Welch have steps of one size"
        problems.append(Problem(what, "leave 'batch_scaling' out"))
    return problems


def _tasks(model: torch.nn.Module, data: JobData) -> list[Problem]:
    """Whether every task has data, and all data a task."""
    named = {source.task for source in data.sources if source.task is not None}
    if not isinstance(model, MultiTask):
        fix = "leave 'task' out, or write 'model: multitask'"
        return [Problem(f"the model has no task '{one}'", fix) for one in sorted(named)]
    problems = [
        Problem(f"there is no task '{one}'", f"use {one_of(model.tasks)}")
        for one in sorted(named - model.tasks.keys())
    ]
    plain = any(source.task is None for source in data.sources)
    for name, task in model.tasks.items():
        if name not in named and not (plain and task.kind is TaskKind.TOKENS and not task.outputs):
            fix = f"write 'task: {name}' beside one of the folders in 'data'"
            problems.append(Problem(f"task '{name}' has no data", fix))
    return problems
