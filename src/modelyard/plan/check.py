"""Requests that no search could answer: what is wrong with them and what to write instead.

Everything is checked before anything is computed, and all problems are reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from modelyard.errors import InputError, Problem
from modelyard.plan.pin_check import pin_problems
from modelyard.plan.request import Limits, Objective, Reliability, Request
from modelyard.spec.model import ModelKind
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Method

_LARGEST = 1e24


def check(request: Request) -> None:
    """One `InputError` with all problems of a request, or nothing."""
    problems = [
        *_sizes(request),
        *_limits(request.limits),
        *_reliability(request.reliability),
        *_pools(request),
        *_prices(request),
        *_loss(request),
    ]
    # Pins are judged against numbers that must make sense themselves.
    if not problems:
        problems += pin_problems(request)
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)


def has_loss(request: Request) -> bool:
    """Whether the law of loss is about such runs: whole models that predict the next token."""
    return request.model.kind is ModelKind.DECODER and request.tuning.method is Method.FULL


def usable(request: Request, pool: Pool) -> bool:
    """Whether the pool's devices multiply in the precision that was asked for."""
    return request.precision is None or pool.platform.device.peak(request.precision) is not None


def _sizes(request: Request) -> Iterator[Problem]:
    if not 0.0 < request.tokens <= _LARGEST:
        yield Problem(f"a run on {request.tokens:g} tokens is not possible", "write --tokens 300B")
    if request.sequence < 1:
        what = f"sequences of {request.sequence} tokens are not possible"
        yield Problem(what, "write --sequence 2048")
    if request.target is not None and request.target < 1:
        what = f"decoder sequences of {request.target} tokens are not possible"
        yield Problem(what, "write --target 512")
    if request.global_batch is not None and not 1 <= request.global_batch <= 2**31:
        what = f"a batch of {request.global_batch:,} sequences is not possible"
        yield Problem(what, "write --batch 512, or leave it out")


def _limits(limits: Limits) -> Iterator[Problem]:
    for name, value, example in (
        ("deadline", limits.deadline_seconds, "--deadline 3d"),
        ("budget", limits.budget_usd, "--budget 20000"),
        ("largest loss", limits.most_loss, "--max-loss 2.1"),
    ):
        if value is not None and not value > 0.0:
            yield Problem(f"a {name} of {value:g} cannot be kept", f"write {example}")
    if not 0.0 < limits.memory_risk <= 1.0:
        what = f"{limits.memory_risk:g} is not a probability of running out of memory"
        yield Problem(what, "write --memory-risk 0.1")


def _reliability(reliability: Reliability) -> Iterator[Problem]:
    times = (
        ("mean time between failures", reliability.device_mtbf_seconds, 0.0),
        ("mean life of a spot instance", reliability.spot_mtbf_seconds, 0.0),
    )
    for name, value, least in times:
        if value is not None and not least < value < math.inf:
            yield Problem(f"a {name} of {value:g} s is not possible", "write for example 50000h")
    costs = (
        ("checkpoint", reliability.checkpoint_seconds),
        ("restart", reliability.restart_seconds),
    )
    for name, value in costs:
        if not 0.0 <= value < math.inf:
            yield Problem(f"a {name} of {value:g} s is not possible", "write for example 60s")


def _pools(request: Request) -> Iterator[Problem]:
    if not request.pools:
        yield Problem("there are no devices", "write --devices 64xH100")
    for pool in request.pools:
        if pool.most < 1 or not 1 <= pool.fewest <= pool.most:
            what = f"{pool.fewest} to {pool.most} devices of {pool.kind} are not possible"
            yield Problem(what, f"write --devices 8x{pool.kind}")
    if request.pools and not any(usable(request, pool) for pool in request.pools):
        kinds = " or ".join(dict.fromkeys(pool.kind for pool in request.pools))
        device = request.pools[0].platform.device
        known = ", ".join(item for item, _ in device.peak_flops)
        what = f"nobody published a rate of {kinds} in {request.precision}"
        yield Problem(what, f"use one of {known}" if known else "name other devices")


def _prices(request: Request) -> Iterator[Problem]:
    unpriced = [pool for pool in request.pools if pool.price(spot=request.spot) is None]
    if not unpriced:
        return
    kinds = " and ".join(dict.fromkeys(pool.kind for pool in unpriced))
    fix = "add it to the file of --prices"
    if request.spot:
        yield Problem(f"{kinds} has no price as a spot instance", f"{fix}, or leave --spot out")
    elif request.limits.budget_usd is not None:
        yield Problem(f"a budget says nothing while {kinds} has no price", fix)
    elif request.objective is Objective.COST:
        what = f"the cheapest plan cannot be found while {kinds} has no price"
        yield Problem(what, fix)


def _loss(request: Request) -> Iterator[Problem]:
    if request.limits.most_loss is None or has_loss(request):
        return
    adapted = request.tuning.method is not Method.FULL
    sort = "adapters" if adapted else f"a model of the kind '{request.model.kind}'"
    yield Problem(f"no law says which loss {sort} will reach", "leave --max-loss out")
