"""What is left of a document that is partly wrong, so that mistakes of other sorts come with it.

Whoever checks more than the form of a document (whether its data is there, whether its model can be
built) needs a model to look at. Wrong values are left out, and keys that are nearly right count as
meant: what follows from them would only be told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from copy import deepcopy

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from modelyard.errors import InputError, Problem, suggest
from modelyard.spec.problems import (
    Inconsistent,
    Model,
    model_at,
    problems_of,
    validate,
    written_fields,
)
from modelyard.spec.source import Document, ValuePath

#: What is left out may bring other mistakes to light; a few rounds find all that one could mend.
MOST_ROUNDS = 4


def salvaged(document: Document, model: type[Model]) -> tuple[Model | None, tuple[Problem, ...]]:
    """The document as `model` as far as it goes (None: too little is left), and its problems."""
    try:
        return validate(document, model), ()
    except InputError as error:
        problems = error.problems
    data, removed = deepcopy(document.data), set[ValuePath]()
    for _ in range(MOST_ROUNDS):
        try:
            return model.model_validate(data), problems
        except ValidationError as error:
            details = error.errors(include_url=False)
            problems += tuple(_late(document, model, details, removed))
            removed.update(path for one in details for path in _wrong(one))
            mended = [_mended(data, model, one) for one in details]
            if not all(mended):
                break
    return None, problems


def _late(
    document: Document,
    model: type[BaseModel],
    details: Iterable[ErrorDetails],
    removed: Set[ValuePath],
) -> Iterator[Problem]:
    """What does not fit together, which is seen only when every field for itself is right."""
    for detail in details:
        paths = set(_wrong(detail))
        cause = detail.get("ctx", {}).get("error")
        # What was not written at all may be missing because it was left out here.
        written = all(path and path in document.places for path in paths)
        if removed and written and isinstance(cause, Inconsistent) and not paths & removed:
            yield from problems_of(document, model, detail)


def _mended(data: object, model: type[BaseModel], detail: ErrorDetails) -> bool:
    if detail["type"] == "extra_forbidden":
        return _renamed(data, model, tuple(detail["loc"]))
    left_out = [_left_out(data, path) for path in _wrong(detail)]
    return all(left_out)


def _wrong(detail: ErrorDetails) -> Iterator[ValuePath]:
    path, cause = tuple(detail["loc"]), detail.get("ctx", {}).get("error")
    if isinstance(cause, Inconsistent):
        yield from (path + finding.path for finding in cause.findings)
    else:
        yield path


def _renamed(data: object, model: type[BaseModel], path: ValuePath) -> bool:
    """Whether an unknown key could be given the name that was meant, or be left out."""
    around, owner = _at(data, path[:-1]), model_at(model, path[:-1])
    if not isinstance(around, dict) or path[-1] not in around:
        return False
    value = around.pop(path[-1])
    meant = suggest(str(path[-1]), written_fields(owner)) if owner is not None else None
    if meant is not None:
        around.setdefault(meant, value)
    return True


def _left_out(data: object, path: ValuePath) -> bool:
    """Whether the value at a path was there and could be removed."""
    for end in range(len(path), 0, -1):
        around, key = _at(data, path[: end - 1]), path[end - 1]
        if isinstance(around, dict) and key in around:
            # Paths of pydantic may go on behind a plain value, with a sort that it might be of.
            if end < len(path) and isinstance(around[key], (dict, list)):
                return False
            del around[key]
            return True
    return False


def _at(data: object, path: ValuePath) -> object:
    found = data
    for step in path:
        if not isinstance(found, (dict, list)):
            return None
        try:
            found = found[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return found
