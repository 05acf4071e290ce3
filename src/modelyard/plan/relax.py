"""No plan: what stands in the way, and the nearest change of each sort that would help.

Every relaxation is verified by planning with it. How many requests are planned is bounded, so that
a refusal takes a few seconds at most even for the largest models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from modelyard.errors import InputError
from modelyard.plan.answer import Binding, Plan, Refusal, Relaxation
from modelyard.plan.batches import NEAR, batches, near_batches, useful_sequences
from modelyard.plan.best import best_plan
from modelyard.plan.candidates import lowest_peak
from modelyard.plan.check import has_loss, usable
from modelyard.plan.figures import memory, money, time_words
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.limits import kept_by_limit
from modelyard.plan.plans import kept_probability
from modelyard.plan.request import Limits, Pins, Request
from modelyard.plan.search import Found, equivalent_parameters, search
from modelyard.plan.space import layouts
from modelyard.spec.adapters import lora
from modelyard.spec.devices import Precision
from modelyard.spec.pool import MOST_DEVICES, Pool
from modelyard.spec.tuning import Method
from modelyard.units import format_count

#: how often the number of devices is doubled, and how often the interval is then halved
_DOUBLINGS = 12
_HALVINGS = 4
#: a doubling that leaves more than this share of the time is not worth another one
_WORTHWHILE = 0.97
#: nobody who asked for a run wants one that is so many times longer
_MOST_TOKENS_FACTOR = 100.0
#: a suggested limit is kept four times out of five
_SURE_DEVIATIONS = 0.8416
#: figures suggested to people are rounded up to so many digits
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class _Change:
    """A changed request, as people would write the change."""

    binding: Binding
    text: str
    request: Request


def refusal(request: Request, knowledge: Knowledge, found: Found) -> Refusal:
    """Why there is no plan, and what would give one."""
    binding, why = _reason(request, knowledge, found)
    relaxations = [
        *_limits(request, knowledge, found),
        *_devices(request, knowledge, found),
        *_verified(_others(request, knowledge, found, binding), knowledge),
    ]
    if not relaxations:
        relaxations = [*_verified(_together(request), knowledge)]
    return Refusal(binding=binding, why=why, relaxations=tuple(relaxations))


def _reason(request: Request, knowledge: Knowledge, found: Found) -> tuple[Binding, str]:
    if not found.enumerated:
        return _undivided(request)
    if not found.candidates.size:
        return _unfitting(request, knowledge, found)
    limits, candidates = request.limits, found.candidates
    masks = kept_by_limit(candidates, limits)
    alone = [binding for binding, mask in masks.items() if not mask.any()]
    if alone:
        return alone[0], _broken(limits, found, alone[0])
    if not np.isfinite(candidates.run_seconds).any():
        return Binding.DEVICES, _never_done(request)
    names = " and ".join(sorted(masks))
    first = Binding.BUDGET if Binding.BUDGET in masks else next(iter(masks))
    why = (
        f"none of {candidates.size:,} layouts keeps {names} at once, though each can be kept alone"
    )
    return first, why


def _broken(limits: Limits, found: Found, binding: Binding) -> str:
    """How far the best candidate is from a limit that none keeps."""
    candidates = found.candidates
    if binding is Binding.BUDGET:
        cheapest = float(np.nanmin(candidates.usd))
        return (
            f"the cheapest plan costs {_usd(cheapest)}, and {_usd(limits.budget_usd)} are allowed"
        )
    if binding is Binding.LOSS:
        reached = f"the run ends at a loss of about {_best_loss(found):.3f}"
        return f"{reached}, and {limits.most_loss or 0.0:g} is asked for"
    fastest = float(candidates.run_seconds.min())
    allowed = time_words(limits.deadline_seconds or 0.0)
    if not np.isfinite(fastest):
        return f"failures leave no time for work, and {allowed} are allowed"
    return f"the fastest plan takes {time_words(fastest)}, and {allowed} are allowed"


def _never_done(request: Request) -> str:
    between = request.reliability.device_mtbf_seconds
    often = f" of a device every {time_words(between)}" if between is not None else ""
    return f"failures{often} leave no time for work: no plan ever finishes"


def _best_loss(found: Found) -> float:
    return float(np.nanmin(found.candidates.loss))


def _undivided(request: Request) -> tuple[Binding, str]:
    counts = " or ".join(f"{pool.fewest:,} to {pool.most:,} {pool.kind}" for pool in request.pools)
    batch = f"a batch of {request.global_batch:,} sequences" if request.global_batch else "a batch"
    why = f"neither {request.model.name} nor {batch} can be divided evenly over {counts}"
    if request.pins != Pins():
        return Binding.PINS, f"{why} with these pins"
    return Binding.SHAPE, why


def _unfitting(request: Request, knowledge: Knowledge, found: Found) -> tuple[Binding, str]:
    """The layout that comes nearest to fitting, on the pool where it does."""
    nearest: tuple[float, float, Pool] | None = None
    for pool in request.pools:
        if not usable(request, pool):
            continue
        tried = batches(request, pool, useful_sequences(request, found.critical))
        every = layouts(request, pool, tried)
        if not every.tensor.size:
            every = layouts(request, pool, tried, wide=True)
        if not every.tensor.size:
            continue
        needed, capacity = lowest_peak(request, pool, every, knowledge)
        if nearest is None or needed / capacity < nearest[0] / nearest[1]:
            nearest = (needed, capacity, pool)
    if nearest is None:
        return _undivided(request)
    needed, capacity, pool = nearest
    why = f"{request.model.name} needs {memory(needed)} on each of up to {pool.most:,} "
    why += f"{pool.kind}, which have {memory(capacity)} to use"
    if needed <= capacity:
        why += f"; that may run out more often than {request.limits.memory_risk:.0%} of the time"
    return Binding.MEMORY, why


def _limits(request: Request, knowledge: Knowledge, found: Found) -> Iterator[Relaxation]:
    """Each limit moved to where a plan that is already known keeps it."""
    candidates = found.candidates
    masks = kept_by_limit(candidates, request.limits)
    finite = np.isfinite(candidates.run_seconds)
    for binding in masks:
        rest = finite.copy()
        for other, mask in masks.items():
            rest = rest & mask if other is not binding else rest
        if not rest.any():
            continue
        places = np.flatnonzero(rest)
        value = {
            Binding.DEADLINE: candidates.run_seconds,
            Binding.BUDGET: candidates.usd,
            Binding.LOSS: candidates.loss,
        }[binding][places]
        nearest = int(places[np.argmin(value)])
        # Times and costs are uncertain, and a limit that is kept half of the time is no help.
        surely = 1.0 if binding is Binding.LOSS else _surely(candidates.step_sigma[nearest])
        text, limits = _moved(request.limits, binding, float(value.min()) * surely)
        yield from _verified(
            iter([_Change(binding, text, replace(request, limits=limits))]), knowledge
        )


def _moved(limits: Limits, binding: Binding, value: float) -> tuple[str, Limits]:
    """A limit moved to a value that can be kept, rounded up, as an option and as limits."""
    if binding is Binding.DEADLINE:
        seconds, text = _duration_up(value)
        return f"--deadline {text}", replace(limits, deadline_seconds=seconds)
    if binding is Binding.BUDGET:
        usd = _up(value)
        return f"--budget {usd:.10g}", replace(limits, budget_usd=usd)
    loss = float(np.ceil(value * 1000.0) / 1000.0)
    return f"--max-loss {loss:g}", replace(limits, most_loss=loss)


def _devices(request: Request, knowledge: Knowledge, found: Found) -> Iterator[Relaxation]:
    """The fewest more devices of each kind that would do, or fewer where too many must be used."""
    if _never_good_enough(request, found):
        return
    for place, pool in enumerate(request.pools):
        if not usable(request, pool):
            continue
        if pool.fewest > 1 and not found.enumerated:
            changed = _with_pool(request, place, replace(pool, fewest=1))
            yield from _verified(
                iter([_Change(Binding.DEVICES, f"--devices {pool.most}x{pool.kind}", changed)]),
                knowledge,
            )
        yield from _surely_enough(request, knowledge, found, place) or _more_devices(
            request, knowledge, place
        )


def _surely(sigma: float) -> float:
    """By how much a limit has to exceed an estimate with this sigma to be kept often enough."""
    return float(np.exp(_SURE_DEVIATIONS * sigma))


def _surely_enough(
    request: Request, knowledge: Knowledge, found: Found, place: int
) -> list[Relaxation]:
    """As many more devices as keep deadline and budget often enough."""
    limits = request.limits
    if not found.candidates.size or (limits.deadline_seconds, limits.budget_usd) == (None, None):
        return []
    surely = _surely(float(np.median(found.candidates.step_sigma)))
    return _as_asked(request, [*_more_devices(_with_room(request, surely), knowledge, place)])


def _with_room(request: Request, surely: float) -> Request:
    """The request with deadline and budget so tight that the real ones are kept often enough."""
    limits = request.limits
    tight = replace(
        limits,
        deadline_seconds=limits.deadline_seconds and limits.deadline_seconds / surely,
        budget_usd=limits.budget_usd and limits.budget_usd / surely,
    )
    return replace(request, limits=tight)


def _as_asked(request: Request, found: Sequence[Relaxation]) -> list[Relaxation]:
    """Relaxations with the odds of keeping the limits of this request."""
    limits = request.limits
    plans = [
        replace(
            each.plan,
            deadline_probability=kept_probability(each.plan.run_seconds, limits.deadline_seconds),
            budget_probability=kept_probability(each.plan.usd, limits.budget_usd),
        )
        for each in found
    ]
    return [
        replace(each, plan=plan, effect=_effect(plan))
        for each, plan in zip(found, plans, strict=True)
    ]


def _never_good_enough(request: Request, found: Found) -> bool:
    """Whether the loss is out of reach, which no number of devices changes."""
    most = request.limits.most_loss
    return most is not None and found.candidates.size > 0 and _best_loss(found) > most


def _more_devices(request: Request, knowledge: Knowledge, place: int) -> Iterator[Relaxation]:
    pool = request.pools[place]
    alone = replace(request, pools=(pool,))
    failing, enough, shortest = pool.most, 0, np.inf
    for doubling in range(1, _DOUBLINGS + 1):
        most = pool.most << doubling
        if most > MOST_DEVICES:
            return
        found = search(_with_pool(alone, 0, pool.resized(most)), knowledge)
        if found.best is not None:
            enough = most
            break
        failing = most
        if found.candidates.size:
            # Once more devices make nothing faster, still more will not either.
            fastest = float(found.candidates.run_seconds.min())
            if not fastest < shortest * _WORTHWHILE or not _affordable(request, found):
                return
            shortest = fastest
    if not enough:
        return
    per_node = pool.platform.devices_per_node
    for _ in range(_HALVINGS):
        middle = (failing + enough) // 2
        middle -= middle % per_node if middle > per_node else 0
        if not failing < middle < enough:
            break
        found = search(_with_pool(alone, 0, pool.resized(middle)), knowledge)
        failing, enough = (middle, enough) if found.best is None else (failing, middle)
    changed = _with_pool(alone, 0, pool.resized(enough))
    text = f"--devices {enough}x{pool.kind}"
    yield from _verified(iter([_Change(Binding.DEVICES, text, changed)]), knowledge)


def _affordable(request: Request, found: Found) -> bool:
    """Whether any layout is within the budget, whatever its other faults."""
    budget = request.limits.budget_usd
    return budget is None or bool((found.candidates.usd <= budget).any())


def _together(request: Request) -> Iterator[_Change]:
    """Several changes at once, for requests that no single one helps."""
    unlimited = replace(request.limits, deadline_seconds=None, budget_usd=None, most_loss=None)
    named = [
        name
        for name, value in (
            ("--deadline", request.limits.deadline_seconds),
            ("--budget", request.limits.budget_usd),
            ("--max-loss", request.limits.most_loss),
        )
        if value is not None
    ]
    free = replace(request, limits=unlimited)
    if len(named) > 1:
        yield _Change(Binding.DEADLINE, f"leave {' and '.join(named)} out", free)
    pins = "" if request.pins == Pins() else ", all pins"
    for doubling in (3, 6, 9):
        pools = tuple(pool.resized(pool.most << doubling) for pool in request.pools)
        if max(pool.most for pool in pools) > MOST_DEVICES:
            return
        bigger = replace(free, pools=pools, pins=Pins(), global_batch=None)
        devices = "+".join(str(pool) for pool in pools)
        limits = f"leave {', '.join(named)}{pins} out, and write " if named or pins else ""
        yield _Change(Binding.DEVICES, f"{limits}--devices {devices}", bigger)


def _others(
    request: Request, knowledge: Knowledge, found: Found, binding: Binding
) -> Iterator[_Change]:
    """Changes of other sorts, each alone."""
    yield from _pins(request)
    yield from _precision(request, binding)
    yield from _batch(request)
    yield from _loss(request, knowledge)
    yield from _memory(request, found)
    if len(request.pools) > 1 and not request.mixed:
        yield _Change(Binding.DEVICES, "--mixed", replace(request, mixed=True))
    priced = all(pool.spot_usd_per_hour is not None for pool in request.pools)
    if not request.spot and priced and request.limits.budget_usd is not None:
        yield _Change(Binding.BUDGET, "--spot", replace(request, spot=True))


def _pins(request: Request) -> Iterator[_Change]:
    pinned = [field.name for field in fields(Pins) if getattr(request.pins, field.name) is not None]
    for name in pinned:
        freed = replace(request, pins=replace(request.pins, **{name: None}))
        text = f"leave --{name.replace('_', '-')} out"
        yield _Change(Binding.PINS, text, freed)
    if len(pinned) > 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in pinned)
        yield _Change(Binding.PINS, f"leave {names} out", replace(request, pins=Pins()))


def _precision(request: Request, binding: Binding) -> Iterator[_Change]:
    wanted = [Precision.BF16]
    if request.limits.deadline_seconds is not None or request.limits.budget_usd is not None:
        wanted.append(Precision.FP8)
    for precision in wanted:
        changed = replace(request, precision=precision)
        if precision is request.precision or not any(
            usable(changed, pool) for pool in request.pools
        ):
            continue
        if precision is Precision.BF16 and request.precision is None:
            continue
        yield _Change(binding, f"--precision {precision}", changed)


def _batch(request: Request) -> Iterator[_Change]:
    if request.global_batch is not None and request.global_batch > 1:
        if not request.batch_tolerance:
            for batch in near_batches(replace(request, batch_tolerance=NEAR), request.pools[0]):
                if batch != request.global_batch:
                    changed = replace(request, global_batch=batch)
                    yield _Change(Binding.BATCH, f"--batch {batch}", changed)
        yield _Change(Binding.BATCH, "leave --batch out", replace(request, global_batch=None))


def _loss(request: Request, knowledge: Knowledge) -> Iterator[_Change]:
    most = request.limits.most_loss
    if most is None or not has_loss(request):
        return
    tokens = knowledge.loss.tokens_for_loss(equivalent_parameters(request.model), most)
    if tokens is None or tokens > _MOST_TOKENS_FACTOR * request.tokens:
        return
    for factor in (1.02, 1.5):
        more = _up(tokens * factor)
        if more > request.tokens:
            changed = replace(request, tokens=more)
            yield _Change(Binding.LOSS, f"--tokens {format_count(more)}", changed)


def _memory(request: Request, found: Found) -> Iterator[_Change]:
    """What makes a model smaller, where nothing fits."""
    if found.candidates.size:
        return
    for risk in (0.25, 0.5):
        if risk > request.limits.memory_risk:
            limits = replace(request.limits, memory_risk=risk)
            changed = replace(request, limits=limits)
            yield _Change(Binding.MEMORY, f"--memory-risk {risk:g}", changed)
            break
    shorter = request.sequence // 2
    if shorter >= 128:
        text = f"--sequence {shorter}"
        yield _Change(Binding.MEMORY, text, replace(request, sequence=shorter))
    for method in (Method.LORA, Method.QLORA):
        if request.tuning.method in (method, Method.QLORA) or request.limits.most_loss is not None:
            continue
        try:
            tuning = lora(request.model, quantised=method is Method.QLORA)
        except InputError:
            continue
        yield _Change(Binding.MEMORY, f"--method {method}", replace(request, tuning=tuning))


def _verified(changes: Iterator[_Change], knowledge: Knowledge) -> Iterator[Relaxation]:
    """Those that give a plan; the nearest of a sort is enough."""
    done: set[str] = set()
    for change in changes:
        sort = change.text.split()[0] if change.text.startswith("--") else change.text
        # Leaving out all pins is only worth saying when leaving out one does not help.
        if sort in done or (", " in change.text and done):
            continue
        plan = _try(change.request, knowledge)
        if plan is not None:
            done.add(sort)
            yield Relaxation(change.binding, change.text, _effect(plan), plan)


def _try(request: Request, knowledge: Knowledge) -> Plan | None:
    try:
        return best_plan(request, knowledge)
    except InputError:
        return None


def _with_pool(request: Request, place: int, pool: Pool) -> Request:
    pools = (*request.pools[:place], pool, *request.pools[place + 1 :])
    return replace(request, pools=pools)


def _effect(plan: Plan) -> str:
    text = f"{plan.devices:,} {plan.pool.kind} for {time_words(plan.run_seconds.value)}"
    text = f"{text}, {_usd(plan.usd.value)}" if plan.usd is not None else text
    for name, odds in (
        ("deadline", plan.deadline_probability),
        ("budget", plan.budget_probability),
    ):
        text += f", {odds:.0%} to keep the {name}" if odds is not None else ""
    return text


def _usd(amount: float | None) -> str:
    if amount is None or not np.isfinite(amount):
        return "more than any budget"
    return money(amount)


def _up(value: float) -> float:
    """Rounded up to two digits, so that the suggestion is kept and can be read."""
    if value <= 0.0:
        return value
    unit = 10.0 ** (np.floor(np.log10(value)) - (_DIGITS - 1))
    return float(np.ceil(value / unit - 1e-9) * unit)


def _duration_up(seconds: float) -> tuple[float, str]:
    """In the largest unit of which there are at least two, rounded up to a tenth."""
    for name, size in (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)):
        if seconds >= 2.0 * size or name == "s":
            amount = float(np.ceil(seconds / size * 10.0 - 1e-9) / 10.0)
            return amount * size, f"{amount:.10g}{name}"
    raise AssertionError("seconds are the last unit")
