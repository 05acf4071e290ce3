"""When there is no plan: the reason, and changes that really give one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelyard.plan.answer import Binding
from modelyard.plan.request import Limits, Pins
from modelyard.plan.solve import solve
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.pool import parse_pools
from modelyard.units import parse_duration


def refusal(request, knowledge):
    answer = solve(request, knowledge)
    assert not answer.plans
    assert answer.front == ()
    assert any(letter.isdigit() for letter in answer.refusal.why)
    return answer.refusal


def change(found, start):
    texts = [item.change for item in found.relaxations if item.change.startswith(start)]
    assert texts, [item.change for item in found.relaxations]
    return texts[0].removeprefix(start).strip()


def test_memory_asks_for_devices_adapters_or_precision(asked, knowledge):
    request = asked("gpt3-175b", "8xA100")
    found = refusal(request, knowledge)
    assert found.binding is Binding.MEMORY
    devices = change(found, "--devices")
    assert solve(replace(request, pools=parse_pools(devices)), knowledge).plans
    methods = [item.change for item in found.relaxations if item.change.startswith("--method")]
    assert methods
    wide = refusal(asked("llama2-7b", "1xA100", precision=Precision.FP32), knowledge)
    assert wide.binding is Binding.MEMORY


def test_a_deadline_asks_for_time_or_devices(asked, knowledge):
    request = asked("llama2-7b", "8xA100", limits=Limits(deadline_seconds=86_400.0))
    found = refusal(request, knowledge)
    assert found.binding is Binding.DEADLINE
    seconds = parse_duration(change(found, "--deadline"))
    kept = solve(replace(request, limits=Limits(deadline_seconds=seconds)), knowledge).plans[0]
    assert kept.deadline_probability == pytest.approx(0.8, abs=0.05)
    fastest = kept.run_seconds.value
    assert not solve(
        replace(request, limits=Limits(deadline_seconds=fastest * 0.99)), knowledge
    ).plans
    devices = change(found, "--devices")
    more = solve(replace(request, pools=parse_pools(devices)), knowledge).plans[0]
    assert more.deadline_probability > 0.75
    assert all("to keep the deadline" in item.effect for item in found.relaxations)


def test_a_budget_asks_for_money_or_spot_instances(asked, knowledge):
    request = asked("llama2-7b", "8xA100", limits=Limits(budget_usd=1_000.0))
    found = refusal(request, knowledge)
    assert found.binding is Binding.BUDGET
    budget = float(change(found, "--budget"))
    assert solve(replace(request, limits=Limits(budget_usd=budget)), knowledge).plans
    assert "--spot" in [item.change for item in found.relaxations]


def test_a_loss_asks_for_tokens(asked, knowledge):
    request = asked("llama2-7b", "64xH100", tokens=1e10, limits=Limits(most_loss=2.3))
    found = refusal(request, knowledge)
    assert found.binding is Binding.LOSS
    assert change(found, "--tokens")
    assert change(found, "--max-loss")


def test_pins_are_named_one_by_one(asked, knowledge):
    pins = Pins(sharding=Sharding.NONE, recompute=Recompute.NONE, tensor=1, pipeline=1)
    request = asked("llama2-7b", "8xA100", pins=pins)
    found = refusal(request, knowledge)
    left_out = {item.change for item in found.relaxations if item.binding is Binding.PINS}
    assert "leave --tensor out" in left_out
    assert "leave --sharding out" in left_out


def test_too_many_devices_ask_for_fewer(asked, knowledge):
    request = asked("gpt2", "1000000..1000000xH100", global_batch=8)
    found = refusal(request, knowledge)
    assert found.binding in (Binding.SHAPE, Binding.BATCH)
    assert change(found, "--devices") == "1000000xH100"


def test_limits_that_exclude_each_other(asked, knowledge):
    limits = Limits(deadline_seconds=86_400.0, budget_usd=100.0)
    found = refusal(asked("llama2-7b", "8xA100", limits=limits), knowledge)
    assert found.relaxations


@pytest.mark.parametrize("model", ["gpt3-175b", "deepseek-v3"])
def test_every_relaxation_comes_with_its_plan(asked, knowledge, model):
    for item in refusal(asked(model, "4xA100"), knowledge).relaxations:
        assert item.plan.run_seconds.value > 0
        assert item.effect
