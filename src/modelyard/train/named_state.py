"""Optimizer states by the names of their parameters, which every division of a model shares.

torch numbers parameters in the order in which an optimizer got them. A stage of a pipeline has
fewer of them, so its numbers say nothing to others. What is kept goes by names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

#: How an optimizer computes, as torch calls it: chosen by whoever computes, and not by whoever has
#: kept the state, whose tensors may be divided in another way.
OF_THE_PROCESS = ("foreach", "fused")


def parameter_names(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of an optimizer's parameters by the numbers that torch gives them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    wanted = [one for group in optimizer.param_groups for one in group["params"]]
    # A script of somebody's own may train more than its model.
    return [names.get(one, f"parameter-{number}") for number, one in enumerate(wanted)]


def by_name(state: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """An optimizer's state as it is kept."""
    return {
        "state": {names[number]: moments for number, moments in state["state"].items()},
        "param_groups": [
            {key: value for key, value in group.items() if key != "params"}
            for group in state["param_groups"]
        ],
    }


def by_number(
    state: Mapping[str, Any], optimizer: torch.optim.Optimizer, names: list[str]
) -> dict[str, Any]:
    """What an optimizer can load; states that were kept with numbers keep those."""
    groups = optimizer.state_dict()["param_groups"]
    kept_groups = [
        {**kept, **{name: group[name] for name in OF_THE_PROCESS if name in group}}
        for kept, group in zip(state["param_groups"], groups, strict=True)
    ]
    if all("params" in group for group in kept_groups):
        return {**state, "param_groups": kept_groups}
    number_of = {name: number for number, name in enumerate(names)}
    return {
        "state": {
            number_of[name]: moments
            for name, moments in state["state"].items()
            if name in number_of
        },
        "param_groups": [
            {**kept, "params": group["params"]}
            for kept, group in zip(kept_groups, groups, strict=True)
        ],
    }
