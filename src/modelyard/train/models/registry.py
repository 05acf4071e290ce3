"""Models by name: `build("gpt2", {"dropout": 0.1})`.

| what is written           | what is built                                                     |
|---------------------------|-------------------------------------------------------------------|
| a name of the zoo         | that shape (`yard models` lists them)                             |
| a `config.json`, a folder | the shape that it describes, with fresh weights                   |
| `gpt`, `bert`, `t5`       | the shape of plain numbers: layers, hidden, heads, vocab, …       |
| `context-mlp`             | `ContextMlp`: vocab, context, width, hidden                       |
| `word2vec`                | `Word2Vec`: vocab, width, window, negatives                       |
| `hidden-markov`           | `HiddenMarkov`: vocab, states, smoothing                          |
| `multitask`               | `trunk` (any shape from above) and `tasks` (name → kind, outputs) |
| `hf:FOLDER-OR-NAME`       | the class of `transformers`                                       |
| `package.module:factory`  | whatever a user's factory returns, called with the config         |
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import nn

from modelyard.errors import InputError, Problem, UnknownName, one_of, problems_in, suggest
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.model_source import load_model, plain_model
from modelyard.spec.traits import RelativeTables, Traits
from modelyard.spec.weights import counted
from modelyard.train.models.bert import Bert
from modelyard.train.models.context_mlp import ContextMlp
from modelyard.train.models.gpt import Gpt
from modelyard.train.models.hidden_markov import HiddenMarkov
from modelyard.train.models.hugging_face import hugging_face
from modelyard.train.models.multitask import MultiTask, Task, task_from
from modelyard.train.models.options import OPTION_NAMES, options_from
from modelyard.train.models.t5 import T5
from modelyard.train.models.word2vec import Word2Vec

HUGGING_FACE = "hf:"
HIDDEN_MARKOV = "hidden-markov"
#: T5's buckets of relative positions (Raffel et al., 2020, 2.1)
T5_BUCKETS = 32
_TASKS_FIX = "write trunk: a model's name, and tasks: {name: {kind: classes, outputs: 2}}"

Config = Mapping[str, object]
_Made = TypeVar("_Made")


class Trainable(Protocol):
    """What a run needs of a model."""

    def loss(self, batch: object) -> torch.Tensor:
        """The mean loss of a batch."""


def build(name_or_spec: str | Model, config: Config | None = None) -> nn.Module:
    """The model of a name or a shape with fresh weights (those of its folder with `hf:`).

    Every refusal is an `InputError` that says what to write instead.
    """
    given = dict(config or {})
    if isinstance(name_or_spec, Model):
        return _shaped(name_or_spec, given)
    name = name_or_spec.strip()
    if name.startswith(HUGGING_FACE):
        options, changes = _split(given)
        return hugging_face(name.removeprefix(HUGGING_FACE), options_from(options), changes)
    if name in _OWN:
        return _OWN[name](given)
    if ":" in name and not os.path.exists(name):
        return _users(name, given)
    return _shaped(load_model(name, besides=_OWN), given)


def check_name(name: str, given: Config) -> None:
    """`InputError` where there is no such model, with its options that no model has."""
    own = name.strip() in _OWN or name.startswith(HUGGING_FACE)
    if own or (":" in name and not os.path.exists(name)):
        return
    problems = problems_in(lambda: load_model(name, besides=_OWN))
    if problems:
        known = {one for factory in _NUMBERS.values() for one in _written(factory)}
        known |= {*OPTION_NAMES, *_OF_TASKS}
        unknown = [one for one in given if one not in known]
        problems += problems_in(lambda: _refuse(unknown, sorted(known)))
        raise InputError(problems[0].what, problems=problems)


def put_right(name: str, given: Config) -> Config:
    """Options as they may have been meant: near names put right, unknown ones left out."""
    if name in _NUMBERS:
        return _meant(given, _option_names(_NUMBERS[name]))
    return _meant(given, OPTION_NAMES) if takes_options(name) and ":" not in name else given


def named_in(name: str, folder: Path) -> str:
    """A model's name as it is meant in a file of this folder: paths are relative to that.

    A user's own module may lie beside the file as well.
    """
    prefix, path = ("", name) if not name.startswith(HUGGING_FACE) else (HUGGING_FACE, name[3:])
    if path.startswith(".") or "/" in path or path.endswith(".json"):
        here = folder / path
        return f"{prefix}{here}" if here.exists() else name
    if not prefix and ":" in name and str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    return name


def takes_options(name: str) -> bool:
    """Whether a model has the options of `ModelOptions`."""
    return name.startswith(HUGGING_FACE) or (":" not in name and name not in _WITHOUT_OPTIONS)


def shape_of(module: nn.Module) -> Model | None:
    """The shape that a module of ours was built from, or None."""
    spec = getattr(module, "spec", None)
    return spec if isinstance(spec, Model) else None


def _shaped(model: Model, given: Config) -> nn.Module:
    options, unknown = _split(given)
    _raise(problems_in(lambda: _refuse(unknown, OPTION_NAMES), lambda: options_from(options)))
    if model.traits.rotary_base:
        options.setdefault("rope_theta", model.traits.rotary_base)
    made: dict[ModelKind, Callable[..., nn.Module]] = {
        ModelKind.DECODER: Gpt,
        ModelKind.ENCODER: Bert,
        ModelKind.ENCODER_DECODER: T5,
    }
    return made[model.kind](model, options_from(options))


def _split(given: Config) -> tuple[dict[str, object], dict[str, object]]:
    """Options of ours, and everything else."""
    options = {key: value for key, value in given.items() if key in OPTION_NAMES}
    return options, {key: value for key, value in given.items() if key not in options}


def _plain(kind: ModelKind) -> Callable[[Config], nn.Module]:
    def made(given: Config) -> nn.Module:
        options, numbers = _split(given)
        shaped: list[Model] = []
        problems = problems_in(
            lambda: shaped.append(_called(plain_model, {**numbers, "kind": kind})),
            lambda: options_from(options),
        )
        meant = _meant(numbers, _option_names(plain_model))
        if kind is ModelKind.ENCODER and not {"longest", "positions"} & meant.keys():
            problems.append(Problem("'longest' is missing", "write the longest row of tokens"))
        _raise(problems)
        (model,) = shaped
        if kind is ModelKind.ENCODER_DECODER:
            traits = Traits(buckets=T5_BUCKETS, relative_tables=RelativeTables.STACK)
            model = replace(model, traits=traits)
            model = replace(model, parameters=counted(model))
        return _shaped(model, options)

    return made


def multitask_on(trunk: nn.Module, given: Config) -> nn.Module:
    """Several tasks on a trunk that is there already."""
    tasks = _tasks_of(given)
    if not isinstance(trunk, (Gpt, Bert)):
        what = f"a {type(trunk).__name__} cannot be the trunk of several tasks"
        raise InputError(what, fix="use a decoder or an encoder")
    return MultiTask(trunk, tasks)


def _tasks_of(given: Config) -> dict[str, Task]:
    tasks = given.get("tasks")
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError("'multitask' needs tasks", fix=_TASKS_FIX)
    problems: list[Problem] = []
    made: dict[str, Task] = {}
    for name, one in tasks.items():
        try:
            made[str(name)] = task_from(str(name), one)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(f"{len(problems)} problems with the tasks", problems=problems)
    return made


def _multitask(given: Config) -> nn.Module:
    rest = dict(given)
    trunk = rest.pop("trunk", None)
    rest.pop("tasks", None)
    if not isinstance(trunk, (str, Model)):
        raise InputError("'multitask' needs a trunk", fix=_TASKS_FIX)
    built: list[nn.Module] = []
    _raise(problems_in(lambda: built.append(build(trunk, rest)), lambda: _tasks_of(given)))
    return multitask_on(built[0], given)


def _users(name: str, given: Config) -> nn.Module:
    """What a user's factory makes, which is code of this machine like any other."""
    module_name, _, attribute = name.partition(":")
    fix = "write package.module:factory, of a module that Python can import from here"
    try:
        found = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        raise InputError(f"'{module_name}' cannot be imported: {error}", fix=fix) from error
    factory = getattr(found, attribute, None) if attribute else None
    if not callable(factory):
        raise InputError(f"'{module_name}' has nothing to call named '{attribute}'", fix=fix)
    try:
        made = factory(**given)
    except InputError:
        raise
    except Exception as error:  # whatever it is, it is their code that knows
        what = f"'{name}' failed: {type(error).__name__}: {error}"
        raise InputError(what, fix="call it with the job's 'model_options' yourself") from error
    if not isinstance(made, nn.Module) or not callable(getattr(made, "loss", None)):
        raise InputError(
            f"'{name}' made a {type(made).__name__} without 'loss'",
            fix="return a torch.nn.Module with a method loss(batch) that gives the mean loss",
        )
    return made


def _keywords(factory: Callable[..., nn.Module]) -> Callable[[Config], nn.Module]:
    return lambda given: _called(factory, given)


def _called(factory: Callable[..., _Made], given: Config) -> _Made:
    """A factory of ours with keywords that somebody wrote."""
    known, names = _written(factory), _option_names(factory)
    unknown = [name for name in given if name not in known and name not in _NOT_WRITTEN]
    own = {name: given[name] for name in _NOT_WRITTEN if name in given}
    meant = {name: one for name, one in _meant(given, names).items() if name in known}
    missing = [
        Problem(f"the model's '{name}' is missing", f"write '{name}: …' in 'model_options'")
        for name, one in known.items()
        if one.default is one.empty and name not in meant
    ]
    made: list[_Made] = []
    problems = problems_in(lambda: _refuse(unknown, names, missing))
    if not missing:
        problems += problems_in(lambda: made.append(_tried(factory, {**meant, **own})))
    _raise(problems)
    return made[0]


def _tried(factory: Callable[..., _Made], given: Config) -> _Made:
    try:
        return factory(**given)
    except TypeError as error:
        text = str(error).partition("() ")[2] or str(error)
        fix = "write numbers as 'yard models' and the guide to training say"
        raise InputError(f"the model's options are wrong: {text}", fix=fix) from error


def _written(factory: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The keywords of a factory that are for people."""
    found = inspect.signature(factory).parameters
    return {name: one for name, one in found.items() if name not in _NOT_WRITTEN}


def _option_names(factory: Callable[..., object]) -> tuple[str, ...]:
    return (*_written(factory), *(OPTION_NAMES if factory is plain_model else ()))


def _meant(given: Config, names: Iterable[str]) -> dict[str, object]:
    known = tuple(names)
    found = {name: value for name, value in given.items() if name in known}
    for name, value in given.items():
        wrong = name not in known and name not in _NOT_WRITTEN
        if wrong and (near := suggest(name, known)) is not None:
            found.setdefault(near, value)
    return found


def _refuse(unknown: Iterable[str], known: Iterable[str], others: Iterable[Problem] = ()) -> None:
    """`InputError` with all options that a model does not have, and those that were meant."""
    names = tuple(known)
    problems = [
        problem
        for name in unknown
        for problem in UnknownName("option of the model", name, names).problems
    ]
    _raise(
        one if one.fix else replace(one, fix=f"use {one_of(names)}") for one in (*problems, *others)
    )


def _raise(problems: Iterable[Problem]) -> None:
    if found := tuple(problems):
        raise InputError(f"{len(found)} problems with the model's options", problems=found)


#: keywords of factories that are not for people
_NOT_WRITTEN = frozenset(("kind", "name", "args", "kwargs", "self"))
_WITHOUT_OPTIONS = frozenset(("context-mlp", "word2vec", "hidden-markov", "multitask"))
#: what is called with the numbers of a model
_NUMBERS: Mapping[str, Callable[..., object]] = {
    "gpt": plain_model,
    "bert": plain_model,
    "t5": plain_model,
    "context-mlp": ContextMlp,
    "word2vec": Word2Vec,
    HIDDEN_MARKOV: HiddenMarkov,
}
#: models that are described by numbers, of which the data can give one: the vocabulary
VOCABULARY = frozenset(_NUMBERS)
_OF_TASKS = ("trunk", "tasks")

_OWN: Mapping[str, Callable[[Config], nn.Module]] = {
    "gpt": _plain(ModelKind.DECODER),
    "bert": _plain(ModelKind.ENCODER),
    "t5": _plain(ModelKind.ENCODER_DECODER),
    "context-mlp": _keywords(ContextMlp),
    "word2vec": _keywords(Word2Vec),
    HIDDEN_MARKOV: _keywords(HiddenMarkov),
    "multitask": _multitask,
}
