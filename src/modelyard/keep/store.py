"""Places that hold objects: a folder or a bucket, behind one small interface.

An object appears whole or not at all, whatever is killed meanwhile. Names are paths with `/`.
A folder needs nothing installed; buckets (S3 and what speaks it, OSS, Google Cloud, Azure) need
the package `obstore`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from modelyard.errors import InputError, one_of

#: the schemes of buckets that `open_store` understands
BUCKETS = ("s3", "oss", "gs", "az")

#: An object's name: what every service and every file system can hold without escapes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*(/[A-Za-z0-9][A-Za-z0-9._=,+-]*)*")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing."""

    name: str
    size_bytes: int
    #: when it was written, in seconds since 1970, by the clock of the place; 0 where nobody knows
    written_at: float = 0.0


class Store(Protocol):
    """What every place can do. All of it raises `StoreError`, which says what helps."""

    @property
    def place(self) -> str:
        """The address, fit to print: it never holds a secret."""

    def put(self, name: str, data: Buffer, *, only_if_new: bool = False) -> None:
        """Write an object; `AlreadyThere` when it was to be new and is not."""

    def write(self, name: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """Write a large object from the pieces that it consists of, without holding it."""

    def get(self, name: str) -> bytes:
        """A whole object; `NoSuchObject` when it is not there."""

    def read(self, name: str, start: int, stop: int) -> memoryview:
        """Some bytes of an object; fewer come when it ends before `stop`."""

    def stream(self, name: str) -> Iterator[memoryview]:
        """A whole object, piece by piece."""

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All objects whose names begin with a folder `prefix`, in no order."""

    def folders(self, prefix: str = "") -> list[str]:
        """The names directly below a folder that have something below them, sorted."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there already are no error."""

    def clear(self, prefix: str) -> None:
        """Remove everything in a folder, half-written things as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to reach a bucket.

    What is empty comes from the environment, as the service's own tools read it:
    `AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, ….
    """

    #: the address of a service that is not the cloud's own, as `http://127.0.0.1:8333`
    endpoint: str = ""
    region: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    #: of Azure
    account: str = ""
    #: after that long without an answer, a request has failed
    retry_seconds: float = 60.0


def open_store(place: str | Path, options: StoreOptions | None = None) -> Store:
    """The store at an address: `runs/one`, `s3://bucket/folder`, `oss://…`, `gs://…`, `az://…`."""
    text = str(place)
    if not text.strip():
        raise InputError("no place to keep things was named", fix="name a folder or s3://bucket")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme == "file":
        from modelyard.keep.folder import Folder

        return Folder(Path(rest if separator else text))
    if scheme not in BUCKETS:
        known = one_of(f"{name}://" for name in ("file", *BUCKETS))
        raise InputError(f"'{scheme}://' is no kind of store", fix=f"name a folder, or use {known}")
    parts = urlsplit(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        what = "the address of a bucket holds a user, a password or options"
        fix = "write scheme://bucket/folder, and give keys through the environment"
        raise InputError(what, fix=fix)
    if not parts.hostname:
        raise InputError(f"'{text}' names no bucket", fix=f"write {scheme}://bucket/folder")
    from modelyard.keep.bucket import Bucket

    return Bucket.open(
        scheme, parts.netloc, parts.path.strip("/"), options if options else StoreOptions()
    )


def checked_name(name: str) -> str:
    """The name of an object, when every place can hold it."""
    if not _NAME.fullmatch(name) or len(name) > 900:
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        fix = "use letters, digits, '.', '_', '=', ',', '+', '-' and '/' between folders"
        raise InputError(f"'{shown}' cannot be the name of an object", fix=fix)
    return name
