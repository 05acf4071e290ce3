"""Files that are whole or not there at all: what a command writes survives its own interruption."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from modelyard.errors import InputError, cause_of


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; after a crash, a full disk or Ctrl-C the old one is still there whole."""
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or a pipe has no old content to protect, and must not be replaced by a file.
        if target.is_dir():
            raise InputError(f"'{target}' is a folder", fix="name a file in it")
        _write(target, text)
        return
    folder = target.parent
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=folder)
    except OSError as error:
        raise _unwritable(target, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(target, error) from error


def _mode(target: Path) -> int:
    """The permissions the file had, or those that any new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(target: Path, error: OSError) -> InputError:
    what = f"'{target}' cannot be written: {cause_of(error)}"
    return InputError(what, fix="choose another place")
