"""Mistakes of a job, all of them, found before a worker starts: nobody listens to workers.

Each is looked for by itself, as far as it can be known without what else is wrong: a model whose
data is missing is built for any vocabulary, and one whose options are misspelt as they were meant.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from modelyard.errors import InputError, Problem, one_of, problems_in
from modelyard.spec.job import STAND_INS, JobSpec
from modelyard.spec.salvage import salvaged
from modelyard.spec.source import Document, ValuePath, problems_error, read_document
from modelyard.spec.training import Arithmetic, TrainSpec
from modelyard.spec.training_data import DataSource
from modelyard.train import script_job
from modelyard.train.asynchronous.pace import pace
from modelyard.train.beginning import begun, checkpoints_at
from modelyard.train.data.sources import JobData
from modelyard.train.job import asynchronous, together
from modelyard.train.materials import (
    batch_for,
    data_of,
    model_of,
    prepared,
    recomputing,
    trunk_of,
    unsaid,
    weights_of,
)
from modelyard.train.models.batches import unpadded
from modelyard.train.models.bert import Bert
from modelyard.train.models.hugging_face import HuggingFace, Objective
from modelyard.train.models.multitask import MultiTask, TaskKind
from modelyard.train.models.registry import (
    HIDDEN_MARKOV,
    VOCABULARY,
    build,
    check_name,
    named_in,
    put_right,
    shape_of,
)
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.replica.divide import check_division
from modelyard.train.replica.places import Division, division_of, replicas_of
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
    #: not written at all
    missing: bool = False


def check_file(
    path: Path, *, workers: Callable[[JobSpec], int], steps: int | None = None
) -> JobSpec:
    """The job of a file; one `InputError` with all that can be known before a worker starts.

    `workers` says how many there will be, `steps` replaces those of the file.
    """
    document = read_document(path)
    job, problems = salvaged(document, JobSpec, stand_ins=STAND_INS)
    if job is not None:
        if steps is not None:
            job = job.model_copy(update={"steps": steps})
        found = mistakes(job, path.parent, workers=workers(job))
        # What is written and wrong was left out above, and has been told.
        told = (one for one in found if not (one.missing and one.path in document.places))
        problems += tuple(_placed(document, one) for one in told)
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
    found = [Found((name,), problem, missing=True) for name, problem in unsaid(job).items()]
    if job.script is not None:
        return found + _gathered(("script",), lambda: script_job.check(job, folder))
    train = job.train
    if train is None:
        unwritten = _gathered(("train",), lambda: prepared(job, folder))
        return found + [one._replace(missing=True) for one in unwritten]
    data, unread = _data(job, train, folder)
    found += unread
    found += _gathered(("train", "aggregate"), lambda: _together(train))
    if steps := job.steps:
        found += _gathered(("train", "optimizer"), lambda: schedule_of(train, steps))
    found += _replicas(train, workers)
    if job.batch is not None and workers is not None and job.batch < workers:
        what = f"a batch of {job.batch} samples does not divide among {workers} workers"
        fix = "write a larger 'batch', or use fewer workers"
        found.append(Found(("batch",), Problem(what, fix)))
    found += _gathered(("train", "validate"), lambda: _held_out(train, data, folder))
    return found + _model(job, train, data, folder)


def _gathered(path: ValuePath, call: Callable[[], object]) -> list[Found]:
    return [Found(path, problem) for problem in problems_in(call)]


def _placed(document: Document, found: Found) -> Problem:
    """The problem with its line: that of a key which it quotes, if there is one."""
    problem, path = found.problem, found.path
    quoted = [] if found.missing else re.findall(r"'([\w.-]+)'", problem.what)
    inner = [(*path, word) for word in quoted] + [(word,) for word in quoted]
    path = next((one for one in inner if one in document.places), path)
    place = document.place(path)
    what = f"{problem.file}: {problem.what}" if problem.file else problem.what
    return Problem(what, problem.fix, document.source, place.line, place.column)


def _data(job: JobSpec, train: TrainSpec, folder: Path) -> tuple[JobData | None, list[Found]]:
    """The data of a job, or what is wrong with each of its folders."""
    if not train.data:
        return None, []
    read: list[JobData] = []
    found = []
    for problem in problems_in(lambda: read.append(data_of(job, train, folder))):
        path: ValuePath = ("train", "data")
        for number, source in enumerate(train.data):
            place, named = folder / source.folder, Path(problem.file)
            if place in (named, *named.parents):
                path = ("train", "data", number, "folder")
        found.append(Found(path, problem))
    return (read[0] if read else None), found


def _held_out(train: TrainSpec, data: JobData | None, folder: Path) -> None:
    """Whether there are samples to validate with, as far as the data can be read."""
    wanted = train.validation
    if data is not None:
        held_out(train, data, folder)
    elif wanted is not None and wanted.data is not None:
        JobData((DataSource(folder=wanted.data),), train=train, folder=folder)


def _replicas(train: TrainSpec, workers: int | None) -> list[Found]:
    """Whether processes make whole replicas, and layers a pipeline."""
    path = ("train", "parallel")
    found = _gathered(path, lambda: division_of(train.parallel))
    if workers is not None:
        found += _gathered(path, lambda: replicas_of(workers, _division(train)))
    return found


def _division(train: TrainSpec) -> Division:
    """How a replica is divided, whatever is wrong with its stages."""
    wanted = train.parallel
    with contextlib.suppress(InputError):
        return division_of(wanted)
    return Division(
        pipeline=wanted.pipeline, fsdp=wanted.fsdp, tensor=wanted.tensor, stages=wanted.pipeline
    )


def _together(train: TrainSpec) -> None:
    if asynchronous(train):
        pace(train.aggregate.name, train.aggregate.options)
    else:
        together(train)


def _model(job: JobSpec, train: TrainSpec, data: JobData | None, folder: Path) -> list[Found]:
    """The model is built without memory for its weights, and its samples are looked at."""
    model, found = _built(job, train, data, folder)
    found += [Found(("train",), one) for one in _counted(job, train, data)]
    if model is not None:
        found += [Found(("train", "sequence"), one) for one in _lengths(model, train)]
        found += [Found(("train", "data"), one) for one in _tasks(model, train)]
        found += _gathered(("train", "parallel"), lambda: check_division(model, _division(train)))
    trained = torch.nn.Linear(1, 1) if model is None else model
    if any(True for _ in trained.parameters()):
        settings = OptimiserSettings(name=train.optimizer.name)
        found += _gathered(("train", "optimizer"), lambda: optimizer_for(trained, settings))
    if model is not None and data is not None:
        found += [Found(("train", "sequence"), one) for one in _tokens(model, data)]
        if not found:
            found += _gathered(("train", "data"), lambda: _first_sample(model, train, data))
    return found


def _built(
    job: JobSpec, train: TrainSpec, data: JobData | None, folder: Path
) -> tuple[torch.nn.Module | None, list[Found]]:
    """The model, as it was meant where its options are misspelt; None where nobody knows that."""
    if job.model is None:
        return None, []
    name, given = named_in(job.model, folder), train.model_options
    if found := _gathered(("train", "model_options"), lambda: check_name(name, given)):
        return None, [Found(("model",), found[0].problem), *found[1:]]
    made: list[torch.nn.Module] = []
    with torch.device("meta"):
        found = _gathered(
            ("train", "model_options"), lambda: made.append(_begun(job, train, data, folder))
        )
        if found:
            meant = train.model_copy(update={"model_options": put_right(job.model, given)})
            again = job.model_copy(update={"train": meant})
            with contextlib.suppress(InputError):
                made.append(_begun(again, meant, data, folder))
    return (made[0] if made else None), found


def _begun(job: JobSpec, train: TrainSpec, data: JobData | None, folder: Path) -> torch.nn.Module:
    """The model of a job, also where the data cannot be read that would say its vocabulary."""
    if data is not None:
        return model_of(job, data, folder)
    assert job.model is not None
    name, given = named_in(job.model, folder), train.model_options
    known = trunk_of(job.model, given) in VOCABULARY
    options = {**({"vocab": ANY_VOCABULARY} if known else {}), **recomputing(train), **given}
    source = weights_of(train, folder)
    if source is None or checkpoints_at(source) is not None:
        # Whether a checkpoint fits depends on the vocabulary.
        return build(name, options)
    return begun(name, options, source)


def _first_sample(model: torch.nn.Module, train: TrainSpec, data: JobData) -> None:
    """A model may refuse what it is given only when it sees it; padding comes in any sample."""
    batch = batch_for(model, data, np.arange(1, dtype=np.int64))
    if train.packing and not isinstance(model, MultiTask):
        unpadded(batch, torch.ones(1, dtype=torch.int64))


def _lengths(model: torch.nn.Module, train: TrainSpec) -> list[Problem]:
    """Whether a model has a position for each token of a sample."""
    spec = shape_of(_trunk(model))
    longest = spec.traits.positions if spec is not None else 0
    if not longest or train.sequence <= longest:
        return []
    what = f"samples of {train.sequence} tokens are longer than the model's {longest} positions"
    fix = "write a smaller 'sequence', or a larger 'longest' in 'model_options'"
    return [Problem(what, fix)]


def _trunk(model: torch.nn.Module) -> torch.nn.Module:
    return model.shared if isinstance(model, MultiTask) else model


def _tokens(model: torch.nn.Module, data: JobData) -> list[Problem]:
    """Whether a model can read what the data's tokenizer makes."""
    problems = []
    trunk = _trunk(model)
    spec = shape_of(trunk)
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


def _counted(job: JobSpec, train: TrainSpec, data: JobData | None) -> list[Problem]:
    """Expected counts are exact sums over all samples, or likelihood might decrease."""
    if job.model != HIDDEN_MARKOV:
        return []
    problems = []
    if data is not None and job.batch is not None and job.batch > data.size:
        what = f"a batch of {job.batch} samples is more than the {data.size} of the data"
        problems.append(Problem(what, f"write 'batch: {data.size}': a step is then a whole round"))
    if len(train.data) > 1 or train.packing:
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


def _tasks(model: torch.nn.Module, train: TrainSpec) -> list[Problem]:
    """Whether every task has data, and all data a task."""
    if not train.data:  # which was told
        return []
    named = {source.task for source in train.data if source.task is not None}
    if not isinstance(model, MultiTask):
        fix = "leave 'task' out, or write 'model: multitask'"
        return [Problem(f"the model has no task '{one}'", fix) for one in sorted(named)]
    problems = [
        Problem(f"there is no task '{one}'", f"use {one_of(model.tasks)}")
        for one in sorted(named - model.tasks.keys())
    ]
    plain = any(source.task is None for source in train.data)
    for name, task in model.tasks.items():
        if name not in named and not (plain and task.kind is TaskKind.TOKENS and not task.outputs):
            fix = f"write 'task: {name}' beside one of the folders in 'data'"
            problems.append(Problem(f"task '{name}' has no data", fix))
    return problems
