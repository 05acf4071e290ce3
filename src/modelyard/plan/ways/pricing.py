"""What a request costs at best: one search, one plan."""

from __future__ import annotations

from dataclasses import replace

from modelyard.errors import InputError
from modelyard.plan.answer import Binding, Interval, Plan
from modelyard.plan.check import check, has_loss
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.plans import plans_at
from modelyard.plan.request import Limits, Request
from modelyard.plan.search import Found, loss_at, search
from modelyard.spec.model import Model
from modelyard.spec.tuning import Tuning


def price(request: Request, knowledge: Knowledge) -> Plan | None:
    """The best plan that keeps the limits, else the best without them; None when nothing fits."""
    if not possible(request):
        return None
    found = search(request, knowledge)
    if found.best is None:
        request = unlimited(request)
        found = search(request, knowledge)
    return best_plan(request, knowledge, found)


def possible(request: Request) -> bool:
    """Whether what the user pinned can be done with a model of another shape."""
    try:
        check(request)
    except InputError:
        return False
    return True


def best_plan(request: Request, knowledge: Knowledge, found: Found) -> Plan | None:
    """The first of what a search found."""
    place = found.best
    if place is None:
        return None
    # What binds it is a question for `solve`, and nobody asks it here.
    bindings = {place: (Binding.DEVICES, "")}
    return plans_at(request, knowledge, found, [place], bindings)[0]


def unlimited(request: Request) -> Request:
    """The same request without deadline, budget and loss; memory stays a limit."""
    return replace(request, limits=Limits(memory_risk=request.limits.memory_risk))


def without_loss_limit(request: Request) -> Request:
    """For ways whose loss is not that of the law: they judge it themselves."""
    return replace(request, limits=replace(request.limits, most_loss=None))


def of_model(request: Request, model: Model, tokens: float | None = None) -> Request:
    """The same run of another model, all of whose parameters are trained."""
    return replace(
        request,
        model=model,
        tuning=Tuning(trainable=model.parameters.total),
        tokens=request.tokens if tokens is None else tokens,
    )


def loss_of(request: Request, knowledge: Knowledge, model: Model, tokens: float) -> Interval | None:
    """The loss of a model after so many tokens; None where no law applies."""
    if not has_loss(request):
        return None
    found = loss_at(replace(request, model=model), knowledge, tokens)
    return Interval(found.loss, found.low, found.high)


def between(best: Interval | None, worst: Interval | None) -> Interval | None:
    """A loss somewhere between two: from the lowest of the one to the highest of the other."""
    if best is None or worst is None:
        return None
    middle = (best.value * worst.value) ** 0.5
    return Interval(middle, min(best.low, worst.low), max(best.high, worst.high))
