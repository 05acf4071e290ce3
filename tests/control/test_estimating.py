"""What is foreseen of jobs at their submission."""

from __future__ import annotations

import pytest

from modelyard.control.estimating import estimate, estimate_of, estimate_text
from modelyard.spec.job import parse_job

TRAINED = """
name: big
devices: {min: 8, max: 32}
model: llama2-7b
batch: 256
steps: 1000
train: {data: data, sequence: 4096}
"""


def test_the_planner_says_how_fast_a_known_model_trains() -> None:
    found = estimate(parse_job(TRAINED), ["A100"])
    assert found.planned
    assert found.steps == 1000.0
    sizes = [size for size, _ in found.curve]
    speeds = [speed for _, speed in found.curve]
    assert sizes == sorted(sizes)
    assert speeds == sorted(speeds)
    assert speeds[-1] > 2.0 * speeds[0]
    # 7 billion parameters, a million tokens a step, at 35 to 65 % of 32 × 312 TFLOP/s
    assert 0.07 < dict(found.curve)[32] < 0.2


def test_shapes_in_numbers_are_planned_too() -> None:
    text = TRAINED.replace("llama2-7b", "gpt").replace(
        "sequence: 4096", "sequence: 2048, model_options: {layers: 24, hidden: 2048, heads: 16}"
    )
    assert estimate(parse_job(text), ["A100"]).planned


@pytest.mark.parametrize("kinds", [["generic"], []])
def test_where_the_planner_knows_nothing_a_form_is_assumed(kinds: list[str]) -> None:
    found = estimate(parse_job(TRAINED), kinds)
    assert not found.planned
    assert found.curve[0][0] == 8


def test_a_command_is_as_long_as_its_owner_says() -> None:
    spec = parse_job("name: x\ndevices: 1\ncommand: [a]\nduration: 90s\n")
    assert estimate(spec, ["A100"]).seconds == 90.0


def test_estimates_are_kept_as_they_are() -> None:
    found = estimate(parse_job(TRAINED), ["generic"])
    assert estimate_of(estimate_text(found)) == found
