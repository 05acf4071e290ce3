"""A request in, an answer out: ranked plans, or why there is none and what would help."""

from __future__ import annotations

from modelyard.plan.answer import Answer, Binding, Searched
from modelyard.plan.binding import binding_of, usual_binding
from modelyard.plan.check import check
from modelyard.plan.curve import curve
from modelyard.plan.front import front
from modelyard.plan.knowledge import Knowledge
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
    found = search(request, knowledge)
    searched = Searched(
        enumerated=found.enumerated, fitting=found.candidates.size, kept=int(found.kept.sum())
    )
    if found.best is None:
        return Answer(
            request=request,
            plans=(),
            runner_up=None,
            front=(),
            refusal=refusal(request, knowledge, found),
            curve=(),
            searched=searched,
            notes=notes(request, knowledge, None, found.critical),
        )
    ranked = [int(place) for place in distinct(found.candidates, found.order, MOST_PLANS)]
    # The first of the order stands for its way to divide the model, so it is the first here too.
    on_front = [int(place) for place in front(found.candidates, found.order)]
    bindings = _bindings(request, knowledge, found, [*ranked, *on_front])
    plans = plans_at(request, knowledge, found, ranked, bindings)
    return Answer(
        request=request,
        plans=plans,
        runner_up=runner_up(plans[0], plans[1], request.objective) if len(plans) > 1 else None,
        front=plans_at(request, knowledge, found, on_front, bindings),
        refusal=None,
        curve=curve(request, found, plans[0].layout.global_batch),
        searched=searched,
        notes=notes(request, knowledge, plans[0], found.critical),
    )


def _bindings(
    request: Request, knowledge: Knowledge, found: Found, places: list[int]
) -> dict[int, tuple[Binding, str]]:
    reasons = {place: usual_binding(request, found, place) for place in places}
    if found.best is not None:
        reasons[found.best] = binding_of(request, knowledge, found, found.best)
    return reasons
