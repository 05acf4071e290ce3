"""What a launcher returns, and how it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelyard.errors import InputError, Problem

#: options on one line of a command that people read
_LINE_WIDTH = 88


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """Files to write and the command that uses them."""

    tool: str
    #: text by file name
    files: Mapping[str, str]
    #: for a shell, on every node where there are several; empty when a file says everything
    command: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that a tool cannot express, and how to plan without it."""

    what: str
    fix: str


def refuse(tool: str, reasons: Sequence[Reason]) -> InputError:
    """One error with everything that the tool cannot express."""
    problems = [
        Problem(f"{tool} cannot run this plan: {reason.what}", reason.fix) for reason in reasons
    ]
    return InputError(problems[0].what, fix=problems[0].fix, problems=problems)


def shell(words: Sequence[str]) -> str:
    """A command on several lines, every word quoted that needs it.

    Words that begin with `$` are variables for the reader to set, and stay open.
    """
    lines: list[list[str]] = [[]]
    for group in _groups(words):
        text = " ".join(_quoted(word) for word in group)
        taken = sum(len(part) + 1 for part in lines[-1])
        if lines[-1] and taken + len(text) > _LINE_WIDTH:
            lines.append([])
        lines[-1].append(text)
    return " \\\n    ".join(" ".join(line) for line in lines)


def _groups(words: Sequence[str]) -> list[list[str]]:
    """Options with their values."""
    groups: list[list[str]] = []
    for word in words:
        if groups and groups[-1][0].startswith("--") and not word.startswith("--"):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _quoted(word: str) -> str:
    return f'"{word}"' if word in _VARIABLES else shlex.quote(word)


#: the only words that a shell may fill in: who is the first node, and which node this is
HEAD, RANK = "$HEAD_NODE:29500", "$NODE_RANK"
_VARIABLES = frozenset({HEAD, RANK})
