"""Text files that people hand in: read whole, or refused with the reason and the way out.

Only ordinary files are opened. A folder has no text, and a pipe or a device may never end; both are
refused before anything is read from them.
"""

from __future__ import annotations

import errno
import os
import stat

from modelyard.errors import InputError, Problem, cause_of

_MEBIBYTE = 1024 * 1024
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | os.PathLike[str], most_bytes: int) -> str:
    """The text of a UTF-8 file of at most `most_bytes`, without a byte-order mark.

    Everything that keeps it from being read is an `InputError` that names the file.
    """
    source = os.fspath(path)
    if "\0" in source:
        raise InputError("a file name cannot contain a null character", fix="check the path")
    if not source:
        raise InputError("the name of the file is empty", fix="write the path of a file")
    content = _read_bytes(source, most_bytes)
    if len(content) > most_bytes:
        raise InputError(
            f"larger than {_size(most_bytes)}, the most that is read",
            fix="hand in a smaller file, or only its part that is needed",
            where=source,
        )
    return _decode(content, source)


def _read_bytes(source: str, most_bytes: int) -> bytes:
    try:
        # Without this flag, opening a pipe that nobody writes to would wait for ever.
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(source, error) from error
    try:
        with open(handle, "rb") as stream:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise _not_a_file(source, mode)
            return stream.read(most_bytes + 1)
    except IsADirectoryError as error:
        raise _not_a_file(source, stat.S_IFDIR) from error
    except OSError as error:
        raise _unreadable(source, error) from error


def _not_a_file(source: str, mode: int) -> InputError:
    if stat.S_ISDIR(mode):
        return InputError("this is a folder", fix="name a file in it", where=source)
    kind = "a pipe" if stat.S_ISFIFO(mode) else "a device"
    fix = "save its content to a file and name that"
    return InputError(f"this is {kind}, not a file", fix=fix, where=source)


def _unreadable(source: str, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError("no such file", fix="check the path", where=source)
    if isinstance(error, PermissionError):
        fix = "make the file readable for the user who runs this"
        return InputError("no permission to read this file", fix=fix, where=source)
    if error.errno == errno.ENAMETOOLONG:
        shown = f"{source[:40]}…"
        return InputError("the name is too long for a file", fix="check the path", where=shown)
    if error.errno == errno.ENXIO:
        fix = "save its content to a file and name that"
        return InputError("this is a socket or a pipe, not a file", fix=fix, where=source)
    return InputError(f"cannot be read: {cause_of(error)}", fix="check the path", where=source)


def _decode(content: bytes, source: str) -> str:
    fix = "save the file as UTF-8"
    if content.startswith(_UTF16_MARKS):
        raise InputError("the file is UTF-16, not UTF-8", fix=fix, where=source)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        what = f"the byte 0x{content[error.start]:02x} is not UTF-8 text"
        problem = Problem(what, fix, source, line, column)
        raise InputError(what, fix=fix, where=source, problems=(problem,)) from error


def _size(size_bytes: int) -> str:
    if size_bytes >= _MEBIBYTE:
        return f"{size_bytes / _MEBIBYTE:g} MiB"
    return f"{size_bytes / 1024:g} KiB"
