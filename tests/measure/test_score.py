"""Scores: errors that were computed by hand, splits that never mix groups."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from modelyard.measure.rows import MeasuredRows, parse_rows, read_rows
from modelyard.measure.score import (
    Prediction,
    accuracy,
    accuracy_by,
    calibrated,
    lessons,
    predict_rows,
    regret,
)
from modelyard.speed.physical.shipped import shipped


def prediction() -> Prediction:
    measured = np.array([1.0, 1.0, 1.0, 1.0])
    return Prediction(
        seconds=np.array([1.1, 0.8, 1.0, np.nan]), sigma=np.full(4, 0.1), measured=measured
    )


def test_errors_by_hand() -> None:
    line = accuracy(prediction())
    assert line.rows == 3
    assert line.median == pytest.approx(0.1)
    assert line.mean == pytest.approx(0.1)
    assert line.bias == pytest.approx(0.0)
    # exp(0.128) = 1.137 holds 1.1 and 1.0; 0.8 is outside
    assert line.coverage == pytest.approx(2 / 3)


def test_lines_stand_in_the_order_of_their_names() -> None:
    lines = accuracy_by(prediction(), ["b", "a", "b", "c"])
    assert [(line.name, line.rows) for line in lines] == [("b", 2), ("a", 1), ("c", 0)]


def few_rows() -> MeasuredRows:
    """Twelve runs of two models, thirty per cent slower than the shipped factors say."""
    file = io.StringIO()
    writer = csv.writer(file)
    names = "id split_group source framework model layers hidden heads seq_len device n_devices tp"
    writer.writerow([*names.split(), "micro_batch", "global_batch", "precision", "step_time_s"])
    at = 0
    for hidden in (2048, 4096):
        for tensor in (1, 2, 4):
            for micro in (1, 2):
                at += 1
                writer.writerow(
                    f"{at},{hidden},us,Megatron-LM,gpt,24,{hidden},16,2048,A100,8,"
                    f"{tensor},{micro},64,bf16,1.0".split(",")
                )
    rows = parse_rows(file.getvalue())
    seconds = predict_rows(rows, shipped()).seconds * 1.3
    return parse_rows(_with_seconds(file.getvalue(), seconds))


def _with_seconds(text: str, seconds: np.ndarray) -> str:
    lines = text.strip().splitlines()
    body = [
        f"{line.rsplit(',', 1)[0]},{value:.6f}"
        for line, value in zip(lines[1:], seconds, strict=True)
    ]
    return "\n".join([lines[0], *body]) + "\n"


def test_calibration_learns_from_some_groups_and_is_judged_on_others() -> None:
    rows = few_rows()
    before = accuracy(predict_rows(rows, shipped()))
    base = {"us": shipped()}
    taught = calibrated(rows, base, count=3, draws=2, seed=4)
    after = accuracy(taught.prediction)
    assert before.median == pytest.approx(1 - 1 / 1.3, abs=0.01)
    assert after.median < before.median / 2
    for draw in np.split(taught.places, 2):
        assert len({rows.groups[at] for at in draw}) == 1
    again = calibrated(rows, base, count=3, draws=2, seed=4)
    np.testing.assert_array_equal(again.prediction.seconds, taught.prediction.seconds)


def test_lessons_compare_the_same_rows() -> None:
    rows = few_rows()
    before = predict_rows(rows, shipped())
    taught = calibrated(rows, {"us": shipped()}, count=3, draws=2, seed=4)
    (lesson,) = lessons(rows, before, taught)
    judged = np.abs(before.errors[taught.places])
    assert (lesson.cluster, lesson.source) == ("us/A100/Megatron-LM", "us")
    assert lesson.before == pytest.approx(np.median(judged))
    assert not lesson.worse
    assert lesson.after < lesson.before
    perfect = Prediction(seconds=rows.seconds, sigma=before.sigma, measured=rows.seconds)
    assert all(one.worse for one in lessons(rows, perfect, taught))


def test_small_clusters_are_named() -> None:
    taught = calibrated(few_rows(), {"us": shipped()}, count=12)
    assert taught.too_small == ("us/A100/Megatron-LM",)
    assert taught.places.size == 0


def test_regret_is_what_the_choice_costs() -> None:
    rows = few_rows()
    exact = regret(rows, predict_rows(rows, shipped()))
    assert exact is not None
    assert exact.choices == 2
    assert exact.mean == pytest.approx(0.0)
    upside_down = Prediction(
        seconds=1.0 / rows.seconds, sigma=np.ones(rows.size), measured=rows.seconds
    )
    wrong = regret(rows, upside_down)
    assert wrong is not None
    assert wrong.mean > 0.1
    assert regret(rows, predict_rows(rows, shipped()), fewest=99) is None


def test_published_rows_stay_within_the_aims(data_folder: Path) -> None:
    """The shipped factors on the rows they were fitted on: what the benchmark cannot beat."""
    rows = read_rows(data_folder / "planning" / "throughput.csv")
    found = predict_rows(rows, shipped())
    line = accuracy(found)
    assert line.median < 0.10
    assert line.p90 < 0.25
    chosen = regret(rows, found)
    assert chosen is not None
    assert chosen.mean < 0.06
