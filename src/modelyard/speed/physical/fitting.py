"""Factors from measured step times: the most probable ones under their priors, and their spread.

Logarithms of seconds are compared, so that ten per cent weigh the same in a small run and a large
one, under a Student-t likelihood that lets a few odd rows be odd. The maximum is found by
Gauss–Newton steps with damping; the Gaussian around it (Laplace) is the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modelyard.speed.physical.coefficients import (
    USUAL_CLUSTER_SIGMA,
    USUAL_RESIDUAL_SIGMA,
    Coefficients,
    prior,
)
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.terms import (
    TERM_NAMES,
    Counted,
    counted,
    factors_of,
    seconds_of,
    spread_to_effects,
)

#: degrees of freedom of the likelihood: heavy tails, as published rows have
STUDENT_DEGREES = 4.0
#: rows of one source that count in full; of more, only a power, since they repeat each other
FULL_ROWS = 20.0
CROWD_POWER = 0.8
#: spread of the clusters' own intercepts in a fit of many; less than clusters really differ by, so
#: that what many of them share ends in the factors and not in what is forgotten
INTERCEPT_SIGMA = 0.03
#: spread of models around their cluster's factors, when few rows are learnt from
KIND_SIGMA = 0.05
EXPERT_KIND_SIGMA = 0.2
#: runs of one cluster scatter less or more than those of another: the spread of one run as a
#: multiple of the usual one, and how probable that is
SCATTERS = ((0.5, 0.3), (1.0, 0.4), (1.75, 0.3))
#: what is added to a run's own scatter for a model that was not among those measured, as a share of
#: the usual spread
KIND_SHARE = 0.5
#: clusters are usual or unusual: standard deviation of the logarithm of how much more or less the
#: variance of a cluster's factors is than what is believed of all
UNUSUAL_LOG_SIGMA = 2.5
_SCALES = 5
#: standard deviations that the scales reach to both sides
_SCALE_REACH = 2.2
_MOST_STEPS = 60
_DIFFERENCE = 1e-4
_ENOUGH = 1e-5


def log_seconds(items: Counted, values: Column) -> Column:
    """Predicted logarithm of the step's seconds, for one set of parameters."""
    parts = seconds_of(items, factors_of(values, items.codes))
    total: Column = sum(parts.values(), np.zeros(()))
    return np.asarray(np.log(total) + values[-1], dtype=np.float64)


def derivatives(items: Counted, values: Column, here: Column) -> Column:
    """By every parameter: terms by differences, effects and cluster from those."""
    nudged = np.exp(_DIFFERENCE * np.eye(len(TERM_NAMES)))
    # A line for each term, in which it alone is a little larger: all in one go.
    factors = {
        name: factor * nudged[:, at, None]
        for at, (name, factor) in enumerate(factors_of(values, items.codes).items())
    }
    total: Column = sum(seconds_of(items, factors).values(), np.zeros(()))
    by_term = (np.log(total) + values[-1] - here) / _DIFFERENCE
    return spread_to_effects(by_term.T, items.codes)


def row_weights(sources: Sequence[str]) -> Column:
    """Less for each row of a large source: 720 rows of one machine are not 720 machines."""
    _, place, counts = np.unique(np.array(sources), return_inverse=True, return_counts=True)
    each = np.minimum(1.0, (FULL_ROWS / counts) ** CROWD_POWER)
    weights: Column = each[place]
    return weights


def fit(
    columns: Columns,
    seconds: Column,
    *,
    sources: Sequence[str],
    clusters: Sequence[str],
    start: Coefficients | None = None,
    cluster_sigma: float = USUAL_CLUSTER_SIGMA,
    residual_sigma: float = USUAL_RESIDUAL_SIGMA,
    beliefs: Coefficients | None = None,
    weights: Column | None = None,
) -> Coefficients:
    """Fit everything from many clusters; each has an intercept of its own, forgotten afterwards.

    `beliefs` and `weights` stand in for the priors of `terms` and for `row_weights`.
    """
    beliefs = prior(cluster_sigma) if beliefs is None else beliefs
    items = counted(columns)
    measured = np.log(seconds)
    weights = row_weights(sources) if weights is None else weights
    names, place = np.unique(np.array(clusters), return_inverse=True)
    own = np.zeros((seconds.size, names.size))
    own[np.arange(seconds.size), place] = 1.0
    size = beliefs.mean.size - 1  # the shared cluster factor is replaced by one for each cluster
    variances = np.concatenate(
        [np.diag(beliefs.covariance)[:-1], np.full(names.size, INTERCEPT_SIGMA**2)]
    )
    centre = np.concatenate([beliefs.mean[:-1], np.zeros(names.size)])
    values = centre.copy()
    if start is not None:
        values[:size] = start.mean[:-1]

    def predicted(values: Column) -> Column:
        parameters = np.concatenate([values[:size], [0.0]])
        return log_seconds(items, parameters) + values[size:][place]

    def slopes(values: Column) -> Column:
        parameters = np.concatenate([values[:size], [0.0]])
        here = log_seconds(items, parameters)
        return np.hstack([derivatives(items, parameters, here)[:, :-1], own])

    values, hessian, _ = _maximum(
        predicted,
        slopes,
        measured,
        values,
        centre,
        np.diag(1.0 / variances),
        weights,
        residual_sigma,
    )
    covariance = _inverse(hessian)
    whole = np.zeros_like(beliefs.covariance)
    whole[:size, :size] = covariance[:size, :size]
    whole[size, size] = cluster_sigma**2
    return Coefficients(
        mean=np.concatenate([values[:size], [0.0]]),
        covariance=whole,
        residual_sigma=residual_sigma,
        rows=seconds.size,
    )


def refit(coefficients: Coefficients, columns: Columns, seconds: Column) -> Coefficients:
    """Believe also a few measured rows of one cluster: its own factor, and the terms they show.

    Three things keep a few rows from teaching what is not so. Runs of one model share what is
    peculiar to it, which says little about other models: each model has an intercept of its own,
    forgotten afterwards. How far this cluster is from the usual is not known, nor how much its runs
    scatter: rows that agree on a shift of one cause make it likely that it is far, rows that
    contradict each other that it is near and that they differ for reasons of their own. So the rows
    are learnt from under several scales of the covariance and several scatters, and what they say
    is averaged by how probable each makes them.
    """
    rows = _Rows.of(columns, seconds)
    lessons = [
        lesson
        for scatter, chance in SCATTERS
        for lesson in rows.lessons(coefficients, scatter * coefficients.residual_sigma, chance)
    ]
    evidence = np.array([lesson.evidence for lesson in lessons])
    share = np.exp(evidence - np.max(evidence))
    share /= share.sum()
    means = np.array([lesson.mean for lesson in lessons])
    mean = share @ means
    away = means - mean
    covariance = np.einsum("s,sij->ij", share, np.array([one.covariance for one in lessons]))
    covariance += np.einsum("s,si,sj->ij", share, away, away)
    scatter = share @ np.square([lesson.sigma for lesson in lessons])
    others = np.square(KIND_SHARE * coefficients.residual_sigma)
    return Coefficients(
        mean=mean,
        covariance=covariance,
        residual_sigma=float(np.sqrt(scatter + others)),
        rows=coefficients.rows + rows.measured.size,
    )


def _scales() -> tuple[Column, Column]:
    """Scales of the covariance with their weights; their mean is 1, so that no rows teach nothing.

    Most are well below 1 and a few far above: a distribution of clusters with heavy tails.
    """
    steps = np.linspace(-_SCALE_REACH, _SCALE_REACH, _SCALES)
    weights = np.exp(-0.5 * np.square(steps))
    weights /= weights.sum()
    scales = np.exp(UNUSUAL_LOG_SIGMA * steps)
    return scales / (weights @ scales), weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lesson:
    """What rows say under one scale of the covariance and one scatter of runs."""

    mean: Column
    covariance: Column
    sigma: float
    #: logarithm of how probable this scale and scatter make the rows, up to a constant
    evidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Measured rows of one cluster, and which of them are of one model."""

    items: Counted
    #: logarithms of seconds
    measured: Column
    #: flags, rows × kinds
    kinds: Column
    kind_sigmas: Column

    @classmethod
    def of(cls, columns: Columns, seconds: Column) -> _Rows:
        measured = np.log(np.asarray(seconds, dtype=np.float64))
        kinds = _kinds(columns, measured.size)
        return cls(
            items=counted(columns),
            measured=measured,
            kinds=kinds,
            kind_sigmas=_kind_sigmas(columns, kinds),
        )

    def lessons(self, coefficients: Coefficients, sigma: float, chance: float) -> list[_Lesson]:
        """One for each scale, if single runs are spread by `sigma`."""
        centre = np.concatenate([coefficients.mean, np.zeros(self.kinds.shape[1])])
        known = _inverse(coefficients.covariance)
        size = coefficients.mean.size
        values, found = centre, []
        scales, weights = _scales()
        for scale, weight in zip(scales, weights, strict=True):
            precision = np.zeros((centre.size, centre.size))
            precision[:size, :size] = known / scale
            precision[size:, size:] = np.diag(1.0 / np.square(self.kind_sigmas))
            # Scales grow: what was found under the last one is a good place to begin.
            values, hessian, cost = self.learnt(values, centre, precision, sigma)
            # Laplace: the height of the maximum, and its width against the prior's.
            wide = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(hessian)[1]
            height = 0.5 * (wide - cost) - self.measured.size * np.log(sigma)
            found.append(
                _Lesson(
                    mean=values[:size],
                    covariance=_inverse(hessian)[:size, :size],
                    sigma=sigma,
                    evidence=float(np.log(chance * weight) + height),
                )
            )
        return found

    def learnt(
        self, values: Column, centre: Column, precision: Column, sigma: float
    ) -> tuple[Column, Column, float]:
        size = centre.size - self.kinds.shape[1]

        def predicted(values: Column) -> Column:
            return log_seconds(self.items, values[:size]) + self.kinds @ values[size:]

        def slopes(values: Column) -> Column:
            here = log_seconds(self.items, values[:size])
            return np.hstack([derivatives(self.items, values[:size], here), self.kinds])

        weights = np.ones(self.measured.size)
        return _maximum(predicted, slopes, self.measured, values, centre, precision, weights, sigma)


def _kind_sigmas(columns: Columns, kinds: Column) -> Column:
    """Mixtures of experts differ more among themselves and from others than dense models do."""
    experts = np.broadcast_to(columns.experts > 0.0, (kinds.shape[0],))
    return np.where(experts @ kinds > 0.0, EXPERT_KIND_SIGMA, KIND_SIGMA)


def _kinds(columns: Columns, rows: int) -> Column:
    """Which rows are of one model in one precision: a column of flags for each such kind."""
    facts = (columns.hidden, columns.layers, columns.vocab, columns.sequence, columns.compute_bytes)
    table = np.stack([np.broadcast_to(fact, (rows,)) for fact in facts], axis=1)
    _, place = np.unique(table, axis=0, return_inverse=True)
    flags: Column = np.eye(int(place.max(initial=-1)) + 1)[place.ravel()]
    return flags


def _inverse(matrix: Column) -> Column:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


Function = Callable[[Column], Column]


def _maximum(
    predicted: Function,
    slopes: Function,
    measured: Column,
    values: Column,
    centre: Column,
    precision: Column,
    weights: Column,
    sigma: float,
) -> tuple[Column, Column, float]:
    """The most probable parameters, the curvature there, and minus twice the logarithm of it."""

    def cost(values: Column) -> float:
        scaled = np.square((measured - predicted(values)) / sigma)
        away = values - centre
        tails = (STUDENT_DEGREES + 1.0) * np.log1p(scaled / STUDENT_DEGREES)
        return float(np.sum(weights * tails) + away @ precision @ away)

    damping, best = 1e-3, cost(values)
    hessian = precision
    for _ in range(_MOST_STEPS):
        left = measured - predicted(values)
        slope = slopes(values)
        robust = weights * (STUDENT_DEGREES + 1.0) / (STUDENT_DEGREES + np.square(left / sigma))
        weighted = slope * (robust / sigma**2)[:, None]
        hessian = weighted.T @ slope + precision
        push = weighted.T @ left - precision @ (values - centre)
        gain = 0.0
        while damping < 1e6:
            damped = hessian + damping * np.diag(np.diag(hessian))
            tried = values + np.linalg.solve(damped, push)
            now = cost(tried)
            if now < best:
                gain, best, values = best - now, now, tried
                damping = max(damping / 5.0, 1e-6)
                break
            damping *= 5.0
        if gain < _ENOUGH * (1.0 + best):
            break
    return values, hessian, best
