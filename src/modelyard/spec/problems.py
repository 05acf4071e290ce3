"""What a model found wrong with a document → problems with file, line, column and fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from modelyard.errors import InputError, Problem, one_of, suggest
from modelyard.spec.source import Document, ValuePath, problems_error
from modelyard.units import describe

Model = TypeVar("Model", bound=BaseModel)

#: With this as their context, models pass over what does not fit together: see `salvage.py`.
INCOMPLETE = {"incomplete": True}
#: how pydantic marks that the key of a mapping is wrong, and not its value
_KEY_MARK = "[key]"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that several fields together get wrong; `path` leads from the model to it."""

    path: ValuePath
    what: str
    fix: str
    #: the other fields: where one of them is wrong by itself, nothing is known of the whole
    about: tuple[ValuePath, ...] = ()


class Inconsistent(ValueError):
    """Raised by a model whose fields are each right but do not fit together."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(f"{item.what} ({item.fix})" for item in self.findings))


def refuse(findings: Iterable[Finding], info: ValidationInfo) -> None:
    """Raise what a model found, unless it is only wanted for the rest of it."""
    found = tuple(findings)
    if found and info.context != INCOMPLETE:
        raise Inconsistent(found)


def validate(document: Document, model: type[Model]) -> Model:
    """The document as `model`, or one `InputError` with everything that is wrong with it."""
    if not isinstance(document.data, dict):
        problems = [_not_a_mapping(document, model)]
        raise problems_error(document.source, [*document.problems, *problems])
    try:
        checked = model.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [item for detail in details for item in problems_of(document, model, detail)]
        raise problems_error(document.source, [*document.problems, *problems]) from error
    if document.problems:
        raise problems_error(document.source, document.problems)
    return checked


def written_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the names that people write, which Python may not allow."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _not_a_mapping(document: Document, model: type[BaseModel]) -> Problem:
    required = [name for name, field in written_fields(model).items() if field.is_required()]
    found = describe(document.data)
    what = "the file is empty" if document.data is None else f"expected keys, found {found}"
    fix = "start with " + ", ".join(f"'{name}: …'" for name in required)
    return problem_at(document, (), what, fix)


def problems_of(
    document: Document, model: type[BaseModel], detail: ErrorDetails
) -> Iterator[Problem]:
    """What people are told of something that pydantic found."""
    path = tuple(detail["loc"])
    context = detail.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Inconsistent):
        for finding in cause.findings:
            yield problem_at(document, path + finding.path, finding.what, finding.fix)
    elif isinstance(cause, InputError):
        # A parser quotes the value; the key in front says which of several like it is meant.
        yield problem_at(document, path, f"{_spoken(path)}: {cause.message}", cause.fix)
    elif detail["type"] == "extra_forbidden":
        owner = model_at(model, path[:-1])
        yield _unknown_key(document, path, written_fields(owner) if owner is not None else ())
    elif path[-1:] == (_KEY_MARK,):
        yield _unknown_key(document, path[:-1], re.findall(r"'(\w+)'", context["expected"]))
    elif detail["type"] == "missing":
        what = f"{_spoken(path)} is missing"
        yield problem_at(document, path, what, f"add '{path[-1]}: …'{_purpose(model, path)}")
    elif not _is_echo(detail):
        what, fix = _value_complaint(detail, document.place(path).written)
        yield problem_at(document, path, f"{_spoken(path)} {what}", fix)


def _is_echo(detail: ErrorDetails) -> bool:
    """pydantic calls a list too short when its items are wrong; those complain for themselves."""
    return detail["type"] == "too_short" and bool(detail["input"])


def problem_at(document: Document, path: ValuePath, what: str, fix: str) -> Problem:
    """A problem with its line: that of the value, or of what is around one that is missing."""
    place = document.place(path)
    return Problem(what, fix, document.source, place.line, place.column)


def _unknown_key(document: Document, path: ValuePath, options: Iterable[str]) -> Problem:
    key, known = str(path[-1]), tuple(options)
    nearest = suggest(key, known)
    fix = f"did you mean '{nearest}'?" if nearest else f"use {one_of(known)}"
    place = document.place(path)
    what = f"unknown key '{key}'"
    return Problem(what, fix, document.source, place.key_line, place.key_column)


def model_at(model: type[BaseModel], path: ValuePath) -> type[BaseModel] | None:
    """The model of the value at `path`; positions in lists do not change it."""
    owner: type[BaseModel] | None = model
    for step in path:
        if isinstance(step, str) and owner is not None:
            field = written_fields(owner).get(step)
            owner = _model_in(field.annotation) if field is not None else None
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _purpose(model: type[BaseModel], path: ValuePath) -> str:
    owner = model_at(model, path[:-1])
    field = written_fields(owner).get(str(path[-1])) if owner is not None else None
    return f" ({field.description})" if field is not None and field.description else ""


def _spoken(path: ValuePath) -> str:
    """`nodes[2].devices` in quotes, as people point at it."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return f"'{text}'"


Complaint = tuple[str, str]

_EXPECTED: Mapping[str, Complaint] = {
    "string_type": ("text", "write text; put quotes around what YAML takes for something else"),
    "int_type": ("a whole number", "write a whole number without quotes"),
    "float_type": ("a number", "write a number without quotes"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "tuple_type": ("a list", "write '[a, b]', or one '- item' per line"),
    "dict_type": ("a mapping", "write indented 'key: value' lines"),
    "model_type": ("a mapping", "write indented 'key: value' lines"),
}

_LIMITS: Mapping[str, Callable[[Mapping[str, Any]], Complaint]] = {
    "greater_than_equal": lambda ctx: (
        f"must be at least {ctx['ge']}",
        f"write {ctx['ge']} or more",
    ),
    "greater_than": lambda ctx: (f"must be more than {ctx['gt']}", "write a larger number"),
    "less_than_equal": lambda ctx: (f"must be at most {ctx['le']}", f"write {ctx['le']} or less"),
    "too_short": lambda _: ("is empty", "write at least one entry"),
    "string_too_short": lambda _: ("is empty", "write something, or leave the key out"),
    "string_too_long": lambda ctx: (
        f"is longer than {ctx['max_length']} characters",
        "shorten it",
    ),
}


def _value_complaint(detail: ErrorDetails, written: str) -> Complaint:
    kind, value = detail["type"], detail["input"]
    if value is None:
        return "has no value", "write one, or remove the key"
    if kind in _EXPECTED:
        expected, fix = _EXPECTED[kind]
        found = (
            f"'{written}', which YAML reads as {describe(value)}" if written else describe(value)
        )
        return f"must be {expected}, found {found}", fix
    if kind == "enum":
        expected = detail.get("ctx", {})["expected"]
        return f"must be {expected}, found '{written}'", f"write {expected}"
    if kind in _LIMITS:
        return _LIMITS[kind](detail.get("ctx", {}))
    return detail["msg"][:1].lower() + detail["msg"][1:], ""
