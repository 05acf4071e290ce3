"""Judging the law of loss: on runs made by a law, and on published ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelyard.measure.loss_rows import LossRow, read_loss_rows
from modelyard.measure.loss_score import LossBy, loss_errors, score_loss
from modelyard.plan.loss import Pilot


def _rows(source: str, floor: float) -> list[LossRow]:
    return [
        LossRow(
            id=f"{source} {n:g} {d:g}",
            source=source,
            dataset="made",
            evaluation="val",
            model=f"{n:g}",
            pilot=Pilot(n, d, floor + 300.0 / n**0.33 + 900.0 / d**0.31),
        )
        for n in (5e7, 1e8, 4e8, 1e9)
        for d in (1e9, 4e9, 2e10)
    ]


def test_each_group_has_its_own_law() -> None:
    score = score_loss([*_rows("low", 1.2), *_rows("high", 2.6)])
    assert len(score.before) == 24
    sources = {errors.name: errors for errors in loss_errors(score.after, LossBy.SOURCE)}
    assert set(sources) == {"low", "high"}
    for name, before in zip(("low", "high"), loss_errors(score.before, LossBy.SOURCE), strict=True):
        assert sources[name].median < 0.02
        assert sources[name].median < 0.3 * before.median


def test_pilots_are_small_runs_only() -> None:
    rows = _rows("low", 1.2)
    score = score_loss(rows, ratio=10.0, pilots=5)
    largest = max(row.pilot.flops for row in rows)
    assert all(found.row.pilot.flops > largest / 10.0 for found in score.after)
    assert {found.pilots for found in score.after} == {5}


def test_groups_without_small_runs_are_named() -> None:
    score = score_loss(_rows("low", 1.2)[-2:])
    assert score.after == ()
    assert list(score.unjudged) == ["low / made / val"]
    assert loss_errors(score.after) == ()


@pytest.mark.slow
def test_published_losses_within_the_aim(data_folder: Path) -> None:
    rows = read_loss_rows(data_folder / "planning" / "loss.csv").rows
    # The prior's centre was fitted to MassiveText, which would flatter it.
    others = [row for row in rows if row.dataset != "MassiveText"]
    for ratio in (10.0, 30.0, 100.0):
        (errors,) = loss_errors(score_loss(others, ratio=ratio).after)
        assert errors.median < 0.025
        assert 0.65 < errors.coverage < 0.9
