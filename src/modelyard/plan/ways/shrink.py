"""A smaller model: narrower or shallower, until time and money suffice; or smaller for longer.

Widths go down in whole tiles and whole heads (`spec.rescaled`), since a width of odd size runs
slower than a larger even one. Time falls with size, so the largest model that keeps the limits is
found by halving the list of sizes; what its loss is then says the law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from modelyard.errors import InputError
from modelyard.plan.answer import Plan
from modelyard.plan.check import has_loss
from modelyard.plan.figures import time_words
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.search import equivalent_parameters
from modelyard.plan.ways.pricing import of_model, possible, price, without_loss_limit
from modelyard.plan.ways.way import Way, WayName, keeps_limits
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.rescaled import nearest_width, scaled
from modelyard.units import format_count

#: below an eighth of its width or depth a model is another model
_SMALLEST_SHARE = 1.0 / 8.0
#: sizes tried on the way down
_MOST_SIZES = 64
#: compute that a smaller model must save to be worth training for longer
_WORTHWHILE = 0.97
#: sizes of which each is searched for its best layout
_SIZES_PRICED = 6


def narrower(model: Model) -> tuple[Model, ...]:
    """The model at smaller widths, the widest first."""
    steps = range(_MOST_SIZES - 1, int(_MOST_SIZES * _SMALLEST_SHARE) - 1, -1)
    widths = {nearest_width(model, model.hidden * step / _MOST_SIZES): None for step in steps}
    return _made(model, (width for width in widths if 0 < width < model.hidden), _with_width)


def shallower(model: Model) -> tuple[Model, ...]:
    """The model with fewer layers, the deepest first."""
    fewest = max(1, round(model.layers * _SMALLEST_SHARE))
    gap = max(1, (model.layers - fewest) // _MOST_SIZES)
    return _made(model, range(model.layers - 1, fewest - 1, -gap), _with_depth)


def half_as_large(model: Model) -> Model:
    """About half the parameters, by width and depth as far as each goes."""
    options = (*narrower(model), *shallower(model))
    wanted = model.parameters.total / 2.0
    if not options:
        return model
    return min(options, key=lambda option: abs(option.parameters.total - wanted))


def shrink(request: Request, knowledge: Knowledge, asked: Plan | None) -> list[Way]:
    """Narrower, shallower, and smaller for longer where that saves anything."""
    goal, given = _goal(request, asked)
    made = [
        _shrunk(request, goal, given, knowledge, name, sizes)
        for name, sizes in (
            (WayName.NARROWER, narrower(request.model)),
            (WayName.SHALLOWER, shallower(request.model)),
        )
    ]
    longer = _longer(request, knowledge, asked)
    return [way for way in (*made, longer) if way is not None]


def _goal(request: Request, asked: Plan | None) -> tuple[Request, str]:
    """The limits to shrink to; half the time where the asked run keeps all there are."""
    goal = without_loss_limit(request)
    limits = goal.limits
    limited = limits.deadline_seconds is not None or limits.budget_usd is not None
    if asked is None:
        return goal, "" if limited else "until it fits into memory"
    if not keeps_limits(limits, asked.run_seconds, asked.usd, None):
        return goal, ""
    half = asked.run_seconds.value / 2.0
    why = "the asked run is in time and budget" if limited else "there is no deadline or budget"
    return (
        replace(goal, limits=replace(limits, deadline_seconds=half)),
        f"to half the time, {time_words(half)}, as {why}",
    )


def _shrunk(
    request: Request,
    goal: Request,
    given: str,
    knowledge: Knowledge,
    name: WayName,
    sizes: Sequence[Model],
) -> Way | None:
    """The largest of the sizes that keeps the goal; the smallest where none does."""
    # What the user pinned rules some sizes out; the others still fall in time.
    sizes = [size for size in sizes if possible(of_model(goal, size))]
    if not sizes:
        return None
    plans: dict[int, Plan | None] = {}

    def keeps(place: int) -> bool:
        plan = price(of_model(goal, sizes[place]), knowledge)
        plans[place] = plan
        return plan is not None and keeps_limits(goal.limits, plan.run_seconds, plan.usd, None)

    place = _first(keeps, len(sizes))
    reached = place < len(sizes)
    place = min(place, len(sizes) - 1)
    plan, model = plans[place], sizes[place]
    share = model.parameters.total / request.model.parameters.total
    if plan is None:
        why = "even the smallest size fits on none of the devices"
    elif not reached:
        why = "even the smallest size tried does not keep the limits"
    else:
        found = f"shrunk {given}" if given else "the largest size that keeps time and budget"
        why = f"{found}: {share:.0%} of the parameters"
    loss = plan.loss if plan else None
    most_loss = request.limits.most_loss
    if loss is not None and most_loss is not None and loss.value > most_loss:
        why += f", but a loss of {loss.value:.3f} misses {most_loss:g}"
    return _way(request, name, model, request.tokens, plan, _changes(request.model, model), why)


def _longer(request: Request, knowledge: Knowledge, asked: Plan | None) -> Way | None:
    """A smaller model that reaches the loss of the asked one, or the limit, in less time."""
    if not has_loss(request):
        return None
    law, model = knowledge.loss, request.model
    target = request.limits.most_loss
    if target is None:
        target = law.predict(equivalent_parameters(model), request.tokens).loss
    best: tuple[Plan, Model, float] | None = None
    # Narrow models use devices less well, so the least compute need not be the least time.
    for smaller, tokens in _spread(_sizes_reaching(request, knowledge, target)):
        plan = price(of_model(without_loss_limit(request), smaller, tokens), knowledge)
        if plan is None:
            continue
        if best is None or plan.run_seconds.value < best[0].run_seconds.value:
            best = (plan, smaller, tokens)
    if best is None:
        return None
    plan, smaller, tokens = best
    if asked is not None and plan.run_seconds.value >= asked.run_seconds.value:
        return None
    whole = model.active_parameters * request.tokens
    saved = 1.0 - smaller.active_parameters * tokens / whole
    return _way(
        request,
        WayName.LONGER,
        smaller,
        tokens,
        plan,
        f"{_changes(model, smaller)}, {format_count(tokens)} tokens",
        f"a loss of {target:.3f} with {saved:.0%} less compute, if there are so many tokens",
    )


def _sizes_reaching(
    request: Request, knowledge: Knowledge, target: float
) -> list[tuple[Model, float]]:
    """Narrower models with the tokens that bring them to a loss, where that saves compute."""
    most = _WORTHWHILE * request.model.active_parameters * request.tokens
    found = []
    for smaller in narrower(request.model):
        tokens = knowledge.loss.tokens_for_loss(equivalent_parameters(smaller), target)
        if tokens is not None and smaller.active_parameters * tokens < most:
            found.append((smaller, tokens))
    return found


def _spread(options: list[tuple[Model, float]]) -> list[tuple[Model, float]]:
    """A few of them, from the first to the last."""
    gaps = max(len(options) - 1, 0) / (_SIZES_PRICED - 1)
    places = {round(i * gaps) for i in range(_SIZES_PRICED)}
    return [options[place] for place in sorted(places) if place < len(options)]


def _way(
    request: Request,
    name: WayName,
    model: Model,
    tokens: float,
    plan: Plan | None,
    changes: str,
    why: str,
) -> Way:
    loss = plan.loss if plan else None
    return Way(
        name=name,
        model=model,
        tokens=tokens,
        seconds=plan.run_seconds if plan else None,
        usd=plan.usd if plan else None,
        loss=loss,
        kind=plan.pool.kind if plan else "",
        devices=plan.devices if plan else 0,
        layout=plan.layout if plan else None,
        keeps=plan is not None and keeps_limits(request.limits, plan.run_seconds, plan.usd, loss),
        changes=changes,
        why=why,
    )


def _changes(old: Model, new: Model) -> str:
    parts = []
    if new.hidden != old.hidden:
        parts.append(f"hidden {old.hidden:,} → {new.hidden:,}")
    if new.layers != old.layers:
        parts.append(f"layers {old.layers} → {new.layers}")
    if new.decoder_layers != old.decoder_layers:
        parts.append(f"decoder layers {old.decoder_layers} → {new.decoder_layers}")
    size = f"{format_count(old.parameters.total)} → {format_count(new.parameters.total)} parameters"
    return ", ".join([*parts, size])


def _first(keeps: Callable[[int], bool], count: int) -> int:
    """The first place that keeps the goal, when all later ones keep it as well; `count` if none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _made(
    model: Model, sizes: Iterator[int] | range, make: Callable[[Model, int], Model]
) -> tuple[Model, ...]:
    found = []
    for size in sizes:
        try:
            found.append(make(model, size))
        except InputError:
            # A size that the architecture cannot have, such as half a group of shared blocks.
            continue
    return tuple(found)


def _with_width(model: Model, width: int) -> Model:
    return scaled(model, hidden=width)


def _with_depth(model: Model, layers: int) -> Model:
    if model.kind is ModelKind.ENCODER_DECODER:
        decoder = max(1, round(model.decoder_layers * layers / model.layers))
        return scaled(model, layers=layers, decoder_layers=decoder)
    return scaled(model, layers=layers)
