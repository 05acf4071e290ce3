"""Weights that a job begins with: of a Hugging Face folder, a GGUF file, or another job.

    train:
      from: smollm2/            # config.json and safetensors: also what `yard export` writes
      from: model.gguf          # llama.cpp's format
      from: other-job-run       # the newest checkpoint of a run, also in a bucket

A folder or a file brings its own shape; a checkpoint fills the model that the job describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from modelyard.errors import InputError, Problem, one_of
from modelyard.keep.checkpoint import versions
from modelyard.keep.listing import run_checkpoints
from modelyard.keep.store import open_store
from modelyard.spec.hugging_face import CONFIG_FILE
from modelyard.spec.model_source import load_model
from modelyard.train.kept_model import read_model, read_shapes
from modelyard.train.models.context_mlp import ContextMlp
from modelyard.train.models.options import OPTION_NAMES
from modelyard.train.models.registry import HUGGING_FACE, build, multitask_on, shape_of
from modelyard.train.pretrained import load_pretrained
from modelyard.train.pretrained_gguf import load_gguf

_GGUF = ".gguf"
#: names of a kind, of whatever shape the weights are
PLAIN = ("gpt", "bert", "t5")
#: more names than these hide what is wrong
_MOST_NAMED = 5


def begun(name: str, options: Mapping[str, object], source: Path | str) -> nn.Module:
    """The model of a name with the weights of a place; `InputError` where they do not fit."""
    if (place := checkpoints_at(source)) is not None:
        module = build(name, options)
        _fill(module, place)
        return module
    path = Path(source)
    if name.startswith(HUGGING_FACE):
        if path.suffix == _GGUF:
            fix = "write 'model: gpt', which reads GGUF"
            raise InputError("a model of transformers cannot begin from GGUF", fix=fix)
        return build(f"{HUGGING_FACE}{path}", options)
    if name == "multitask":
        trunk = {key: value for key, value in options.items() if key in OPTION_NAMES}
        return multitask_on(_loaded(path, trunk), options)
    return _shaped(name, options, path)


def checkpoints_at(source: Path | str) -> str | None:
    """The place of checkpoints that a run folder, a folder or an address stands for, if any."""
    text = str(source)
    if "://" in text:
        if not versions(open_store(text)):
            raise InputError("there is no checkpoint", fix="check the address", where=text)
        return text
    path = Path(text)
    if path.is_file() or (path / CONFIG_FILE).is_file():
        return None
    if path.is_dir():
        place = run_checkpoints(text)
        if versions(open_store(place)):
            return place
    what = "no such file or folder" if not path.exists() else "there are no weights here"
    fix = "name a folder with config.json and safetensors, a .gguf file, or a run's folder"
    raise InputError(what, fix=fix, where=text)


def _shaped(name: str, options: Mapping[str, object], path: Path) -> nn.Module:
    """A model of ours: its shape is that of the weights, whatever else the job calls it."""
    own = {key: value for key, value in options.items() if key in OPTION_NAMES}
    numbers = options.keys() - own.keys() - {"vocab"}
    if numbers:
        raise InputError(
            f"{', '.join(repr(one) for one in sorted(numbers))} come with the weights",
            fix="leave them out of 'model_options'",
            where=str(path),
        )
    module = _loaded(path, own)
    spec = shape_of(module)
    assert spec is not None
    if name in PLAIN:
        if type(module).__name__.lower() != name:
            fix = f"write 'model: {type(module).__name__.lower()}'"
            raise InputError(f"these are weights of a {spec.kind}, not of a '{name}'", fix=fix)
        return module
    wanted = load_model(name, besides=PLAIN)
    if wanted.parameters.total != spec.parameters.total:
        raise InputError(
            f"these weights have {spec.parameters.total:,} parameters, "
            f"'{name}' has {wanted.parameters.total:,}",
            fix=f"name the model that they are of, or {one_of(PLAIN)}",
            where=str(path),
        )
    return module


def _loaded(path: Path, options: Mapping[str, object]) -> nn.Module:
    if path.suffix == _GGUF:
        return load_gguf(path, options)
    return load_pretrained(path, options)


def _fill(module: nn.Module, place: str) -> None:
    own = module.state_dict()
    # Whoever only looks whether all of it fits has no memory for the model.
    blank = any(one.is_meta for one in own.values())
    shapes = read_shapes(place)
    if isinstance(module, ContextMlp) and "neighbours.weight" in shapes:
        # Embeddings that word2vec has learnt: the rest of the model begins anew.
        own = {"source.weight": own["source.weight"]}
        shapes = {"source.weight": shapes["source.weight"]}
    problems = [Problem(f"'{one}' is missing", "", place) for one in own.keys() - shapes.keys()]
    problems += [
        Problem(f"'{one}' has no place in the model", "", place)
        for one in shapes.keys() - own.keys()
    ]
    problems += [
        Problem(f"'{one}' is {shapes[one]}, not {tuple(own[one].shape)}", "", place)
        for one in own.keys() & shapes.keys()
        if shapes[one] != tuple(own[one].shape)
    ]
    if problems:
        what = f"{len(problems)} tensors of this checkpoint do not fit the model"
        fix = "describe the model with which it was made, in 'model' and 'model_options'"
        shown = sorted(problems, key=str)[:_MOST_NAMED]
        raise InputError(what, problems=[Problem(what, fix, place), *shown])
    if not blank:
        state = read_model(place).state
        module.load_state_dict({**module.state_dict(), **{one: state[one] for one in own}})
