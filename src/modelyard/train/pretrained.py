"""Weights of Hugging Face in the models that are built here, to be trained further.

Only safetensors are read, and every tensor must be accounted for: a weight that is missing, left
over or of another shape is an error with its name, never a silent gap.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from modelyard.errors import InputError, Problem
from modelyard.spec.hugging_face import CONFIG_FILE, read_config
from modelyard.spec.model import Model
from modelyard.spec.text_file import read_text
from modelyard.spec.weights import counted
from modelyard.train.export import INDEX_FILE, WEIGHTS_FILE, safetensors
from modelyard.train.families import Family, Pair, family_named
from modelyard.train.models.registry import build, shape_of

#: far above any config or index
_MOST_TEXT = 64 * 1024 * 1024
#: what some files hold and nobody needs: tables that are computed, and copies of tied matrices
_COMPUTED = (
    "rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    "position_ids",
    "cls.predictions.decoder.bias",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
)
_TABLES = (
    "transformer.wte.weight",
    "wte.weight",
    "model.embed_tokens.weight",
    "shared.weight",
    "bert.embeddings.word_embeddings.weight",
)
_PAIR_HEAD = "cls.seq_relationship"
_TIED = ("lm_head.weight", "cls.predictions.decoder.weight")
#: how each family names what our options name
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "activation": ("hidden_act", "activation_function"),
    "norm_epsilon": ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
    "rope_theta": ("rope_theta",),
    "furthest_bucket": ("relative_attention_max_distance",),
    "pad_token": ("decoder_start_token_id", "pad_token_id"),
}


def load_pretrained(
    folder: str | os.PathLike[str], config: Mapping[str, object] | None = None
) -> nn.Module:
    """The model of a saved folder with its weights; `config` are options beside what it says."""
    path = Path(folder)
    fields = _fields(path)
    family = family_named(str(fields.get("model_type")))
    if family is None:
        raise InputError(
            f"weights of a '{fields.get('model_type')}' cannot be loaded into a model of ours",
            fix=f"name it as 'hf:{path}', which trains the class of transformers itself",
            where=str(path),
        )
    if torch.get_default_device().type == "meta":
        # Somebody looks at the model's form and has no memory for its weights.
        _files(path)
        return build(read_config(path), {**_options(fields, path), **(config or {})})
    tensors = dict(_tensors(path))
    model = _as_saved(read_config(path), tensors)
    _check_scaled(model, fields, path)
    module = build(model, {**_options(fields, path), **(config or {})})
    fill_weights(module, tensors, family, where=str(path))
    return module


def _as_saved(model: Model, tensors: Mapping[str, torch.Tensor]) -> Model:
    """The shape that the weights have where the config leaves it open."""
    if model.traits.classes and not any(name.startswith(_PAIR_HEAD) for name in tensors):
        # BERT's does not say whether it was saved with the head for sentences.
        model = replace(model, traits=replace(model.traits, pooler=False, classes=0))
    head = next((tensors[name] for name in _TIED if name in tensors), None)
    table = next((tensors[name] for name in _TABLES if name in tensors), None)
    if model.tied and head is not None and table is not None and not torch.equal(head, table):
        # transformers 5 writes that every T5 is tied; the weights know better.
        model = replace(model, tied=False)
    return replace(model, parameters=counted(model))


def _check_scaled(model: Model, fields: Mapping[str, object], folder: Path) -> None:
    """`InputError` for scales that some classes of transformers know and ours do not."""
    strange = [
        name
        for name, usual in (
            ("scale_attn_weights", True),
            ("scale_attn_by_inverse_layer_idx", False),
            ("scale_decoder_outputs", model.tied),
        )
        if fields.get(name, usual) is not usual
    ]
    if strange:
        raise InputError(
            f"'{strange[0]}' is {fields[strange[0]]}, which is not built here",
            fix=f"name the model as 'hf:{folder}'",
            where=str(folder),
        )


def fill_weights(
    module: nn.Module, tensors: dict[str, torch.Tensor], family: Family, *, where: str
) -> None:
    """Fill a module from tensors by their names; `InputError` with all that do not fit."""
    model = shape_of(module)
    assert model is not None
    state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    problems: list[Problem] = []
    with torch.no_grad():
        for pair in family.pairs(model):
            found = tensors.pop(_present(pair.theirs, tensors), None)
            problem = _fill(pair, found, state)
            problems += [problem] if problem is not None else []
    left = [name for name in tensors if not _needless(name, tied=model.tied)]
    problems += [
        Problem(f"'{name}' has no place in the model", "check its config.json", where)
        for name in sorted(left)[:10]
    ]
    if problems:
        raise InputError(f"{len(problems)} weights do not fit", problems=problems)


def _fill(
    pair: Pair, found: torch.Tensor | None, state: Mapping[str, torch.Tensor]
) -> Problem | None:
    ours = [state[name] for name in pair.ours if name in state]
    if found is None:
        return Problem(f"'{pair.theirs}' is missing", "save the whole model") if ours else None
    if len(ours) < len(pair.ours):
        return Problem(f"'{pair.theirs}' has no place in the model", "check its config.json")
    whole = found.T if pair.transposed else found
    rows = sum(len(one) for one in ours)
    if whole.shape != (rows, *ours[0].shape[1:]):
        what = f"'{pair.theirs}' has the shape {tuple(found.shape)}, {rows} rows were expected"
        return Problem(what, "check its config.json")
    for one, part in zip(ours, whole.split([len(one) for one in ours]), strict=True):
        one.copy_(part)
    return None


def _present(name: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """The name as a file has it: base models are saved without their first word."""
    short = name.partition(".")[2]
    return short if name not in tensors and short in tensors else name


def _needless(name: str, *, tied: bool) -> bool:
    # A pooler is saved with every BERT, also where nothing reads it.
    return name.endswith(_COMPUTED) or name.startswith("bert.pooler") or (tied and name in _TIED)


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    safetensors()
    from safetensors import SafetensorError, safe_open

    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                    yield name, opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"these weights cannot be read: {error}",
                fix="fetch or save the file again",
                where=str(path),
            ) from error


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    if not index.is_file():
        if (folder / WEIGHTS_FILE).is_file():
            return [folder / WEIGHTS_FILE]
        raise InputError(
            f"there is no '{WEIGHTS_FILE}' in this folder",
            fix="save the model as safetensors: model.save_pretrained(folder)",
            where=str(folder),
        )
    places = _object(index).get("weight_map")
    names = set(places.values()) if isinstance(places, dict) else set()
    if not names or not all(isinstance(one, str) and Path(one).name == one for one in names):
        raise InputError("this index names no files", fix="save the model again", where=str(index))
    return [folder / str(name) for name in sorted(names)]


def _fields(folder: Path) -> dict[str, object]:
    return _object(folder / CONFIG_FILE)


def _object(path: Path) -> dict[str, object]:
    try:
        found = json.loads(read_text(str(path), _MOST_TEXT))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError("this is not JSON", fix="save the model again", where=str(path)) from error
    if not isinstance(found, dict):
        raise InputError("expected an object", fix="save the model again", where=str(path))
    return found


def _options(fields: Mapping[str, object], folder: Path) -> dict[str, object]:
    """What the config says of our options; `InputError` for positions that we do not compute."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling")
    merged = dict(fields)
    if isinstance(rope, dict):
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise InputError(
                f"rotary positions of the type '{kind}' are not built here",
                fix=f"name the model as 'hf:{folder}'",
                where=str(folder),
            )
        merged |= {"rope_theta": rope.get("rope_theta", fields.get("rope_theta"))}
    options: dict[str, object] = {}
    for name, theirs in _FIELDS.items():
        options |= next(({name: merged[one]} for one in theirs if merged.get(one) is not None), {})
    said = fields.get("feed_forward_proj")
    if isinstance(said, str):
        gated, _, word = said.rpartition("-")
        options["activation"] = "gelu_new" if gated and word == "gelu" else word
    return options
