"""Curves over device counts as speed models of the scheduler."""

from __future__ import annotations

import json

import pytest

from modelyard.plan.answer import CurvePoint
from modelyard.plan.curve import envelope, speed_document, speed_model
from modelyard.plan.solve import solve
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.speed.table import throughput_table

POINTS = (
    CurvePoint("H100", 8, 2.0, 100.0),
    CurvePoint("H100", 4, 4.0, 50.0),
    CurvePoint("H100", 12, 2.5, 80.0),
    CurvePoint("H100", 16, 1.0, 200.0),
    CurvePoint("A100", 8, 5.0, 40.0),
)


def test_speed_never_falls_with_devices():
    assert [(point.kind, point.devices) for point in envelope(POINTS)] == [
        ("A100", 8),
        ("H100", 4),
        ("H100", 8),
        ("H100", 16),
    ]


def test_the_scheduler_reads_it():
    model = speed_model(POINTS, "llama", devices_per_node=8)
    assert model.goodput(Footprint("H100", packed_counts(16, 8))) == pytest.approx(1.0)
    assert model.step_seconds(Footprint("H100", (4,))) == pytest.approx(4.0)
    assert model.goodput(Footprint("H100", (2,))) == 0.0
    between = model.goodput(Footprint("H100", packed_counts(12, 8)))
    assert 0.5 < between < 1.0
    assert model.goodput(Footprint("T4", (8,))) == 0.0


def test_it_survives_a_file():
    text = json.dumps(speed_document(POINTS, "llama"))
    table = throughput_table(json.loads(text))
    assert table.scales("H100", "llama") == (4, 8, 16)


def test_a_plans_own_curve(asked, knowledge):
    answer = solve(asked("llama2-7b", "32xH100"), knowledge)
    best = answer.plans[0]
    model = speed_model(answer.curve, "job", devices_per_node=8)
    here = Footprint("H100", packed_counts(best.devices, 8))
    assert model.step_seconds(here) == pytest.approx(best.step_seconds.value)
