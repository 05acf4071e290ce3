"""Checks of a yard: does it answer, does it decide, is what it knows whole?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from modelyard.control.client import CallRefused, Client
from modelyard.control.doctor.findings import Finding, ok, problem, warning
from modelyard.errors import YardError
from modelyard.units import format_duration

#: A leader decides every few seconds, and its clock is the database's within a second.
LATE_SECONDS, SKEW_SECONDS = 60.0, 2.0
#: without a backup
STALE_SECONDS = 2 * 86_400.0


def yard_findings(client: Client) -> Iterator[Finding]:
    """Everything that a server can be asked."""
    try:
        status = client.status()
    except YardError as error:
        yield problem("server", error.message, error.fix or "start it with 'yard up'")
        return
    yield ok("server", f"answers as {status['user']} ({status['role']})")
    if status["leader"] is None:
        yield problem("leader", "nobody leads", "see server.log in the yard's folder")
    else:
        yield ok("leader", f"{status['leader']}, term {status['term']}")
    yield _backups(status)
    try:
        yield from _inside(client.doctor())
    except CallRefused as error:
        yield warning("inside", error.message, "ask an admin to run it")
    except YardError as error:
        yield problem("inside", error.message, error.fix)


def _backups(status: dict[str, Any]) -> Finding:
    found = status["backup"]
    if found is None:
        return warning("backups", "none are made", "start it with 'yard up --backup PLACE'")
    if found["problem"]:
        return problem("backups", found["problem"], "see 'yard backup status'")
    if found["last_at"] is None:
        return warning("backups", "none was made yet", "wait, or run 'yard backup create'")
    age = max(time.time() - found["last_at"], 0.0)
    says = f"the newest is {format_duration(round(age))} old"
    if age > STALE_SECONDS:
        return warning("backups", says, "see 'yard backup status'")
    return ok("backups", says)


def _inside(found: dict[str, Any]) -> Iterator[Finding]:
    where = f"{found['database']}, revision {found['revision']}"
    if found["integrity"]:
        fix = "stop the yard and make a new one of a backup: 'yard restore'"
        yield problem("database", f"{where}: {'; '.join(found['integrity'][:3])}", fix)
    else:
        yield ok("database", f"{where}, whole")
    skew = abs(found["clock_skew_seconds"])
    if skew > SKEW_SECONDS:
        fix = "let NTP set the clocks of the servers and of the database"
        yield warning("clock", f"{skew:.1f} s off the database's", fix)
    else:
        yield ok("clock", "that of the database")
    age = None if found["decided"] is None else max(found["now"] - found["decided"], 0.0)
    if age is None or age > LATE_SECONDS:
        said = "none yet" if age is None else f"the last was {format_duration(round(age))} ago"
        yield problem("decisions", said, "see server.log; 'yard bundle' has what to report")
    else:
        yield ok("decisions", f"the last was {age:.1f} s ago")
    yield _several("records", found["violations"], "report it: 'yard bundle'")
    yield _several("orphaned tasks", found["orphans"], "they are ended within a minute; look again")


def _several(check: str, found: list[str], fix: str) -> Finding:
    if not found:
        return ok(check, "none" if check == "orphaned tasks" else "every invariant holds")
    return problem(check, f"{len(found)}: {'; '.join(found[:3])}", fix)
