"""A folder as a store: files that appear whole, and are on the disk when a call returns.

Everything is written under a temporary name in the same folder, forced to disk and renamed; what
a killed process left under such names is never listed, and `clear` removes it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from modelyard.keep.problems import AlreadyThere, NoSuchObject, StoreError
from modelyard.keep.store import Buffer, Entry, checked_name
from modelyard.units import format_bytes

#: No object's name begins with a dot.
TEMPORARY = ".writing-"
PIECE_BYTES = 8 << 20

_numbers = itertools.count()

_CAUSES = {
    errno.ENOSPC: (
        "no space is left",
        "free some, keep fewer checkpoints, or choose another place",
    ),
    errno.EDQUOT: ("the quota is used up", "free some space, or choose another place"),
    errno.EFBIG: ("the file is larger than is allowed", "raise the limit on sizes of files"),
    errno.EACCES: ("permission is denied", "let this user write there, or choose another place"),
    errno.EPERM: ("that is not permitted", "let this user write there, or choose another place"),
    errno.EROFS: ("it can only be read", "choose a place that can be written"),
    errno.ENOTDIR: ("a part of the path is a file", "name a folder"),
    errno.EISDIR: ("that is a folder", "name a file"),
    errno.EEXIST: ("a file is in the way", "name a folder"),
    errno.EIO: ("the disk reports an error", "check the disk, or choose another place"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter path"),
    errno.ESTALE: ("the network file system has lost it", "mount it again"),
}


class Folder:
    """Objects as files below a folder, which is made when something is first written."""

    def __init__(self, root: Path) -> None:
        self._root = Path(root).expanduser().absolute()

    @property
    def place(self) -> str:
        return str(self._root)

    def put(self, name: str, data: Buffer, *, only_if_new: bool = False) -> None:
        self._write(name, (data,), memoryview(data).nbytes, only_if_new=only_if_new)

    def write(self, name: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        self._write(name, chunks, size_bytes, only_if_new=False)

    def get(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except OSError as error:
            raise self._problem("read", name, error) from error

    def read(self, name: str, start: int, stop: int) -> memoryview:
        try:
            with self._path(name).open("rb", buffering=0) as file:
                wanted = max(0, min(stop, os.fstat(file.fileno()).st_size) - start)
                # Not a bytearray, which would be filled with zeros first.
                view, filled = np.empty(wanted, dtype=np.uint8).data, 0
                while filled < wanted:
                    got = os.preadv(file.fileno(), [view[filled:]], start + filled)
                    if got == 0:
                        break
                    filled += got
                return view[:filled]
        except OSError as error:
            raise self._problem("read", name, error) from error

    def stream(self, name: str) -> Iterator[memoryview]:
        start = 0
        while piece := self.read(name, start, start + PIECE_BYTES):
            yield piece
            start += len(piece)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        top = self._path(prefix) if prefix else self._root
        try:
            for folder, _, files in os.walk(top, onerror=_raise_unless_missing):
                for file in files:
                    if not file.startswith("."):
                        path = Path(folder, file)
                        # A file may be deleted between being listed and being looked at.
                        with contextlib.suppress(FileNotFoundError):
                            name = path.relative_to(self._root).as_posix()
                            about = path.stat()
                            yield Entry(name, about.st_size, about.st_mtime)
        except OSError as error:
            raise self._problem("listed", prefix, error) from error

    def folders(self, prefix: str = "") -> list[str]:
        top = self._path(prefix) if prefix else self._root
        try:
            with os.scandir(top) as found:
                return sorted(
                    entry.name
                    for entry in found
                    if entry.is_dir() and not entry.name.startswith(".")
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._problem("listed", prefix, error) from error

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
                _sync_folder(path.parent)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._problem("deleted", name, error) from error

    def clear(self, prefix: str) -> None:
        path = self._path(prefix)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._problem("deleted", prefix, error) from error

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _write(
        self, name: str, chunks: Iterable[Buffer], size_bytes: int, *, only_if_new: bool
    ) -> None:
        target = self._path(name)
        temporary = target.parent / f"{TEMPORARY}{os.getpid()}-{next(_numbers)}-{target.name}"
        try:
            _make_folder(target.parent)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                written = sum(_write_all(file, chunk) for chunk in chunks)
                os.fsync(file)
            finally:
                os.close(file)
            if written != size_bytes:
                raise ValueError(f"{written} bytes came for '{name}', not {size_bytes}")
            _rename(temporary, target, only_if_new=only_if_new)
            _sync_folder(target.parent)
        except FileExistsError as error:
            if only_if_new and target.is_file():
                what = f"'{name}' is already in '{self.place}'"
                raise AlreadyThere(what, fix="choose another name") from error
            raise self._problem("written", name, error, size_bytes) from error
        except OSError as error:
            raise self._problem("written", name, error, size_bytes) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _problem(self, done: str, name: str, error: OSError, size_bytes: int = 0) -> StoreError:
        shown = f"'{name}' in '{self.place}'" if name else f"'{self.place}'"
        if isinstance(error, FileNotFoundError) and done == "read":
            return NoSuchObject(f"there is no {shown}", fix="check the name and the place")
        cause, fix = _CAUSES.get(
            error.errno or 0, (error.strerror or "it failed", "choose another place")
        )
        size = f" ({format_bytes(size_bytes)})" if size_bytes else ""
        return StoreError(f"{shown}{size} cannot be {done}: {cause}", fix=fix)


def _write_all(file: int, chunk: Buffer) -> int:
    view = memoryview(chunk).cast("B")
    left = view
    while left:
        left = left[os.write(file, left) :]
    return len(view)


def _rename(temporary: Path, target: Path, *, only_if_new: bool) -> None:
    if not only_if_new:
        temporary.replace(target)
        return
    try:
        # A second name for the file, which unlike a renaming never replaces another.
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # No hard links here: a file that appears within these two calls would be replaced.
        if target.exists():
            raise FileExistsError(errno.EEXIST, "already there", str(target)) from None
        temporary.replace(target)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, and have them on the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Force names to disk; some network file systems refuse, having done it already."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise
    finally:
        os.close(handle)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
