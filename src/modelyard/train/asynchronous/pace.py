"""How workers that do not keep step go on, by name.

| name            | how far apart                    | when workers fetch and push             |
|-----------------|----------------------------------|-----------------------------------------|
| `servers-async` | any (ASP)                        | every lease                             |
| `servers-stale` | at most `staleness` leases (SSP) | every lease                             |
| `downpour`      | any (Dean et al., 2012)          | every 5 leases, with steps of their own |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

import msgspec

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.train.compress.combinations import check_combination, compressor
from modelyard.train.values import count_problem, shown


class ServerStep(StrEnum):
    """What the server makes of a gradient; both look at each number alone, so shards may cut."""

    ADAGRAD = "adagrad"
    SGD = "sgd"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers and the server of a job agree on."""

    #: leases that a worker may be ahead of the slowest; -1 for any (Ho et al., 2013)
    staleness: int = -1
    #: leases between two fetches and between two pushes
    fetch: int = 1
    push: int = 1
    step: ServerStep = ServerStep.ADAGRAD
    #: whether a step is divided by the updates that came between (Zhang et al., 2016)
    weigh: bool = True
    #: whether steps of workers slower than most count less (`asynchronous/speeds.py`)
    weigh_speed: bool = True
    #: parts of the parameters that are updated at the same time
    shards: int = 2
    #: of what is pushed; empty for none
    compress: str = ""


PACES: Mapping[str, Pace] = {
    "servers-async": Pace(),
    "servers-stale": Pace(staleness=3),
    "downpour": Pace(fetch=5, push=5),
}


def weight(staleness: int) -> float:
    """Of a step whose gradient is so many updates old (Zhang et al., 2016)."""
    return 1.0 / max(staleness, 1)


def pace(name: str, options: Mapping[str, object] | None = None) -> Pace:
    """The pace of that name; `InputError` with everything that is wrong about its options."""
    if name not in PACES:
        raise UnknownName("asynchronous aggregation", name, PACES)
    problems: list[Problem] = []
    for key, value in (options or {}).items():
        if key not in _CHECKS:
            fix = f"use {', '.join(_CHECKS)}"
            problems.append(Problem(f"'{name}' has no option {shown(key)}", fix))
        elif (problem := _CHECKS[key](key, value)) is not None:
            problems.append(problem)
    given = dict(options or {})
    if isinstance(wanted := given.get("compress"), str) and wanted:
        try:
            check_combination(wanted, name)
            compressor(wanted)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(f"{len(problems)} problems with '{name}'", problems=problems)
    return msgspec.convert({**msgspec.to_builtins(PACES[name]), **given}, Pace)


def _flag_problem(name: str, value: object) -> Problem | None:
    right = isinstance(value, bool)
    return None if right else Problem(f"'{name}' is {shown(value)}", "write true or false")


def _step_problem(name: str, value: object) -> Problem | None:
    if isinstance(value, str) and value in set(ServerStep):
        return None
    return Problem(f"'{name}' is {shown(value)}", f"write {' or '.join(ServerStep)}")


def _text_problem(name: str, value: object) -> Problem | None:
    right = isinstance(value, str)
    return None if right else Problem(f"'{name}' is {shown(value)}", "write its name")


_CHECKS: Mapping[str, Callable[[str, object], Problem | None]] = {
    "staleness": partial(count_problem, least=0),
    "fetch": count_problem,
    "push": count_problem,
    "step": _step_problem,
    "weigh": _flag_problem,
    "weigh_speed": _flag_problem,
    "shards": count_problem,
    "compress": _text_problem,
}
