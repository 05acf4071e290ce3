"""The folder in which a local engine keeps its tasks, named after the term that may change it.

Raising the term renames the folder. Whoever acts for an earlier term names paths that are not
there any more: each single change is refused by the kernel itself, in the same instant, with no
lock that a stopped server could hold while everybody waits for it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelyard.engines.interface import Superseded, Unavailable
from modelyard.errors import InputError, cause_of

TASKS = "tasks"
#: where folders of tasks are made before they are claimed
MAKING = "making"
#: what stays of tasks that were forgotten: their logs
FORGOTTEN = "forgotten"
#: by job, the last attempt of which nothing may be started any more
OVER = "over"
#: a random name of this engine, to tell its processes from those of others
IDENTITY = "identity"

_TERM = "term-"

#: while the folder is being renamed, a listing may miss it
_LOOKS = 200
_PAUSE_SECONDS = 0.005


class Terms:
    """The state folder of one engine. Invariant: its term never falls."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._state.exists():
                _create(folder, self._state)
        except OSError as error:
            raise InputError(
                f"'{folder}' cannot hold the state of tasks: {cause_of(error)}",
                fix="choose a folder on a local disk that this user may write to",
            ) from error

    def lead(self, term: int) -> Path:
        """The folder under the name that it has in this term, raised if that is new."""
        while True:
            current = self.current()
            if term < current:
                raise Superseded(
                    f"a server of term {current} leads: nothing was done for term {term}"
                )
            path = self._path(term)
            if term == current:
                return path
            try:
                os.rename(self._path(current), path)
            except FileNotFoundError:
                continue
            _flush(self._state)
            return path

    def current(self) -> int:
        """The highest term that was ever heard of."""
        for _ in range(_LOOKS):
            names = os.listdir(self._state)
            terms = [int(name.removeprefix(_TERM)) for name in names if name.startswith(_TERM)]
            if terms:
                return max(terms)
            time.sleep(_PAUSE_SECONDS)
        raise Unavailable(f"the state of tasks in '{self._state}' is gone")

    @contextmanager
    def reading(self) -> Iterator[int]:
        """The open folder, for whoever only looks: renaming it does not disturb them."""
        while True:
            try:
                handle = os.open(self._path(self.current()), os.O_RDONLY | os.O_DIRECTORY)
                break
            except FileNotFoundError:
                continue
        try:
            yield handle
        finally:
            os.close(handle)

    def _path(self, term: int) -> Path:
        return self._state / f"{_TERM}{term}"


def _create(folder: Path, state: Path) -> None:
    """Make an empty state, once: it is made elsewhere and renamed, which fails the second time."""
    draft = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    first = draft / f"{_TERM}0"
    for name in ("", TASKS, MAKING, FORGOTTEN, OVER):
        (first / name).mkdir(mode=0o700)
    (first / IDENTITY).touch(mode=0o600)
    (first / IDENTITY).write_text(secrets.token_hex(4), encoding="ascii")
    try:
        os.rename(draft, state)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    _flush(folder)


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
