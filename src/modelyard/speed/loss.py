"""How the loss falls with training, after Optimus (EuroSys'18).

    l(k) = 1 / (a·k + b) + c        a, b, c ≥ 0, k in steps

Later points weigh more, since the future continues from the end of the curve. Departures from the
paper: outliers are found by their distance from a robust first fit rather than from their
neighbours, and every answer has an interval, from a jackknife over blocks of the points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares, nnls

#: Three coefficients, and two points more to tell a curve from noise.
MIN_POINTS = 5
#: Points kept of a long run. More add time to the fit and nothing to three coefficients.
MAX_POINTS = 200
#: Blocks of the jackknife. Ten of up to 20 points each are longer than the noise of SGD remembers.
BLOCKS = 10
#: Weight of the first point against the last.
FIRST_WEIGHT = 0.1
#: Residuals above this share of the median loss count linearly, not squared, in the first fit.
ROBUST_SHARE = 0.01
#: Points further from the first fit than so many standard deviations are left out of the second.
OUTLIER_DEVIATIONS = 4.0
#: Standard deviation of normal noise over its median absolute deviation.
DEVIATION_PER_MAD = 1.4826
#: Standard errors on either side of an estimate: about 95 % where the errors are normal.
INTERVAL_ERRORS = 2.0
#: Floors as shares of the lowest loss to start the search from.
FLOOR_STARTS = (0.0, 0.5, 0.9, 0.99)
#: Smallest b in units of 1 / median loss: keeps l(0) finite.
SMALLEST_B = 1e-9
#: An a or c below this, with the run so far as the unit of steps and the median loss as that of
#: losses, is 0 to the solver's precision. Without this a flat curve would reach any loss one day.
NEGLIGIBLE = 1e-9
#: A median loss below this is 0 in all but name, and no unit to divide by.
SMALLEST_UNIT = 1e-100
#: Losses above so many medians count as so many: no curve explains them, and their fourth powers
#: would overflow.
LARGEST_LOSS = 1e6

FloatArray = npt.NDArray[np.float64]
#: Step and the loss there.
LossPoint = tuple[float, float]
_Coefficients = tuple[float, float, float]


class TooFewPointsError(ValueError):
    """Fewer usable points than a curve needs; train on and ask again."""


@dataclass(frozen=True, slots=True)
class StepsEstimate:
    """Steps from the start of training, with an interval. Infinite when never reached.

    The interval covers noise in the points, not a wrong shape of the curve: far beyond the last
    point it is too narrow.
    """

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LossCurve:
    """l(k) = 1 / (a·k + b) + c, with the fits that the jackknife left."""

    a: float
    b: float
    c: float
    #: standard deviation of the points around the curve, outliers left out
    noise: float = 0.0
    #: coefficients with one block of points left out at a time; empty for a curve that was given
    replicates: tuple[_Coefficients, ...] = ()
    #: the points of the fit, thinned
    points: tuple[LossPoint, ...] = ()

    def __post_init__(self) -> None:
        if not (
            all(0.0 <= value < math.inf for value in (self.a, self.b, self.c))
            and self.a + self.b > 0.0
        ):
            raise ValueError(
                f"coefficients are {self.a}, {self.b}, {self.c}: none is negative, and one of "
                f"the first two is above 0"
            )

    def loss_at(self, step: float) -> float:
        below = self.a * step + self.b
        return 1.0 / below + self.c if below > 0.0 else math.inf

    def steps_to(
        self,
        *,
        loss: float | None = None,
        relative_change: float | None = None,
        window: float = 1.0,
    ) -> StepsEstimate:
        """Steps until the loss is at most `loss`, or until it hardly falls any more.

        The second is Optimus' convergence: over the next `window` steps (one epoch, say) the loss
        falls by at most the share `relative_change`. Give exactly one of the two.
        """
        if (loss is None) == (relative_change is None):
            raise ValueError("give either the loss to reach or the relative change to stop at")
        if relative_change is not None and not (relative_change > 0.0 and 0.0 < window < math.inf):
            raise ValueError(
                f"relative_change is {relative_change} over a window of {window} steps: "
                f"both are positive"
            )

        def steps(of: _Coefficients) -> float:
            if loss is not None:
                return _steps_to_loss(of, loss)
            assert relative_change is not None
            return _steps_to_plateau(of, relative_change, window)

        return _estimate(steps((self.a, self.b, self.c)), [steps(of) for of in self.replicates])

    def refit(self, points: Sequence[LossPoint]) -> LossCurve:
        """The curve of the points behind this one and the new ones; itself without new ones.

        A curve that was given, not fitted, has no points behind it and is replaced.
        """
        return fit_loss((*self.points, *points)) if points else self


def fit_loss(points: Sequence[LossPoint]) -> LossCurve:
    """The loss curve of measured (step, loss) points in any order.

    Points that are not finite are left out, as a diverged step tells nothing about the curve.
    Raises `TooFewPointsError` with fewer than five usable points at different steps.
    """
    usable = sorted(
        (float(step), float(loss))
        for step, loss in points
        if math.isfinite(step) and math.isfinite(loss)
    )
    for step, loss in usable:
        if step < 0.0 or loss < 0.0:
            raise ValueError(f"step {step:g} with loss {loss:g}: neither can be negative here")
    distinct = len({step for step, _ in usable})
    if distinct < MIN_POINTS:
        raise TooFewPointsError(
            f"a loss curve needs finite losses at {MIN_POINTS} different steps and there are "
            f"{distinct}: train on and fit again"
        )
    kept = _thinned(usable)
    step, loss = np.array(kept, dtype=np.float64).T
    # The median, because one absurd loss must not become the unit of all others.
    last_step, middle = float(step[-1]), float(np.median(loss))
    if middle < SMALLEST_UNIT:
        middle = 1.0
    k, y = step / last_step, np.minimum(loss, LARGEST_LOSS * middle) / middle
    fit, inside, noise = _robust_fit(k, y)
    replicates = _jackknife(k[inside], y[inside], fit)

    def in_units(of: _Coefficients) -> _Coefficients:
        return of[0] / (last_step * middle), of[1] / middle, of[2] * middle

    return LossCurve(*in_units(fit), noise * middle, tuple(map(in_units, replicates)), kept)


def _thinned(points: list[LossPoint]) -> tuple[LossPoint, ...]:
    """At most `MAX_POINTS`: of each run of neighbours the one with the median loss.

    A point of the run, not a mean over it: the mean of a convex curve lies above the curve.
    """
    if len(points) <= MAX_POINTS:
        return tuple(points)
    edges = np.linspace(0, len(points), MAX_POINTS + 1).astype(int)
    runs = (points[start:end] for start, end in itertools.pairwise(edges))
    return tuple(sorted(sorted(run, key=lambda p: p[1])[len(run) // 2] for run in runs))


def _curve(of: FloatArray, k: FloatArray) -> FloatArray:
    loss: FloatArray = 1.0 / (of[0] * k + of[1]) + of[2]
    return loss


def _weights(k: FloatArray) -> FloatArray:
    return FIRST_WEIGHT + (1.0 - FIRST_WEIGHT) * k


def _robust_fit(k: FloatArray, y: FloatArray) -> tuple[_Coefficients, npt.NDArray[np.bool_], float]:
    """Coefficients, which points they rest on, and the noise around them."""
    root = np.sqrt(_weights(k))
    starts = [_start(k, y, share * float(y.min())) for share in FLOOR_STARTS]
    tries = [_least_squares(k, y, root, start, robust=True) for start in starts]
    first = min(tries, key=lambda of: _robust_cost(root * (_curve(of, k) - y)))
    residual = np.abs(_curve(first, k) - y)
    deviation = DEVIATION_PER_MAD * float(np.median(residual))
    # The floor keeps points that differ from a perfect fit by rounding only.
    inside = residual <= max(OUTLIER_DEVIATIONS * deviation, 1e-9)
    if len(np.unique(k[inside])) < MIN_POINTS:
        inside = np.ones_like(inside)
    second = _least_squares(k[inside], y[inside], root[inside], first, robust=False)
    noise = float(np.sqrt(np.mean((_curve(second, k[inside]) - y[inside]) ** 2)))
    return _as_tuple(second), inside, noise


def _robust_cost(residual: FloatArray) -> float:
    return float(np.sum(np.sqrt(1.0 + (residual / ROBUST_SHARE) ** 2) - 1.0))


def _start(k: FloatArray, y: FloatArray, floor: float) -> FloatArray:
    """a and b for a given c, from 1/(l - c) = a·k + b, which is linear in them."""
    above = np.maximum(y - floor, 1e-6)
    # An error in l becomes one of error/(l - c)² in 1/(l - c); the square undoes that.
    root = np.sqrt(_weights(k)) * above**2
    matrix = np.stack([k, np.ones_like(k)], axis=1) * root[:, None]
    (a, b), _ = nnls(matrix, root / above)
    return np.array([a, max(b, 10.0 * SMALLEST_B), floor])


def _least_squares(
    k: FloatArray, y: FloatArray, root: FloatArray, start: FloatArray, *, robust: bool
) -> FloatArray:
    def residual(of: FloatArray) -> FloatArray:
        return root * (_curve(of, k) - y)

    def slopes(of: FloatArray) -> FloatArray:
        inverse = 1.0 / (of[0] * k + of[1])
        return np.stack([-k * inverse**2, -(inverse**2), np.ones_like(k)], axis=1) * root[:, None]

    solution = least_squares(
        residual,
        start,
        jac=slopes,
        bounds=([0.0, SMALLEST_B, 0.0], np.inf),
        loss="soft_l1" if robust else "linear",
        f_scale=ROBUST_SHARE,
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    return np.asarray(solution.x, dtype=np.float64)


def _as_tuple(of: FloatArray) -> _Coefficients:
    a, b, c = (float(value) for value in of)
    return a if a > NEGLIGIBLE else 0.0, b, c if c > NEGLIGIBLE else 0.0


def _jackknife(k: FloatArray, y: FloatArray, fit: _Coefficients) -> list[_Coefficients]:
    """Fits with one block of neighbouring points left out at a time.

    Blocks, because the noise of neighbouring steps is not independent, and because the fit
    without the last block shows how far the curve can be trusted ahead.
    """
    replicates = []
    for block in np.array_split(np.arange(len(k)), min(BLOCKS, len(k))):
        kept = np.ones(len(k), dtype=bool)
        kept[block] = False
        root = np.sqrt(_weights(k[kept]))
        start = np.maximum(np.array(fit), [0.0, 10.0 * SMALLEST_B, 0.0])
        replicates.append(_as_tuple(_least_squares(k[kept], y[kept], root, start, robust=False)))
    return replicates


def _steps_to_loss(of: _Coefficients, loss: float) -> float:
    a, b, c = of
    if loss <= c:
        return math.inf
    needed = 1.0 / (loss - c) - b
    if needed <= 0.0:
        return 0.0
    return needed / a if a > 0.0 else math.inf


def _steps_to_plateau(of: _Coefficients, relative_change: float, window: float) -> float:
    """The step from which the loss falls by at most `relative_change` of itself in a window.

    With u = a·k + b and g = a·window that fall is g / ((u + g)(1 + c·u)), which shrinks as u
    grows; setting it to t gives t·c·u² + t(1 + c·g)·u + (t - 1)·g = 0.
    """
    a, b, c = of
    gain = a * window
    if gain <= 0.0 or relative_change >= 1.0:
        return 0.0
    excess = gain * (1.0 - relative_change) / relative_change
    half = 0.5 * (1.0 + c * gain)
    # The positive root, written so that c = 0 needs no case of its own and nothing cancels.
    u = excess / (half + math.sqrt(half * half + c * excess))
    return max(0.0, (u - b) / a)


def _estimate(expected: float, replicates: list[float]) -> StepsEstimate:
    """Jackknife interval on a log scale, because steps are positive and their errors multiply."""
    if not replicates:
        return StepsEstimate(expected, expected, expected)
    finite = [value for value in replicates if value < math.inf]
    if expected == math.inf:
        return StepsEstimate(math.inf, min(finite, default=math.inf), math.inf)
    logs = np.log1p(np.array([*finite, expected]))
    count = len(finite)
    spread = logs[:-1] - logs[:-1].mean() if count else logs[:0]
    error = math.sqrt((count - 1) / count * float(np.sum(spread**2))) if count else 0.0
    center, reach = float(logs[-1]), INTERVAL_ERRORS * error
    high = math.expm1(min(center + reach, 700.0)) if len(finite) == len(replicates) else math.inf
    return StepsEstimate(expected, max(0.0, math.expm1(center - reach)), high)
