"""The model of a checkpoint, and nothing else of it: moments take two thirds of most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modelyard.errors import InputError
from modelyard.keep.checkpoint import Checkpoint, Wanted, complete
from modelyard.keep.manifest import About
from modelyard.keep.store import open_store
from modelyard.keep.tree import rebuild
from modelyard.keep.verify import first_that_reads
from modelyard.train.tensor_parts import empty_like_stored

#: under which a checkpoint has the weights, and what describes the model
MODEL, CARD = "model", "card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a checkpoint has of a model."""

    about: About
    where: str
    state: Mapping[str, torch.Tensor]
    #: as it lies in the checkpoint's tree
    card: object


def read_model(place: str, *, step: int | None = None) -> Kept:
    """The model of the newest checkpoint that reads, or of a step; its moments are not read."""
    store, warned = open_store(place), list[str]()
    if step is None:
        found = first_that_reads(store, _read, warn=warned.append)
    else:
        at = [one for one in complete(store, warned.append) if one.about.step == step]
        found = _read(at[0]) if at else None
    if found is None:
        raise _none(place, step, warned)
    return found


def _read(checkpoint: Checkpoint) -> Kept:
    tensors: dict[str, torch.Tensor | None] = {}
    wanted = []
    for name, stored in checkpoint.manifest.tensors.items():
        tensors[name] = None
        if name.startswith((f"{MODEL}/", f"{CARD}/")):
            tensor, box, words = empty_like_stored(name, stored.dtype, stored.shape, None)
            tensors[name] = tensor
            wanted.append(Wanted(name, box, words))
    checkpoint.fill(wanted)
    tree: Any = rebuild(checkpoint.manifest.tree, tensors.__getitem__)
    if not isinstance(tree, dict) or not isinstance(tree.get(MODEL), dict):
        what = "this checkpoint has no model in it"
        raise InputError(what, fix="name a checkpoint of yard train", where=checkpoint.where)
    return Kept(
        about=checkpoint.about, where=checkpoint.where, state=tree[MODEL], card=tree.get(CARD)
    )


def read_shapes(place: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the newest model, from what its checkpoint says about itself."""
    warned: list[str] = []
    for checkpoint in complete(open_store(place), warned.append):
        begins = f"{MODEL}/"
        return {
            name.removeprefix(begins): tensor.shape
            for name, tensor in checkpoint.manifest.tensors.items()
            if name.startswith(begins)
        }
    raise _none(place, None, warned)


def _none(place: str, step: int | None, warned: list[str]) -> InputError:
    said = f": {warned[0]}" if warned else ""
    steps = f" of step {step}" if step is not None else ""
    what = f"there is no checkpoint{steps} that can be read{said}"
    return InputError(what, fix="see 'yard checkpoints' for those that there are", where=place)
