"""Checkpoints of divided models: every place writes what it owns, and reads its own part of all."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from modelyard.errors import YardError
from modelyard.train.inside import Inside, Word
from modelyard.train.named_state import by_name, parameter_names
from modelyard.train.optimise.choose import set_rate
from modelyard.train.snapshots import Owned, Restored, restore_latest

#: The writers of a replica that has died may finish a checkpoint while its successor is looking.
TRIES, PAUSE_SECONDS = 50, 0.2


def restored(
    place: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, inside: Inside
) -> Restored | None:
    """This place's part of the newest checkpoint, the same one on all places of the replica."""
    like = _like(model, optimizer)
    for _ in range(TRIES):
        found = restore_latest(place, like=like)
        at = (-1, -1) if found is None else (found.about.generation, found.about.step)
        word = Word(*at, fine=True)
        if all(other == word for other in inside.words(word)):
            return found if found is None else _own_part(found)
        time.sleep(PAUSE_SECONDS)
    raise YardError("the places of a replica find different checkpoints", fix="start the job again")


def owned_paths(owned: Callable[[str, torch.Tensor], bool]) -> Owned:
    """The same for the paths of a kept state: `model/NAME`, `optimizer/state/NAME/…`.

    What else there is belongs to no parameter, and all places have it alike.
    """

    def owns(path: str, tensor: torch.Tensor) -> bool:
        kind, *rest = path.split("/")
        names = {"model": rest[:1], "optimizer": rest[1:2]}.get(kind, [])
        return owned(names[0] if names else "", tensor)

    return owns


def _like(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """A state with all that a place has, so that it is known which part of it that is.

    An optimizer has moments after its first step: one that changes nothing is made and forgotten.
    """
    groups = optimizer.param_groups
    rates = [group["lr"] for group in groups]
    parameters = [one for group in groups for one in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    set_rate(optimizer, 0.0)
    optimizer.step()
    state = by_name(optimizer.state_dict(), parameter_names(model, optimizer))
    optimizer.state.clear()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for parameter in parameters:
        parameter.grad = None
    return {"model": model.state_dict(), "optimizer": state}


def _own_part(found: Restored) -> Restored:
    """Without the names that only other places have."""
    assert isinstance(found.tree, dict)
    model = {name: one for name, one in found.tree["model"].items() if one is not None}
    return Restored(about=found.about, where=found.where, tree={**found.tree, "model": model})
