"""Answers: limits are kept, the best is the best, and a wider request is never worse."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelyard.plan.answer import Binding
from modelyard.plan.batches import Batch
from modelyard.plan.request import Limits, Objective, Pins, Reliability
from modelyard.plan.search import search
from modelyard.plan.solve import solve
from modelyard.plan.space import layouts
from modelyard.spec.adapters import lora
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.zoo import find_model
from modelyard.speed.physical.columns import Columns, LayoutColumns
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def one_by_one(request, knowledge, batch):
    """The best step time of all layouts, each predicted alone: slow, and nothing shared."""
    (pool,) = request.pools
    best = math.inf
    table = layouts(request, pool, [Batch(batch)])
    for at in range(table.tensor.size):
        layout = Layout(
            tensor=int(table.tensor[at]),
            pipeline=int(table.pipeline[at]),
            virtual=int(table.virtual[at]),
            context=int(table.context[at]),
            expert=int(table.expert[at]),
            data=int(table.data[at]),
            sharding=tuple(Sharding)[int(table.sharding[at])],
            micro_batch=int(table.micro_batch[at]),
            accumulation=int(table.accumulation[at]),
            sequence_parallel=bool(table.sequence_parallel[at]),
            recompute=tuple(Recompute)[int(table.recompute[at])],
        )
        columns = Columns.of(
            request.model,
            request.tuning,
            pool.platform,
            LayoutColumns.of([layout]),
            sequence=request.sequence,
            precision=Precision.BF16,
        )
        risk = peak_memory(columns, knowledge.memory).probability_over(usable_bytes(columns))[0]
        if risk <= request.limits.memory_risk:
            best = min(best, float(step_times(columns, knowledge.steps).seconds[0]))
    return best


@pytest.mark.parametrize("model", ["gpt2-xl", "mixtral-8x7b", "t5-large"])
def test_the_best_of_all_layouts_is_the_best(asked, knowledge, model):
    request = asked(model, "8..8xH100", global_batch=16)
    answer = solve(request, knowledge)
    expected = one_by_one(request, knowledge, 16)
    if math.isinf(expected):
        assert answer.refusal is not None or answer.searched.fitting > 0
    else:
        assert answer.plans[0].step_seconds.value == pytest.approx(expected, rel=1e-9)


@quick
@given(
    model=st.sampled_from(["gpt2", "llama2-7b", "mixtral-8x7b", "bert-large", "t5-base"]),
    devices=st.sampled_from(["8xA100", "3..24xH100", "16xA100+8xH100", "1xT4", "12xV100"]),
    batch=st.sampled_from([None, 1, 24, 256, 7]),
    deadline=st.sampled_from([None, math.inf, 3e5, 3e6]),
    budget=st.sampled_from([None, 1e3, 1e5]),
    objective=st.sampled_from(list(Objective)),
)
def test_every_plan_keeps_every_limit(
    asked, knowledge, model, devices, batch, deadline, budget, objective
):
    request = asked(
        model,
        devices,
        tokens=1e9,
        global_batch=batch,
        objective=objective,
        limits=Limits(deadline_seconds=deadline, budget_usd=budget),
    )
    answer = solve(request, knowledge)
    assert bool(answer.plans) == (answer.refusal is None)
    values = []
    for plan in (*answer.plans, *answer.front):
        layout = plan.layout
        assert plan.pool in request.pools
        assert plan.pool.fewest <= plan.devices <= plan.pool.most
        assert layout.devices == plan.devices
        assert batch is None or layout.global_batch == batch
        assert plan.memory_risk <= request.limits.memory_risk
        assert deadline is None or plan.run_seconds.value <= deadline
        assert plan.usd is not None
        assert budget is None or plan.usd.value <= budget
        assert plan.steps >= 1
        assert plan.tokens >= request.tokens * (1 - 1e-9)
        # A batch that the planner chose may waste tokens, no more than as many again.
        most = request.tokens * (2 if batch is None else 1)
        assert plan.tokens < most + layout.global_batch * request.sequence + 1
        assert 0 < plan.goodput <= 1
        assert 0 < plan.model_flops_share < 1
        assert sum(plan.step_parts.values()) == pytest.approx(plan.step_seconds.value, rel=1e-6)
        assert sum(plan.memory_parts.values()) == pytest.approx(plan.memory_bytes.value, rel=1e-6)
        for interval in (plan.step_seconds, plan.memory_bytes, plan.run_seconds, plan.usd):
            assert interval.low <= interval.value <= interval.high
        assert plan.why
    for plan in answer.plans:
        assert plan.usd is not None
        time, usd = plan.run_seconds.value, plan.usd.value
        values.append(time if objective is Objective.TIME else usd)
    assert values == sorted(values)


def test_the_front_holds_the_best_and_nothing_that_is_beaten(asked, knowledge):
    for objective in Objective:
        answer = solve(asked("llama2-7b", "64xH100+64xA100", objective=objective), knowledge)
        points = [(plan.run_seconds.value, plan.usd.value) for plan in answer.front]
        assert points == sorted(points)
        assert [usd for _, usd in points] == sorted((usd for _, usd in points), reverse=True)
        assert answer.plans[0].layout in [plan.layout for plan in answer.front]
        for plan in answer.plans:
            assert any(
                time <= plan.run_seconds.value and usd <= plan.usd.value for time, usd in points
            )


def test_the_same_request_gives_the_same_answer(asked, knowledge):
    request = asked("llama2-7b", "16xH100+16xA100")
    assert solve(request, knowledge) == solve(request, knowledge)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"devices": "8xA100"}, {"devices": "12xA100"}),
        ({"devices": "12xA100"}, {"devices": "16xA100"}),
        ({"devices": "16xA100"}, {"devices": "16xA100+1xH100"}),
        ({"devices": "8..16xA100"}, {"devices": "16xA100"}),
        ({"pins": Pins(tensor=2, pipeline=2)}, {"pins": Pins(tensor=2)}),
        ({"pins": Pins(recompute=Recompute.FULL)}, {}),
        ({"limits": Limits(memory_risk=0.01)}, {"limits": Limits(memory_risk=0.3)}),
        ({"limits": Limits(budget_usd=2e4)}, {"limits": Limits(budget_usd=4e4)}),
        ({"limits": Limits(budget_usd=2e4)}, {}),
    ],
)
@pytest.mark.parametrize("batch", [None, 96])
def test_a_wider_request_is_never_worse(asked, knowledge, before, after, batch):
    usual = {"devices": "16xA100", "global_batch": batch}
    tight = solve(asked("llama2-7b", **{**usual, **before}), knowledge)
    loose = solve(asked("llama2-7b", **{**usual, **after}), knowledge)
    assert loose.plans
    if tight.plans:
        slack = 1 + 1e-9
        assert loose.plans[0].run_seconds.value <= tight.plans[0].run_seconds.value * slack


def test_the_runner_up_divides_the_model_in_another_way(asked, knowledge):
    answer = solve(asked("llama2-7b", "16xA100"), knowledge)
    best, second = answer.plans[0].layout, answer.runner_up.plan.layout
    ways = ("tensor", "pipeline", "context", "expert", "data")
    assert any(getattr(best, way) != getattr(second, way) for way in ways)
    assert "takes" in answer.runner_up.why


def test_runs_shorter_than_a_batch_are_one_step(asked, knowledge):
    plan = solve(asked("gpt2", "8xA100", tokens=100.0, global_batch=64), knowledge).plans[0]
    assert plan.steps == 1
    plan = solve(asked("gpt2", "8xA100", tokens=100.0), knowledge).plans[0]
    assert (plan.steps, plan.layout.global_batch) == (1, 1)


def test_sequences_beyond_what_a_model_is_made_for_are_noted(asked, knowledge):
    answer = solve(asked("gpt2", "8xA100", sequence=4_096), knowledge)
    assert any("longer than the 1,024" in note for note in answer.notes)


def test_batches_are_chosen_below_the_critical_one(asked, knowledge):
    answer = solve(asked("llama2-7b", "64xH100", tokens=1e11), knowledge)
    found = search(answer.request, knowledge)
    tokens = answer.plans[0].layout.global_batch * answer.request.sequence
    assert found.critical.useful_tokens / 2 <= tokens <= found.critical.useful_tokens
    wasteful = solve(replace(answer.request, global_batch=32_768), knowledge)
    assert any("waste" in note for note in wasteful.notes)
    assert wasteful.plans[0].loss.value > answer.plans[0].loss.value


def test_encoders_and_adapters_have_no_loss(asked, knowledge):
    assert solve(asked("bert-base", "8xA100"), knowledge).plans[0].loss is None
    tuning = lora(find_model("llama2-7b"))
    plan = solve(asked("llama2-7b", "8xA100", tokens=1e8, tuning=tuning), knowledge).plans[0]
    assert plan.loss is None
    assert (plan.layout.tensor, plan.layout.pipeline) == (1, 1)


def test_every_plan_says_what_binds_it(asked, knowledge):
    plain = solve(asked("llama2-7b", "64xH100"), knowledge)
    # Between the cheapest plan and the fastest one.
    budget = (plain.front[0].usd.value + plain.front[-1].usd.value) / 2
    cases = (
        (plain.request, Binding.DEVICES),
        (asked("gpt2", "100000xH100", global_batch=512), Binding.BATCH),
        (asked("llama2-7b", "64xH100", limits=Limits(budget_usd=budget)), Binding.BUDGET),
        (
            asked(
                "llama2-7b",
                "64xH100",
                objective=Objective.COST,
                limits=Limits(deadline_seconds=86_400.0),
            ),
            Binding.DEADLINE,
        ),
    )
    for request, binding in cases:
        answer = solve(request, knowledge)
        assert answer.plans, answer.refusal
        assert answer.plans[0].binding in (binding, Binding.MEMORY)
        assert any(letter.isdigit() for letter in answer.plans[0].why)


def test_without_prices_the_front_is_of_device_hours(asked, knowledge):
    answer = solve(asked("llama2-7b", "16xMI250"), knowledge)
    assert answer.plans[0].usd is None
    hours = [plan.devices * plan.run_seconds.value for plan in answer.front]
    assert hours == sorted(hours, reverse=True)


def test_hopeless_failure_rates_leave_no_plan(asked, knowledge):
    reliability = Reliability(device_mtbf_seconds=10.0)
    answer = solve(asked("llama2-7b", "8..8xA100", reliability=reliability), knowledge)
    assert answer.refusal is not None
    assert "failures" in answer.refusal.why


def test_a_huge_pool_is_not_used_up(asked, knowledge):
    answer = solve(asked("gpt2", "1000000xH100", tokens=1e9), knowledge)
    assert answer.plans[0].devices < 100_000


def test_models_that_need_it_leave_the_node(asked, knowledge):
    """Sixteen T4s hold a 7B model only when every way to divide it is allowed."""
    answer = solve(asked("llama2-7b", "16xT4", global_batch=16), knowledge)
    assert answer.plans or answer.refusal.relaxations


def test_the_curve_rises_and_is_of_one_batch(asked, knowledge):
    answer = solve(asked("llama2-7b", "64xH100"), knowledge)
    assert len(answer.curve) >= 4
    tokens = answer.plans[0].layout.global_batch * answer.request.sequence
    for point in answer.curve:
        assert point.tokens_per_second * point.step_seconds == pytest.approx(tokens)
    fastest = min(point.step_seconds for point in answer.curve)
    assert fastest == pytest.approx(answer.plans[0].step_seconds.value)
    assert np.argmax([point.devices for point in answer.curve]) == len(answer.curve) - 1


def test_limits_are_kept_with_a_probability(asked, knowledge):
    plain = solve(asked("llama2-7b", "64xH100"), knowledge).plans[0]
    assert plain.deadline_probability is None
    assert plain.budget_probability is None
    run, usd = plain.run_seconds, plain.usd
    for seconds, expected in ((run.value, 0.5), (run.high, 0.9), (run.value * 100, 1.0)):
        limits = Limits(deadline_seconds=seconds, budget_usd=usd.high)
        best = solve(asked("llama2-7b", "64xH100", limits=limits), knowledge).plans[0]
        assert best.deadline_probability == pytest.approx(expected, abs=1e-3)
        assert best.budget_probability == pytest.approx(0.9, abs=1e-3)
    assert run.probability_below(run.low) == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize("tokens", [1e5, 1e6, 1e9, 1e12, 1e15])
def test_losses_lie_between_what_cannot_be_learnt_and_guessing(asked, knowledge, tokens):
    loss = solve(asked("gpt2", "8xA100", tokens=tokens), knowledge).plans[0].loss
    law = knowledge.loss
    floor = law.E * math.exp(-1.2816 * math.sqrt(law.covariance[0][0]))
    assert floor <= loss.low <= loss.value <= loss.high <= math.log(50_257)


def test_the_curve_never_falls(asked, knowledge):
    answer = solve(asked("llama2-7b", "64xH100", global_batch=88), knowledge)
    speeds = [point.tokens_per_second for point in answer.curve]
    assert speeds == sorted(speeds)


def test_runs_too_short_for_the_law_are_noted(asked, knowledge):
    short = solve(asked("gpt2", "8xA100", tokens=1e6), knowledge)
    assert any("the loss of guessing" in note for note in short.notes)
    usual = solve(asked("gpt2", "8xA100", tokens=1e9), knowledge)
    assert not any("the loss of guessing" in note for note in usual.notes)
