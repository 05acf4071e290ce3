"""How well step times are predicted: errors on measured rows, never on rows that were fitted.

Three questions, each with its own split: what the shipped factors say about rows as they are, what
a fit without a whole source says about that source, and what a few rows of a cluster teach about
its other rows. Near-duplicates share a `split_group` and are never on both sides of a split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.measure.rows import MeasuredRows
from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.fitting import fit, refit
from modelyard.speed.physical.steps import EIGHTY, step_times

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted seconds beside the measured ones; NaN where nothing was predicted."""

    seconds: Column
    sigma: Column
    measured: Column

    @property
    def errors(self) -> Column:
        """Relative: 0.1 is ten per cent too slow."""
        return self.seconds / self.measured - 1.0

    @property
    def covered(self) -> Flags:
        """Whether the 80 % interval holds the measured value."""
        away = np.abs(np.log(self.seconds / self.measured))
        return np.asarray(away <= EIGHTY * self.sigma)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Absolute relative errors of some rows, as shares: 0.1 is ten per cent."""

    name: str
    rows: int
    median: float
    mean: float
    p90: float
    #: median of the signed error: positive when predictions are too slow
    bias: float
    #: share of rows inside their 80 % interval
    coverage: float


def accuracy(prediction: Prediction, name: str = "all", chosen: Flags | None = None) -> Accuracy:
    """The errors of the chosen rows that were predicted."""
    known = np.isfinite(prediction.seconds)
    if chosen is not None:
        known &= chosen
    if not known.any():
        nan = float("nan")
        return Accuracy(name=name, rows=0, median=nan, mean=nan, p90=nan, bias=nan, coverage=nan)
    errors = prediction.errors[known]
    sizes = np.abs(errors)
    return Accuracy(
        name=name,
        rows=int(known.sum()),
        median=float(np.median(sizes)),
        mean=float(np.mean(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        bias=float(np.median(errors)),
        coverage=float(np.mean(prediction.covered[known])),
    )


def accuracy_by(prediction: Prediction, names: Sequence[str]) -> tuple[Accuracy, ...]:
    """One line for each name, in the order in which they first appear."""
    labels = np.array(names)
    return tuple(accuracy(prediction, name or "-", labels == name) for name in dict.fromkeys(names))


def predict_rows(rows: MeasuredRows, coefficients: Coefficients) -> Prediction:
    """What these factors say about every row."""
    estimate = step_times(rows.columns, coefficients)
    return Prediction(seconds=estimate.seconds, sigma=estimate.sigma, measured=rows.seconds)


def without_each_source(
    rows: MeasuredRows, start: Coefficients | None = None
) -> Mapping[str, Coefficients]:
    """For each source, factors fitted on all the others."""
    names = np.array(rows.sources)
    return {
        source: fit_rows(rows, names != source, start=start)
        for source in dict.fromkeys(rows.sources)
    }


def fit_rows(
    rows: MeasuredRows, chosen: Flags | None = None, start: Coefficients | None = None
) -> Coefficients:
    """Factors fitted on the chosen rows."""
    keep = np.flatnonzero(np.ones(rows.size, dtype=bool) if chosen is None else chosen)
    return fit(
        rows.columns.take(keep),
        rows.seconds[keep],
        sources=[rows.sources[at] for at in keep],
        clusters=[rows.clusters[at] for at in keep],
        start=start,
    )


def held_out(rows: MeasuredRows, by_source: Mapping[str, Coefficients]) -> Prediction:
    """Each row predicted with the factors that never saw its source."""
    seconds, sigma = np.full(rows.size, np.nan), np.full(rows.size, np.nan)
    names = np.array(rows.sources)
    for source, coefficients in by_source.items():
        places = np.flatnonzero(names == source)
        estimate = step_times(rows.columns.take(places), coefficients)
        seconds[places], sigma[places] = estimate.seconds, estimate.sigma
    return Prediction(seconds=seconds, sigma=sigma, measured=rows.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Errors after some rows of a cluster were measured, on its other rows, over several draws."""

    prediction: Prediction
    #: the row that each prediction is of
    places: npt.NDArray[np.intp]
    #: clusters that have too few rows to learn from some and be judged on others
    too_small: tuple[str, ...]


def calibrated(
    rows: MeasuredRows,
    by_source: Mapping[str, Coefficients],
    *,
    count: int,
    draws: int = 5,
    seed: int = 1,
) -> Calibrated:
    """Learn from `count` rows of each cluster, predict the others.

    Rows to learn from come from some groups of the cluster and rows to judge from the others; a
    cluster of one group is split by rows, since there is no other way.
    """
    random = np.random.default_rng(seed)
    clusters = np.array(rows.clusters)
    too_small: list[str] = []
    places: list[npt.NDArray[np.intp]] = []
    seconds: list[Column] = []
    sigmas: list[Column] = []
    for cluster in dict.fromkeys(rows.clusters):
        members = np.flatnonzero(clusters == cluster)
        if members.size <= count:
            too_small.append(cluster)
            continue
        base = by_source[rows.sources[members[0]]]
        groups = np.array([rows.groups[at] for at in members])
        for _ in range(draws):
            seen, rest = _split(members, groups, count, random)
            learnt = refit(base, rows.columns.take(seen), rows.seconds[seen])
            estimate = step_times(rows.columns.take(rest), learnt)
            places.append(rest)
            seconds.append(estimate.seconds)
            sigmas.append(estimate.sigma)
    if not places:
        empty = np.empty(0)
        prediction = Prediction(seconds=empty, sigma=empty, measured=empty)
        return Calibrated(
            prediction=prediction, places=np.empty(0, dtype=np.intp), too_small=tuple(too_small)
        )
    where = np.concatenate(places)
    return Calibrated(
        prediction=Prediction(
            seconds=np.concatenate(seconds),
            sigma=np.concatenate(sigmas),
            measured=rows.seconds[where],
        ),
        places=where,
        too_small=tuple(too_small),
    )


#: a cluster is made worse when its median error grows by more than a point: less is luck
WORSE_BY = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Median errors of the same rows of one cluster, before and after others of it were learnt."""

    cluster: str
    source: str
    before: float
    after: float

    @property
    def worse(self) -> bool:
        return self.after > self.before + WORSE_BY


def lessons(rows: MeasuredRows, before: Prediction, taught: Calibrated) -> tuple[Lesson, ...]:
    """What learning did to each cluster, judged on the same rows with and without."""
    clusters = np.array([rows.clusters[at] for at in taught.places])
    without, learnt = np.abs(before.errors[taught.places]), np.abs(taught.prediction.errors)
    found = []
    for cluster in dict.fromkeys(clusters.tolist()):
        chosen = clusters == cluster
        found.append(
            Lesson(
                cluster=cluster,
                source=rows.sources[taught.places[np.argmax(chosen)]],
                before=float(np.median(without[chosen])),
                after=float(np.median(learnt[chosen])),
            )
        )
    return tuple(found)


def _split(
    members: npt.NDArray[np.intp],
    groups: npt.NDArray[np.str_],
    count: int,
    random: np.random.Generator,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows to learn from and rows to judge, of one cluster."""
    names = random.permutation(np.unique(groups))
    if names.size > 1:
        # A third of the groups is judged, fewer where the others hold too few rows.
        sizes = np.array([np.sum(groups == name) for name in names])
        needed = int(np.searchsorted(np.cumsum(sizes), count)) + 1
        most = names.size - max(1, names.size // 3)
        taken = np.isin(groups, names[: min(max(needed, most), names.size - 1)])
    else:
        taken = np.zeros(members.size, dtype=bool)
        taken[random.permutation(members.size)[:count]] = True
    learnable = np.flatnonzero(taken)
    seen = random.permutation(learnable)[:count]
    return members[np.sort(seen)], members[~taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What choosing by prediction costs against choosing by measurement."""

    choices: int
    #: mean and largest share by which the chosen configuration is slower than the best
    mean: float
    worst: float
    #: share of choices that were the best
    best: float


def regret(rows: MeasuredRows, prediction: Prediction, fewest: int = 2) -> Regret | None:
    """Over groups of rows that differ in their layout only: model, batch and devices are equal."""
    groups: dict[tuple[object, ...], list[int]] = {}
    batch = _global_batch(rows.columns)
    devices = _devices(rows.columns)
    for at in range(rows.size):
        if np.isfinite(prediction.seconds[at]):
            key = (rows.clusters[at], rows.groups[at], rows.models[at], batch[at], devices[at])
            groups.setdefault(key, []).append(at)
    costs = []
    for members in groups.values():
        if len(members) >= fewest:
            chosen = min(members, key=lambda at: float(prediction.seconds[at]))
            best = float(prediction.measured[members].min())
            costs.append(float(prediction.measured[chosen]) / best - 1.0)
    if not costs:
        return None
    return Regret(
        choices=len(costs),
        mean=float(np.mean(costs)),
        worst=float(np.max(costs)),
        best=float(np.mean(np.array(costs) <= 0.0)),
    )


def _global_batch(columns: Columns) -> Column:
    layout = columns.layout
    return layout.data * layout.micro_batch * layout.accumulation


def _devices(columns: Columns) -> Column:
    layout = columns.layout
    return layout.tensor * layout.context * layout.pipeline * layout.data
