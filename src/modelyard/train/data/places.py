"""Where the input lies: files, folders and buckets, read in ranges and never whole.

A folder stands for the files below it whose names say what they hold, in the order of their names.
Buckets (`s3://`, `gs://`, `az://`, `oss://`) go through `keep/store.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from modelyard.errors import InputError, Problem, cause_of, one_of

if TYPE_CHECKING:
    from modelyard.keep.store import Store


class Kind(StrEnum):
    """What a file holds."""

    #: UTF-8; the file is one document
    TEXT = "text"
    #: a JSON object a line, each a document in one of its fields
    JSONL = "jsonl"
    #: a table, each row a document in one of its columns
    PARQUET = "parquet"
    #: whole numbers in a one-dimensional numpy file: tokens already
    TOKENS = "tokens"


ENDINGS: Mapping[str, Kind] = {
    ".txt": Kind.TEXT,
    ".text": Kind.TEXT,
    ".md": Kind.TEXT,
    ".jsonl": Kind.JSONL,
    ".ndjson": Kind.JSONL,
    ".parquet": Kind.PARQUET,
    ".npy": Kind.TOKENS,
}
#: Common, and nothing that can be read from the middle.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of the input."""

    name: str
    kind: Kind
    size_bytes: int
    #: changes when the file does, as far as the place can tell
    stamp: str


class Reader(Protocol):
    """A file from which any range can be read."""

    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, start: int, size: int) -> bytes:
        """So many bytes from there on; fewer only at the end of the file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def find_sources(inputs: Sequence[str], kind: Kind | None = None) -> list[Source]:
    """All files of the input; everything that is wrong with it in one `InputError`."""
    found: dict[str, Source] = {}
    problems: list[Problem] = []
    for text in inputs:
        try:
            for source in _sources(text, kind):
                found.setdefault(source.name, source)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems[0].what, problems=problems)
    return list(found.values())


def open_source(source: Source) -> Reader:
    if _in_bucket(source.name):
        return _BucketReader(source.name, source.size_bytes)
    return _FileReader(source.name)


# -- files and folders --------------------------------------------------------------------------


def _sources(text: str, kind: Kind | None) -> list[Source]:
    if not text or "\0" in text:
        raise InputError("the name of an input is empty or has a null character", fix="check it")
    if _in_bucket(text):
        return _in_store(text, kind)
    path = Path(text.removeprefix("file://"))
    if path.is_dir():
        return _in_folder(path, kind)
    source = _file(path, kind if kind else _kind_of(path.name))
    if source.size_bytes == 0:
        raise InputError("this file is empty", fix="leave it out", where=text)
    return [source]


def _in_folder(folder: Path, kind: Kind | None) -> list[Source]:
    if (folder / "data.json").is_file():
        what = "this is a data set already"
        fix = "train on it as it is; several data sets are mixed when a job runs, by weights"
        raise InputError(what, fix=fix, where=str(folder))
    found = [_file(path, kind if kind else ENDINGS[path.suffix.lower()]) for path in _walk(folder)]
    whole = [source for source in found if source.size_bytes]
    if not whole:
        what = "all files in this folder are empty" if found else _nothing_here(folder)
        fix = f"name a folder with files that end in {one_of(ENDINGS)}, or name files themselves"
        raise InputError(what, fix=fix, where=str(folder))
    return whole


def _walk(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in ENDINGS:
                yield Path(top, name)


def _nothing_here(folder: Path) -> str:
    packed = any(path.suffix in COMPRESSED for path in folder.rglob("*"))
    return "this folder has no text" + (", only compressed files" if packed else "")


def _kind_of(name: str) -> Kind:
    ending = Path(name).suffix.lower()
    if ending in COMPRESSED:
        fix = f"unpack it first: {ending} files cannot be read from the middle"
        raise InputError("this file is compressed", fix=fix, where=name)
    # A file that somebody names is text unless it says otherwise; what is not UTF-8 is refused.
    return ENDINGS.get(ending, Kind.TEXT)


def _file(path: Path, kind: Kind) -> Source:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError("no such file", fix="check the path", where=str(path)) from None
    except OSError as error:
        raise _unreadable(str(path), error) from error
    if not stat.S_ISREG(status.st_mode):
        what = "this is a pipe or a device, not a file"
        raise InputError(what, fix="save its content to a file", where=str(path))
    stamp = str(status.st_mtime_ns)
    return Source(name=str(path), kind=kind, size_bytes=status.st_size, stamp=stamp)


class _FileReader:
    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise _unreadable(name, error) from error
        self.size_bytes = os.fstat(self._file).st_size

    def read(self, start: int, size: int) -> bytes:
        parts = []
        try:
            while size > 0 and (part := os.pread(self._file, size, start)):
                parts.append(part)
                start, size = start + len(part), size - len(part)
        except OSError as error:
            raise _unreadable(self.name, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _unreadable(name: str, error: OSError) -> InputError:
    what = f"cannot be read: {cause_of(error)}"
    shown = name if len(name) <= 200 else f"{name[:40]}…"
    return InputError(what, fix="check the path and its permissions", where=shown)


# -- buckets ------------------------------------------------------------------------------------


def _in_bucket(name: str) -> bool:
    return "://" in name and not name.startswith("file://")


def _store(place: str) -> Store:
    from modelyard.keep.store import StoreOptions, open_store

    # Where Amazon's own tools look for the address of another service that speaks S3.
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "") if place.startswith("s3://") else ""
    return open_store(place, StoreOptions(endpoint=endpoint))


def _in_store(address: str, kind: Kind | None) -> list[Source]:
    """A single object, or all below an address whose names say what they hold."""
    ending = Path(address).suffix.lower()
    top, _, last = address.rstrip("/").rpartition("/")
    single = kind is not None or ending in ENDINGS
    entries = list(_store(top if single and not top.endswith("/") else address).entries())
    if single:
        entries = [entry for entry in entries if entry.name == last]
        base = top
    else:
        base = address.rstrip("/")
        entries = [each for each in entries if Path(each.name).suffix.lower() in ENDINGS]
    found = [
        Source(
            name=f"{base}/{entry.name}",
            kind=kind if kind else ENDINGS[Path(entry.name).suffix.lower()],
            size_bytes=entry.size_bytes,
            stamp="",
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.size_bytes
    ]
    if not found:
        fix = f"name an object or a folder with objects that end in {one_of(ENDINGS)}"
        raise InputError("there is no text here", fix=fix, where=address)
    return found


class _BucketReader:
    def __init__(self, name: str, size_bytes: int) -> None:
        self.name, self.size_bytes = name, size_bytes
        place, _, self._object = name.rpartition("/")
        self._store = _store(place)

    def read(self, start: int, size: int) -> bytes:
        stop = min(start + size, self.size_bytes)
        return bytes(self._store.read(self._object, start, stop)) if start < stop else b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays open between two reads."""
