"""Recomputing some blocks: more of them take less memory and more time; a search finds how many."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.plan.candidates import columns_of
from modelyard.plan.check import check
from modelyard.plan.launch.launchers import launch
from modelyard.plan.request import Pins
from modelyard.plan.search import search
from modelyard.plan.solve import solve
from modelyard.spec.layout import Layout, Recompute
from modelyard.speed.physical.coefficients import prior
from modelyard.speed.physical.columns import LayoutColumns
from modelyard.speed.physical.families import Style
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.steps import step_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelyard.plan.knowledge import Knowledge
    from modelyard.plan.request import Request

    Asked = Callable[..., Request]

#: 16,384 tokens of Llama 2 7B in one piece: 80 GB are too few to keep all of it
TIGHT = Pins(tensor=1, pipeline=1, context=1)


@pytest.fixture(scope="module")
def tight(asked: Asked) -> Request:
    return asked(
        "llama2-7b", "8xA100", sequence=16_384, global_batch=64, software=Style.FUSED, pins=TIGHT
    )


@given(st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_more_blocks_take_less_memory_and_more_time(
    asked: Asked, stages: int, chunks: int, flash: bool
) -> None:
    request = asked("llama2-7b", "8xA100")
    plain = Layout(pipeline=stages, virtual=chunks, accumulation=4, flash=flash)
    chunk = 32 // (stages * chunks)
    full = replace(plain, recompute=Recompute.FULL)
    some = [replace(full, recompute_layers=count) for count in range(1, chunk + 1)]
    columns = columns_of(request, request.pools[0], LayoutColumns.of([plain, *some, full]))
    held = peak_memory(columns, MemoryCoefficients.prior()).parts["activations"]
    assert (np.diff(held[:-2]) < 0.0).all()
    assert held[-2] == pytest.approx(held[-1])
    seconds = step_times(columns, prior()).seconds
    assert (np.diff(seconds[:-1]) > 0.0).all()
    assert seconds[-2] == pytest.approx(seconds[-1])


def test_a_search_finds_the_fewest_blocks_that_fit(tight: Request, knowledge: Knowledge) -> None:
    found = search(tight, knowledge)
    layouts, best = found.candidates.layouts, found.best
    assert best is not None
    count = int(layouts.recompute_layers[best])
    assert 0 < count < 32
    whole = search(replace(tight, pins=replace(TIGHT, recompute=Recompute.FULL)), knowledge)
    assert whole.best is not None
    assert found.candidates.run_seconds[best] < whole.candidates.run_seconds[whole.best]
    fewer = replace(layouts, recompute_layers=np.maximum(layouts.recompute_layers - 1.0, 1.0))
    columns = columns_of(tight, tight.pools[0], fewer)
    risk = peak_memory(columns, knowledge.memory).probability_over(usable_bytes(columns))[best]
    assert count == 1 or risk > tight.limits.memory_risk


def test_software_without_an_option_for_it_is_not_asked(
    tight: Request, knowledge: Knowledge
) -> None:
    for style in (Style.UNKNOWN, Style.EAGER, Style.COMPILED):
        found = search(replace(tight, software=style), knowledge)
        assert not found.candidates.layouts.recompute_layers.any()


def test_a_pinned_number_of_blocks_is_kept_and_launched(
    tight: Request, knowledge: Knowledge
) -> None:
    request = replace(tight, pins=replace(TIGHT, recompute_layers=20))
    plan = solve(request, knowledge).plans[0]
    assert plan.layout.recompute is Recompute.FULL
    assert plan.layout.recompute_layers == 20
    command = launch(plan, request, "megatron").command
    assert "--recompute-method block" in command
    assert "--recompute-num-layers 20" in command
    with pytest.raises(InputError, match="all blocks or none"):
        launch(plan, request, "deepspeed")


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        (Pins(recompute_layers=33), "more than the 32"),
        (Pins(recompute_layers=4, recompute=Recompute.NONE), "whole blocks"),
    ],
)
def test_numbers_of_blocks_that_cannot_be(asked: Asked, pins: Pins, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check(asked("llama2-7b", "8xA100", pins=pins))
