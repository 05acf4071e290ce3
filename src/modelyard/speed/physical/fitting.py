"""Factors from measured step times: the most probable ones under their priors, and their spread.

Logarithms of seconds are compared, so that ten per cent weigh the same in a small run and a large
one, under a Student-t likelihood that lets a few odd rows be odd. The maximum is found by
Gauss–Newton steps with damping; the Gaussian around it (Laplace) is the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
#: clusters have heavier tails than a Gaussian: what its own rows say about one may be far out
UNUSUAL_CLUSTER_SIGMA = 0.13
#: spread of models around their cluster's factor, when few rows are learnt from
KIND_SIGMA = 0.06
EXPERT_KIND_SIGMA = 0.2
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
    by_term = np.empty((here.size, len(TERM_NAMES)))
    factors = dict(factors_of(values, items.codes))
    for at, name in enumerate(TERM_NAMES):
        held = factors[name]
        factors[name] = held * np.exp(_DIFFERENCE)
        total: Column = sum(seconds_of(items, factors).values(), np.zeros(()))
        by_term[:, at] = (np.log(total) + values[-1] - here) / _DIFFERENCE
        factors[name] = held
    return spread_to_effects(by_term, items.codes)


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
        [np.diag(beliefs.covariance)[:-1], np.full(names.size, cluster_sigma**2)]
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

    values, hessian = _maximum(
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

    Runs of one model share what is peculiar to it, which says little about other models: each model
    has an intercept of its own, forgotten afterwards, so that ten rows of one count less than ten
    models.
    """
    items = counted(columns)
    measured = np.log(np.asarray(seconds, dtype=np.float64))
    kinds = _kinds(columns, measured.size)
    size, own = coefficients.mean.size, kinds.shape[1]
    centre = np.concatenate([coefficients.mean, np.zeros(own)])
    precision = np.zeros((size + own, size + own))
    precision[:size, :size] = _inverse(_open_minded(coefficients.covariance))
    precision[size:, size:] = np.diag(1.0 / np.square(_kind_sigmas(columns, kinds)))

    def predicted(values: Column) -> Column:
        return log_seconds(items, values[:size]) + kinds @ values[size:]

    def slopes(values: Column) -> Column:
        here = log_seconds(items, values[:size])
        return np.hstack([derivatives(items, values[:size], here), kinds])

    values, hessian = _maximum(
        predicted,
        slopes,
        measured,
        centre.copy(),
        centre,
        precision,
        np.ones(measured.size),
        coefficients.residual_sigma,
    )
    return Coefficients(
        mean=values[:size],
        covariance=_inverse(hessian)[:size, :size],
        residual_sigma=coefficients.residual_sigma,
        rows=coefficients.rows + measured.size,
    )


def _open_minded(covariance: Column) -> Column:
    """Room for a cluster that is nothing like the usual, as long as none of its rows was seen."""
    if covariance[-1, -1] < (0.99 * USUAL_CLUSTER_SIGMA) ** 2:
        return covariance
    wider = covariance.copy()
    wider[-1, -1] = max(float(covariance[-1, -1]), UNUSUAL_CLUSTER_SIGMA**2)
    return wider


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
) -> tuple[Column, Column]:
    """The most probable parameters, and the curvature there."""

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
    return values, hessian
