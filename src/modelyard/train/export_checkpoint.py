"""From a checkpoint to a folder that `transformers` loads, without the job and without its data."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from modelyard.errors import InputError
from modelyard.keep.manifest import About
from modelyard.spec.job import JobSpec
from modelyard.train.beginning import checkpoints_at
from modelyard.train.card import Card, built, card_of, read_card
from modelyard.train.data.tokenizer_files import tokenizer_files
from modelyard.train.export import MOST_BYTES, export_model, export_tensors
from modelyard.train.kept_model import Kept, read_model
from modelyard.train.materials import model_of, prepared
from modelyard.train.models.bert import Bert
from modelyard.train.models.gpt import Gpt
from modelyard.train.models.hugging_face import HuggingFace
from modelyard.train.models.multitask import MultiTask
from modelyard.train.models.t5 import T5


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    folder: Path
    about: About
    where: str
    model: str
    parameters: int
    #: whether transformers has a class that loads it
    loadable: bool
    files: tuple[str, ...]


def export_checkpoint(
    source: str,
    folder: Path,
    *,
    job: tuple[JobSpec, Path] | None = None,
    step: int | None = None,
    dtype: str = "float32",
    most_bytes: int = MOST_BYTES,
) -> Exported:
    """Export the newest checkpoint of a run, or that of a step.

    `job` and its folder describe the model of checkpoints that do not. Models that no class of
    transformers computes are written as safetensors alone, under their own names.
    """
    place = checkpoints_at(source)
    if place is None:
        what = "these are weights of Hugging Face already"
        raise InputError(what, fix="name a run's folder or a checkpoint's", where=source)
    kept = read_model(place, step=step)
    card = _card(kept, job)
    files = tokenizer_files(card.tokenizer, card.special)
    with tempfile.TemporaryDirectory() as beside:
        for name, text in files.items():
            (Path(beside) / name).write_text(text, encoding="utf-8")
        module = _module(card, kept)
        trunk = module.shared if isinstance(module, MultiTask) else module
        loadable = isinstance(trunk, (Gpt, Bert, T5, HuggingFace))
        if loadable:
            tokens = _config_tokens(card)
            heads = _heads(kept) if isinstance(module, MultiTask) else {}
            export_model(
                trunk,
                folder,
                tokenizer=beside,
                dtype=dtype,
                most_bytes=most_bytes,
                config=tokens,
                beside=heads,
            )
        else:
            export_tensors(kept.state, folder, tokenizer=beside, dtype=dtype, most_bytes=most_bytes)
    return Exported(
        folder=folder,
        about=kept.about,
        where=kept.where,
        model=card.name,
        parameters=sum(one.numel() for one in kept.state.values()),
        loadable=loadable,
        files=tuple(sorted(path.name for path in folder.iterdir())),
    )


def _card(kept: Kept, job: tuple[JobSpec, Path] | None) -> Card:
    if job is None:
        return read_card(kept.card, where=kept.where)
    spec, folder = job
    _, data = prepared(spec, folder)
    return read_card(card_of(spec, data, model_of(spec, data, folder)), where=kept.where)


def _module(card: Card, kept: Kept) -> nn.Module | None:
    """The model with the weights of the checkpoint; None for one that needs a user's code."""
    if card.shape is None and card.config is None:
        return None
    module = built(card)
    try:
        module.load_state_dict(dict(kept.state))
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        what = f"the checkpoint does not fit the model that was described: {first}"
        fix = "name the job that it was trained with"
        raise InputError(what, fix=fix, where=kept.where) from error
    return module


def _config_tokens(card: Card) -> dict[str, object]:
    """What `generate` of transformers has to know."""
    if card.special is None:
        return {}
    return {"eos_token_id": card.special.end, "pad_token_id": card.special.pad}


def _heads(kept: Kept) -> dict[str, torch.Tensor]:
    return {name: one for name, one in kept.state.items() if name.startswith("heads.")}
