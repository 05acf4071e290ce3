"""A changed world as people write it: `nodes=+4xA100,policy=srtf,load=1.5`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modelyard.errors import InputError, Problem, one_of, suggest
from modelyard.simulate.compare import check_policies
from modelyard.simulate.node_change import NODE_FORMS, check_nodes
from modelyard.simulate.what_if import Change, changed
from modelyard.units import parse_duration

if TYPE_CHECKING:
    from modelyard.simulate.scenario import Scenario

TENANT_FORM = "tenant.NAME.maximum"
NO_LIMIT = "none"


@dataclass(frozen=True, slots=True)
class _Word:
    """One thing that can be changed: its field of `Change`, how to read it, what is accepted."""

    field: str
    read: Callable[[str], object]
    forms: str


def _policy(text: str) -> str:
    check_policies([text])
    return text


def _load(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise InputError(f"a load of {text} is not possible")
    return number


def _share(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 1:
        raise InputError(f"'{text}' is no share")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"'{text}' is not a number") from None


def _limit(text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    if not text.isdecimal():
        raise InputError(f"'{text}' is not a number of devices")
    return int(text)


_WORDS: Mapping[str, _Word] = {
    "nodes": _Word("nodes", check_nodes, NODE_FORMS),
    "policy": _Word("policy", _policy, "write a policy with its options: policy=las:limits=3600"),
    "load": _Word("load", _load, "write a number above 0: load=1.5 lets jobs arrive 1.5× as fast"),
    "restart": _Word("restart_seconds", parse_duration, "write a time: restart=60s"),
    "round": _Word("round_seconds", parse_duration, "write a time: round=2m, or round=0s"),
    "interference": _Word("interference", _share, "write a share from 0 to 1: interference=0.5"),
}
_LIMIT = _Word(
    "maximum", _limit, f"write a number of devices, or '{NO_LIMIT}': tenant.red.maximum=32"
)


def parse_changes(texts: Iterable[str], scenario: Scenario) -> tuple[Change, ...]:
    """The changes of `what=change,what=change` texts that this scenario allows.

    One `InputError` has all problems of all texts, each with the forms that are accepted.
    """
    changes: list[Change] = []
    problems: list[Problem] = []
    for text in texts:
        change, found = _parse(text)
        problems += found
        try:
            # Whether there are nodes to remove and such a tenant, only the scenario knows.
            changed(scenario, change)
        except InputError as error:
            problems += error.problems
        changes.append(change)
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return tuple(changes)


def _parse(text: str) -> tuple[Change, list[Problem]]:
    """What can be read of a text, and what is wrong with the rest."""
    fields: dict[str, Any] = {}
    maximum: dict[str, int | None] = {}
    seen: set[str] = set()
    problems: list[Problem] = []
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        tenant = _tenant(name)
        word = _LIMIT if tenant else _WORDS.get(name)
        if word is None or not equals or not value:
            problems.append(_misread(text, name, word))
        elif name in seen:
            what = f"'{name}' is changed twice in '{text}'"
            problems.append(Problem(what, fix="keep one of them, or write a second --what-if"))
        else:
            seen.add(name)
            try:
                if tenant:
                    maximum[tenant] = _limit(value)
                else:
                    fields[word.field] = word.read(value)
            except InputError as error:
                problems += [
                    Problem(found.what, fix=found.fix or word.forms, file=part.strip())
                    for found in error.problems
                ]
    return Change(**fields, maximum=maximum), problems


def _misread(text: str, name: str, word: _Word | None) -> Problem:
    if word is not None:
        return Problem(f"'{name}' in '{text}' has no value", fix=word.forms)
    what = f"'{name}' in '{text}' is nothing that can be changed"
    known = (*_WORDS, TENANT_FORM)
    near = suggest(name, known)
    return Problem(what, fix=f"did you mean '{near}'?" if near else f"change {one_of(known)}")


def _tenant(name: str) -> str:
    """NAME of `tenant.NAME.maximum`; nothing when it is something else."""
    head, _, rest = name.partition(".")
    tenant, _, right = rest.rpartition(".")
    return tenant if head == "tenant" and right == "maximum" else ""
