"""A file of requests, planned on the cores of this machine, in steps that survive interruption."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from modelyard.bulk.order import PlannerFactory, Record, Tag
from modelyard.bulk.readers import Format, format_of, open_requests, read_records
from modelyard.bulk.results import Results, Tally, open_results
from modelyard.bulk.workers import Chunk, RunChunks, cores, planners
from modelyard.errors import InputError, Problem, cause_of

#: Records of one model that a worker takes at once: some seconds of work, lost at worst.
CHUNK_RECORDS = 16
#: Records that are sorted by model at once, so that a file of any length fits into memory.
WINDOW_RECORDS = 4_096

#: Records that are done, and how many there are.
Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What came of a sweep."""

    records: int
    counts: Mapping[Tag, int]
    #: records that an earlier run of the same sweep had done
    reused: int
    #: how many requests each constraint kept from having a plan
    bindings: Mapping[str, int]
    #: the first bad records, as they stand in their file
    bad: tuple[Mapping[str, object], ...]
    interrupted: bool = False


def sweep(
    requests: str | os.PathLike[str],
    out: str | os.PathLike[str],
    factory: PlannerFactory,
    *,
    kind: Format | None = None,
    knowledge: str = "",
    workers: int | None = None,
    fresh: bool = False,
    tell: Tell | None = None,
) -> Summary:
    """Plan every request of a file; the outcomes are in three files of the folder `out`.

    The same call again does what is left and nothing twice. `knowledge` names what the planner
    knows (prices, coefficients): results of another knowledge are those of another sweep. The
    outcomes do not depend on `workers`. KeyboardInterrupt ends it early and is in the summary.
    """
    source = Path(requests)
    format_ = kind or format_of(source)
    total, digest = _survey(source, format_)
    sources = {"requests": digest, "format": format_.value, "knowledge": knowledge}
    with open_results(Path(out), sources, fresh=fresh) as results:
        reused = results.tally.counts.total()
        interrupted = False
        try:
            if reused < total:
                _work(source, format_, results, factory, workers or cores(), total, tell)
        except KeyboardInterrupt:
            interrupted = True
        results.note(finished=not interrupted, records=total)
        return _summary(results.tally, total, reused, interrupted)


def _work(
    source: Path,
    kind: Format,
    results: Results,
    factory: PlannerFactory,
    workers: int,
    total: int,
    tell: Tell | None,
) -> None:
    left = total - len(results.tally.done)
    count = min(workers, -(-left // CHUNK_RECORDS))
    with open_requests(source) as stream, planners(factory, count) as run:
        records = (
            record
            for record in read_records(stream, kind)
            if record.number not in results.tally.done
        )
        for window in windows(records):
            _work_window(window, run, results, total, tell)


def _work_window(
    window: tuple[Record, ...], run: RunChunks, results: Results, total: int, tell: Tell | None
) -> None:
    for outcomes in run(chunks_by_model(window)):
        results.append(outcomes)
        if tell:
            tell(len(results.tally.done), total)


def windows(records: Iterable[Record]) -> Iterator[tuple[Record, ...]]:
    """Records in the order of the file, so many at a time."""
    source = iter(records)
    while window := tuple(islice(source, WINDOW_RECORDS)):
        yield window


def chunks_by_model(records: Iterable[Record]) -> list[Chunk]:
    """Records of one model side by side: whoever plans them works out its sizes once."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.model, []).append(record)
    return [
        tuple(group[start : start + CHUNK_RECORDS])
        for group in groups.values()
        for start in range(0, len(group), CHUNK_RECORDS)
    ]


def _survey(source: Path, kind: Format) -> tuple[int, str]:
    """How many records there are, and a fingerprint of the whole file."""
    try:
        with open_requests(source) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            return sum(1 for _ in read_records(stream, kind)), digest
    except InputError as error:
        raise _named(error, source) from error
    except OSError as error:
        what = f"cannot be read: {cause_of(error)}"
        raise InputError(what, fix="check the file", where=str(source)) from error


def _named(error: InputError, source: Path) -> InputError:
    """The error with the file it is about, where that is not said yet."""
    problems = [
        Problem(item.what, item.fix, item.file or str(source), item.line, item.column)
        for item in error.problems
    ]
    return InputError(error.message, fix=error.fix, problems=problems)


def _summary(tally: Tally, total: int, reused: int, interrupted: bool) -> Summary:
    return Summary(
        records=total,
        counts={tag: tally.counts[tag] for tag in Tag},
        reused=reused,
        bindings=dict(tally.bindings.most_common()),
        bad=tuple(tally.bad),
        interrupted=interrupted,
    )
