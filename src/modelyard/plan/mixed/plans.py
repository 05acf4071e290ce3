"""Teams of several kinds as plans, to be ranked beside those of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from modelyard.plan.answer import Binding, Interval, Plan, Share
from modelyard.plan.arithmetic import model_flops
from modelyard.plan.batches import batches, useful_sequences
from modelyard.plan.check import usable
from modelyard.plan.failure import checkpoint_interval, failure_seconds, goodput
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.mixed.by_data import teams_by_data
from modelyard.plan.mixed.by_layers import teams_by_layers
from modelyard.plan.mixed.effort import BEAM, Effort
from modelyard.plan.mixed.team import Team
from modelyard.plan.plans import kept_probability
from modelyard.plan.request import Limits, Request
from modelyard.plan.search import critical_of, loss_with_batch
from modelyard.spec.devices import Precision

_COMMON = (Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32)


def mixed_plans(request: Request, knowledge: Knowledge, effort: Effort = BEAM) -> tuple[Plan, ...]:
    """Plans on several kinds that keep the limits, fastest first; none where none can be mixed."""
    pins = request.pins
    precision = _common_precision(request)
    uneven = pins.accumulation is not None or (pins.context or 1) > 1 or (pins.expert or 1) > 1
    if precision is None or uneven or (pins.virtual or 1) > 1 or pins.servers:
        return ()
    same = replace(
        request,
        precision=precision,
        pools=tuple(pool for pool in request.pools if pool.platform.device.peak(precision)),
    )
    if len(same.pools) < 2:
        return ()
    teams = mixed_teams(same, knowledge, effort)
    plans = [_plan(same, knowledge, team) for team in teams]
    kept = [plan for plan in plans if _keeps(plan, request.limits)]
    return tuple(sorted(kept, key=lambda plan: plan.run_seconds.value))


def mixed_teams(request: Request, knowledge: Knowledge, effort: Effort) -> list[Team]:
    """The best team of each sort; pools must share a precision."""
    limit = critical_of(request, knowledge)
    chosen = batches(request, request.pools[0], useful_sequences(request, limit))[0]
    teams = teams_by_layers(request, knowledge, chosen.sequences, effort)
    if request.pins.data is None:
        teams += teams_by_data(request, knowledge, chosen.sequences, effort)
    return [team for team in teams if _enough(request, team)]


def _enough(request: Request, team: Team) -> bool:
    return all(each.devices >= request.pools[each.place].fewest for each in team.members)


def _common_precision(request: Request) -> Precision | None:
    pools = [pool for pool in request.pools if usable(request, pool)]
    if request.precision is not None:
        return request.precision if len(pools) > 1 else None
    shared = (item for item in _COMMON if all(pool.platform.device.peak(item) for pool in pools))
    return next(shared, None)


def _plan(request: Request, knowledge: Knowledge, team: Team) -> Plan:
    slowest = team.slowest
    fullest = max(team.members, key=lambda each: each.memory_risk)
    step = slowest.step_seconds
    steps = float(max(np.ceil(request.tokens / (team.batch * request.sequence)), 1.0))
    between = _between_failures(request, team)
    useful = 1.0 if between is None else float(goodput(np.array([between]), request.reliability)[0])
    # A run that never gets anywhere is kept out by its length.
    run = _scaled(step, steps / useful if useful else np.inf)
    peak = sum(
        each.devices * (request.pools[each.place].platform.device.peak(each.layout.precision) or 0)
        for each in team.members
    )
    usd = _usd(request, team, run)
    estimate = loss_with_batch(request, knowledge, team.batch, critical_of(request, knowledge))
    return Plan(
        pool=request.pools[slowest.place],
        layout=slowest.layout,
        step_seconds=step,
        step_parts=slowest.step_parts,
        memory_bytes=fullest.memory_bytes,
        memory_parts=fullest.memory_parts,
        memory_risk=fullest.memory_risk,
        steps=steps,
        tokens=steps * team.batch * request.sequence,
        goodput=useful,
        checkpoint_interval_seconds=None
        if between is None
        else float(checkpoint_interval(np.array([between]), request.reliability)[0]),
        run_seconds=run,
        usd=usd,
        loss=Interval(estimate.loss, estimate.low, estimate.high) if estimate else None,
        model_flops_share=model_flops(request) * team.batch / (peak * step.value),
        binding=Binding.DEVICES,
        why=_why(request, team),
        shares=tuple(_share(request, team, at) for at in range(len(team.members))),
        deadline_probability=kept_probability(run, request.limits.deadline_seconds),
        budget_probability=kept_probability(usd, request.limits.budget_usd),
    )


def _why(request: Request, team: Team) -> str:
    """Who waits for whom."""
    slowest = team.slowest
    kind = request.pools[slowest.place].kind
    others = [each for each in team.members if each is not slowest]
    waits = 1.0 - min(each.seconds for each in others) / team.seconds
    counts = " and ".join(
        f"{each.devices:,} {request.pools[each.place].kind}" for each in team.members
    )
    return f"{counts} work together; {kind} sets the pace, and others wait {waits:.0%} of a step"


def _share(request: Request, team: Team, at: int) -> Share:
    each = team.members[at]
    return Share(
        pool=request.pools[each.place],
        devices=each.devices,
        layout=each.layout,
        layers=each.layers,
        sequences=each.sequences,
        memory_bytes=each.memory_bytes.value,
        memory_risk=each.memory_risk,
    )


def _between_failures(request: Request, team: Team) -> float | None:
    rate = 0.0
    for each in team.members:
        found = failure_seconds(
            np.array([float(each.devices)]),
            request.reliability,
            devices_per_node=request.pools[each.place].platform.devices_per_node,
            spot=request.spot,
        )
        rate += 0.0 if found is None else 1.0 / float(found[0])
    return 1.0 / rate if rate else None


def _usd(request: Request, team: Team, run: Interval) -> Interval | None:
    prices = [request.pools[each.place].price(spot=request.spot) for each in team.members]
    hourly = 0.0
    for each, price in zip(team.members, prices, strict=True):
        if price is None:
            return None
        hourly += each.devices * price
    return _scaled(run, hourly / 3_600.0)


def _keeps(plan: Plan, limits: Limits) -> bool:
    if not np.isfinite(plan.run_seconds.value):
        return False
    checks: Sequence[tuple[float | None, float | None]] = (
        (limits.deadline_seconds, plan.run_seconds.value),
        (limits.budget_usd, plan.usd.value if plan.usd else None),
        (limits.most_loss, plan.loss.value if plan.loss else None),
    )
    return all(most is None or (found is not None and found <= most) for most, found in checks)


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)
