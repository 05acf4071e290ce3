"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    #: it works, and something is not as it should be
    WARNING = "warning"
    #: something does not work, or will not for long
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what is so, and what to do where that is not well."""

    check: str
    grade: Grade
    says: str
    fix: str = ""


def ok(check: str, says: str) -> Finding:
    return Finding(check, Grade.OK, says)


def warning(check: str, says: str, fix: str) -> Finding:
    return Finding(check, Grade.WARNING, says, fix)


def problem(check: str, says: str, fix: str) -> Finding:
    return Finding(check, Grade.PROBLEM, says, fix)
