"""Measured runs of the user refine a calibration: more of what really happens on that machine.

Runs come as CSV in the columns of published speed rows (`measure.rows`), with `mem_gb` where peaks
are known. Those on the calibration's device count; the others are named with the reason.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.measure.calibration import Calibration, Errors, believing
from modelyard.measure.calibration_fit import STYLE, Belief
from modelyard.measure.memory_rows import Counted, parse_memory_rows
from modelyard.measure.rows import (
    MOST_BYTES,
    NUMBERS,
    REQUIRED,
    TARGETS,
    Skipped,
    parse_rows,
    read_table,
)
from modelyard.spec.devices import Precision, catalogue, find_device
from modelyard.spec.platform import Platform
from modelyard.spec.text_file import read_text
from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.columns import COMPUTE_BYTES, Column, Columns
from modelyard.speed.physical.families import STYLE_CODE, Family, family_of
from modelyard.speed.physical.fitting import refit
from modelyard.speed.physical.memory import OUTSIDE_ALLOCATOR, peak_memory
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory
from modelyard.speed.physical.steps import step_times

Places = npt.NDArray[np.intp]
#: what a run of one's own is taken for where its row says nothing
UNSAID = {"recompute": "none", "flash_attn": "yes", "sharding": "none"}
#: how far a training program may be from the one that was calibrated with, in everything it does
OWN_SOFTWARE_SIGMA = 0.25
#: parts of the runs that are left out in turn to judge the fit
FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A calibration with measured runs in it, and the error on those runs before and after.

    After means: each run predicted from the others.
    """

    calibration: Calibration
    runs: int
    times: Errors
    #: None where no run says its peak
    peaks: Errors | None
    skipped: tuple[Skipped, ...]


def refine(calibration: Calibration, path: str | os.PathLike[str]) -> Refined:
    """With the runs of a CSV file."""
    return refined(calibration, read_runs(path), os.fspath(path))


def read_runs(path: str | os.PathLike[str]) -> str:
    """The text of a table of runs; `InputError` where it is none, before anything is measured."""
    text = read_text(path, MOST_BYTES)
    read_table(text, os.fspath(path), required=REQUIRED, one_of=TARGETS, numbers=NUMBERS)
    return text


def refined(calibration: Calibration, text: str, where: str = "") -> Refined:
    """Like `refine`, of text at hand."""
    stand_in = _stand_in(calibration)
    rewritten = _rewritten(text, calibration, stand_in)
    rows = parse_rows(rewritten, where)
    own = [place for place, device in enumerate(rows.devices) if device == stand_in]
    if not own:
        raise InputError(
            f"no run is on the calibration's device '{calibration.device.name}'",
            fix=f"write {calibration.device.name} in the column 'device'",
            where=where,
        )
    columns = _on(calibration.platform, rows.columns.take(np.array(own)))
    seconds = rows.seconds[own]
    start = _loosened(calibration.steps)
    steps = refit(start, columns, seconds)

    def predicted(known: Places, asked: Places) -> Column:
        fitted = refit(start, columns.take(known), seconds[known])
        return step_times(columns.take(asked), fitted).seconds

    times = Errors(
        before=_error(step_times(columns, calibration.steps).seconds, seconds),
        after=_error(_left_out(predicted, seconds.size), seconds),
    )
    memory, peaks = calibration.memory, None
    found = _peaks(rewritten, where, calibration.platform, stand_in)
    if found is not None:
        memory = found.fitted(calibration.memory, np.arange(found.bytes.size))
        peaks = Errors(
            before=_error(found.predicted(calibration.memory), found.bytes),
            after=_error(
                _left_out(
                    lambda known, asked: found.predicted(found.fitted(calibration.memory, known))[
                        asked
                    ],
                    found.bytes.size,
                ),
                found.bytes,
            ),
        )
    others = tuple(
        Skipped(
            id=rows.ids[place],
            source=rows.sources[place],
            line=0,
            reason=f"on {device}, not on {calibration.device.name}",
        )
        for place, device in enumerate(rows.devices)
        if device != stand_in
    )
    return Refined(
        calibration=believing(calibration, Belief(steps=steps, memory=memory), runs=len(own)),
        runs=len(own),
        times=times,
        peaks=peaks,
        skipped=(*rows.skipped, *others),
    )


@dataclass(frozen=True, slots=True)
class _Peaks:
    columns: Columns
    bytes: Column
    #: 1 where everything that the process has was counted
    whole_device: Column

    def fitted(self, memory: MemoryCoefficients, known: Places) -> MemoryCoefficients:
        return refit_memory(
            memory,
            self.columns.take(known),
            self.bytes[known],
            whole_device=self.whole_device[known],
        )

    def predicted(self, memory: MemoryCoefficients) -> Column:
        estimate = peak_memory(self.columns, memory)
        parts = [estimate.parts[name] for name in OUTSIDE_ALLOCATOR]
        outside: Column = sum(parts, np.zeros(self.bytes.shape))
        return estimate.bytes - np.where(self.whole_device > 0.0, 0.0, outside)


def _peaks(text: str, where: str, machine: Platform, stand_in: str) -> _Peaks | None:
    header = next(csv.reader(io.StringIO(text)), [])
    if "mem_gb" not in [cell.strip() for cell in header]:
        return None
    rows = parse_memory_rows(text, where)
    whole = (Counted.DEVICE, Counted.ALLOCATOR)
    own = [
        place
        for place, device in enumerate(rows.devices)
        if device == stand_in and rows.measured[place] and rows.counted[place] in whole
    ]
    if not own:
        return None
    # On a processor there is no allocator of its own: what is measured is all that a process has.
    whole_device = np.array([rows.counted[place] is Counted.DEVICE for place in own]) | (
        family_of(machine.device) is Family.CPU
    )
    columns = _on(machine, rows.columns.take(np.array(own)))
    return _Peaks(columns, rows.bytes[own], whole_device.astype(np.float64))


def _loosened(steps: Coefficients) -> Coefficients:
    """Before runs of one's own: their software may be slower or faster as a whole."""
    covariance = steps.covariance.copy()
    covariance[-1, -1] += OWN_SOFTWARE_SIGMA**2
    return replace(steps, covariance=covariance)


def _stand_in(calibration: Calibration) -> str:
    """A device of the catalogue as which the rows are read before they get their own rates."""
    device = calibration.device
    known = find_device(device.name)
    if known is not None:
        return known.name
    family = family_of(device)
    relatives = [one for one in catalogue() if family_of(one) is family and one.peak_flops]
    return (relatives or [one for one in catalogue() if one.peak_flops])[0].name


def _rewritten(text: str, calibration: Calibration, stand_in: str) -> str:
    """The table with the stand-in's name for this machine, and `UNSAID` where a row says nothing.

    What is usual in published runs, which the reader of rows would take, is not usual here.
    """
    lines = list(csv.reader(io.StringIO(text, newline="")))
    header = [cell.strip() for cell in lines[0]] if lines else []
    if "device" not in header:
        return text
    device = header.index("device")
    own_name = calibration.device.name.casefold()
    unsaid = {**UNSAID, "precision": str(calibration.precision)}
    missing = [name for name in unsaid if name not in header]
    header += missing
    lines[0] += missing
    for cells in lines[1:]:
        if len(cells) > device and cells[device].strip().casefold() == own_name:
            cells[device] = stand_in
            cells += [""] * (len(header) - len(cells))
            for name, usual in unsaid.items():
                place = header.index(name)
                cells[place] = cells[place].strip() or usual
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _on(machine: Platform, columns: Columns) -> Columns:
    """The same configurations on this machine, at its rates."""
    device = machine.device
    peak = _rates(dict(device.peak_flops), columns.compute_bytes)
    best = _rates(dict(device.matmul_flops) or dict(device.peak_flops), columns.compute_bytes)
    wide = _rates(dict(device.peak_flops), columns.wide_bytes)
    assert device.memory_bandwidth is not None
    assert device.memory_bytes is not None

    def all_alike(value: float) -> Column:
        return np.full(columns.size, value)

    return replace(
        columns,
        peak=peak,
        wide_peak=wide,
        matmul_share=best / peak,
        memory_bandwidth=all_alike(device.memory_bandwidth),
        memory_bytes=all_alike(device.memory_bytes),
        devices_per_node=all_alike(machine.devices_per_node),
        inside_bandwidth=all_alike(machine.inside_bandwidth),
        across_bandwidth=all_alike(machine.across_per_device),
        inside_latency=all_alike(machine.inside_latency),
        across_latency=all_alike(machine.across_latency),
        style=all_alike(STYLE_CODE[STYLE]),
    )


def _rates(rates: dict[Precision, float], widths: Column) -> Column:
    """The best rate for numbers of that many bytes; of the next wider ones where there is none."""
    by_width = sorted(
        ((COMPUTE_BYTES[precision], rate) for precision, rate in rates.items()), reverse=True
    )
    found = np.full(widths.shape, by_width[0][1])
    for width, rate in by_width:
        found = np.where(widths <= width, rate, found)
    return found


def _left_out(predicted: Callable[[Places, Places], Column], size: int) -> Column:
    """Every run predicted by a fit on the runs of the other folds."""
    found = np.zeros(size)
    folds = np.arange(size) % FOLDS
    for fold in range(min(FOLDS, size)):
        asked, known = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        # A single run leaves nothing to fit: then it is predicted from itself.
        found[asked] = predicted(known if known.size else asked, asked)
    return found


def _error(predicted: Column, measured: Column) -> float:
    return float(np.median(np.abs(predicted / measured - 1.0)))
