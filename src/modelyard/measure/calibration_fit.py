"""From what was measured on a machine to what is believed about it.

The survey's rates become the device and its links. Its blocks and training runs refit the factors
of the physical model and the coefficients of its memory, beginning with those that come with the
package. How well that works is judged on runs that were left out of the fit, each in its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelyard.measure.bench.collectives import fitted_link
from modelyard.measure.bench.matmul import best_rates
from modelyard.measure.bench.training import Measured, Run
from modelyard.measure.survey import Survey
from modelyard.spec.devices import Device, Precision, find_device
from modelyard.spec.layout import Layout
from modelyard.spec.model import Model
from modelyard.spec.platform import Platform, platform
from modelyard.spec.tuning import Tuning
from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.columns import Column, Columns, LayoutColumns
from modelyard.speed.physical.families import Family, Style, family_of
from modelyard.speed.physical.fitting import refit
from modelyard.speed.physical.memory import peak_memory, shipped_memory
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory
from modelyard.speed.physical.shipped import shipped
from modelyard.speed.physical.steps import step_times
from modelyard.speed.physical.terms import prior_sigma
from modelyard.units import format_flops

#: what the planner calls a machine that the catalogue does not have
LOCAL = "local"
#: as which runs on this machine are fitted: what the planner assumes where nobody says another
STYLE = Style.UNKNOWN
#: groups of runs that are left out in turn to judge the fit
FOLDS = 5

#: The published runs behind the package's factors are of accelerators. On those, their spread
#: holds; on a processor they are a guess, and priors this many times as wide let it be corrected.
WIDER_ON_CPU = 3.0
#: spread of single runs before they were compared: the steps of one start agree to within this
USUAL_SPREAD = 0.04
LEAST_SPREAD = 0.02
#: runs that the usual spread counts for
SPREAD_WEIGHT = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The factors of step times and the coefficients of memory."""

    steps: Coefficients
    memory: MemoryCoefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Runs that were left out of the fit, predicted before it and by it; seconds or bytes."""

    runs: tuple[Run, ...]
    measured: Column
    before: Column
    after: Column

    @property
    def error_before(self) -> float:
        """Median of the absolute relative error."""
        return _median_error(self.before, self.measured)

    @property
    def error_after(self) -> float:
        return _median_error(self.after, self.measured)


def measured_platform(survey: Survey) -> Platform:
    """The device at its measured rates, and the links between its processes."""
    machine, about = survey.machine, survey.about
    rates = best_rates(survey.products)
    slowest = max(survey.copies, key=lambda one: one.size_bytes)
    known = find_device(about.name) if machine.accelerator == "cuda" else None
    found = f"measured: {', '.join(f'{name} {format_flops(rate)}' for name, rate in rates)}"
    if known is not None and known.peak(machine.precision) is not None:
        # The catalogue's peaks stay, so that published runs remain comparable with these.
        device = replace(known, matmul_flops=rates, source=found)
    else:
        memory_bytes, peaks = about.memory_bytes, rates
        if machine.accelerator == "cpu":
            memory_bytes //= machine.processes
            # Plans are made in a precision of `peak_flops`: there the one that was trained in.
            peaks = tuple(pair for pair in rates if pair[0] is machine.precision)
        device = Device(
            name=LOCAL,
            maker="generic" if machine.accelerator == "cpu" else "",
            peak_flops=peaks,
            matmul_flops=rates,
            memory_bytes=memory_bytes,
            memory_bandwidth=slowest.bandwidth,
            source=found,
        )
    usual = platform(device, machine.processes, devices_per_node=machine.processes)
    if not survey.exchanges:
        return usual
    link = fitted_link(survey.exchanges)
    return replace(
        usual,
        inside_bandwidth=link.bandwidth,
        inside_latency=link.latency,
        # Nothing is known of other machines; they are no nearer than processes of this one.
        across_bandwidth=min(usual.across_bandwidth, link.bandwidth * machine.processes),
        across_latency=max(usual.across_latency, link.latency),
    )


def start_of(machine: Platform) -> Belief:
    """What is believed before anything was measured."""
    steps = shipped()
    if family_of(machine.device) is Family.CPU:
        sigma = WIDER_ON_CPU * prior_sigma(float(np.sqrt(steps.covariance[-1, -1])))
        steps = replace(steps, covariance=np.diag(np.square(sigma)))
    return Belief(steps=replace(steps, residual_sigma=USUAL_SPREAD), memory=shipped_memory())


def columns_of(machine: Platform, precision: Precision, runs: Sequence[Run]) -> Columns:
    """Runs as the planner sees them."""
    return Columns.stacked(
        [_columns(machine, precision, run.model, run.layout(), run.sequence) for run in runs]
    )


def fitted(survey: Survey, machine: Platform, runs: Sequence[Measured]) -> Belief:
    """The belief after the survey's blocks and these of its runs."""
    precision = survey.machine.precision
    start = start_of(machine)
    parts = [
        _columns(
            machine,
            precision,
            block.shape.model,
            Layout(micro_batch=block.shape.micro_batch),
            block.shape.sequence,
        )
        for block in survey.blocks
    ]
    seconds = [block.seconds for block in survey.blocks]
    if runs:
        parts.append(columns_of(machine, precision, [one.run for one in runs]))
        seconds += [one.timing.seconds for one in runs]
    steps = refit(start.steps, Columns.stacked(parts), np.array(seconds)) if parts else start.steps
    memory = start.memory
    if runs:
        columns = columns_of(machine, precision, [one.run for one in runs])
        memory = refit_memory(memory, columns, np.array([one.peak_bytes for one in runs]))
    return Belief(steps=steps, memory=memory)


def calibrated(survey: Survey, machine: Platform) -> tuple[Belief, Check, Check]:
    """The belief after everything, and how well runs left out were predicted: time and memory."""
    held_out = cross_checked(survey, machine)
    times, peaks = held_out
    belief = fitted(survey, machine, survey.runs)
    spread = _spread(np.log(times.after / times.measured)) if times.measured.size else USUAL_SPREAD
    return replace(belief, steps=replace(belief.steps, residual_sigma=spread)), times, peaks


def cross_checked(survey: Survey, machine: Platform) -> tuple[Check, Check]:
    """Every run predicted by a fit that has not seen it, nor its model on more processes."""
    runs = survey.runs
    precision = survey.machine.precision
    shapes = list(dict.fromkeys(replace(one.run, processes=1) for one in runs))
    fold_of = {shape: place % FOLDS for place, shape in enumerate(shapes)}
    folds = [fold_of[replace(one.run, processes=1)] for one in runs]
    seconds, peaks = np.zeros(len(runs)), np.zeros(len(runs))
    for fold in sorted(set(folds)):
        others = [one for one, own in zip(runs, folds, strict=True) if own != fold]
        places = [place for place, own in enumerate(folds) if own == fold]
        columns = columns_of(machine, precision, [runs[place].run for place in places])
        belief = fitted(survey, machine, others)
        seconds[places] = step_times(columns, belief.steps).seconds
        peaks[places] = peak_memory(columns, belief.memory).bytes
    start = start_of(machine)
    columns = columns_of(machine, precision, [one.run for one in runs])
    return (
        Check(
            runs=tuple(one.run for one in runs),
            measured=np.array([one.timing.seconds for one in runs]),
            before=step_times(columns, start.steps).seconds,
            after=seconds,
        ),
        Check(
            runs=tuple(one.run for one in runs),
            measured=np.array([one.peak_bytes for one in runs]),
            before=peak_memory(columns, start.memory).bytes,
            after=peaks,
        ),
    )


def _columns(
    machine: Platform, precision: Precision, model: Model, layout: Layout, sequence: int
) -> Columns:
    return Columns.of(
        model,
        Tuning(trainable=model.parameters.total),
        machine,
        LayoutColumns.of([layout]),
        sequence=sequence,
        precision=precision,
        style=STYLE,
    )


def _spread(misses: Column) -> float:
    """The usual spread and the found one, by the runs that each stands for."""
    squares = SPREAD_WEIGHT * USUAL_SPREAD**2 + float(np.sum(np.square(misses)))
    return max(float(np.sqrt(squares / (SPREAD_WEIGHT + misses.size))), LEAST_SPREAD)


def _median_error(predicted: Column, measured: Column) -> float:
    if not measured.size:
        return float("nan")
    return float(np.median(np.abs(predicted / measured - 1.0)))
