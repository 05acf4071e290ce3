"""Ways to train together by name, with their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.train.aggregate.all_reduce import AllReduce
from modelyard.train.aggregate.diloco import diloco
from modelyard.train.aggregate.gossip import Gossip, Graph
from modelyard.train.aggregate.interface import Aggregation
from modelyard.train.aggregate.local_sgd import Rounds
from modelyard.train.aggregate.servers import Servers
from modelyard.train.asynchronous.pace import PACES
from modelyard.train.compress.combinations import check_combination, compressor
from modelyard.train.values import count_problem, number_problem, shown

#: the option that all have whose payloads can be compressed: a name, or a name with its options
COMPRESS = "compress"


@dataclass(frozen=True, slots=True)
class _Way:
    make: Callable[..., Aggregation]
    options: Mapping[str, Callable[[str, object], Problem | None]]
    compressible: bool = True


def _graph_problem(name: str, value: object) -> Problem | None:
    if isinstance(value, str) and value in set(Graph):
        return None
    return Problem(f"'{name}' is {shown(value)}", f"write {', '.join(Graph)}")


_below_one = partial(number_problem, most=1.0, below=True)
_positive = partial(number_problem, above=True)


def _gossip(graph: str = Graph.EXPONENTIAL) -> Gossip:
    return Gossip(graph=Graph(graph))


_WAYS: Mapping[str, _Way] = {
    "all-reduce": _Way(AllReduce, {}),
    "local-sgd": _Way(Rounds, {"updates": count_problem}),
    "diloco": _Way(
        diloco,
        {"updates": count_problem, "outer_rate": _positive, "outer_momentum": _below_one},
    ),
    "servers": _Way(Servers, {"count": count_problem}),
    "decentralised": _Way(_gossip, {"graph": _graph_problem}, compressible=False),
}


def aggregation(name: str, options: Mapping[str, object] | None = None) -> Aggregation:
    """The aggregation of that name; `InputError` with everything that is wrong about it."""
    if name not in _WAYS:
        raise UnknownName("aggregation", name, [*_WAYS, *PACES])
    way = _WAYS[name]
    given: dict[str, Any] = dict(options or {})
    compress = given.pop(COMPRESS, None) if way.compressible else None
    known = [*way.options, *([COMPRESS] if way.compressible else [])]
    problems: list[Problem] = []
    for key, value in given.items():
        if key not in way.options:
            fix = f"use {', '.join(known)}" if known else "leave it out"
            problems.append(Problem(f"'{name}' has no option {shown(key)}", fix))
        elif (problem := way.options[key](key, value)) is not None:
            problems.append(problem)
    if compress is not None:
        try:
            given["compressor"] = _compressor(name, compress)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(f"{len(problems)} problems with '{name}'", problems=problems)
    return way.make(**given)


def _compressor(aggregation: str, wanted: object) -> object:
    """From "int8", or from {name: int8, block: 64}."""
    named = {"name": wanted} if isinstance(wanted, str) else wanted
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        fix = "write its name, or {name: …} with its options"
        raise InputError(f"'{COMPRESS}' is {shown(wanted)}", fix=fix)
    check_combination(named["name"], aggregation)
    return compressor(named["name"], {key: value for key, value in named.items() if key != "name"})
