"""What `yard demo` needs before it begins: a machine that can, a folder, data and job files."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import modelyard
from modelyard.cli.demo_jobs import (
    DATA_FOLDER,
    PIECES,
    SCRIPT,
    SCRIPT_FILE,
    SEQUENCE,
    TENANTS,
    TENANTS_FILE,
    TEXT_FILE,
    Shape,
    job_text,
)
from modelyard.errors import InputError, Problem, YardError
from modelyard.units import format_bytes

#: What the extra `train` brings.
NEEDED_TO_TRAIN = ("torch", "msgspec")
#: What is used at most: a server, and four workers while two take over from two others.
LEAST_MEMORY_BYTES = 1_500_000_000
LEAST_DISK_BYTES = 200_000_000
#: Where a container says how much memory it may have, by version 2 and 1 of control groups.
GROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
#: A machine on which a few steps take longer than this is too slow for anything.
PACE_SECONDS = 180.0
#: Steps in files that are only there to be measured.
TRIAL_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that the story needs."""

    #: with the job files and their data
    folder: Path
    #: of each language-model job
    steps: dict[str, int]
    #: from the birth of a worker to its first step, as measured before
    start_seconds: float
    step_seconds: dict[Shape, float]


def check_machine() -> None:
    """All that is missing, at once."""
    import psutil

    problems = []
    if sys.platform != "linux":
        fix = "run it in a Linux container or on a Linux machine"
        problems.append(Problem("a yard runs jobs on Linux only", fix))
    missing = [name for name in NEEDED_TO_TRAIN if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the jobs train models, and {' and '.join(missing)} cannot be imported"
        problems.append(Problem(what, "install it with: pip install 'modelyard[train]'"))
    free = min([psutil.virtual_memory().available, *_container_limits()])
    if free < LEAST_MEMORY_BYTES:
        need = format_bytes(LEAST_MEMORY_BYTES)
        what = f"{format_bytes(free)} of memory are free, and the jobs need {need}"
        problems.append(Problem(what, "end other programs, or take a larger machine"))
    place = Path(tempfile.gettempdir())
    room = shutil.disk_usage(place).free
    if room < LEAST_DISK_BYTES:
        what = f"{format_bytes(room)} are free in {place}, and {format_bytes(LEAST_DISK_BYTES)}"
        problems.append(Problem(f"{what} are needed", "make room, or set TMPDIR to another disk"))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)


def _container_limits() -> list[int]:
    """Memory that a container may have at most, if somebody has set a limit."""
    found = []
    for path in GROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            # Without a limit it says "max", or a number beyond all memory.
            found.append(int(path.read_text()))
    return found


def set_up(jobs: Path) -> Stage:
    """Write text, data and job files; measure how fast this machine is, and size the jobs by it."""
    jobs.mkdir()
    (jobs / TEXT_FILE).write_text(own_source(), encoding="utf-8")
    (jobs / SCRIPT_FILE).write_text(SCRIPT)
    (jobs / TENANTS_FILE).write_text(TENANTS)
    words = ["data", "prepare", TEXT_FILE, "--out", DATA_FOLDER, "--tokenizer", "bytes"]
    _run([sys.executable, "-m", "modelyard", *words, "--sequence", str(SEQUENCE)], jobs)
    measured = _pace(jobs)
    speeds = dict(zip(Shape, measured["step_seconds"], strict=True))
    steps = {
        piece.name: piece.steps(speeds[piece.shape]) for piece in PIECES if piece.shape is not None
    }
    for piece in PIECES:
        path = jobs / f"{piece.name}.yaml"
        path.write_text(job_text(piece, steps.get(piece.name, 0)))
    return Stage(
        folder=jobs,
        steps=steps,
        start_seconds=measured["start_seconds"],
        step_seconds=speeds,
    )


def own_source() -> str:
    """The text that the models learn: the source of the scheduler, which is always there."""
    source = Path(modelyard.__file__).parent / "schedule"
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py")))


def _pace(jobs: Path) -> dict[str, Any]:
    """What a step of each shape takes here on one device."""
    trials = []
    for shape in Shape:
        piece = next(one for one in PIECES if one.shape is shape)
        trials.append(jobs / f"trial-{shape.name.lower()}.yaml")
        trials[-1].write_text(job_text(piece, TRIAL_STEPS))
    words = [sys.executable, "-m", "modelyard.train.pace", *(str(path) for path in trials)]
    found = json.loads(_run(words, jobs))
    for path in trials:
        path.unlink()
    assert isinstance(found, dict)
    return found


def _run(words: list[str], folder: Path) -> str:
    """What a program printed; `YardError` with its last words when it failed."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            # What torch leaves in a folder for temporary files goes with the demo's own.
            env={**os.environ, "TMPDIR": str(folder.parent)},
            capture_output=True,
            text=True,
            timeout=PACE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        what = f"this machine is too slow for the demo: a few steps take over {PACE_SECONDS:g} s"
        raise YardError(what, fix="try again when less is going on") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise YardError(f"'{' '.join(words[1:4])}' failed: {last[0]}")
    return done.stdout
