"""What is left of a document that is partly wrong, so that mistakes of other sorts come with it.

Whoever checks more than the form of a document (whether its data is there, whether its model can be
built) needs a model to look at. Wrong values are left out, keys that are nearly right count as
meant, and values that do not fit together stay: what follows from them would only be told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from copy import deepcopy

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from modelyard.errors import InputError, Problem, suggest
from modelyard.spec.problems import (
    INCOMPLETE,
    Inconsistent,
    Model,
    model_at,
    problem_at,
    validate,
    written_fields,
)
from modelyard.spec.source import Document, ValuePath

#: What is left out may bring other mistakes to light; a few rounds find all that one could mend.
MOST_ROUNDS = 6


def salvaged(
    document: Document, model: type[Model], *, stand_ins: Mapping[str, object] | None = None
) -> tuple[Model | None, tuple[Problem, ...]]:
    """The document as `model` as far as it goes (None: too little is left), and its problems.

    `stand_ins` are used where a key that has to be there is missing or wrong.
    """
    try:
        return validate(document, model), ()
    except InputError as error:
        problems = error.problems
    # What is right by itself and does not fit is left out only to see what else does not.
    data, kept = deepcopy(document.data), deepcopy(document.data)
    removed = set[ValuePath]()
    for _ in range(MOST_ROUNDS):
        try:
            model.model_validate(data)
            break
        except ValidationError as error:
            details = error.errors(include_url=False)
        problems += tuple(_late(document, data, details, removed))
        removed.update(path for one in details for path in _wrong(one))
        mended = [_mended(data, model, one, stand_ins or {}) for one in details]
        for one in details:
            if not isinstance(_cause(one), Inconsistent):
                _mended(kept, model, one, stand_ins or {})
        if not any(mended):
            break
    try:
        return model.model_validate(kept, context=INCOMPLETE), problems
    except ValidationError:
        return None, problems


def _late(
    document: Document, data: object, details: Iterable[ErrorDetails], removed: Set[ValuePath]
) -> Iterator[Problem]:
    """What does not fit together, which is seen only when every field for itself is right."""
    if not removed:  # all of it was told in the first place
        return
    for detail in details:
        at, cause = tuple(detail["loc"]), _cause(detail)
        for finding in cause.findings if isinstance(cause, Inconsistent) else ():
            paths = [at + path for path in (finding.path, *finding.about)]
            # What is missing or odd because it was left out here was told already.
            if not any(_is_gone(path, data, removed) for path in paths):
                yield problem_at(document, at + finding.path, finding.what, finding.fix)


def _is_gone(path: ValuePath, data: object, removed: Set[ValuePath]) -> bool:
    """Whether a value was left out, with all around it or because of something in it."""
    if any(path[: len(one)] == one for one in removed):
        return True
    return any(one[: len(path)] == path for one in removed) and _at(data, path) is None


def _mended(
    data: object, model: type[BaseModel], detail: ErrorDetails, stand_ins: Mapping[str, object]
) -> bool:
    path = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _renamed(data, model, path)
    if detail["type"] == "missing":
        if isinstance(data, dict) and len(path) == 1 and path[0] in stand_ins:
            data[path[0]] = stand_ins[str(path[0])]
            return True
        return _left_out(data, path[:-1])
    left_out = [_left_out(data, path) for path in _wrong(detail)]
    return any(left_out)


def _cause(detail: ErrorDetails) -> object:
    """What a validator raised, where it was one."""
    return detail.get("ctx", {}).get("error")


def _wrong(detail: ErrorDetails) -> Iterator[ValuePath]:
    path, cause = tuple(detail["loc"]), _cause(detail)
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
            # Paths of pydantic may go on behind a plain value, with a sort that it might be of; an
            # item of a list goes with all of it.
            behind = all(isinstance(step, int) for step in path[end:])
            if not behind and isinstance(around[key], (dict, list)):
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
