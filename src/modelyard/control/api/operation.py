"""One call as the table has it: what runs, and everything that people are told about it.

What is declared is enforced before a call is answered, so that the description is the truth: who
may call, and which words a query knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from modelyard.control.api.calls import Answer, Call, Refused
from modelyard.control.store.callers import Role
from modelyard.errors import InputError

#: Names in paths, for people. A path with another one is refused when the table is made.
PATH_WORDS = {
    "job": "an id, the beginning of one that fits no other, or a name",
    "node": "the name of a node",
    "hint": "the first letters of a token",
    "tenant": "the name of a tenant",
}

PublicAnswer = Callable[[Request], Awaitable[Response]]


class Kind(StrEnum):
    """What a word of a query may be."""

    TEXT = "string"
    NUMBER = "integer"
    REAL = "number"
    FLAG = "boolean"


@dataclass(frozen=True, slots=True)
class Query:
    """One word of a query."""

    name: str
    kind: Kind
    says: str


@dataclass(frozen=True, slots=True)
class Media:
    """What is sent in another form than JSON."""

    type: str
    says: str
    #: of the JSON in each piece, where there is some
    shape: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method, a path, and what they do."""

    method: str
    path: str
    #: a public one gets the request itself, since nobody knows who calls
    answer: Answer | PublicAnswer
    #: the type of the answer's JSON (a TypedDict of `answers.py`), or another medium
    gives: Any
    takes: Any = None
    query: tuple[Query, ...] = ()
    status: int = 200
    #: other statuses with the same answer
    also: tuple[int, ...] = ()
    #: whether it needs a token of an admin, and whether it needs none at all
    admin: bool = False
    public: bool = False
    #: in place of the docstring of `answer`
    says: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in PATH_WORDS]
        if unknown or not self.summary:
            what = f"{self.method} {self.path} is not described"
            raise ValueError(f"{what}: give it a docstring, and its path's words in PATH_WORDS")

    @property
    def names(self) -> list[str]:
        """Words of the path that stand for something."""
        parts = self.path.split("/")
        return [part[1:-1] for part in parts if part.startswith("{")]

    @property
    def summary(self) -> str:
        """One line: the docstring's first, without the method before it."""
        text = self.says or (inspect.getdoc(self.answer) or "").split("\n\n")[0]
        text = " ".join(text.split()).removeprefix(f"{self.method}: ")
        return text[:1].upper() + text[1:]

    async def checked(self, call: Call) -> Response:
        """The answer, to those who may have it and ask for nothing that is not there."""
        if self.admin and call.caller.role is not Role.ADMIN:
            raise Refused(403, "only an admin may do this", fix="ask one")
        known = [one.name for one in self.query]
        for name in call.request.query_params:
            if name not in known:
                fix = f"it knows {', '.join(known)}" if known else "it knows none"
                what = f"'{name[:40]}' is no word of {self.method} {self.path}"
                raise InputError(what, fix=fix)
        return await cast("Answer", self.answer)(call)
