"""Which batches are tried: near the one that was asked for, and never another when it is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.plan.answer import Binding
from modelyard.plan.batches import batches, near_batches
from modelyard.plan.request import Pins
from modelyard.plan.solve import solve


@given(batch=st.integers(1, 2**31), tolerance=st.sampled_from([0.0, 0.01, 0.05, 0.5]))
def test_near_batches_are_near(asked, batch, tolerance):
    request = asked("gpt2", "24xH100", global_batch=batch, batch_tolerance=tolerance)
    found = near_batches(request, request.pools[0])
    assert batch in found
    assert len(found) == len(set(found)) <= 7
    assert all(abs(each - batch) <= batch * tolerance for each in found)
    assert tolerance or found == [batch]


@pytest.mark.parametrize(("batch", "even"), [(977, 1_024), (1_562, 1_536), (488, 512)])
def test_the_evenest_batch_comes_first(asked, batch, even):
    request = asked("gpt2", "256xH100", global_batch=batch, batch_tolerance=0.05)
    assert near_batches(request, request.pools[0])[0] == even


def test_pins_divide_near_batches(asked, knowledge):
    pins = Pins(data=12, micro_batch=3)
    request = asked("gpt2", "24xH100", global_batch=1_000, batch_tolerance=0.05, pins=pins)
    assert all(
        each.sequences % 36 == 0 or each.sequences == 1_000
        for each in batches(request, request.pools[0], 1)
    )
    assert solve(request, knowledge).plans[0].layout.data == 12


def test_an_approximate_batch_uses_all_devices(asked, knowledge):
    """977 sequences (4M tokens of 4,096) are prime; 1,024 are not."""
    exact = solve(asked("llama2-7b", "64xH100", global_batch=977), knowledge).plans[0]
    request = asked("llama2-7b", "64xH100", global_batch=977, batch_tolerance=0.05)
    near = solve(request, knowledge).plans[0]
    assert near.devices == 64
    assert abs(near.global_batch / 977 - 1) <= 0.05
    assert near.run_seconds.value < exact.run_seconds.value


def test_an_exact_batch_that_divides_badly_is_named(asked, knowledge):
    best = solve(asked("llama2-7b", "64xH100", global_batch=977), knowledge).plans[0]
    assert best.global_batch == 977
    assert best.binding is Binding.BATCH
    assert "--batch 960" in best.why


def test_a_refusal_offers_the_nearest_batch_that_divides(asked, knowledge):
    pins = Pins(tensor=1, pipeline=1, context=1)
    request = asked("gpt2", "16..16xH100", global_batch=251, pins=pins)
    refusal = solve(request, knowledge).refusal
    assert refusal is not None
    assert "--batch 256" in [item.change for item in refusal.relaxations]


def test_a_larger_batch_has_to_earn_its_tokens(asked, knowledge):
    """On a thousand devices a short run gains by a batch that wastes; on eight it does not."""
    small = solve(asked("gpt2-xl", "8xH100", tokens=3e10), knowledge)
    large = solve(asked("gpt2-xl", "1024xH100", tokens=3e10), knowledge)
    few, many = small.plans[0], large.plans[0]
    assert few.tokens < 3e10 + few.global_batch * 1_024 + 1
    assert many.global_batch > few.global_batch
    assert many.tokens > 3e10 * 1.01
    assert any("waste" in note for note in large.notes)
    # Tokens are added until the loss is that of a batch that wastes little.
    assert many.loss.value == pytest.approx(few.loss.value)
    given = solve(
        asked("gpt2-xl", "1024xH100", tokens=3e10, global_batch=few.global_batch), knowledge
    )
    assert many.run_seconds.value < given.plans[0].run_seconds.value


def test_idle_pipelines_ask_for_a_larger_batch(asked, knowledge):
    pins = Pins(pipeline=8, virtual=1, data=8, tensor=1)
    request = asked("llama2-7b", "64..64xH100", global_batch=64, pins=pins)
    answer = solve(request, knowledge)
    best = answer.plans[0]
    assert best.step_parts["bubble"] > 0.2 * best.step_seconds.value
    assert any("8 stages are idle" in note for note in answer.notes)


def test_shorter_ends_of_a_pipeline_are_noted(asked, knowledge):
    pins = Pins(tensor=8, pipeline=16)
    answer = solve(asked("llama3-405b", "256xH100", global_batch=128, pins=pins), knowledge)
    assert any("last of 16 stages have 7 layers, the others 8" in note for note in answer.notes)
