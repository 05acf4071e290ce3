"""Who may call, and who did. A token itself is never kept: only its hash, and its first letters."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Engine, delete, select

from modelyard.control.store.tables import audit, tokens

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


def note_call(
    database: Engine, *, at: float, caller: Caller | None, call: str, status: int, detail: str = ""
) -> None:
    """Keep who called what, and how it ended."""
    with database.begin() as connection:
        connection.execute(
            audit.insert().values(
                at=at,
                user=caller.user if caller else "",
                tenant=caller.tenant if caller else "",
                call=redacted(call)[:400],
                status=status,
                detail=redacted(detail)[:2_000],
            )
        )


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
