"""What the numbers of a model may be, in one place: for configs, plain numbers and rescaling.

The limits are about ten times what anybody has built. Past them a number is a slip of the keyboard
far more often than a plan, and products of several of them leave 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from modelyard.errors import Problem
from modelyard.spec.model import Model


@dataclass(frozen=True, slots=True)
class Limit:
    """Whole numbers from `least` to `most`, and what the number is."""

    least: int
    most: int
    meaning: str
    example: int


#: the numbers of `Model`
LIMITS: Mapping[str, Limit] = {
    "layers": Limit(1, 10_000, "how many blocks the model has", 32),
    "decoder_layers": Limit(0, 10_000, "how many blocks the decoder has", 12),
    "hidden": Limit(1, 1_000_000, "the width of the hidden state", 4096),
    "heads": Limit(1, 16_384, "attention heads of a block", 32),
    "kv_heads": Limit(1, 16_384, "heads of keys and values", 8),
    "head_size": Limit(1, 65_536, "the width of one head", 128),
    "value_size": Limit(1, 65_536, "the width of one head's values", 128),
    "ffn": Limit(0, 10_000_000, "the inner width of the feed-forward part", 14336),
    "vocab": Limit(1, 10_000_000, "how many tokens there are", 32000),
    "longest": Limit(0, 1_000_000_000, "the longest sequence", 8192),
    "window": Limit(0, 1_000_000_000, "how many tokens a token sees at most", 4096),
    "experts": Limit(0, 65_536, "routed experts of a block", 64),
    "experts_per_token": Limit(0, 65_536, "experts that serve one token", 8),
    "expert_ffn": Limit(0, 10_000_000, "the inner width of one expert", 1408),
    "shared_ffn": Limit(0, 10_000_000, "the inner width of the shared experts together", 2816),
    "dense_layers": Limit(0, 10_000, "blocks without experts", 1),
    "repeats": Limit(1, 10_000, "how often each stored block is applied", 12),
}

#: numbers that only configs have
FIELD_LIMITS: Mapping[str, Limit] = {
    "types": Limit(0, 1_000_000, "how many token types there are", 2),
    "buckets": Limit(1, 1_000_000, "how many distances are told apart", 32),
    "kernel": Limit(0, 10_000, "the width of the convolution, 0 without one", 3),
    "norms": Limit(1, 2, "how many norms a parallel block has", 2),
    "step": Limit(1, 10_000, "every how many layers it happens", 2),
    "index": Limit(0, 10_000, "the number of a layer, from 0", 1),
    "groups": Limit(1, 10_000, "how many groups of layers share a block", 1),
    "rank": Limit(0, 1_000_000, "the width of the latent vector", 512),
    "rotary_base": Limit(1, 10**15, "the base of rotary positions", 10_000),
    "shared_experts": Limit(0, 65_536, "experts that serve every token", 1),
}

#: a thousand times the largest model ever trained; sums of bytes still fit into 64 bits
MOST_PARAMETERS = 10**15


def limit_of(name: str) -> Limit:
    """What a number of a model or of its config may be."""
    return LIMITS.get(name) or FIELD_LIMITS[name]


def number_problem(name: str, value: object, *, field: str = "") -> Problem | None:
    """What is wrong with one number of a model; `field` is how the person wrote its name."""
    limit, shown = limit_of(name), field or name
    fix = f"write {limit.meaning}, a whole number such as {limit.example}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return Problem(f"'{shown}' is not a number", fix)
    if isinstance(value, float) and not value.is_integer():
        return Problem(f"'{shown}' is {value}, not a whole number", fix)
    if value < limit.least:
        return Problem(f"'{shown}' is {_short(value)}, below {limit.least}", fix)
    if value > limit.most:
        return Problem(f"'{shown}' is {_short(value)}, above {limit.most:,}", fix)
    return None


def shape_problems(model: Model) -> Iterator[Problem]:
    """What is wrong with the numbers of a model, each and together."""
    numbers = {name: getattr(model, name) for name in LIMITS}
    for name, value in numbers.items():
        problem = number_problem(name, value)
        if problem is not None:
            yield problem
    yield from relations(numbers)


def relations(numbers: Mapping[str, int]) -> Iterator[Problem]:
    """What numbers cannot be together; those that are absent are not looked at."""
    heads, kv_heads = numbers.get("heads", 0), numbers.get("kv_heads", 0)
    if heads >= 1 and kv_heads >= 1 and heads % kv_heads:
        yield Problem(
            f"{kv_heads} heads of keys and values do not divide {heads} heads",
            f"use {_divisors(heads)} for 'kv_heads'",
        )
    experts, used = numbers.get("experts"), numbers.get("experts_per_token")
    if experts and used is not None and used > experts:
        yield Problem(
            f"{used} experts per token, but there are {experts}",
            "use at most as many experts per token as there are experts",
        )
    if experts and used == 0:
        yield Problem("no expert serves a token", "use at least 1 for 'experts_per_token'")
    if experts and numbers.get("expert_ffn") == 0:
        yield Problem("experts without a width", "give the inner width of an expert")
    layers, dense = numbers.get("layers"), numbers.get("dense_layers", 0)
    if layers is not None and dense > layers + numbers.get("decoder_layers", 0):
        yield Problem(
            f"{dense} of {layers} layers are dense",
            "use at most as many dense layers as there are layers",
        )


def indivisible(hidden: int, heads: int) -> Problem:
    """The complaint about heads that do not share the hidden width evenly."""
    down, up = hidden // heads * heads, -(-hidden // heads) * heads
    near = f"{down:,} or {up:,}" if down else f"{up:,}"
    return Problem(
        f"a hidden width of {hidden:,} is not divisible by {heads} heads",
        f"use {near} for the width, {_divisors(hidden)} heads, or give the width of a head",
    )


def _divisors(number: int) -> str:
    """The largest few divisors of a number that people would choose, for messages."""
    found = [divisor for divisor in range(1, min(number, 256) + 1) if number % divisor == 0]
    shown = [str(divisor) for divisor in found[-4:]]
    return " or ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]


def _short(value: float) -> str:
    if abs(value) < 10**9:
        return f"{value:,}"
    # Past a float's range: nobody needs the digits of a slip.
    return f"{value:.3g}" if abs(value) < 10**300 else "a number of hundreds of digits"
