"""A request in, an answer out: ranked plans, or why there is none and what would help."""

from __future__ import annotations

from modelyard.plan.answer import Answer, Binding, Plan, Searched
from modelyard.plan.best import value_of
from modelyard.plan.binding import binding_of, usual_binding
from modelyard.plan.check import check
from modelyard.plan.curve import curve, envelope
from modelyard.plan.front import front, unbeaten
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.mixed.plans import mixed_plans
from modelyard.plan.notes import notes
from modelyard.plan.plans import plans_at
from modelyard.plan.relax import refusal
from modelyard.plan.request import Request
from modelyard.plan.runner_up import runner_up
from modelyard.plan.search import Found, distinct, search

#: ranked plans in an answer
MOST_PLANS = 10


def solve(request: Request, knowledge: Knowledge) -> Answer:
    """The best plans for a request; `InputError` when the request itself makes no sense.

    The same request and knowledge give the same answer.
    """
    check(request)
    objective = request.objective
    found = search(request, knowledge)
    searched = Searched(
        enumerated=found.enumerated, fitting=found.candidates.size, kept=int(found.kept.sum())
    )
    plans, on_front = _of_one_kind(request, knowledge, found)
    if request.mixed:
        together = mixed_plans(request, knowledge)
        plans = tuple(sorted((*plans, *together), key=lambda plan: value_of(plan, objective)))
        on_front = unbeaten((*on_front, *together))
    best = plans[0] if plans else None
    return Answer(
        request=request,
        plans=plans[:MOST_PLANS],
        runner_up=runner_up(plans[0], plans[1], objective) if len(plans) > 1 else None,
        front=on_front,
        refusal=refusal(request, knowledge, found) if best is None else None,
        curve=envelope(curve(request, found, best.global_batch)) if best is not None else (),
        searched=searched,
        notes=notes(request, knowledge, best, found.critical),
    )


def _of_one_kind(
    request: Request, knowledge: Knowledge, found: Found
) -> tuple[tuple[Plan, ...], tuple[Plan, ...]]:
    """Ranked plans on devices of a single kind, and those on the front."""
    if found.best is None:
        return (), ()
    # The first of the order stands for its way to divide the model, so it is the first here too.
    ranked = [int(place) for place in distinct(found.candidates, found.order, MOST_PLANS)]
    on_front = [int(place) for place in front(found.candidates, found.order)]
    bindings = _bindings(request, knowledge, found, [*ranked, *on_front])
    return (
        plans_at(request, knowledge, found, ranked, bindings),
        plans_at(request, knowledge, found, on_front, bindings),
    )


def _bindings(
    request: Request, knowledge: Knowledge, found: Found, places: list[int]
) -> dict[int, tuple[Binding, str]]:
    reasons = {place: usual_binding(request, found, place) for place in places}
    if found.best is not None:
        reasons[found.best] = binding_of(request, knowledge, found, found.best)
    return reasons
