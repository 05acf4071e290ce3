"""Candidates as plans: intervals, breakdowns, money and loss, for the few that people will read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelyard.plan.answer import Binding, Interval, Plan
from modelyard.plan.arithmetic import model_flops
from modelyard.plan.candidates import columns_of, layout_at, precision_on, taken
from modelyard.plan.failure import checkpoint_interval, failure_seconds
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.search import Found, loss_with_batch
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

#: shares of a step or of memory below this are rounding
_SMALLEST_SHARE = 1e-9


def plans_at(
    request: Request,
    knowledge: Knowledge,
    found: Found,
    places: Sequence[int],
    bindings: Mapping[int, tuple[Binding, str]],
) -> tuple[Plan, ...]:
    """The plans of these candidates, in this order; `bindings` says what binds each of them."""
    made: dict[int, Plan] = {}
    pools = found.candidates.pool
    for pool in sorted({int(pools[place]) for place in places}):
        here = [place for place in dict.fromkeys(places) if int(pools[place]) == pool]
        made.update(_on_pool(request, knowledge, found, pool, here, bindings))
    return tuple(made[place] for place in places)


def _on_pool(
    request: Request,
    knowledge: Knowledge,
    found: Found,
    place_of_pool: int,
    places: Sequence[int],
    bindings: Mapping[int, tuple[Binding, str]],
) -> Mapping[int, Plan]:
    pool, candidates = request.pools[place_of_pool], found.candidates
    precision = precision_on(request, pool)
    columns = columns_of(request, pool, taken(candidates.layouts, np.array(places, dtype=np.intp)))
    steps = step_times(columns, knowledge.steps)
    memory = peak_memory(columns, knowledge.memory).within(usable_bytes(columns))
    peak = pool.platform.device.peak(precision) or np.inf
    price = pool.price(spot=request.spot)
    made: dict[int, Plan] = {}
    for row, place in enumerate(places):
        devices, batch = float(candidates.devices[place]), int(candidates.batch[place])
        step = Interval(*(float(part[row]) for part in (steps.seconds, steps.low, steps.high)))
        count = float(candidates.steps[place])
        run = _scaled(step, count / float(candidates.goodput[place]))
        between = failure_seconds(
            np.array([devices]),
            request.reliability,
            devices_per_node=pool.platform.devices_per_node,
            spot=request.spot,
        )
        usd = None if price is None else _scaled(run, devices * price / 3_600.0)
        binding, why = bindings[place]
        made[place] = Plan(
            pool=pool,
            layout=layout_at(candidates.layouts, place, precision),
            step_seconds=step,
            step_parts=_parts(steps.parts, row),
            memory_bytes=Interval(
                *(float(part[row]) for part in (memory.bytes, memory.low, memory.high))
            ),
            memory_parts=_parts(memory.parts, row),
            memory_risk=float(candidates.memory_risk[place]),
            steps=count,
            tokens=count * batch * request.sequence,
            goodput=float(candidates.goodput[place]),
            checkpoint_interval_seconds=None
            if between is None
            else float(checkpoint_interval(between, request.reliability)[0]),
            run_seconds=run,
            usd=usd,
            loss=_loss(request, knowledge, found, batch),
            model_flops_share=model_flops(request) * batch / (devices * peak * step.value),
            binding=binding,
            why=why,
            deadline_probability=kept_probability(run, request.limits.deadline_seconds),
            budget_probability=kept_probability(usd, request.limits.budget_usd),
        )
    return made


def kept_probability(figure: Interval | None, limit: float | None) -> float | None:
    """The probability that a figure keeps a limit; None where there is no limit."""
    return None if figure is None or limit is None else figure.probability_below(limit)


def _loss(request: Request, knowledge: Knowledge, found: Found, batch: int) -> Interval | None:
    estimate = loss_with_batch(request, knowledge, batch, found.critical)
    return Interval(estimate.loss, estimate.low, estimate.high) if estimate else None


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def _parts(parts: Mapping[str, Column], row: int) -> Mapping[str, float]:
    values = {name: float(part[row]) for name, part in parts.items()}
    total = sum(values.values())
    return {name: value for name, value in values.items() if value > _SMALLEST_SHARE * total}
