"""Runs on disk: what people open, and what a later comparison takes up again.

    <policy>.jobs.csv      one row per job
    <policy>.json          the figures of the run, with its fingerprint
    <policy>.run.json.gz   the whole result, from which all the others can be made again

The last one is written last and in one step: a folder that has it has a finished run.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from modelyard import __version__
from modelyard.simulate.result import JobOutcome, Result, Segment, Series

#: Part of every fingerprint: raise it when the format or the meaning of a run changes.
FORMAT = 1

#: Readable in a file listing; what is cut off is told apart by the digest behind it.
LONGEST_NAME = 80
DIGEST_CHARACTERS = 8

JOB_COLUMNS = (
    *(item.name for item in fields(JobOutcome)),
    "completion_seconds",
    "queueing_seconds",
)


def fingerprint(inputs: Mapping[str, str], policy: str) -> str:
    """Equal for two runs exactly when inputs, policy and the version of the package are equal."""
    known = {"inputs": dict(inputs), "policy": policy, "version": __version__, "format": FORMAT}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def file_name(policy: str) -> str:
    """A policy's name where its files are concerned; different policies never share one."""
    plain = re.sub(r"[^A-Za-z0-9._=-]+", "-", policy).strip("-.")[:LONGEST_NAME]
    if plain == policy:
        return plain
    return f"{plain}-{hashlib.sha256(policy.encode()).hexdigest()[:DIGEST_CHARACTERS]}"


def write_run(folder: Path, result: Result, *, key: str = "") -> tuple[Path, Path]:
    """Write the files of a run; the paths of those that people open."""
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(result.policy)
    jobs, figures = folder / f"{name}.jobs.csv", folder / f"{name}.json"
    write_atomically(jobs, jobs_csv(result).encode())
    summary = {**result.summary(), "version": __version__, "fingerprint": key}
    write_atomically(figures, (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode())
    record = json.dumps({"fingerprint": key, "result": as_json(result)}, allow_nan=False)
    # Without a time of its own the archive of equal runs is equal, byte for byte.
    write_atomically(folder / f"{name}.run.json.gz", gzip.compress(record.encode(), 6, mtime=0))
    return jobs, figures


def read_run(folder: Path, policy: str, *, key: str) -> Result | None:
    """The finished run of these very inputs; None when there is none, or a damaged one."""
    try:
        packed = (folder / f"{file_name(policy)}.run.json.gz").read_bytes()
        record = json.loads(gzip.decompress(packed))
        return from_json(record["result"]) if record["fingerprint"] == key else None
    # Whatever is wrong with the file, playing the policy again puts it right.
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None


def holds_other_run(folder: Path, policy: str, *, key: str) -> bool:
    """Whether the folder has a run of this policy that was made from something else."""
    try:
        figures = json.loads((folder / f"{file_name(policy)}.json").read_bytes())
        return bool(figures["fingerprint"] != key)
    # No run at all, or none that anybody could still use.
    except (OSError, ValueError, KeyError, TypeError):
        return False


def jobs_csv(result: Result) -> str:
    """One row per job; floats as `repr` writes them, so that nothing is lost."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(JOB_COLUMNS)
    writer.writerows([getattr(job, name) for name in JOB_COLUMNS] for job in result.jobs)
    return stream.getvalue()


def as_json(result: Result) -> dict[str, Any]:
    """All of a result as plain data; jobs and segments as rows, which halves the size."""
    plain = {item.name: getattr(result, item.name) for item in fields(Result)}
    return {
        **plain,
        "jobs": [_row(job) for job in result.jobs],
        "segments": [_row(segment) for segment in result.segments],
        "series": asdict(result.series),
    }


def from_json(data: Mapping[str, Any]) -> Result:
    """The result that `as_json` was given; KeyError or TypeError when it was something else."""
    series = {name: tuple(values) for name, values in data["series"].items()}
    return Result(
        **{
            **data,
            "jobs": tuple(JobOutcome(*row) for row in data["jobs"]),
            "segments": tuple(
                Segment(job, start, end, tuple((node, count) for node, count in parts))
                for job, start, end, parts in data["segments"]
            ),
            "series": Series(**series),
            "decision_seconds": tuple(data["decision_seconds"]),
        }
    )


def write_atomically(path: Path, content: bytes) -> None:
    """All of the file or none of it: whoever is interrupted leaves no half of one behind."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def _row(item: JobOutcome | Segment) -> list[Any]:
    return [getattr(item, entry.name) for entry in fields(item)]
