"""Pollux's speed model (OSDI'21, section 3): step time, statistical efficiency and goodput.

A step of K replicas with local batch m takes

    T_grad = alpha_c + beta_c * m
    T_sync = alpha + beta * max(K - 2, 0), with one pair of constants inside a node (r) and
             another across nodes (n); nothing for a single replica
    T_step = (T_grad ** gamma + T_sync ** gamma) ** (1 / gamma)

and `s` accumulation passes before it add `s * T_grad`. Progress is counted in steps at the
initial batch size: a step at another batch size is worth `gain` of them, which follows from the
gradient noise. Goodput is `gain / seconds`. The authors' artifact multiplies the same figure by
the initial batch size; speed-ups, and so decisions, are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from modelyard.spec.allocation import Footprint
from modelyard.speed.model import Observation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: what a single replica waits for others: not 0, because the fit takes logarithms
NO_SYNC_SECONDS = 1e-8
#: lower bound of every time constant, and the value of those that nothing observed yet speaks of
SMALLEST_CONSTANT = 1e-8
#: gamma = 1 adds compute and communication, 10 is close enough to their maximum
GAMMA_RANGE = (1.0, 10.0)
#: where a cold fit starts: three pairs (alpha, beta) and gamma a little inside its range
COLD_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
#: weights of the two regularisers: towards gamma = 1, and towards links that scale well
GAMMA_WEIGHT = 1e-3
RETROGRESSION_WEIGHT = 1e-2
#: the one departure from the artifact's objective: it has a kink where either error is 0, at
#: which a fit of few samples gets stuck; a thousandth is far below the noise of any measurement
KINK_WIDTH = 1e-3
#: a fit goes on while a step gains this share of the objective: with more it ended half-way through
#: a narrow valley on some processors, whose last bits differ
LEAST_GAIN = 1e-12
#: until several nodes have been tried, links across nodes count as so much slower than inside
UNSEEN_NETWORK_FACTOR = 1.1

#: total batch sizes tried between the smallest and the largest one
BATCH_CANDIDATES = 50
#: slack for floor and ceiling, so that 64.000000001 samples are 64
ROUNDING_SLACK = 1e-8
#: grids of candidates are made for at least so many replicas, so that few are ever made
SMALLEST_GRID_REPLICAS = 64
#: whoever asks for so many sizes at once asks again as noise changes: their step times are kept
WHOLE_TABLE_SIZES = 32


@dataclass(frozen=True, slots=True)
class PolluxParams:
    """The seven constants of the step time, in seconds except gamma."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def compute_seconds(self, local_batch: npt.ArrayLike) -> FloatArray:
        """Seconds of one forward-backward pass."""
        return self.alpha_c + self.beta_c * np.asarray(local_batch, dtype=np.float64)

    def sync_seconds(self, nodes: npt.ArrayLike, replicas: npt.ArrayLike) -> FloatArray:
        """Seconds of one exchange of gradients, if nothing overlapped with it."""
        replicas = np.asarray(replicas)
        rounds = np.maximum(replicas - 2, 0)
        across = self.alpha_n + self.beta_n * rounds
        inside = self.alpha_r + self.beta_r * rounds
        together = np.where(replicas > 1, inside, NO_SYNC_SECONDS)
        return np.where(np.asarray(nodes) > 1, across, together)

    def step_seconds(
        self,
        nodes: npt.ArrayLike,
        replicas: npt.ArrayLike,
        local_batch: npt.ArrayLike,
        accumulation: npt.ArrayLike = 0,
    ) -> FloatArray:
        """Seconds of a whole step, its accumulation passes included; broadcasts."""
        compute = self.compute_seconds(local_batch)
        powers = compute**self.gamma + self.sync_seconds(nodes, replicas) ** self.gamma
        total: FloatArray = np.asarray(accumulation) * compute + powers ** (1.0 / self.gamma)
        return total


class StepSample(NamedTuple):
    """One measured configuration: what ran where, and its mean step."""

    nodes: int
    replicas: int
    local_batch: int
    step_seconds: float
    sync_seconds: float


class _FitData(NamedTuple):
    local_batch: FloatArray
    #: one row per sample; columns multiply alpha_n, beta_n, alpha_r, beta_r
    links: FloatArray
    #: the sync time of single replicas, 0 for all others
    alone: FloatArray
    log_compute: FloatArray
    log_step: FloatArray


def fit_params(samples: Sequence[StepSample], *, start: PolluxParams | None = None) -> PolluxParams:
    """The constants that explain the samples best, by root mean squared logarithmic error.

    Constants of which the samples say nothing are held at their most optimistic value. `start`
    (an earlier fit) saves most of the iterations; without it the fit depends on the samples alone.
    """
    if not samples:
        raise ValueError("fit_params needs at least one sample; use LinearBelief before the first")
    table = np.array(samples, dtype=np.float64)
    nodes, replicas, local_batch, step, sync = table.T
    compute = step - sync
    if not (np.isfinite(table).all() and (compute > 0).all()):
        raise ValueError("every sample needs 0 <= sync_seconds < step_seconds, both finite")
    lower, upper, first = _bounds(nodes, replicas, local_batch, compute, start)
    # Half of the time that a server takes to start would go into this import.
    from scipy import optimize

    best = optimize.minimize(
        _loss_and_gradient,
        first,
        args=(_fit_data(nodes, replicas, local_batch, compute, step),),
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(lower, upper),
        options={"ftol": LEAST_GAIN},
    ).x.tolist()
    if not (nodes > 1).any():
        best[2] = max(best[2], best[4] * UNSEEN_NETWORK_FACTOR)
        best[3] = max(best[3], best[5] * UNSEEN_NETWORK_FACTOR)
    return PolluxParams(*best)


def _fit_data(
    nodes: FloatArray,
    replicas: FloatArray,
    local_batch: FloatArray,
    compute: FloatArray,
    step: FloatArray,
) -> _FitData:
    across, inside = nodes > 1, (nodes == 1) & (replicas > 1)
    rounds = np.maximum(replicas - 2, 0)
    return _FitData(
        local_batch=local_batch,
        links=np.stack([across, across * rounds, inside, inside * rounds], axis=1).astype(float),
        alone=np.where(replicas > 1, 0.0, NO_SYNC_SECONDS),
        log_compute=np.log(compute),
        log_step=np.log(step),
    )


def _bounds(
    nodes: FloatArray,
    replicas: FloatArray,
    local_batch: FloatArray,
    compute: FloatArray,
    start: PolluxParams | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower and upper bounds and the starting point; equal bounds hold a constant fixed."""
    lower = np.array([SMALLEST_CONSTANT] * 6 + [GAMMA_RANGE[0]])
    upper = np.array([np.inf] * 6 + [GAMMA_RANGE[1]])
    if (local_batch == local_batch[0]).all():
        # One batch size cannot split compute into its constant and its slope: half each, which
        # is optimistic about larger batches and so makes the job try them.
        lower[0] = upper[0] = compute.mean() / 2
    held: set[int] = set()
    if not (nodes > 1).any():
        held |= {2, 3}
    if not ((nodes == 1) & (replicas > 1)).any():
        held |= {4, 5}
    if not (replicas > 2).any():
        held |= {3, 5}
    for index in held:
        upper[index] = lower[index]
    first = np.array(COLD_START)
    if start is not None:
        earlier = np.array([getattr(start, name) for name in PolluxParams.__slots__])
        # A constant that was held until now has no earlier value worth starting from.
        first = np.where(earlier > 2 * SMALLEST_CONSTANT, earlier, first)
    return lower, upper, np.clip(first, lower, upper)


def _loss_and_gradient(constants: FloatArray, data: _FitData) -> tuple[float, FloatArray]:
    """The artifact's objective, errors in logarithms of seconds, and its exact gradient."""
    alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = constants.tolist()
    compute = alpha_c + beta_c * data.local_batch
    sync = data.links @ constants[2:6] + data.alone
    log_compute, log_sync = np.log(compute), np.log(sync)
    log_step = np.logaddexp(gamma * log_compute, gamma * log_sync) / gamma
    compute_share = np.exp(gamma * (log_compute - log_step))
    compute_error, by_compute = _rms(log_compute - data.log_compute)
    step_error, by_step = _rms(log_step - data.log_step)

    down_compute = (by_compute + by_step * compute_share) / compute
    down_sync = by_step * (1.0 - compute_share) / sync
    mean_log = compute_share * log_compute + (1.0 - compute_share) * log_sync
    gradient = np.empty(7)
    gradient[0] = down_compute.sum()
    gradient[1] = down_compute @ data.local_batch
    gradient[2:6] = down_sync @ data.links
    gradient[6] = by_step @ (mean_log - log_step) / gamma + 2 * GAMMA_WEIGHT * (gamma - 1.0)
    ratio_n, ratio_r = beta_n / alpha_n, beta_r / alpha_r
    gradient[2] -= 2 * RETROGRESSION_WEIGHT * ratio_n**2 / alpha_n
    gradient[3] += 2 * RETROGRESSION_WEIGHT * ratio_n / alpha_n
    gradient[4] -= 2 * RETROGRESSION_WEIGHT * ratio_r**2 / alpha_r
    gradient[5] += 2 * RETROGRESSION_WEIGHT * ratio_r / alpha_r
    regulariser = GAMMA_WEIGHT * (gamma - 1.0) ** 2
    regulariser += RETROGRESSION_WEIGHT * (ratio_n**2 + ratio_r**2)
    return compute_error + step_error + regulariser, gradient


def _rms(errors: FloatArray) -> tuple[float, FloatArray]:
    """Root mean square, rounded off at 0, and its gradient."""
    rms = math.sqrt(float(errors @ errors) / errors.size + KINK_WIDTH**2)
    return rms, errors / (errors.size * rms)


class BatchPlan(NamedTuple):
    """How a step splits its batch: per replica, `accumulation + 1` passes of `local_batch`."""

    local_batch: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The batch sizes a job may use; `fixed` when its user lets nothing else happen."""

    init_batch: int
    max_batch: int
    min_local: int
    max_local: int
    fixed: int | None = None

    @property
    def max_replicas(self) -> int:
        """More replicas than this have no batch large enough to feed them all."""
        return (self.fixed or self.max_batch) // self.min_local

    def split(self, batch: int, replicas: int) -> BatchPlan:
        """The fewest passes that fit in memory; rounded up, but never above `max_batch`."""
        local = math.ceil(batch / replicas - ROUNDING_SLACK)
        accumulation = math.ceil(local / self.max_local - ROUNDING_SLACK) - 1
        if replicas == 1 and batch > self.init_batch:
            # Gradient noise cannot be estimated from a single pass of a single replica.
            accumulation = max(accumulation, 1)
        passes = accumulation + 1
        return self.capped(math.ceil(local / passes - ROUNDING_SLACK), accumulation, replicas)

    def capped(self, local_batch: int, accumulation: int, replicas: int) -> BatchPlan:
        """The plan with its local batch cut so that the total stays within `max_batch`."""
        most = self.max_batch // (replicas * (accumulation + 1))
        return BatchPlan(max(1, min(local_batch, most)), accumulation)


def gain(sqr: npt.ArrayLike, var: npt.ArrayLike, scale: npt.ArrayLike) -> FloatArray:
    """Initial-size steps that one step at `scale` times the initial batch is worth.

    From 1 (no noise: more samples teach nothing new) to `scale` (all noise). Statistics that
    make no sense, as early estimates may, give 1.
    """
    sqr, var = np.asarray(sqr, dtype=np.float64), np.asarray(var, dtype=np.float64)
    denominator = var / np.asarray(scale) + sqr
    usable = denominator > 0
    return np.where(usable, (var + sqr) / np.where(usable, denominator, 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """Squared norm of the gradient, and its variance at the initial batch size."""

    sqr: float
    var: float

    def gain(self, scale: npt.ArrayLike) -> FloatArray:
        """What a step at `scale` times the initial batch is worth, in steps at that batch."""
        return gain(self.sqr, self.var, scale)


class Noise(Protocol):
    """What larger batches are worth, as far as it is known."""

    def gain(self, scale: npt.ArrayLike) -> FloatArray: ...


class StepTimes(Protocol):
    """Seconds of a step by placement and batch: `PolluxParams` or a corrected fit."""

    def __hash__(self) -> int: ...

    def step_seconds(
        self,
        nodes: npt.ArrayLike,
        replicas: npt.ArrayLike,
        local_batch: npt.ArrayLike,
        accumulation: npt.ArrayLike = 0,
    ) -> FloatArray: ...


#: assumed until gradients have been measured: larger batches gain nothing
NO_NOISE = GradientNoise(1.0, 0.0)


class CandidateGrid(NamedTuple):
    """Batch splits worth trying; row = candidate, column = replicas - 1."""

    local_batch: IntArray
    accumulation: IntArray
    #: total batch over the initial one
    scale: FloatArray
    valid: npt.NDArray[np.bool_]


def candidate_grid(limits: BatchLimits, replicas: int) -> CandidateGrid:
    """Candidates for 1 to at least `replicas` replicas; kept, as they depend on nothing else."""
    columns = SMALLEST_GRID_REPLICAS
    while columns < replicas:
        columns *= 2
    return _grid(limits, columns)


@lru_cache(maxsize=256)
def _grid(limits: BatchLimits, columns: int) -> CandidateGrid:
    replicas = np.arange(1, columns + 1)
    if limits.fixed is not None:
        plans = [limits.split(limits.fixed, int(count)) for count in replicas]
        local = np.array([[plan.local_batch for plan in plans]], dtype=np.int64)
        accumulation = np.array([[plan.accumulation for plan in plans]], dtype=np.int64)
    else:
        smallest = np.maximum(limits.init_batch, limits.min_local * replicas)
        batch = np.geomspace(smallest, limits.max_batch, BATCH_CANDIDATES)
        share = batch / replicas
        passes = np.ceil(share / limits.max_local - ROUNDING_SLACK)
        noisy = (replicas == 1) & (share > limits.init_batch + ROUNDING_SLACK)
        passes = np.where(noisy, np.maximum(passes, 2), passes)
        local = np.ceil(share / passes - ROUNDING_SLACK).astype(np.int64)
        accumulation = passes.astype(np.int64) - 1
    valid = (limits.min_local <= local) & (local <= limits.max_local)
    valid &= replicas <= limits.max_replicas
    scale = replicas * local * (accumulation + 1) / limits.init_batch
    return CandidateGrid(local, accumulation, scale, valid)


@lru_cache(maxsize=256)
def _grid_seconds(times: StepTimes, limits: BatchLimits, columns: int) -> FloatArray:
    """[one node or several, candidate, replicas - 1]; gradient noise changes, these rarely do."""
    grid = _grid(limits, columns)
    replicas = np.arange(1, columns + 1)
    seconds = [
        times.step_seconds(nodes, replicas, grid.local_batch, grid.accumulation) for nodes in (1, 2)
    ]
    return np.stack(seconds)


@dataclass(frozen=True, slots=True)
class GoodputModel:
    """A job's fitted speed: the best goodput over batch sizes, on any number of replicas."""

    times: StepTimes
    noise: Noise
    limits: BatchLimits
    #: what `times` were fitted to; one sample of each configuration
    samples: tuple[StepSample, ...] = ()
    _tables: dict[tuple[int, int], FloatArray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _answers: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def optimise(
        self, nodes: npt.ArrayLike, replicas: npt.ArrayLike
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Goodput, local batch and accumulation of the best candidate; broadcasts."""
        nodes, replicas = np.broadcast_arrays(np.asarray(nodes), np.asarray(replicas))
        shape, nodes, replicas = nodes.shape, nodes.ravel(), replicas.ravel()
        if not ((nodes >= 1) & (nodes <= replicas)).all():
            raise ValueError("optimise needs 1 <= nodes <= replicas")
        grid = candidate_grid(self.limits, int(replicas.max(initial=1)))
        local, accumulation, scale, valid = (part[:, replicas - 1] for part in grid)
        if replicas.size >= WHOLE_TABLE_SIZES:
            by_nodes = _grid_seconds(self.times, self.limits, grid.scale.shape[1])
            seconds = by_nodes[(nodes > 1).astype(np.int64), :, replicas - 1].T
        else:
            seconds = self.times.step_seconds(nodes, replicas, local, accumulation)
        goodput = np.where(valid, self.noise.gain(scale) / seconds, 0.0)
        best = goodput.argmax(axis=0), np.arange(replicas.size)
        chosen = goodput[best], local[best], accumulation[best]
        return chosen[0].reshape(shape), chosen[1].reshape(shape), chosen[2].reshape(shape)

    def plan(self, nodes: int, replicas: int) -> BatchPlan:
        """The batch split that a job running by this model uses on so many replicas."""
        _, local, accumulation = self.optimise([nodes], [replicas])
        return self.limits.capped(int(local[0]), int(accumulation[0]), replicas)

    def goodput_table(self, max_nodes: int, max_replicas: int) -> FloatArray:
        """Units per second by [nodes, replicas]; 0 where no such placement exists. Read only."""
        table = self._tables.get((max_nodes, max_replicas))
        if table is None:
            table = self._tables[max_nodes, max_replicas] = self._fill(max_nodes, max_replicas)
        return table

    def _fill(self, max_nodes: int, max_replicas: int) -> FloatArray:
        """Only "one node or several" matters to the model, so two rows fill the whole table."""
        counts = np.arange(1, max_replicas + 1)
        table = np.zeros((max_nodes + 1, max_replicas + 1))
        table[1:2, 1:] = self.optimise(1, counts)[0]
        if max_nodes > 1 and max_replicas > 1:
            table[2:, 2:] = self.optimise(2, counts[1:])[0]
            table[np.arange(max_nodes + 1)[:, None] > np.arange(max_replicas + 1)] = 0.0
        table.setflags(write=False)
        return table

    def goodputs(self, nodes: tuple[int, ...], replicas: tuple[int, ...]) -> list[float]:
        """Units per second of several placements at once; answers are kept."""
        found = self._answers.get((nodes, replicas))
        if found is None:
            found = self._answers[nodes, replicas] = self.optimise(nodes, replicas)[0].tolist()
        return found

    def goodput(self, at: Footprint) -> float:
        if not at.counts:
            return 0.0
        return self.goodputs((at.nodes,), (at.devices,))[0] * (1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        if self.goodput(at) <= 0.0:
            return math.inf
        plan = self.plan(at.nodes, at.devices)
        seconds = self.times.step_seconds(at.nodes, at.devices, *plan)
        return float(seconds) / (1.0 - at.slowdown)

    def refit(self, observations: Sequence[Observation]) -> GoodputModel:
        """A model that has also seen these steps; those without a sync time or batch are left."""
        known = {sample[:3]: sample for sample in self.samples}
        known.update((sample[:3], sample) for sample in map(_sample, observations) if sample)
        samples = tuple(known.values())
        if not samples or samples == self.samples:
            return self
        return GoodputModel(fit_params(samples), self.noise, self.limits, samples)


def _sample(seen: Observation) -> StepSample | None:
    """The neighbours' share is taken out, so that the fit describes the job by itself."""
    if seen.sync_seconds is None or seen.local_batch is None or not seen.at.counts:
        return None
    own = 1.0 - seen.at.slowdown
    step, sync = seen.step_seconds * own, seen.sync_seconds * own
    return StepSample(seen.at.nodes, seen.at.devices, seen.local_batch, step, sync)


@dataclass(frozen=True, slots=True)
class LinearBelief:
    """A job that has not run yet: twice the devices, twice the speed, until it is measured."""

    limits: BatchLimits

    def goodput(self, at: Footprint) -> float:
        return at.devices * (1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0 else math.inf

    def goodput_table(self, max_nodes: int, max_replicas: int) -> FloatArray:
        """Units per second by [nodes, replicas]; 0 where no such placement exists."""
        nodes, replicas = np.ogrid[: max_nodes + 1, : max_replicas + 1]
        return np.where((nodes >= 1) & (nodes <= replicas), replicas, 0).astype(np.float64)

    def refit(self, observations: Sequence[Observation]) -> LinearBelief | GoodputModel:
        samples = tuple(sample for sample in map(_sample, observations) if sample)
        if not samples:
            return self
        return GoodputModel(fit_params(samples), NO_NOISE, self.limits, samples)
