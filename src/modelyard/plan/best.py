"""The best plan alone, for comparisons of requests."""

from __future__ import annotations

from modelyard.plan.answer import Plan
from modelyard.plan.binding import usual_binding
from modelyard.plan.check import check
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.mixed.plans import mixed_plans
from modelyard.plan.plans import plans_at
from modelyard.plan.request import Objective, Request
from modelyard.plan.search import Found, search


def best_plan(request: Request, knowledge: Knowledge) -> Plan | None:
    """The best plan; None when there is none."""
    check(request)
    found = search(request, knowledge)
    plans = [] if found.best is None else [plan_at(request, knowledge, found, found.best)]
    if request.mixed:
        plans += mixed_plans(request, knowledge)
    return min(plans, key=lambda plan: value_of(plan, request.objective), default=None)


def value_of(plan: Plan, objective: Objective) -> tuple[float, float]:
    """What a better plan has less of: time and then money, or the other way round."""
    time = plan.run_seconds.value
    money = plan.usd.value if plan.usd is not None else time * plan.devices
    return (time, money) if objective is Objective.TIME else (money, time)


def plan_at(request: Request, knowledge: Knowledge, found: Found, place: int) -> Plan:
    """One candidate as a plan."""
    reasons = {place: usual_binding(request, found, place)}
    return plans_at(request, knowledge, found, [place], reasons)[0]
