"""How good the law of loss is: errors on measured runs, before pilots and after them.

After pilots means: within each group, the law sees only runs with at most one `ratio`-th of the
compute of the group's largest run, and is judged on all that are larger. Nothing else is shared
between groups, and near-duplicates of a run have its compute and stay on its side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from modelyard.measure.loss_rows import LossRow
from modelyard.plan.loss import PRIOR, LossEstimate, LossLaw, refit_law

#: the law has five constants and brings a prior for each
FEWEST_PILOTS = 5
#: "on runs ten times larger"
USUAL_RATIO = 10.0


class LossBy(StrEnum):
    """What rows of a table of errors stand for."""

    ALL = "all"
    SOURCE = "source"
    DATASET = "dataset"
    MODEL = "model"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class LossPrediction:
    """One run, what was predicted for it, and from how many pilots."""

    row: LossRow
    estimate: LossEstimate
    pilots: int

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.estimate.loss / self.row.pilot.loss - 1.0

    @property
    def covered(self) -> bool:
        return self.estimate.low <= self.row.pilot.loss <= self.estimate.high


@dataclass(frozen=True, slots=True, kw_only=True)
class LossErrors:
    """Absolute relative errors of some runs; `coverage` is the share inside the 80 % interval."""

    name: str
    runs: int
    median: float
    mean: float
    p90: float
    #: median of the signed errors: above 0 where the law promises too little
    bias: float
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScore:
    """Predictions of all runs from the prior, and of the larger ones from pilots."""

    before: tuple[LossPrediction, ...]
    after: tuple[LossPrediction, ...]
    #: groups that could not be judged after pilots, with the reason
    unjudged: Mapping[str, str]


def score_loss(
    rows: Sequence[LossRow],
    *,
    ratio: float = USUAL_RATIO,
    pilots: int | None = None,
    prior: LossLaw = PRIOR,
) -> LossScore:
    """Judge the law; `pilots` is the most that it may see of a group, None means all small runs."""
    groups: dict[tuple[str, str, str], list[LossRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    after: list[LossPrediction] = []
    unjudged: dict[str, str] = {}
    for group, members in groups.items():
        limit = max(row.pilot.flops for row in members) / ratio
        small = [row for row in members if row.pilot.flops <= limit]
        if len(small) < min(FEWEST_PILOTS, pilots or FEWEST_PILOTS):
            unjudged[" / ".join(group)] = (
                f"{len(small)} of {len(members)} runs have at most 1/{ratio:g} of the compute of "
                f"the largest, and {FEWEST_PILOTS} are needed"
            )
            continue
        shown = small if pilots is None else _spread(small, pilots)
        law = refit_law([row.pilot for row in shown], prior)
        larger = [row for row in members if row.pilot.flops > limit]
        after += [_predicted(law, row, len(shown)) for row in larger]
    return LossScore(
        before=tuple(_predicted(prior, row, 0) for row in rows),
        after=tuple(after),
        unjudged=unjudged,
    )


def loss_errors(
    predictions: Sequence[LossPrediction], by: LossBy = LossBy.ALL
) -> tuple[LossErrors, ...]:
    """Errors of all predictions, or a line for each source, dataset, model or group."""
    parts: dict[str, list[LossPrediction]] = {}
    for prediction in predictions:
        parts.setdefault(_name(prediction.row, by), []).append(prediction)
    return tuple(_errors(name, part) for name, part in parts.items())


def _predicted(law: LossLaw, row: LossRow, pilots: int) -> LossPrediction:
    return LossPrediction(row, law.predict(row.pilot.parameters, row.pilot.tokens), pilots)


def _spread(rows: Sequence[LossRow], count: int) -> list[LossRow]:
    """So many of the rows, evenly from the least compute to the most."""
    ordered = sorted(rows, key=lambda row: (row.pilot.flops, row.id))
    if count >= len(ordered):
        return ordered
    places = np.linspace(len(ordered) - 1, 0, count).round().astype(int)
    return [ordered[place] for place in places.tolist()]


def _name(row: LossRow, by: LossBy) -> str:
    names = {
        LossBy.ALL: "all",
        LossBy.SOURCE: row.source,
        LossBy.DATASET: row.dataset,
        LossBy.MODEL: row.model,
        LossBy.GROUP: " / ".join(row.group),
    }
    return names[by] or "(not named)"


def _errors(name: str, predictions: Sequence[LossPrediction]) -> LossErrors:
    signed = np.array([prediction.error for prediction in predictions])
    sizes = np.abs(signed)
    return LossErrors(
        name=name,
        runs=len(predictions),
        median=float(np.median(sizes)),
        mean=math.fsum(sizes.tolist()) / len(predictions),
        p90=float(np.quantile(sizes, 0.9)),
        bias=float(np.median(signed)),
        coverage=sum(prediction.covered for prediction in predictions) / len(predictions),
    )
