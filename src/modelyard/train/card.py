"""What a checkpoint says about its model beside the weights: enough to build it without the job.

The card holds the model's name and options, the shape that was built (or Hugging Face's config),
the special tokens, and the tokenizer's own file as bytes, so that a checkpoint can be exported on
another machine, where neither the job nor its data are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.job import JobSpec
from modelyard.spec.model import Model
from modelyard.train.data.sources import JobData
from modelyard.train.data.tokenizer import FILE, Special
from modelyard.train.models.hugging_face import HuggingFace, Objective, from_config
from modelyard.train.models.multitask import MultiTask
from modelyard.train.models.options import ModelOptions
from modelyard.train.models.registry import build, multitask_on, shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A model's description."""

    #: as the job called it, with its options
    name: str
    options: Mapping[str, Any]
    #: of a model of ours, or of the trunk that several tasks share
    shape: Model | None = None
    shape_options: ModelOptions | None = None
    #: of a model of transformers
    config: Mapping[str, Any] | None = None
    objective: str = ""
    special: Special | None = None
    #: `tokenizer.json`; nothing where tokens are bytes
    tokenizer: bytes = b""


def card_of(job: JobSpec, data: JobData, model: nn.Module) -> dict[str, object]:
    """The card as a part of a checkpoint's tree."""
    assert job.model is not None
    assert job.train is not None
    trunk = model.shared if isinstance(model, MultiTask) else model
    inner = isinstance(trunk, HuggingFace)
    file = data.folder / FILE
    made = Card(
        name=job.model,
        options=dict(job.train.model_options),
        shape=shape_of(trunk),
        shape_options=trunk.options if shape_of(trunk) is not None else None,
        config=trunk.inner.config.to_dict() if isinstance(trunk, HuggingFace) else None,
        objective=trunk.objective.value if inner else "",
        special=data.special,
    )
    text = msgspec.json.encode(made, enc_hook=str).decode()
    kept = bytearray(file.read_bytes() if file.is_file() else b"")
    tokenizer = torch.frombuffer(kept, dtype=torch.uint8) if kept else torch.zeros(0).byte()
    return {"about": text, "tokenizer": tokenizer}


def read_card(kept: object, *, where: str) -> Card:
    """The card of a checkpoint's tree; `InputError` where there is none that can be read."""
    fix = "name the job's file with --job"
    if not isinstance(kept, Mapping):
        what = "this checkpoint does not say which model it is of"
        raise InputError(what, fix=fix, where=where)
    try:
        card = msgspec.json.decode(kept["about"], type=Card)
        tokenizer = bytes(kept["tokenizer"].numpy())
    except (msgspec.MsgspecError, KeyError, AttributeError) as error:
        what = f"what this checkpoint says about its model cannot be read: {error}"
        raise InputError(what, fix=fix, where=where) from error
    return replace(card, tokenizer=tokenizer)


def built(card: Card) -> nn.Module:
    """The model that a card describes, with weights still to be filled in."""
    if card.config is not None:
        return from_config(card.config, Objective(card.objective))
    if card.shape is None:
        return build(card.name, card.options)
    options = {} if card.shape_options is None else msgspec.to_builtins(card.shape_options)
    module = build(card.shape, options)
    return multitask_on(module, card.options) if card.name == "multitask" else module
