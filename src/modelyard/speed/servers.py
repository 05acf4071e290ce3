"""The speed of training with parameter servers, after Optimus (EuroSys'18).

With p servers and w workers, in steps per second:

    asynchronous   f(p, w) = w / (a + b·w/p + c·w + d·p)
    synchronous    f(p, w) = 1 / (a·M/w + b + c·w/p + d·w + e·p)      M: the global batch

All coefficients are at least 0. Turned over, w/f and 1/f are linear in them, so non-negative
least squares finds them. Departure from the paper: each row is divided by its target, so that the
fit minimises relative errors and the slowest samples do not outweigh the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from modelyard.spec.allocation import Footprint
from modelyard.speed.interference import undisturbed_rate
from modelyard.speed.model import Observation

#: Weight of the given coefficients against one observation. Small, because they come from another
#: run; not 0, because the first few observations leave most directions undetermined.
PRIOR_WEIGHT = 0.05
#: Passes of the solver allowed per coefficient and row, far above what these few columns need.
SOLVER_PASSES = 1000

FloatArray = npt.NDArray[np.float64]


class ServersMode(StrEnum):
    """How gradients reach the parameter servers."""

    #: each worker updates the servers on its own; a step is one worker's batch
    ASYNCHRONOUS = "asynchronous"
    #: all workers wait for each other; a step is the global batch
    SYNCHRONOUS = "synchronous"


_COEFFICIENTS = {ServersMode.ASYNCHRONOUS: 4, ServersMode.SYNCHRONOUS: 5}


@dataclass(frozen=True, slots=True)
class ServersSample:
    """A measured speed at a known number of servers and workers; `weight` counts measurements."""

    servers: int
    workers: int
    steps_per_second: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        sizes_ok = self.servers >= 1 and self.workers >= 1
        if not (
            sizes_ok and 0.0 < self.steps_per_second < math.inf and 0.0 < self.weight < math.inf
        ):
            raise ValueError(
                f"{self} is no measurement: it has at least one server, one worker, and a "
                f"positive, finite speed and weight"
            )


@dataclass(frozen=True, slots=True)
class Split:
    """Devices divided into parameter servers and workers."""

    servers: int
    workers: int


@dataclass(frozen=True, slots=True)
class ServersSpeed:
    """Speed of one job by the formulas above; a unit of work is one step.

    A footprint is divided as `best_split` says. The model knows nothing of nodes or device kinds:
    in Optimus' clusters every server and worker crosses the network anyway.
    """

    mode: ServersMode
    coefficients: tuple[float, ...]
    global_batch: float
    #: measurements behind the coefficients, one per split
    evidence: tuple[ServersSample, ...] = ()
    #: coefficients from before any evidence; None when they came from samples alone
    prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        expected = _COEFFICIENTS[self.mode]
        if (
            len(self.coefficients) != expected
            or not all(0.0 <= value < math.inf for value in self.coefficients)
            or not any(self.coefficients)
        ):
            raise ValueError(
                f"coefficients are {self.coefficients}: {self.mode} servers take {expected}, "
                f"none negative and not all 0"
            )
        _check_batch(self.global_batch)

    def steps_per_second(self, servers: int, workers: int) -> float:
        """f(p, w); 0 without a server or without a worker."""
        if servers < 1 or workers < 1:
            return 0.0
        split = np.array([servers], dtype=np.float64), np.array([workers], dtype=np.float64)
        return float(_speeds(self.mode, self.coefficients, self.global_batch, *split)[0])

    def best_split(self, devices: int) -> Split | None:
        """The fastest division of all `devices`, fewest servers on a tie; None below two."""
        if devices < 2:
            return None
        return _best_split(self.mode, self.coefficients, self.global_batch, devices)[0]

    def goodput(self, at: Footprint) -> float:
        devices = at.devices
        if devices < 2:
            return 0.0
        speed = _best_split(self.mode, self.coefficients, self.global_batch, devices)[1]
        return speed * max(0.0, 1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0.0 else math.inf

    def refit(self, observations: Sequence[Observation]) -> ServersSpeed:
        """Refitted with measured steps, each taken at the split that this model would choose.

        Steps beside a partner are left out: they measure the partner too. Where the split is
        known, `learn` is the better way in.
        """
        samples: list[ServersSample] = []
        for seen in observations:
            rate, split = undisturbed_rate(seen), self.best_split(seen.at.devices)
            if rate is not None and split is not None and seen.at.partner is None:
                samples.append(ServersSample(split.servers, split.workers, rate))
        return self.learn(samples)

    def learn(self, samples: Sequence[ServersSample]) -> ServersSpeed:
        """Refitted with more samples on top of all earlier ones."""
        if not samples:
            return self
        prior = self.prior if self.evidence else self.coefficients
        evidence = _merged((*self.evidence, *samples))
        fitted = _fit(evidence, self.mode, self.global_batch, prior)
        return replace(self, coefficients=fitted, evidence=evidence, prior=prior)


def fit_servers(
    samples: Sequence[ServersSample], mode: ServersMode, global_batch: float
) -> ServersSpeed:
    """The model of some measured splits.

    Fewer distinct splits than coefficients still give a valid model that meets the samples, but
    one of many: sample at least as many as the mode has coefficients (4 or 5).
    """
    if not samples:
        raise ValueError("no samples: measure the job on at least one split of servers and workers")
    _check_batch(global_batch)
    evidence = _merged(samples)
    return ServersSpeed(mode, _fit(evidence, mode, global_batch, None), global_batch, evidence)


def _check_batch(global_batch: float) -> None:
    if not 0.0 < global_batch < math.inf:
        raise ValueError(f"global_batch is {global_batch}: give the samples per step, above 0")


def _merged(samples: Sequence[ServersSample]) -> tuple[ServersSample, ...]:
    """One sample per split: their weighted harmonic mean speed, i.e. the mean step time.

    A job may report for weeks; this keeps the evidence as small as the number of splits tried.
    """
    by_split: dict[tuple[int, int], tuple[float, float]] = {}
    for sample in samples:
        seconds, weight = by_split.get((sample.servers, sample.workers), (0.0, 0.0))
        by_split[sample.servers, sample.workers] = (
            seconds + sample.weight / sample.steps_per_second,
            weight + sample.weight,
        )
    return tuple(
        ServersSample(servers, workers, weight / seconds, weight)
        for (servers, workers), (seconds, weight) in sorted(by_split.items())
    )


def _terms(
    mode: ServersMode, global_batch: float, servers: FloatArray, workers: FloatArray
) -> FloatArray:
    """What each coefficient multiplies, one column per coefficient."""
    one = np.ones_like(workers)
    if mode is ServersMode.ASYNCHRONOUS:
        columns = [one, workers / servers, workers, servers]
    else:
        columns = [global_batch / workers, one, workers / servers, workers, servers]
    return np.stack(columns, axis=1)


def _speeds(
    mode: ServersMode,
    coefficients: tuple[float, ...],
    global_batch: float,
    servers: FloatArray,
    workers: FloatArray,
) -> FloatArray:
    divisor: FloatArray = _terms(mode, global_batch, servers, workers) @ np.array(coefficients)
    return workers / divisor if mode is ServersMode.ASYNCHRONOUS else 1.0 / divisor


@lru_cache(maxsize=4096)
def _best_split(
    mode: ServersMode, coefficients: tuple[float, ...], global_batch: float, devices: int
) -> tuple[Split, float]:
    servers = np.arange(1, devices, dtype=np.float64)
    speeds = _speeds(mode, coefficients, global_batch, servers, devices - servers)
    best = int(np.argmax(speeds))
    return Split(best + 1, devices - best - 1), float(speeds[best])


def _fit(
    samples: Sequence[ServersSample],
    mode: ServersMode,
    global_batch: float,
    prior: tuple[float, ...] | None,
) -> tuple[float, ...]:
    servers = np.array([sample.servers for sample in samples], dtype=np.float64)
    workers = np.array([sample.workers for sample in samples], dtype=np.float64)
    speed = np.array([sample.steps_per_second for sample in samples])
    root_weight = np.sqrt([sample.weight for sample in samples])
    target = workers / speed if mode is ServersMode.ASYNCHRONOUS else 1.0 / speed
    rows = _terms(mode, global_batch, servers, workers) / target[:, None]
    # In units of its own column each coefficient is a share of the step, which makes the solver
    # indifferent to the units of time and the prior's pull equal on all of them.
    size = np.sqrt(np.mean(rows**2, axis=0))
    matrix = rows / size * root_weight[:, None]
    aim = root_weight
    if prior is not None:
        pull = math.sqrt(PRIOR_WEIGHT)
        matrix = np.vstack([matrix, pull * np.eye(len(prior))])
        aim = np.concatenate([aim, pull * np.array(prior) * size])
    shares, _ = nnls(matrix, aim, maxiter=SOLVER_PASSES * len(matrix))
    return tuple(float(value) for value in shares / size)
