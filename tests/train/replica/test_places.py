"""Where processes stand in their replica, and what cannot be divided as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import torch

from modelyard.errors import InputError
from modelyard.spec.training import TrainSpec
from modelyard.spec.training_parallel import ParallelSpec
from modelyard.train.models.registry import build
from modelyard.train.replica.divide import check_division
from modelyard.train.replica.pipeline import stage_layers
from modelyard.train.replica.places import Division, Place, division_of, own_device, replicas_of

sizes = st.integers(1, 4)


@given(sizes, sizes, sizes, st.integers(1, 3))
def test_places_fill_the_replica(pipeline: int, fsdp: int, tensor: int, turns: int) -> None:
    division = Division(pipeline=pipeline, fsdp=fsdp, tensor=tensor, stages=pipeline * turns)
    places = [Place(division, index) for index in range(division.places)]
    assert len({(one.pipeline, one.fsdp, one.tensor) for one in places}) == division.places
    for one in places:
        assert one.index == (one.pipeline * fsdp + one.fsdp) * tensor + one.tensor
    column = [one for one in places if one.fsdp == one.tensor == 0]
    stages = sorted(stage for one in column for stage in one.stages)
    assert stages == list(range(division.stages))


@given(st.integers(1, 60), st.data())
def test_stages_share_layers_evenly(layers: int, data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, layers))
    found = stage_layers(layers, stages)
    assert [layer for stage in found for layer in stage] == list(range(layers))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_each_place_sees_its_own_device() -> None:
    division = Division(fsdp=2, tensor=2)
    places = [Place(division, index) for index in range(4)]
    assert [own_device("4,5,6,7", one) for one in places] == ["4", "5", "6", "7"]
    # Nobody can say whose they are where there are not as many as places.
    assert {own_device("0,1", one) for one in places} == {"0,1"}
    assert {own_device("", one) for one in places} == {""}


def test_processes_make_whole_replicas() -> None:
    division = division_of(ParallelSpec(fsdp=2, tensor=2))
    assert replicas_of(8, division) == 2
    for workers, fix in ((3, "--workers 4"), (6, "--workers 4"), (9, "--workers 8")):
        with pytest.raises(InputError, match="do not make whole replicas of 4") as found:
            replicas_of(workers, division)
        assert fix in str(found.value)


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ({"schedule": "interleaved"}, "needs a pipeline"),
        ({"pipeline": 2, "stages": 3}, "as many stages"),
        ({"pipeline": 2, "stages": 3, "schedule": "interleaved"}, "do not take turns"),
        ({"pipeline": 2, "stages": 2, "schedule": "interleaved"}, "do not take turns"),
    ],
)
def test_stages_that_do_not_go_round_are_refused(wanted: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what) as found:
        division_of(ParallelSpec(**wanted))
    assert "Fix:" in str(found.value)


SMALL = {"layers": 3, "hidden": 24, "heads": 6, "vocab": 32, "longest": 16}


@pytest.mark.parametrize(
    ("kind", "more", "division", "what"),
    [
        ("bert", {}, Division(tensor=2), "tensor parallelism of a Bert"),
        ("t5", {"decoder_layers": 2}, Division(pipeline=2, stages=2), "pipelines of a T5"),
        ("gpt", {}, Division(tensor=4), "6 heads"),
        ("gpt", {"kv_heads": 2}, Division(tensor=3), "2 kv_heads"),
        ("gpt", {}, Division(pipeline=4, stages=4), "3 layers do not make 4 stages"),
    ],
)
def test_models_that_cannot_be_divided_are_refused(
    kind: str, more: dict[str, Any], division: Division, what: str
) -> None:
    with torch.device("meta"):
        model = build(kind, {**SMALL, **more})
    with pytest.raises(InputError, match=what) as found:
        check_division(model, division)
    assert "Fix:" in str(found.value)
    check_division(model, Division(fsdp=2))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"aggregate": {"name": "diloco"}}, "does not go with 'diloco'"),
        ({"aggregate": {"name": "servers-async"}}, "does not go with 'servers-async'"),
        ({"aggregate": {"options": {"compress": "int8"}}}, "'compress' does not go"),
        ({"parallel": {"fsdp": 0}}, "greater than"),
        ({"parallel": {"pipeline": 2}, "validate": {"share": 0.1}}, "'validate' does not go"),
    ],
)
def test_jobs_that_cannot_be_divided_are_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        TrainSpec.model_validate({"data": "data", "parallel": {"fsdp": 2}, **more})
