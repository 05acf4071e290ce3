"""The space of layouts: everything divides, pins hold, and more devices only add."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.plan.batches import Batch
from modelyard.plan.request import Pins
from modelyard.plan.space import batch_of, devices_of, divisors, layouts, pipeline_choices
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.zoo import find_model
from modelyard.speed.physical.columns import RECOMPUTE_LEVEL

MODELS = ("gpt2", "llama2-7b", "llama3-70b", "mixtral-8x7b", "bert-large", "t5-base", "falcon-7b")


def rows(columns):
    """Every layout as a set of values, to compare spaces."""
    names = ("tensor", "pipeline", "virtual", "context", "expert", "data", "sharding")
    more = ("micro_batch", "accumulation", "sequence_parallel", "recompute")
    table = np.stack([getattr(columns, name) for name in (*names, *more)], axis=1)
    return {tuple(row) for row in table.tolist()}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_everything_divides(asked, model, wide):
    request = asked(model, "4..48xH100", global_batch=96)
    pool, shape = request.pools[0], find_model(model)
    found = layouts(request, pool, [Batch(96)], wide=wide)
    assert found.tensor.size
    devices = devices_of(found)
    assert (devices >= 4).all()
    assert (devices <= 48).all()
    assert (batch_of(found) == 96).all()
    assert (shape.heads % found.tensor == 0).all()
    keys = max(shape.kv_heads, 1)
    assert ((keys % found.tensor == 0) | (found.tensor % keys == 0)).all()
    assert (shape.ffn % found.tensor == 0).all()
    assert (shape.layers % (found.pipeline * found.virtual) == 0).all()
    assert (request.sequence % found.context == 0).all()
    assert (max(shape.experts, 1) % found.expert == 0).all()
    assert ((found.data * found.context) % found.expert == 0).all()
    staged = found.virtual > 1
    assert (found.accumulation[staged] % found.pipeline[staged] == 0).all()
    assert (found.shard_group == found.data * found.context).all()
    assert (found.sharding[found.data * found.context == 1] == 0).all()
    assert (found.sequence_parallel[found.tensor == 1] == 0).all()


def test_no_layout_stands_there_twice(asked):
    request = asked("llama2-7b", "64xA100", global_batch=256)
    found = layouts(request, request.pools[0], [Batch(256)])
    assert len(rows(found)) == found.tensor.size


def test_more_devices_only_add_layouts(asked):
    fewer = asked("llama2-7b", "24xA100", global_batch=96)
    more = asked("llama2-7b", "40xA100", global_batch=96)
    small = layouts(fewer, fewer.pools[0], [Batch(96)])
    large = layouts(more, more.pools[0], [Batch(96)])
    assert rows(small) < rows(large)


@pytest.mark.parametrize("devices", ["64xA100", "12xA100", "6xA100", "4x4xA100", "3..24xH100"])
def test_devices_can_be_launched_together(asked, devices):
    """Whole nodes, even parts of one, or all that there are."""
    request = asked("llama2-7b", devices, global_batch=5_040)
    (pool,) = request.pools
    node = pool.platform.devices_per_node
    for wide in (False, True):
        counts = set(devices_of(layouts(request, pool, [Batch(5_040)], wide=wide)).tolist())
        assert counts
        for count in counts - {pool.most}:
            assert count % node == 0 or node % count == 0 or pool.most % count == 0 < node - count


def test_pins_may_ask_for_parts_of_nodes(asked):
    request = asked(
        "llama2-7b", "64xA100", global_batch=96, pins=Pins(tensor=1, pipeline=1, data=3)
    )
    assert (devices_of(layouts(request, request.pools[0], [Batch(96)])) == 3).all()


@pytest.mark.parametrize(
    "pins",
    [
        Pins(tensor=4),
        Pins(pipeline=2, virtual=4),
        Pins(data=8, micro_batch=2),
        Pins(accumulation=6),
        Pins(sharding=Sharding.ZERO2),
        Pins(recompute=Recompute.SELECTIVE),
        Pins(sequence_parallel=False, tensor=2),
        Pins(flash=False, compiled=True, servers=2),
    ],
)
def test_pins_hold(asked, pins):
    request = asked("llama2-7b", "64xA100", global_batch=96, pins=pins)
    found = layouts(request, request.pools[0], [Batch(96)])
    assert found.tensor.size
    ranks = {"sharding": tuple(Sharding), "recompute": tuple(Recompute)}
    for name in Pins.__dataclass_fields__:
        pin = getattr(pins, name)
        if pin is not None:
            expected = ranks[name].index(pin) if name in ranks else float(pin)
            assert (getattr(found, name) == expected).all()


def test_stacks_of_two_sorts_are_not_cut_into_stages(asked):
    for model in ("t5-base", "albert-base"):
        request = asked(model, "16xA100", global_batch=64)
        assert (layouts(request, request.pools[0], [Batch(64)]).pipeline == 1).all()


def test_tensor_parallelism_leaves_a_node_only_when_asked(asked):
    request = asked("gpt3-175b", "64xA100", global_batch=64)
    pool = request.pools[0]
    assert layouts(request, pool, [Batch(64)]).tensor.max() == 8
    assert layouts(request, pool, [Batch(64)], wide=True).tensor.max() > 8


def test_the_ends_of_a_pipeline_may_be_a_layer_shorter(asked):
    """Llama 3 405B was trained on 16 stages, the first and the last with 7 of 126 layers."""
    model = find_model("llama3-405b")
    assert model.layers == 126
    assert {2, 9, 14, 16, 18, 32} <= set(pipeline_choices(model))
    assert 12 not in pipeline_choices(model)
    pins = Pins(tensor=8, pipeline=16)
    request = asked("llama3-405b", "256xH100", global_batch=64, pins=pins)
    found = layouts(request, request.pools[0], [Batch(64)])
    assert set(found.virtual.tolist()) == {1, 2, 4, 8}


@given(st.integers(1, 5_000))
def test_divisors_are_all_of_them(number):
    assert divisors(number) == [i for i in range(1, number + 1) if number % i == 0]


@pytest.mark.parametrize(
    ("devices", "pin", "flash"),
    [
        ("8xV100", None, False),
        ("8xT4", None, False),
        ("8xA100", None, True),
        ("8xMI250", None, True),
        ("8xTPU-v3", None, True),
        ("8xV100", True, True),
        ("8xH100", False, False),
    ],
)
def test_flash_attention_is_for_devices_that_have_it(asked, devices, pin, flash):
    request = asked("bert-large", devices, pins=Pins(flash=pin), global_batch=64)
    found = layouts(request, request.pools[0], [Batch(64)])
    assert set(found.flash) == {float(flash)}
    selective = RECOMPUTE_LEVEL[Recompute.SELECTIVE]
    assert (selective in set(found.recompute)) is not flash
