"""Optimizers by name, with decay only where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.distributed.tensor
from torch import nn

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.train.optimise.adafactor import Adafactor
from modelyard.train.optimise.lamb import Lamb
from modelyard.train.values import number_problem, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSettings:
    """What people choose; what an optimizer does not use is ignored by it."""

    name: str = "adamw"
    #: the highest; schedules multiply it
    learning_rate: float = 3e-4
    #: decoupled: parameters shrink by learning rate × this (Loshchilov and Hutter, 2019)
    weight_decay: float = 0.1
    #: of the averages of gradients and of their squares
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    momentum: float = 0.9
    nesterov: bool = False


OPTIMISER_FIELDS = tuple(field.name for field in fields(OptimiserSettings))


def settings_from(given: Mapping[str, object]) -> OptimiserSettings:
    """Settings as somebody wrote them; `InputError` with everything that is wrong."""
    problems: list[Problem] = []
    for name, value in given.items():
        if name not in OPTIMISER_FIELDS:
            error = UnknownName("setting of an optimizer", name, OPTIMISER_FIELDS)
            problems.extend(error.problems)
        elif (problem := _problem(name, value)) is not None:
            problems.append(problem)
    if problems:
        raise InputError(f"{len(problems)} problems with the optimizer", problems=problems)
    chosen: dict[str, Any] = dict(given)
    return OptimiserSettings(**chosen)


def optimizer_for(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """The optimizer of a model's parameters that want a gradient."""
    if settings.name not in _MAKERS:
        raise UnknownName("optimizer", settings.name, _MAKERS)
    groups = decay_groups(model, settings.weight_decay)
    if not groups:
        raise InputError(
            "the model has no parameter that wants a gradient",
            fix="leave 'requires_grad' on for those that should learn",
        )
    return _MAKERS[settings.name](groups, settings)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices and tables, which decay; vectors (biases, norms), which do not."""
    wanted = [one for one in model.parameters() if one.requires_grad]
    parts = {
        True: [one for one in wanted if one.ndim >= 2],
        False: [one for one in wanted if one.ndim < 2],
    }
    return [
        {"params": chosen, "weight_decay": weight_decay if decays else 0.0, "adapt": decays}
        for decays, chosen in parts.items()
        if chosen
    ]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of all groups from now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


_Groups = list[dict[str, Any]]


def _adamw(groups: _Groups, settings: OptimiserSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        # One pass over parameters and moments instead of a dozen, where torch can make it.
        fused=_alike(groups) or None,
    )


def _alike(groups: _Groups) -> bool:
    """Whether all parameters are whole, or all are cut over the same places."""
    cut = torch.distributed.tensor.DTensor
    parameters = [one for group in groups for one in group["params"]]
    return len({one.device_mesh if isinstance(one, cut) else None for one in parameters}) == 1


def _sgd(groups: _Groups, settings: OptimiserSettings) -> torch.optim.Optimizer:
    return DecoupledSgd(
        groups,
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=settings.nesterov and settings.momentum > 0.0,
    )


def _lamb(groups: _Groups, settings: OptimiserSettings) -> torch.optim.Optimizer:
    return Lamb(
        groups,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
    )


def _adafactor(groups: _Groups, settings: OptimiserSettings) -> torch.optim.Optimizer:
    return Adafactor(groups, lr=settings.learning_rate)


class DecoupledSgd(torch.optim.SGD):
    """torch's SGD, whose own decay would go through the momentum, with decay beside it."""

    def __init__(self, groups: _Groups, *, lr: float, momentum: float, nesterov: bool) -> None:
        renamed = [
            {"decay" if key == "weight_decay" else key: value for key, value in group.items()}
            for group in groups
        ]
        super().__init__(renamed, lr=lr, momentum=momentum, nesterov=nesterov)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        with torch.no_grad():
            for group in self.param_groups:
                if group["decay"]:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter.mul_(1.0 - group["lr"] * group["decay"])
        return super().step(closure)


_MAKERS: Mapping[str, Callable[[_Groups, OptimiserSettings], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "lamb": _lamb,
    "adafactor": _adafactor,
}


def _problem(name: str, value: object) -> Problem | None:
    if name == "name":
        if isinstance(value, str) and value in _MAKERS:
            return None
        return UnknownName("optimizer", str(shown(value)).strip("'"), _MAKERS).problems[0]
    if name == "nesterov":
        right = isinstance(value, bool)
        return None if right else Problem(f"'nesterov' is {shown(value)}", "write true or false")
    if name in ("beta1", "beta2", "momentum"):
        return number_problem(name, value, most=1.0, below=True)
    return number_problem(name, value, above=name in ("learning_rate", "epsilon"))
