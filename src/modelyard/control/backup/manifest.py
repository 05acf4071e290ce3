"""What a backup consists of. It is written last: a backup without a manifest does not exist."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from modelyard.keep.problems import Damaged
from modelyard.keep.sealing import seal, unseal

Count = Annotated[int, Field(ge=0, lt=2**63)]
#: a name in a folder, never a way out of it
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
Words = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of a backup: rows of a table as JSON lines, or a file; compressed."""

    name: Word
    #: of which these are rows; empty for a file
    table: str = ""
    #: the file's path in the yard's folder; empty for rows
    file: Words | Literal[""] = ""
    rows: Count = 0
    #: as it is stored
    size_bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """A checkpoint of a job's run that is kept beside the backups; many may share one copy."""

    job: Word
    folder: Word
    size_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All of a backup."""

    name: Word
    #: when it was begun: everything durable then is in it; seconds since 1970
    made_at: float
    #: of the program that made it, for people
    version: str
    #: of the tables
    revision: str
    #: rows of each table
    tables: dict[str, Count]
    parts: tuple[Part, ...]
    checkpoints: tuple[CheckpointCopy, ...] = ()
    #: with which the key was made of a passphrase, in hex; empty where nothing is encrypted
    salt: str = ""
    #: of everything else in here, which only who knows the passphrase can make; in hex
    tag: str = ""
    #: counts changes after which older programs cannot read it any more
    format: Literal[1] = 1

    @property
    def encrypted(self) -> bool:
        return bool(self.salt)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    def body(self) -> bytes:
        """Everything but the tag, always in the same words."""
        return _text(replace(self, tag=""))


def sealed(manifest: Manifest) -> bytes:
    return seal(_text(manifest))


def opened(data: bytes, *, where: str) -> Manifest:
    """The manifest that was sealed; `Damaged` when anything of it has changed."""
    body = unseal(data)
    if body is None:
        raise Damaged(f"'{where}' is damaged: its hash does not fit", fix=_FIX)
    try:
        return _adapter().validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, found["loc"]))
        if place == "format":
            fix = "update modelyard, or restore another backup"
            raise Damaged(f"'{where}' has a format that is not known here", fix=fix) from error
        raise Damaged(f"'{where}' is damaged: {place}: {found['msg']}", fix=_FIX) from error


_FIX = "restore another backup: see 'yard backup --list'"


def _text(manifest: Manifest) -> bytes:
    return json.dumps(asdict(manifest), separators=(",", ":"), allow_nan=False).encode()


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)
