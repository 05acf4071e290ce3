"""Measured truth of an application: step times by placement, gradient statistics by epoch.

This is what Pollux's simulator plays (OSDI'21, section 5.3). Times were measured on nodes of four
devices: every placement on up to four nodes, and some scales of up to sixteen. A placement that
was measured is interpolated over the local batch alone, every other one linearly between the
measured (nodes, replicas, local batch). Nothing here reads a file: see `simulate/profiles.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.interpolate import LinearNDInterpolator

from modelyard.speed.pollux import BatchLimits, GradientNoise, candidate_grid, gain

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Counts = tuple[int, ...]

#: the widest scale measured; jobs on more nodes are timed as if on so many
MOST_MEASURED_NODES = 16
#: the artifact gives no job more devices: its cluster has no more
MOST_DEVICES = 64


@dataclass(frozen=True, slots=True)
class ApplicationRules:
    """What the artifact fixes by hand for an application; None means "as measured"."""

    max_epochs: int
    max_local_batch: int | None = None
    #: batch size of jobs that could otherwise choose it themselves
    fixed_batch: int | None = None
    max_devices: int = MOST_DEVICES


#: the six applications of Pollux's evaluation
POLLUX_APPLICATIONS: Mapping[str, ApplicationRules] = {
    "bert": ApplicationRules(max_epochs=2),
    "cifar10": ApplicationRules(max_epochs=100),
    "ncf": ApplicationRules(max_epochs=10, fixed_batch=32768, max_devices=1),
    "imagenet": ApplicationRules(max_epochs=90),
    "deepspeech2": ApplicationRules(max_epochs=80),
    "yolov3": ApplicationRules(max_epochs=50, max_local_batch=8),
}


class StepTime(NamedTuple):
    """One step without accumulation, and the part of it that waits for others."""

    step_seconds: float
    sync_seconds: float

    def total_seconds(self, accumulation: int) -> float:
        """A step after `accumulation` passes that exchange nothing."""
        if accumulation == 0:  # and so an infinite step never meets a factor of 0
            return self.step_seconds
        return self.step_seconds + accumulation * (self.step_seconds - self.sync_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class StepCurve:
    """Measured times of one placement; local batches rise strictly."""

    local_batch: FloatArray
    step_seconds: FloatArray
    sync_seconds: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ScaleTimes:
    """Measured times by scale, whatever the placement; one row per measurement."""

    nodes: IntArray
    replicas: IntArray
    local_batch: IntArray
    step_seconds: FloatArray
    sync_seconds: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class EpochStatistics:
    """One training run at one batch size, a row per epoch: totals at its end, noise during it."""

    progress: FloatArray
    iterations: FloatArray
    grad_sqr: FloatArray
    grad_var: FloatArray


class EpochNoise(NamedTuple):
    """Gradient statistics by [epoch, batch size]."""

    sqr: FloatArray
    var: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class EpochRates:
    """What an oracle knows of one placement, by epoch; exact, without rounding to seconds."""

    goodput: FloatArray
    step_seconds: FloatArray
    #: from the start of each epoch to the end of the job; one entry more, which is 0
    seconds_left: FloatArray


@dataclass(frozen=True, eq=False)
class ApplicationProfile:
    """All that was measured of one application; answers are kept, so share one instance.

    Epochs count from 0; the job ends when epoch `max_epochs - 1` does.
    """

    name: str
    placements: Mapping[Counts, StepCurve]
    scales: ScaleTimes
    #: by total batch size, rising
    runs: Mapping[int, EpochStatistics]
    rules: ApplicationRules
    _times: dict[tuple[Counts, int], StepTime] = field(default_factory=dict, init=False, repr=False)
    _noise: dict[tuple[int, int], GradientNoise] = field(
        default_factory=dict, init=False, repr=False
    )
    _rates: dict[tuple[BatchLimits, Counts], EpochRates] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        shortest = min((run.progress.size for run in self.runs.values()), default=0)
        if shortest < self.rules.max_epochs:
            raise ValueError(
                f"{self.name}: every run needs {self.rules.max_epochs} epochs, "
                f"the shortest has {shortest}"
            )
        if not self.placements:
            raise ValueError(f"{self.name}: no placement was measured")

    @property
    def max_epochs(self) -> int:
        return self.rules.max_epochs

    @cached_property
    def limits(self) -> BatchLimits:
        """Batch sizes that were measured, and so may be used."""
        local = [curve.local_batch for curve in self.placements.values()]
        return BatchLimits(
            init_batch=min(self.runs),
            max_batch=max(self.runs),
            min_local=int(min(batches.min() for batches in local)),
            max_local=self.rules.max_local_batch or int(max(batches.max() for batches in local)),
        )

    @cached_property
    def progress_after(self) -> FloatArray:
        """Progress at the start of each epoch, and at the end of the last one.

        The smallest over batch sizes: runs of the same epoch differ a little in what they count.
        """
        ends = np.array([run.progress[: self.max_epochs] for run in self.runs.values()])
        return np.concatenate([[0.0], ends.min(axis=0)])

    def step_time(self, counts: Counts, local_batch: int) -> StepTime:
        """Time of one step; infinite where nothing near enough was measured."""
        key = counts, local_batch
        found = self._times.get(key)
        if found is None:
            step, sync = self.step_times(counts, np.array([float(local_batch)]))
            found = self._times[key] = StepTime(float(step[0]), float(sync[0]))
        return found

    def step_times(self, counts: Counts, local_batch: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Step and sync seconds for many local batches at once."""
        counts = _canonical(counts, self._widest_node)
        curve = self.placements.get(counts)
        if curve is not None:
            step = np.interp(
                local_batch, curve.local_batch, curve.step_seconds, left=np.inf, right=np.inf
            )
            sync = np.interp(local_batch, curve.local_batch, curve.sync_seconds)
        else:
            nodes = min(len(counts), MOST_MEASURED_NODES)
            points = np.column_stack(
                np.broadcast_arrays(float(nodes), float(sum(counts)), local_batch)
            )
            step, sync = self._between(points).T
        unknown = ~np.isfinite(step)
        return np.where(unknown, np.inf, step), np.where(unknown, 0.0, sync)

    @cached_property
    def _widest_node(self) -> int:
        return max(max(counts) for counts in self.placements)

    @cached_property
    def _between(self) -> LinearNDInterpolator:
        """Built on first use: triangulating takes longer than reading the files."""
        groups: dict[tuple[int, int, float], list[tuple[float, float]]] = {}
        for counts, curve in self.placements.items():
            for batch, step, sync in zip(
                curve.local_batch.tolist(),
                curve.step_seconds.tolist(),
                curve.sync_seconds.tolist(),
                strict=True,
            ):
                groups.setdefault((len(counts), sum(counts), batch), []).append((step, sync))
        # Grid points have many triangulations. Sorted means first, then the rows as they were
        # measured, is the artifact's order, and so gives its triangulation.
        keys = sorted(groups)
        scales = self.scales
        at = np.column_stack([scales.nodes, scales.replicas, scales.local_batch])
        times = np.column_stack([scales.step_seconds, scales.sync_seconds])
        means = np.array([np.mean(groups[key], axis=0) for key in keys])
        return LinearNDInterpolator(
            np.concatenate([np.array(keys, dtype=np.float64), at]), np.concatenate([means, times])
        )

    def noise(self, batch: int, epoch: int) -> GradientNoise:
        """Gradient statistics during an epoch, linear between the batch sizes that were run."""
        key = batch, epoch
        found = self._noise.get(key)
        if found is None:
            sqr, var = self.noise_by_epoch(np.array([float(batch)]))
            for each, (one_sqr, one_var) in enumerate(zip(sqr[:, 0], var[:, 0], strict=True)):
                self._noise[batch, each] = GradientNoise(float(one_sqr), float(one_var))
            found = self._noise[key]
        return found

    def noise_by_epoch(self, batch: FloatArray) -> EpochNoise:
        """Gradient statistics of all epochs for many batch sizes at once."""
        left, weight = self._between_runs(batch)
        sqr, var = self._run_noise
        return EpochNoise(
            sqr[:, left] * (1.0 - weight) + sqr[:, left + 1] * weight,
            var[:, left] * (1.0 - weight) + var[:, left + 1] * weight,
        )

    def iterations(self, batch: int, epoch: int) -> float:
        """Steps from the start to the end of an epoch, linear between the batch sizes run."""
        left, weight = self._between_runs(np.array([float(batch)]))
        steps = self._run_iterations[epoch]
        return float(steps[left[0]] * (1.0 - weight[0]) + steps[left[0] + 1] * weight[0])

    def rates(self, limits: BatchLimits, counts: Counts) -> EpochRates:
        """The true goodput of every epoch, with the best batch that `limits` allow."""
        found = self._rates.get((limits, counts))
        if found is None:
            found = self._rates[limits, counts] = self._best_rates(limits, counts)
        return found

    def _best_rates(self, limits: BatchLimits, counts: Counts) -> EpochRates:
        replicas = sum(counts)
        grid = candidate_grid(limits, replicas)
        local, accumulation, _, valid = (part[:, replicas - 1] for part in grid)
        passes = accumulation + 1
        local = np.clip(limits.max_batch // (replicas * passes), 1, local)
        step, sync = self.step_times(counts, local.astype(np.float64))
        seconds = passes * step - accumulation * sync
        batch = (replicas * local * passes).astype(np.float64)
        sqr, var = self.noise_by_epoch(batch)
        goodput = np.where(valid, gain(sqr, var, batch / limits.init_batch) / seconds, 0.0)
        best = goodput.argmax(axis=1)
        chosen = goodput[np.arange(self.max_epochs), best]
        with np.errstate(divide="ignore"):
            durations = np.diff(self.progress_after) / chosen
        left = np.concatenate([np.cumsum(durations[::-1])[::-1], [0.0]])
        return EpochRates(chosen, np.where(chosen > 0, seconds[best], np.inf), left)

    def _between_runs(self, batch: FloatArray) -> tuple[IntArray, FloatArray]:
        """Index of the run below and the weight of the one above; clamped at both ends."""
        sizes = self._run_sizes
        if sizes.size == 1:
            return np.zeros(batch.shape, dtype=np.int64), np.zeros(batch.shape)
        left = np.clip(np.searchsorted(sizes, batch, side="right") - 1, 0, sizes.size - 2)
        weight = (batch - sizes[left]) / (sizes[left + 1] - sizes[left])
        return left, np.clip(weight, 0.0, 1.0)

    @cached_property
    def _run_sizes(self) -> FloatArray:
        return np.array(sorted(self.runs), dtype=np.float64)

    @cached_property
    def _run_noise(self) -> EpochNoise:
        return EpochNoise(
            self._by_epoch([self.runs[size].grad_sqr for size in sorted(self.runs)]),
            self._by_epoch([self.runs[size].grad_var for size in sorted(self.runs)]),
        )

    @cached_property
    def _run_iterations(self) -> FloatArray:
        return self._by_epoch([self.runs[size].iterations for size in sorted(self.runs)])

    def _by_epoch(self, columns: list[FloatArray]) -> FloatArray:
        """[epoch, run]; a lone run stands twice, so that there is always one above."""
        if len(columns) == 1:
            columns = columns * 2
        return np.column_stack([column[: self.max_epochs] for column in columns]).astype(float)


def _canonical(counts: Counts, widest_node: int) -> Counts:
    """The lexicographically smallest rotation, because ranks of a ring have no first node.

    A node with more devices than were ever measured on one counts as several nodes: slower than
    the truth, but known.
    """
    if any(count > widest_node for count in counts):
        counts = tuple(part for count in counts for part in _parts(count, widest_node))
    return min((counts[start:] + counts[:start] for start in range(len(counts))), default=())


def _parts(count: int, largest: int) -> Counts:
    full, rest = divmod(count, largest)
    return (largest,) * full + ((rest,) if rest else ())


def step_curve(
    local_batch: npt.ArrayLike, step_seconds: npt.ArrayLike, sync_seconds: npt.ArrayLike
) -> StepCurve:
    """A curve from rows in any order; local batches that repeat are averaged."""
    batch = np.asarray(local_batch, dtype=np.float64)
    sizes, which = np.unique(batch, return_inverse=True)
    rows = np.bincount(which)
    step = np.bincount(which, weights=np.asarray(step_seconds, dtype=np.float64)) / rows
    sync = np.bincount(which, weights=np.asarray(sync_seconds, dtype=np.float64)) / rows
    if sizes.size == 0 or not math.isfinite(float(step.sum() + sync.sum())):
        raise ValueError("a step curve needs at least one row and finite times")
    return StepCurve(sizes, step, sync)
