"""Several kinds in one run: shares add up, everything fits, and mixing is never worse."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.plan.launch.launchers import launch
from modelyard.plan.mixed.by_data import best_shares, teams_by_data
from modelyard.plan.mixed.by_layers import teams_by_layers
from modelyard.plan.mixed.effort import BEAM, EVERYTHING, GREEDY
from modelyard.plan.mixed.plans import mixed_plans
from modelyard.plan.request import Limits, Pins
from modelyard.plan.solve import solve
from modelyard.spec.devices import Precision
from modelyard.spec.job import parse_job


@given(
    st.lists(
        st.lists(st.one_of(st.just(np.inf), st.floats(0.1, 10.0)), min_size=6, max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_shares_are_the_best_of_all(times):
    total = 6
    seconds = [np.array([0.0, *kind]) for kind in times]
    found = best_shares(seconds, total)
    every = [
        max(kind[share] for kind, share in zip(seconds, shares, strict=True))
        for shares in itertools.product(range(total + 1), repeat=len(seconds))
        if sum(shares) == total
    ]
    best = min(every)
    if found is None:
        assert np.isinf(best)
    else:
        assert sum(found) == total
        assert max(kind[share] for kind, share in zip(seconds, found, strict=True)) == best


CASES = (
    ("llama2-7b", "8xH100+8xA100", 64),
    ("gpt2-xl", "8xV100+8xT4", 32),
    ("gpt2-medium", "4xA100+2xH100+4xT4", 48),
)


@pytest.mark.parametrize(("model", "devices", "batch"), CASES)
def test_teams_hold_together(asked, knowledge, model, devices, batch):
    request = asked(model, devices, global_batch=batch, precision=Precision.FP16)
    for team in teams_by_data(request, knowledge, batch, BEAM):
        assert sum(member.sequences for member in team.members) == batch
        for member in team.members:
            assert member.layout.global_batch == member.sequences
    for team in teams_by_layers(request, knowledge, batch, BEAM):
        stages = sum(member.stages for member in team.members)
        held = sum(member.stages * member.layers for member in team.members)
        assert request.model.layers <= held < request.model.layers + stages
        assert {member.layout.pipeline for member in team.members} == {stages}
        assert {member.layout.global_batch for member in team.members} == {batch}
        assert len({member.layout.data for member in team.members}) == 1
    for plan in mixed_plans(replace(request, mixed=True), knowledge):
        assert plan.devices == sum(share.devices for share in plan.shares)
        assert plan.global_batch == batch
        assert sum(plan.step_parts.values()) == pytest.approx(plan.step_seconds.value)
        for share in plan.shares:
            assert share.devices <= share.pool.most
            assert share.memory_risk <= request.limits.memory_risk
            assert request.model.heads % share.layout.tensor == 0


@pytest.mark.parametrize(("model", "devices", "batch"), CASES)
def test_looking_harder_is_never_worse(asked, knowledge, model, devices, batch):
    request = asked(model, devices, global_batch=batch, precision=Precision.FP16)
    for search in (teams_by_data, teams_by_layers):
        found = [
            min((team.seconds for team in search(request, knowledge, batch, effort)), default=9e9)
            for effort in (GREEDY, BEAM, EVERYTHING)
        ]
        slack = 1 + 1e-9
        assert found[2] <= found[1] * slack
        assert found[1] <= found[0] * slack


def test_mixing_is_never_worse(asked, knowledge):
    request = asked("llama2-7b", "8xH100+8xA100", global_batch=64)
    apart, together = solve(request, knowledge), solve(replace(request, mixed=True), knowledge)
    best = together.plans[0]
    assert best.run_seconds.value <= apart.plans[0].run_seconds.value
    assert best.shares
    assert best in together.front
    assert together.curve
    assert solve(replace(request, mixed=True), knowledge) == together


def test_mixed_plans_keep_limits(asked, knowledge):
    request = asked("llama2-7b", "8xH100+8xA100", global_batch=64, mixed=True)
    free = mixed_plans(request, knowledge)
    limits = Limits(budget_usd=free[0].usd.value * 0.99)
    for plan in mixed_plans(replace(request, limits=limits), knowledge):
        assert plan.usd.value <= limits.budget_usd


def test_two_kinds_hold_what_neither_holds(asked, knowledge):
    request = asked("gpt2-xl", "1xV100+1xT4", global_batch=8, pins=Pins(flash=True))
    apart = solve(request, knowledge)
    together = solve(replace(request, mixed=True), knowledge)
    if together.plans and not apart.plans:
        assert "--mixed" in [item.change for item in apart.refusal.relaxations]


def test_odd_numbers_of_devices_are_explained(asked, knowledge):
    request = asked("llama2-7b", "8xH100+5xA100", global_batch=32, mixed=True)
    answer = solve(request, knowledge)
    used = {share.pool.kind: share.devices for share in answer.plans[0].shares}
    idle = 5 - used.get("A100", 0)
    words = "not mixed" if not used else f"{idle} of 5 A100 are left idle"
    assert not idle or any(words in note for note in answer.notes)
    odd = asked("llama2-7b", "12xH100+12xA100", global_batch=96, mixed=True)
    answer = solve(odd, knowledge)
    for share in answer.plans[0].shares:
        if share.devices % 8 and share.devices > 8:
            words = f"{share.devices} {share.pool.kind} are not whole nodes of 8"
            assert any(words in note for note in answer.notes)


def test_only_the_yard_launches_several_kinds(asked, knowledge):
    request = asked("llama2-7b", "8xH100+8xA100", global_batch=64, mixed=True)
    plan = solve(request, knowledge).plans[0]
    job = parse_job(launch(plan, request, "yard").files["job.yaml"])
    assert set(job.kinds) == {"H100", "A100"}
    assert job.devices.max == plan.devices
    assert job.batch == 64
    with pytest.raises(InputError, match="different shares"):
        launch(plan, request, "megatron")
