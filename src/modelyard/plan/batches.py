"""Which global batches to try: the one that was asked for, or the largest that wastes little."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelyard.plan.critical_batch import CriticalBatch, critical_batch, token_multiplier
from modelyard.plan.request import Pins, Request
from modelyard.spec.pool import Pool

#: numbers of replicas are these times a power of two, or fit the pool
_ODD_PARTS = (1, 3, 5, 7)

#: a run of fewer steps is too short to gain anything by a larger batch
_FEWEST_STEPS = 100
#: how far from the batch that was asked for a suggested one may be, as a share
NEAR = 0.05


def critical(request: Request, loss: float | None) -> CriticalBatch:
    """The critical batch of the run, in tokens."""
    return critical_batch(request.tokens, loss)


@dataclass(frozen=True, slots=True)
class Batch:
    """A global batch to try, with replicas in multiples of a number."""

    sequences: int
    replicas_of: int = 1


def batches(request: Request, pool: Pool, useful_sequences: int) -> list[Batch]:
    """Global batches worth a look on this pool.

    Below the critical batch a larger one is never slower, so the largest even one is enough; others
    are there for numbers of replicas that it cannot be divided by, and for pins.
    """
    if request.global_batch is not None:
        return [Batch(each) for each in near_batches(request, pool)]
    pins = request.pins
    unit = _unit(pins)
    if pins.data is not None and pins.micro_batch is not None and pins.accumulation is not None:
        return [Batch(unit)]
    most = max(useful_sequences, unit)
    if pins.accumulation is not None:
        return [Batch(unit << k) for k in range((most // unit).bit_length())]
    if pins.data is not None:
        return [Batch(_largest(unit, most))]
    odd_parts = sorted({*_ODD_PARTS, _odd(pool.most), _odd(pool.fewest)})
    return [Batch(_largest(unit * odd, most), odd) for odd in odd_parts if unit * odd <= most]


def larger_batches(request: Request, pool: Pool, limit: CriticalBatch) -> list[Batch]:
    """Batches beyond those that waste little, up to the critical one, for runs that need them.

    None where the batch is given, or where the run would have hardly any steps.
    """
    pins = request.pins
    if request.global_batch is not None or None not in (
        pins.data,
        pins.micro_batch,
        pins.accumulation,
    ):
        return []
    odd = _odd(pool.most)
    unit = _unit(pins) * (odd if odd in _ODD_PARTS and pins.data is None else 1)
    most = math.floor(min(limit.tokens, request.tokens / _FEWEST_STEPS) / request.sequence)
    free = _most_freely(request, limit)
    return [
        Batch(unit << k)
        for k in range(max(most // unit, 0).bit_length())
        if free < unit << k <= most
    ]


def near_batches(request: Request, pool: Pool) -> list[int]:
    """The batch that was asked for and, within its tolerance, those that divide best, best first.

    One for each odd factor that numbers of replicas have, with as many factors of two as there is
    room for.
    """
    asked = request.global_batch or 1
    reach = asked * min(request.batch_tolerance, 0.5)
    low, high = max(1, math.ceil(asked - reach)), math.floor(asked + reach)
    unit = _unit(request.pins)
    odd_parts = (*_ODD_PARTS, _odd(pool.most), _odd(pool.fewest))
    found = [_evenest(unit * odd, low, high, asked) for odd in odd_parts]
    divided = sorted(
        {each for each in found if each is not None},
        key=lambda each: (-(each & -each), abs(each - asked)),
    )
    return list(dict.fromkeys((*divided, asked)))


def useful_sequences(request: Request, critical_tokens: CriticalBatch) -> int:
    """The largest batch, in sequences, that wastes little and is not more than the whole run."""
    tokens = min(critical_tokens.useful_tokens, request.tokens)
    return max(1, math.floor(tokens / request.sequence))


def effective_tokens(request: Request, batch: int, critical_tokens: CriticalBatch) -> float:
    """The tokens that count towards the loss.

    Laws of loss were measured with batches below the critical one; what a batch wastes beyond what
    those did does not count.
    """
    needed = needed_tokens(request, batch, critical_tokens)
    return needed / _waste(request, batch, critical_tokens)


def needed_tokens(request: Request, batch: int, critical_tokens: CriticalBatch) -> float:
    """The tokens to train on: those asked for, and what a batch that the planner chose wastes."""
    if request.global_batch is not None or batch <= _most_freely(request, critical_tokens):
        return request.tokens
    return request.tokens * _waste(request, batch, critical_tokens)


def _waste(request: Request, batch: int, critical_tokens: CriticalBatch) -> float:
    """How many times the tokens a batch needs that a useful one does, at least 1."""
    usual = token_multiplier(critical_tokens.useful_tokens, critical_tokens.tokens)
    wasted = token_multiplier(float(batch) * request.sequence, critical_tokens.tokens)
    return max(1.0, wasted / usual)


def _most_freely(request: Request, critical_tokens: CriticalBatch) -> int:
    """The largest batch that nothing has to be gained by."""
    return max(useful_sequences(request, critical_tokens), _unit(request.pins))


def _unit(pins: Pins) -> int:
    """What every batch is a multiple of, by the pins."""
    return (pins.data or 1) * (pins.micro_batch or 1) * (pins.accumulation or 1)


def _evenest(unit: int, low: int, high: int, asked: int) -> int | None:
    """Of the multiples of `unit` in this range, the nearest with the most factors of two."""
    if high // unit * unit < low:
        return None
    while high // (2 * unit) * (2 * unit) >= low:
        unit *= 2
    below, above = asked // unit * unit, -(-asked // unit) * unit
    inside = [each for each in (below, above) if low <= each <= high]
    return min(inside, key=lambda each: abs(each - asked))


def _odd(number: int) -> int:
    while number % 2 == 0:
        number //= 2
    return number


def _largest(unit: int, most: int) -> int:
    """The largest `unit · 2^k` that is at most `most`."""
    return unit << ((most // unit).bit_length() - 1)
