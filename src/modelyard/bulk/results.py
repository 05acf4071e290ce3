"""The folder of a sweep: three files of outcomes that only ever grow, and a note of what they are.

Each record leaves one line in `result.jsonl`, `no_solution.jsonl` or `bad.jsonl`. A line that is
whole is done for good; a line that a crash left unfinished is removed and its record planned again.
`sweep.json` says of which requests the lines are, so that two sweeps never mix.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.bulk.order import Outcome, Tag
from modelyard.errors import InputError, cause_of
from modelyard.files import write_atomically

NOTE_NAME = "sweep.json"
#: Enough to see what is wrong; the file has the others.
BAD_SHOWN = 5
_PIECE_BYTES = 64 * 1024


@dataclass(slots=True)
class Tally:
    """What the files hold."""

    done: set[int] = field(default_factory=set)
    counts: Counter[Tag] = field(default_factory=Counter)
    #: how many requests each constraint kept from having a plan
    bindings: Counter[str] = field(default_factory=Counter)
    #: the first bad records
    bad: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, tag: Tag, fields: Mapping[str, object]) -> None:
        """One more outcome, as it stands in its line."""
        number = fields.get("number")
        if not isinstance(number, int):
            raise InputError("a line without the number of its record")
        self.done.add(number)
        self.counts[tag] += 1
        if tag is Tag.NO_SOLUTION:
            self.bindings[str(fields.get("binding"))] += 1
        elif tag is Tag.BAD and len(self.bad) < BAD_SHOWN:
            self.bad.append(fields)


def outcome_path(folder: Path, tag: Tag) -> Path:
    """The file of one sort of outcome."""
    return folder / f"{tag.value}.jsonl"


class Results:
    """A folder that is open for one sweep; `open_results` makes it."""

    def __init__(self, folder: Path, tally: Tally, sources: Mapping[str, str]) -> None:
        self.folder = folder
        self.tally = tally
        self._sources = sources

    def append(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes and see them safely on the disk; a full disk leaves what was there."""
        by_tag: dict[Tag, list[Outcome]] = {}
        for outcome in outcomes:
            by_tag.setdefault(outcome.tag, []).append(outcome)
        for tag, group in by_tag.items():
            text = "".join(f"{outcome.line()}\n" for outcome in group)
            _append(outcome_path(self.folder, tag), text.encode("utf-8"))
            for outcome in group:
                self.tally.add(tag, outcome.fields)

    def note(self, **more: object) -> None:
        """Write down of what the outcomes are, and how far the sweep is."""
        counts = {tag.value: self.tally.counts[tag] for tag in Tag}
        content = {"sources": dict(self._sources), "outcomes": counts, **more}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.folder / NOTE_NAME, text)


@contextmanager
def open_results(folder: Path, sources: Mapping[str, str], *, fresh: bool) -> Iterator[Results]:
    """The results of a sweep, with what is done of it already.

    `sources` tell one sweep from another. Results of other sources are refused unless `fresh`,
    which throws away what the folder holds of any sweep and nothing else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError as error:
        raise InputError(f"'{folder}' is a file", fix="name a folder with --out") from error
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        _lock(folder, handle)
        if fresh:
            _clear(folder)
        else:
            _check_same(folder, sources)
        results = Results(folder, _read_tally(folder), sources)
        results.note(finished=False)
        yield results
    finally:
        os.close(handle)


def _lock(folder: Path, handle: int) -> None:
    """Keep a second sweep out for as long as this one has the folder open."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        what = f"another sweep is writing to '{folder}'"
        raise InputError(what, fix="wait for it, or choose another --out") from error
    except OSError:
        # Some network file systems have no locks; the sweep is still good there on its own.
        return


def _clear(folder: Path) -> None:
    try:
        # The note first: lines without a note are refused, a note without lines is not.
        for path in (folder / NOTE_NAME, *(outcome_path(folder, tag) for tag in Tag)):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error


def _check_same(folder: Path, sources: Mapping[str, str]) -> None:
    fix = "choose another --out, or throw these results away with --fresh"
    held = [path.name for tag in Tag if (path := outcome_path(folder, tag)).exists()]
    try:
        note = json.loads((folder / NOTE_NAME).read_bytes())
        known = note["sources"]
    except FileNotFoundError:
        if held:
            what = f"'{folder}' holds {held[0]}, but nothing says of which sweep"
            raise InputError(what, fix=fix) from None
        return
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"'{folder / NOTE_NAME}' is damaged", fix=fix) from error
    if known != dict(sources):
        other = [name for name in sources if _get(known, name) != sources[name]]
        what = f"'{folder}' holds results of another sweep (other {', '.join(other) or 'sources'})"
        raise InputError(what, fix=fix)


def _get(known: object, name: str) -> object:
    return known.get(name) if isinstance(known, dict) else None


def _read_tally(folder: Path) -> Tally:
    tally = Tally()
    for tag in Tag:
        path = outcome_path(folder, tag)
        try:
            _drop_torn_line(path)
            with path.open("rb") as stream:
                for line in stream:
                    tally.add(tag, json.loads(line))
        except FileNotFoundError:
            # An empty file says "none of these" where a missing one leaves people wondering.
            _append(path, b"")
        except OSError as error:
            raise _unusable(path, error) from error
        except (ValueError, AttributeError, RecursionError) as error:
            fix = "start again with --fresh, or choose another --out"
            raise InputError(f"'{path}' is damaged", fix=fix) from error
    return tally


def _drop_torn_line(path: Path) -> None:
    """Cut the file behind its last line break."""
    with path.open("r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _PIECE_BYTES)
            stream.seek(start)
            cut = stream.read(end - start).rfind(b"\n")
            if cut >= 0:
                stream.truncate(start + cut + 1)
                return
            end = start
        stream.truncate(0)


def _append(path: Path, content: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        before = os.fstat(handle).st_size
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError as error:
            os.ftruncate(handle, before)
            raise _unusable(path, error) from error
    finally:
        os.close(handle)


def _unusable(path: Path, error: OSError) -> InputError:
    reason = cause_of(error)
    fix = "make room or choose another --out; the same command goes on where it stopped"
    return InputError(f"'{path}' cannot be written: {reason}", fix=fix)
