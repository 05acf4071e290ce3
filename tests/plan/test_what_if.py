"""Changes of a request by words."""

from __future__ import annotations

import pytest

from modelyard.errors import InputError
from modelyard.plan.request import Objective
from modelyard.plan.what_if import changed
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.prices import shipped_prices
from modelyard.speed.physical.families import Style


def sizes(request):
    return [(pool.kind, pool.most) for pool in request.pools]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices=+8xH100", [("A100", 16), ("H100", 8)]),
        ("devices=+8xA100", [("A100", 24)]),
        ("devices=-8xA100", [("A100", 8)]),
        ("devices=64xH100", [("H100", 64)]),
        ("devices=8xA100+8xH100", [("A100", 8), ("H100", 8)]),
        ("devices=+8xA100+8xH100", [("A100", 24), ("H100", 8)]),
    ],
)
def test_devices_more_fewer_or_others(asked, text, expected):
    request = asked("llama2-7b", "16xA100")
    found = changed(request, text, shipped_prices())
    assert sizes(found) == expected
    assert all(pool.usd_per_hour is not None for pool in found.pools)


def test_all_words(asked):
    text = "tokens=2B, deadline=3d,budget=$20k,precision=fp16,batch=64,spot=yes,objective=cost,"
    text += "tensor=2,sharding=none,recompute=full,sequence=1024,max_loss=2.5,flash=no,mtbf=none"
    found = changed(asked("llama2-7b", "16xA100"), text)
    assert found.tokens == 2e9
    assert found.limits.deadline_seconds == 3 * 86_400
    assert found.limits.budget_usd == 20_000
    assert found.limits.most_loss == 2.5
    assert found.precision is Precision.FP16
    assert (found.global_batch, found.sequence, found.spot) == (64, 1_024, True)
    assert found.objective is Objective.COST
    assert found.pins.tensor == 2
    assert found.pins.sharding is Sharding.NONE
    assert found.pins.recompute is Recompute.FULL
    assert found.pins.flash is False
    assert found.reliability.device_mtbf_seconds is None
    named = changed(found, "software=Megatron,recompute_layers=4")
    assert (named.software, named.pins.recompute_layers) == (Style.FUSED, 4)
    assert changed(named, "software=none").software is Style.UNKNOWN
    back = changed(found, "deadline=none,batch=none,tensor=none,precision=none")
    assert back.limits.deadline_seconds is None
    assert (back.global_batch, back.pins.tensor, back.precision) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("device=+8xH100", "did you mean 'devices'"),
        ("devices=", "no value"),
        ("devices", "no value"),
        ("devices=-8xH100", "no H100"),
        ("devices=-16xA100", "leaves no devices"),
        ("devices=+0xA100", "no devices"),
        ("tokens=0", "too few"),
        ("spot=perhaps", "neither yes nor no"),
        ("precision=fp7", "unknown choice"),
        ("max_loss=nan", "not a number above 0"),
        ("memory_risk=none", "always some risk"),
        ("tokens=1,tokens=2", "changed twice"),
        ("x" * 5_000, "too long"),
    ],
)
def test_refuses_what_is_no_change(asked, text, part):
    with pytest.raises(InputError) as caught:
        changed(asked("llama2-7b", "16xA100"), text)
    assert part in str(caught.value)
