"""Who may call, and who did. A token itself is never kept: only its hash, and its first letters."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Engine, delete, select

from modelyard.control.store.tables import audit, tokens

#: A token that was recognised is for so long, also where another server revoked it meanwhile.
KNOWN_SECONDS = 1.0
#: Tokens that are remembered at once; nobody has as many.
MOST_KNOWN = 10_000
PREFIX = "yard_"
HINT_LETTERS = len(PREFIX) + 4
#: longer than a hint: a token, or the most of one
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{5,}}")


class Role(StrEnum):
    """What a caller may do."""

    #: everything, in every tenant: nodes, tokens, other people's jobs
    ADMIN = "admin"
    #: submit jobs of its tenant, and pause, resume, resize and cancel them
    MEMBER = "member"
    #: look at jobs of its tenant
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose token is known."""

    user: str
    tenant: str
    role: Role

    @property
    def scope(self) -> str | None:
        """The tenant whose jobs are to be seen; None for all."""
        return None if self.role is Role.ADMIN else self.tenant

    def may_see(self, tenant: str) -> bool:
        return self.role is Role.ADMIN or tenant == self.tenant

    def may_change(self, tenant: str) -> bool:
        return self.role is not Role.VIEWER and self.may_see(tenant)


@dataclass(frozen=True, slots=True)
class Issued:
    """A token as people see it in a list."""

    hint: str
    caller: Caller
    made: float


def issue(database: Engine, caller: Caller, *, at: float) -> str:
    """A new token for a caller; it is shown once and cannot be had again."""
    token = PREFIX + secrets.token_urlsafe(32)
    with database.begin() as connection:
        connection.execute(
            tokens.insert().values(
                digest=digest_of(token),
                hint=token[:HINT_LETTERS],
                user=caller.user,
                tenant=caller.tenant,
                role=caller.role,
                made=at,
            )
        )
    return token


def recognise(database: Engine, token: str) -> Caller | None:
    """Whose token it is; None for nobody's."""
    return recognise_digest(database, digest_of(token))


def recognise_digest(database: Engine, digest: str) -> Caller | None:
    """The same for whoever kept only the hash of a token that was shown before."""
    asked = select(tokens).where(tokens.c.digest == digest)
    with database.connect().execution_options(reads=True) as connection:
        row = connection.execute(asked).one_or_none()
    return Caller(row.user, row.tenant, Role(row.role)) if row else None


class Callers:
    """Tokens that were recognised within the last second: whoever asks often is looked up once.

    Refusals are not remembered, and what is revoked here is forgotten at once. Safe to use from any
    thread.
    """

    def __init__(self, database: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Caller]] = {}
        #: grows with every revocation, so that nobody remembers what was read before it
        self._revocations = 0

    def known(self, digest: str) -> Caller | None:
        """Whose token it is, without asking the database; None where only that can say."""
        with self._lock:
            until, caller = self._known.get(digest, (-1.0, None))
        return caller if self._clock() < until else None

    def recognise(self, digest: str) -> Caller | None:
        """Whose token it is; None for nobody's."""
        revocations, began = self._revocations, self._clock()
        caller = recognise_digest(self._database, digest)
        with self._lock:
            if caller is not None and revocations == self._revocations:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[digest] = began + KNOWN_SECONDS, caller
        return caller

    def revoke(self, hint: str) -> int:
        """Make tokens that begin so invalid, here at once; how many there were."""
        gone = revoke(self._database, hint)
        with self._lock:
            self._revocations += 1
            self._known.clear()
        return gone


def issued(database: Engine) -> list[Issued]:
    """All tokens that are valid, the oldest first."""
    with database.connect().execution_options(reads=True) as connection:
        rows = connection.execute(select(tokens).order_by(tokens.c.made)).all()
    return [
        Issued(row.hint, Caller(row.user, row.tenant, Role(row.role)), row.made) for row in rows
    ]


def revoke(database: Engine, hint: str) -> int:
    """Make tokens that begin so invalid; how many there were."""
    if len(hint) < HINT_LETTERS:
        return 0
    with database.begin() as connection:
        gone = connection.execute(delete(tokens).where(tokens.c.hint == hint[:HINT_LETTERS]))
        return gone.rowcount


def redacted(text: str) -> str:
    """A text without tokens: people write them where they do not belong, also parts of them."""
    return _TOKEN.sub(lambda found: f"{found[0][:HINT_LETTERS]}…", text)


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the audit: who called what, and how it ended."""

    at: float
    caller: Caller | None
    call: str
    status: int
    detail: str = ""

    def row(self) -> dict[str, object]:
        return {
            "at": self.at,
            "user": self.caller.user if self.caller else "",
            "tenant": self.caller.tenant if self.caller else "",
            "call": redacted(self.call)[:400],
            "status": self.status,
            "detail": redacted(self.detail)[:2_000],
        }


def note_call(
    database: Engine, *, at: float, caller: Caller | None, call: str, status: int, detail: str = ""
) -> None:
    """Keep who called what, and how it ended."""
    with database.begin() as connection:
        connection.execute(audit.insert(), [Note(at, caller, call, status, detail).row()])


@dataclass(frozen=True, slots=True)
class Audited:
    """A call that changed something or was refused."""

    number: int
    at: float
    user: str
    tenant: str
    call: str
    status: int
    detail: str


def audited(database: Engine, *, after: int = 0, most: int = 100) -> list[Audited]:
    """The newest of the calls with larger numbers than `after`, the oldest of them first."""
    asked = select(audit).where(audit.c.number > after).order_by(audit.c.number.desc())
    with database.connect().execution_options(reads=True) as connection:
        rows = connection.execute(asked.limit(most)).all()
    return [Audited(**row._mapping) for row in reversed(rows)]


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
