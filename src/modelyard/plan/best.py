"""The best plan alone, for comparisons of requests."""

from __future__ import annotations

from modelyard.plan.answer import Plan
from modelyard.plan.binding import usual_binding
from modelyard.plan.check import check
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.plans import plans_at
from modelyard.plan.request import Request
from modelyard.plan.search import Found, search


def best_plan(request: Request, knowledge: Knowledge) -> Plan | None:
    """The best plan; None when there is none."""
    check(request)
    found = search(request, knowledge)
    return None if found.best is None else plan_at(request, knowledge, found, found.best)


def plan_at(request: Request, knowledge: Knowledge, found: Found, place: int) -> Plan:
    """One candidate as a plan."""
    reasons = {place: usual_binding(request, found, place)}
    return plans_at(request, knowledge, found, [place], reasons)[0]
