"""Requests that make no sense are refused with everything that is wrong and what to write."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from modelyard.errors import InputError
from modelyard.plan.check import check
from modelyard.plan.request import Limits, Objective, Pins, Reliability
from modelyard.spec.adapters import lora
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.zoo import find_model


def refused(request) -> str:
    with pytest.raises(InputError) as caught:
        check(request)
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tokens": 0.0}, "0 tokens"),
        ({"tokens": math.nan}, "nan tokens"),
        ({"tokens": math.inf}, "inf tokens"),
        ({"sequence": 0}, "0 tokens"),
        ({"global_batch": 0}, "batch of 0"),
        ({"limits": Limits(deadline_seconds=-1.0)}, "deadline of -1"),
        ({"limits": Limits(deadline_seconds=math.nan)}, "deadline of nan"),
        ({"limits": Limits(budget_usd=0.0)}, "budget of 0"),
        ({"limits": Limits(memory_risk=0.0)}, "not a probability"),
        ({"reliability": Reliability(device_mtbf_seconds=0.0)}, "between failures of 0"),
        ({"reliability": Reliability(restart_seconds=math.inf)}, "restart of inf"),
        ({"precision": Precision.NVFP4}, "nobody published a rate"),
        ({"pools": ()}, "no devices"),
    ],
)
def test_impossible_numbers(asked, options, part):
    request = replace(asked("llama2-7b", "8xA100"), **options)
    assert part in refused(request)


@pytest.mark.parametrize(
    ("pins", "part"),
    [
        (Pins(tensor=0), "--tensor 0"),
        (Pins(tensor=5), "--tensor 5 does not divide"),
        (Pins(pipeline=7), "--pipeline 7 does not divide"),
        (Pins(expert=2), "has no experts"),
        (Pins(pipeline=1, virtual=2), "--pipeline 1 has none"),
        (Pins(virtual=3), "32 layers do not divide"),
        (Pins(context=3), "cannot be cut into 6"),
        (Pins(data=5), "does not divide a batch of 64"),
        (Pins(data=4, micro_batch=4, accumulation=2), "makes a batch of 32, not 64"),
        (Pins(tensor=4, pipeline=4), "takes 16 devices, and there are 8"),
        (Pins(tensor=1, sequence_parallel=True), "--tensor 1 has none"),
        (Pins(data=1, sharding=Sharding.ZERO3), "--data 1 has none"),
        (Pins(flash=True, recompute=Recompute.SELECTIVE), "never stores"),
        (Pins(pipeline=4, virtual=2, accumulation=2), "groups of 4"),
        (Pins(servers=-1), "--servers -1"),
    ],
)
def test_contradictory_pins_are_named(asked, pins, part):
    request = asked("llama2-7b", "8xA100", global_batch=64, pins=pins)
    assert part in refused(request)


def test_experts_need_replicas(asked):
    pins = Pins(expert=8, data=4, context=1)
    assert "not a multiple" in refused(asked("mixtral-8x7b", "8xA100", pins=pins))


def test_money_needs_prices(asked):
    request = asked("llama2-7b", "8xMI250")
    check(request)
    assert "no price" in refused(replace(request, limits=Limits(budget_usd=1e4)))
    assert "no price" in refused(replace(request, objective=Objective.COST))
    assert "spot" in refused(replace(request, spot=True))
    assert "spot" in refused(replace(asked("llama2-7b", "8xH100-PCIe"), spot=True))


def test_a_limit_on_loss_needs_a_law(asked):
    limits = Limits(most_loss=2.0)
    check(asked("llama2-7b", "8xA100", limits=limits))
    assert "no law" in refused(asked("bert-base", "8xA100", limits=limits))
    adapters = lora(find_model("llama2-7b"))
    assert "adapters" in refused(asked("llama2-7b", "8xA100", limits=limits, tuning=adapters))


def test_all_problems_at_once(asked):
    request = asked("llama2-7b", "8xA100", tokens=-1.0, global_batch=0)
    request = replace(request, limits=Limits(deadline_seconds=0.0, memory_risk=2.0))
    assert refused(request).count("\n") == 3
