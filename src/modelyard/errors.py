"""Every error that Modelyard raises on purpose: what was wrong, where, and what to do about it.

    YardError                anything this package refuses to do
    ├── InputError           something a person wrote cannot be used (also a ValueError)
    │   └── UnknownName      a name that nobody defined, with the nearest one that exists
    ├── CapacityError        a request that this cluster could never meet, even when empty
    └── PolicyError          a policy returned decisions that break an invariant of the yard

`keep/problems.py` adds what can be wrong with a store, `train` what ends a worker or a job.

`str(error)` is fit to print: one line per problem, each ending with its fix. Nothing heavy is
imported here, because every command imports this module before it does anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: below this likeness a suggestion confuses more often than it helps (difflib's own default)
SUGGESTION_CUTOFF = 0.6

#: longer lists of possible names hide the answer; a suggestion then has to do
MOST_NAMES_LISTED = 12

#: as Python and Rust show them
_NUMBER = re.compile(r"\[Errno -?\d+\] ?| ?\(os error \d+\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input; lines and columns count from 1, 0 when there is none."""

    what: str
    fix: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = ":".join(
            part for part in (self.file, _number(self.line), _number(self.column)) if part
        )
        text = f"{place}: {self.what}" if place else self.what
        return f"{_without_stop(text)}. Fix: {self.fix}" if self.fix else text


class YardError(Exception):
    """Anything Modelyard refuses to do, with the reason and the way out."""

    def __init__(self, message: str, *, fix: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.where = where

    def __str__(self) -> str:
        return str(Problem(self.message, fix=self.fix, file=self.where))


class InputError(YardError, ValueError):
    """A file, an argument or a value that a person wrote and that cannot be used.

    Carries all problems of that input, never only the first. It is a `ValueError` as well, so
    that the parsers of `units` serve as validators without a wrapper.
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        where: str = "",
        problems: Iterable[Problem] = (),
    ) -> None:
        super().__init__(message, fix=fix, where=where)
        self.problems = tuple(problems) or (Problem(message, fix=fix, file=where),)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class UnknownName(InputError):
    """A name that nobody defined: `what` says of which sort (device, policy, tenant, …)."""

    def __init__(self, what: str, name: str, options: Iterable[str], *, where: str = "") -> None:
        known = tuple(options)
        super().__init__(f"unknown {what} '{name}'", fix=_name_fix(name, known), where=where)
        self.what = what
        self.name = name
        self.options = known
        self.suggestion = suggest(name, known)

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the message alone, and fail in another process.
        return (_rebuild_unknown_name, (self.what, self.name, self.options, self.where))


class CapacityError(YardError):
    """A request that this cluster could never meet, even when empty."""


class PolicyError(YardError):
    """Decisions that break an invariant: over capacity, half a gang, a job that does not exist."""


def problems_in(*calls: Callable[[], object]) -> list[Problem]:
    """What is wrong with several things, of which each call looks at one."""
    found: list[Problem] = []
    for call in calls:
        try:
            call()
        except InputError as error:
            found.extend(error.problems)
    return found


def suggest(name: str, options: Iterable[str]) -> str | None:
    """The option that was meant, ignoring case, or None when nothing is near.

    Among those that are alike it is the one with the fewest slips: of a longer name all letters may
    occur in what was written, and still nobody leaves half of it out. The first of several wins.
    """
    import difflib  # only ever needed on the way to an error message

    written, spelling = name.casefold(), {option.casefold(): option for option in options}
    most = max(len(spelling), 1)
    alike = difflib.get_close_matches(written, spelling, n=most, cutoff=SUGGESTION_CUTOFF)
    if not alike:
        return None
    in_order = (one for one in spelling if one in alike)
    return spelling[min(in_order, key=lambda one: _slips(written, one))]


def one_of(options: Iterable[str]) -> str:
    """`'a', 'b' or 'c'`, for messages."""
    quoted = [f"'{option}'" for option in options]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def cause_of(error: BaseException) -> str:
    """Why something failed, on one line: the system's own words without its numbers and names.

    Python says `[Errno 28] No space left on device: '/x'`. Whoever tells people names the file, and
    the number helps nobody. SQLAlchemy has the database's error inside its own.
    """
    inner = getattr(error, "orig", None)
    if isinstance(inner, BaseException):
        error = inner
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    said = error.strerror if isinstance(error, OSError) else None
    lines = _NUMBER.sub("", said or str(error)).splitlines()
    return lines[0] if lines else type(error).__name__


def _name_fix(name: str, options: tuple[str, ...]) -> str:
    nearest = suggest(name, options)
    if nearest is not None:
        return f"did you mean '{nearest}'?"
    if 0 < len(options) <= MOST_NAMES_LISTED:
        return f"use {one_of(options)}"
    return ""


def _slips(written: str, meant: str) -> int:
    """Letters left out, added, exchanged or swapped with a neighbour (Damerau, 1964)."""
    before: list[int] = []
    row = list(range(len(meant) + 1))
    for at, letter in enumerate(written, start=1):
        last, before, row = before, row, [at]
        for to, other in enumerate(meant, start=1):
            fewest = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != other))
            if at > 1 and to > 1 and (letter, written[at - 2]) == (meant[to - 2], other):
                fewest = min(fewest, last[to - 2] + 1)
            row.append(fewest)
    return row[-1]


def _rebuild_unknown_name(
    what: str, name: str, options: tuple[str, ...], where: str
) -> UnknownName:
    return UnknownName(what, name, options, where=where)


def _number(value: int) -> str:
    return str(value) if value else ""


def _without_stop(text: str) -> str:
    return text.rstrip(".")


#: More names than this hide the sentence they stand in.
NAMES_SHOWN = 5


def some_of(names: Iterable[str], *, last: str = ", ") -> str:
    """`a, b, c`, and how many more there are; `last` stands before the last when all are shown."""
    listed = list(names)
    more = len(listed) - NAMES_SHOWN
    if more > 0:
        return f"{', '.join(listed[:NAMES_SHOWN])} and {more:,} more"
    return last.join(part for part in (", ".join(listed[:-1]), *listed[-1:]) if part)
