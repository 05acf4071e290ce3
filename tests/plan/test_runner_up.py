"""Why the second plan came second: steps of the same work, or whole runs."""

from __future__ import annotations

from dataclasses import replace

from modelyard.plan.request import Objective
from modelyard.plan.runner_up import runner_up
from modelyard.plan.solve import solve


def test_steps_are_compared_where_they_do_the_same_work(asked, knowledge):
    best, second = solve(asked("llama2-7b", "16xA100", global_batch=128), knowledge).plans[:2]
    slower = replace(second, step_parts={**best.step_parts, "bubble": 7.0})
    why = runner_up(best, slower, Objective.TIME).why
    assert "'bubble' takes 7 s of a step" in why


def test_runs_are_compared_where_steps_do_not(asked, knowledge):
    best = solve(asked("llama2-7b", "16xA100", global_batch=128), knowledge).plans[0]
    other = solve(asked("llama2-7b", "8xA100", global_batch=64), knowledge).plans[0]
    why = runner_up(best, other, Objective.TIME).why
    assert "of its run on 8 devices instead of 16" in why
