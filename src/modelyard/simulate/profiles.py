"""Measured applications from files, in the layout of Pollux's artifact.

    <application>/placements.csv          placement,local_bsz,step_time,sync_time
    <application>/scalability.csv         num_nodes,num_replicas,local_bsz,step_time,sync_time
    <application>/validation-<batch>.csv  progress,iteration,metric,grad_sqr,grad_var

A placement is written as its devices per node: `1134` is nodes with 1, 1, 3 and 4 devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from modelyard.errors import InputError, Problem
from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.source import read_source, unreadable
from modelyard.simulate.readers.table import Row, table_with_header
from modelyard.speed.profile import (
    POLLUX_APPLICATIONS,
    ApplicationProfile,
    ApplicationRules,
    EpochStatistics,
    ScaleTimes,
    StepCurve,
    step_curve,
)

TIME_COLUMNS = ("local_bsz", "step_time", "sync_time")
RUN_COLUMNS = ("progress", "iteration", "grad_sqr", "grad_var")
RUN_NAME = re.compile(r"validation-([1-9][0-9]*)\.csv")
PLACEMENT = re.compile(r"[1-9]+")


def read_profiles(folder: Path) -> dict[str, ApplicationProfile]:
    """Every application of a folder, by name; all problems of all files are told at once."""
    if not folder.is_dir():
        raise unreadable(folder, "there is no such folder", "name the folder of the applications")
    found = sorted(path.parent for path in folder.glob("*/placements.csv"))
    if not found:
        what = "no application here: none of its folders holds placements.csv"
        raise unreadable(folder, what, "name the folder that holds one folder per application")
    profiles: dict[str, ApplicationProfile] = {}
    problems: list[Problem] = []
    for path in found:
        try:
            profiles[path.name] = read_profile(path)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(f"{folder} has {len(problems)} problems", problems=problems)
    return profiles


def read_profile(folder: Path) -> ApplicationProfile:
    """One application. Unknown names train for as many epochs as their shortest run."""
    placements = _placements(folder / "placements.csv")
    scales = _scales(folder / "scalability.csv")
    runs = _runs(folder)
    shortest = min(run.progress.size for run in runs.values())
    rules = POLLUX_APPLICATIONS.get(folder.name) or ApplicationRules(max_epochs=shortest)
    if shortest < rules.max_epochs:
        what = f"{folder.name} trains for {rules.max_epochs} epochs; a run has {shortest} only"
        raise unreadable(folder, what, "give every validation file one row per epoch")
    return ApplicationProfile(folder.name, placements, scales, runs, rules)


def _placements(path: Path) -> dict[tuple[int, ...], StepCurve]:
    rows: dict[tuple[int, ...], list[tuple[int, float, float]]] = {}
    for row in _rows(path, ("placement", *TIME_COLUMNS)):
        written = row.text("placement")
        if PLACEMENT.fullmatch(written) is None:
            fix = "write the devices of each node as one digit, such as 1134"
            row.fault("placement", f"{written!r} is not a placement", fix)
            continue
        times = _times(row)
        if row.sound:
            rows.setdefault(tuple(map(int, written)), []).append(times)
    return {counts: step_curve(*zip(*measured, strict=True)) for counts, measured in rows.items()}


def _scales(path: Path) -> ScaleTimes:
    rows = [
        (row.devices("num_nodes"), row.devices("num_replicas"), *_times(row))
        for row in _rows(path, ("num_nodes", "num_replicas", *TIME_COLUMNS))
    ]
    nodes, replicas, local_batch, step, sync = zip(*rows, strict=True)
    return ScaleTimes(
        nodes=np.array(nodes, dtype=np.int64),
        replicas=np.array(replicas, dtype=np.int64),
        local_batch=np.array(local_batch, dtype=np.int64),
        step_seconds=np.array(step, dtype=np.float64),
        sync_seconds=np.array(sync, dtype=np.float64),
    )


def _runs(folder: Path) -> dict[int, EpochStatistics]:
    named = ((RUN_NAME.fullmatch(path.name), path) for path in folder.glob("validation-*.csv"))
    paths = {int(match[1]): path for match, path in named if match}
    if not paths:
        what = "no validation-<batch size>.csv here"
        raise unreadable(folder, what, "add one file per batch size that was trained")
    return {batch: _run(paths[batch]) for batch in sorted(paths)}


def _run(path: Path) -> EpochStatistics:
    rows: list[tuple[float, ...]] = []
    for row in _rows(path, RUN_COLUMNS):
        values = tuple(row.number(column) for column in RUN_COLUMNS)
        if rows and row.sound and values[0] <= rows[-1][0]:
            row.fault("progress", "it does not rise", "write epochs in order, totals at their end")
        rows.append(values)
    progress, iterations, grad_sqr, grad_var = np.array(rows, dtype=np.float64).T
    return EpochStatistics(progress, iterations, grad_sqr, grad_var)


def _times(row: Row) -> tuple[int, float, float]:
    batch, step, sync = row.whole("local_bsz"), row.number("step_time"), row.number("sync_time")
    if row.sound and batch < 1:
        row.fault("local_bsz", f"{batch} is not a batch size", "write a whole number from 1 up")
    if row.sound and not sync < step:
        what = f"synchronisation takes {sync:g} s of a step of {step:g} s"
        row.fault("sync_time", what, "write times with sync_time < step_time")
    return batch, step, sync


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Rows of a table; after the last one, everything found wrong with any of them is raised."""
    faults = Faults(path)
    table = table_with_header(read_source(path), columns)
    empty = True
    for row in table.rows(faults):
        empty = False
        yield row
    faults.check()
    if empty:
        raise unreadable(path, "there is a header but no row", "check that the copy finished")
