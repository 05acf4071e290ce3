"""What keeps a plan from being better, found by asking what would be if it were not there.

For the best plan the answer is measured: the same candidates without each limit, the layouts that
do not fit, the batch and the devices that are not used. The largest gain names what binds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelyard.plan.answer import Binding
from modelyard.plan.batches import NEAR, Batch, batches, near_batches, useful_sequences
from modelyard.plan.candidates import Candidates, Mask, speeds, taken
from modelyard.plan.figures import money, time_words
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.limits import kept_by_limit
from modelyard.plan.request import Objective, Request
from modelyard.plan.search import Found, search
from modelyard.plan.space import devices_of, layouts
from modelyard.speed.physical.columns import Column

#: gains below this are within what any estimate can tell apart
_NOTICEABLE = 0.01
#: a batch with so many times the factors of two of another is worth a look
_MUCH_EVENER = 4
#: where more devices than this share are in use, the batch is hardly what keeps others idle
_MANY_IN_USE = 0.75
#: how many layouts that do not fit are worth timing to see what memory costs
_MOST_UNFITTING = 60_000


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a plan would gain if something did not bind: 0.1 is a tenth less time or money."""

    binding: Binding
    share: float
    why: str


def binding_of(
    request: Request, knowledge: Knowledge, found: Found, place: int
) -> tuple[Binding, str]:
    """What binds the best plan, which is the one at this place, and the reason in a sentence."""
    gains = [*_limits(request, found, place)]
    if not gains:
        gains += _memory(request, knowledge, found, place)
        if request.objective is Objective.TIME:
            gains += _devices(request, found, place)
            gains += _batch(request, knowledge, found, place)
            gains += _twice_the_batch(request, knowledge, found, place)
    noticed = [gain for gain in gains if gain.share > _NOTICEABLE]
    if noticed:
        most = max(noticed, key=lambda gain: gain.share)
        return most.binding, most.why
    return usual_binding(request, found, place)


def usual_binding(request: Request, found: Found, place: int) -> tuple[Binding, str]:
    """What binds any plan, from its own figures alone."""
    candidates = found.candidates
    pool = request.pools[int(candidates.pool[place])]
    devices = int(candidates.devices[place])
    if request.objective is Objective.COST:
        return _cost_binding(request, found, place)
    if devices == pool.most:
        return Binding.DEVICES, f"all {pool.most:,} {pool.kind} are in use"
    batch = int(candidates.batch[place])
    more = _others(candidates, place) & (candidates.devices > devices)
    if not more.any():
        if int(candidates.layouts.data[place]) >= batch:
            return Binding.BATCH, f"a batch of {batch:,} cannot be divided over more replicas"
        why = f"neither {request.model.name} nor a batch of {batch:,} sequences can be divided "
        why += f"evenly over more than {devices:,} of {pool.most:,} {pool.kind}"
        return Binding.SHAPE, why
    nearest = int(np.flatnonzero(more)[np.argmin(candidates.run_seconds[more])])
    slower = candidates.run_seconds[nearest] / candidates.run_seconds[place]
    more_devices = int(candidates.devices[nearest])
    if slower < 1.0:
        why = f"{devices:,} of {pool.most:,} {pool.kind} are in use; {more_devices:,} would take "
        return Binding.DEVICES, why + f"{_times(slower)} as long"
    why = f"{more_devices:,} devices would wait for each other and take {_times(slower)} as long"
    return Binding.NETWORK, why


def _limits(request: Request, found: Found, place: int) -> list[_Gain]:
    """Limits without which another candidate would be better."""
    candidates = found.candidates
    value = _value(request, candidates)
    by_limit = kept_by_limit(candidates, request.limits)
    gains: list[_Gain] = []
    for binding in by_limit:
        rest: Mask = np.isfinite(candidates.run_seconds)
        for other, mask in by_limit.items():
            rest = rest & mask if other is not binding else rest
        best = int(np.flatnonzero(rest)[np.argmin(value[rest])])
        share = 1.0 - float(value[best] / value[place])
        if share > _NOTICEABLE:
            gains.append(_Gain(binding, share, _limit_reason(request, found, place, best, binding)))
    return gains


def _limit_reason(request: Request, found: Found, place: int, best: int, binding: Binding) -> str:
    candidates = found.candidates
    here, there = candidates.run_seconds[place], candidates.run_seconds[best]
    kind = request.pools[int(candidates.pool[best])].kind
    what = f"{int(candidates.devices[best]):,} {kind}"
    if binding is Binding.BUDGET:
        over = f"{_usd(candidates.usd[best])} instead of {_usd(request.limits.budget_usd)}"
        gain = f"finish in {time_words(there)} instead of {time_words(here)}"
        if request.objective is Objective.COST:
            gain = f"cost {_usd(candidates.usd[best])}"
        return f"{what} would {gain}, and cost {over}"
    if binding is Binding.DEADLINE:
        deadline = request.limits.deadline_seconds or 0.0
        late = f"{time_words(there)} where {time_words(deadline)} are allowed"
        if request.objective is Objective.COST:
            saved = f"{_usd(candidates.usd[best])} instead of {_usd(candidates.usd[place])}"
            return f"{what} would cost {saved}, and take {late}"
        return f"{what} would take {late}"
    batch = int(candidates.batch[best])
    why = f"a batch of {batch:,} sequences would finish in {time_words(there)} and end at "
    return why + f"a loss of {candidates.loss[best]:.3f}"


def _memory(request: Request, knowledge: Knowledge, found: Found, place: int) -> list[_Gain]:
    """What a layout on the same devices that does not fit would gain."""
    candidates = found.candidates
    at_pool = int(candidates.pool[place])
    pool, devices = request.pools[at_pool], candidates.devices[place]
    tried = [
        each
        for each in batches(request, pool, useful_sequences(request, found.critical))
        if each.sequences == int(candidates.batch[place])
    ]
    every = layouts(request, pool, tried or [Batch(int(candidates.batch[place]))])
    same = taken(every, devices_of(every) == devices)
    if not 0 < same.tensor.size <= _MOST_UNFITTING:
        return []
    seconds, _ = speeds(request, pool, same, knowledge)
    fastest = float(seconds.min())
    share = 1.0 - fastest / float(candidates.step_seconds[place])
    capacity = pool.platform.device.memory_bytes or 0
    why = f"a layout that needs more than the {capacity / 2**30:.0f} GiB of {pool.kind} would take "
    why += f"{share:.0%} less time"
    return [_Gain(Binding.MEMORY, share, why)]


def _batch(request: Request, knowledge: Knowledge, found: Found, place: int) -> list[_Gain]:
    """What a batch near the one that was asked for would gain, where that one divides badly."""
    candidates, asked = found.candidates, request.global_batch
    pool = request.pools[int(candidates.pool[place])]
    devices = int(candidates.devices[place])
    if asked is None or request.batch_tolerance:
        return []
    loose = replace(request, batch_tolerance=NEAR)
    # Otherwise another search is not worth its time.
    if _twos(near_batches(loose, pool)[0]) < _MUCH_EVENER * _twos(asked):
        return []
    near = search(loose, knowledge)
    if near.best is None or int(near.candidates.batch[near.best]) == asked:
        return []
    there, batch = near.candidates.run_seconds[near.best], int(near.candidates.batch[near.best])
    here = candidates.run_seconds[place]
    more = int(near.candidates.devices[near.best])
    use = f"use {more:,} devices instead of {devices:,} and " if more != devices else ""
    why = f"a batch of {asked:,} sequences divides badly; --batch {batch} would {use}take "
    why += f"{time_words(there)} instead of {time_words(here)}"
    share = 1.0 - float(there / here)
    # A larger batch alone may gain as much as it is larger.
    return [_Gain(Binding.BATCH, share, why)] if share > NEAR else []


def _twice_the_batch(
    request: Request, knowledge: Knowledge, found: Found, place: int
) -> list[_Gain]:
    """What twice the batch that was asked for would gain, where many devices are left over."""
    candidates, asked = found.candidates, request.global_batch
    pool = request.pools[int(candidates.pool[place])]
    devices = int(candidates.devices[place])
    if asked is None or devices > _MANY_IN_USE * pool.most:
        return []
    twice = search(replace(request, global_batch=2 * asked), knowledge)
    if twice.best is None:
        return []
    there, here = twice.candidates.run_seconds[twice.best], candidates.run_seconds[place]
    batch, larger = int(candidates.batch[place]), int(twice.candidates.batch[twice.best])
    why = f"batches of {batch:,} sequences keep {devices:,} of {pool.most:,} {pool.kind} busy; "
    why += f"--batch {larger} would use {int(twice.candidates.devices[twice.best]):,} and take "
    why += f"{time_words(there)} instead of {time_words(here)}"
    share = 1.0 - float(there / here)
    return [_Gain(Binding.BATCH, share, why)] if share > NEAR else []


def _twos(number: int) -> int:
    """The largest power of two that divides a number."""
    return number & -number


def _devices(request: Request, found: Found, place: int) -> list[_Gain]:
    """What the last doubling of devices brought, when all of them are in use."""
    candidates = found.candidates
    pool = request.pools[int(candidates.pool[place])]
    devices = int(candidates.devices[place])
    if devices < pool.most:
        return []
    fewer = _others(candidates, place) & (candidates.devices <= devices / 2.0)
    if not fewer.any():
        # Nothing smaller fits, so nothing is known of the gain; another device still is one.
        return [_Gain(Binding.DEVICES, 0.5, f"all {devices:,} {pool.kind} are in use")]
    half = int(np.flatnonzero(fewer)[np.argmin(candidates.run_seconds[fewer])])
    ratio = float(candidates.run_seconds[half] / candidates.run_seconds[place])
    why = f"all {devices:,} {pool.kind} are in use; {int(candidates.devices[half]):,} would take "
    why += f"{_times(ratio)} as long"
    return [_Gain(Binding.DEVICES, 1.0 - 1.0 / ratio, why)]


def _cost_binding(request: Request, found: Found, place: int) -> tuple[Binding, str]:
    candidates = found.candidates
    pool = request.pools[int(candidates.pool[place])]
    devices = int(candidates.devices[place])
    fewer = _others(candidates, place) & (candidates.devices < devices)
    if devices <= pool.fewest:
        least = f"{pool.fewest:,} {pool.kind} are the fewest that may be used"
        if pool.fewest == 1:
            least = f"a single {pool.kind} is the smallest machine"
        return Binding.DEVICES, least
    if not fewer.any():
        why = f"fewer than {devices:,} {pool.kind} do not hold {request.model.name} and its "
        return Binding.MEMORY, why + "optimizer"
    best = int(np.flatnonzero(fewer)[np.argmin(candidates.usd[fewer])])
    why = f"{int(candidates.devices[best]):,} {pool.kind} would cost {_usd(candidates.usd[best])} "
    return Binding.MEMORY, why + "because what fits into their memory is slower"


def _others(candidates: Candidates, place: int) -> Mask:
    """Candidates on the same pool."""
    same: Mask = candidates.pool == candidates.pool[place]
    return same


def _value(request: Request, candidates: Candidates) -> Column:
    return candidates.run_seconds if request.objective is Objective.TIME else candidates.usd


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _usd(amount: float | None) -> str:
    return money(float(amount)) if amount is not None else "nothing"
