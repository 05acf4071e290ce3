"""The same question about another world: `devices=+8xH100,deadline=3d`.

Words are those of `yard plan`; several are joined by commas. `devices` takes a whole new pool, or
begins with `+` or `-` for devices more or fewer. `none` takes a limit, a pin or a batch away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.plan.request import Objective, Pins, Request
from modelyard.plan.wording import software_named
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.pool import Pool, Prices, parse_pools
from modelyard.speed.physical.families import Style
from modelyard.units import parse_count, parse_duration

NONE = "none"
_MOST_CHARACTERS = 2_000
_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")
_Change = Callable[[Request, str], Request]


@dataclass(frozen=True, slots=True)
class _Word:
    apply: _Change
    example: str


def changed(request: Request, text: str, prices: Prices | None = None) -> Request:
    """The request with these changes; one `InputError` with everything that is wrong with them.

    `prices` are for kinds of devices that the request did not have.
    """
    if len(text) > _MOST_CHARACTERS:
        fix = "write for example devices=+8xH100"
        raise InputError(f"a change of {len(text):,} characters is too long", fix=fix)
    words = _words(prices or {})
    problems: list[Problem] = []
    seen: set[str] = set()
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = name.casefold().replace("-", "_").replace("global_batch", "batch")
        try:
            if name not in words:
                raise UnknownName("change", name, words)
            if not equals or not value:
                fix = f"write {name}={words[name].example}"
                raise InputError(f"'{name}' has no value", fix=fix)
            if name in seen:
                raise InputError(f"'{name}' is changed twice", fix="write it once")
            seen.add(name)
            request = words[name].apply(request, value)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return request


def _words(prices: Prices) -> Mapping[str, _Word]:
    return {
        "devices": _Word(lambda now, text: _devices(now, text, prices), "+8xH100"),
        "tokens": _Word(lambda now, text: replace(now, tokens=float(_count(text))), "300B"),
        "sequence": _Word(lambda now, text: replace(now, sequence=_count(text)), "2048"),
        "batch": _Word(
            lambda now, text: replace(
                now, global_batch=_or_none(text, _count), batch_tolerance=0.0
            ),
            "512",
        ),
        "precision": _Word(
            lambda now, text: replace(now, precision=_or_none(text, _one_of(Precision))), "bf16"
        ),
        "software": _Word(_software, "megatron"),
        "objective": _Word(
            lambda now, text: replace(now, objective=_one_of(Objective)(text)), "cost"
        ),
        "spot": _Word(lambda now, text: replace(now, spot=_flag(text)), "yes"),
        "mixed": _Word(lambda now, text: replace(now, mixed=_flag(text)), "yes"),
        "deadline": _limit("deadline_seconds", parse_duration, "3d"),
        "budget": _limit("budget_usd", _money, "20000"),
        "max_loss": _limit("most_loss", _positive, "2.1"),
        "memory_risk": _limit("memory_risk", _positive, "0.1"),
        "mtbf": _Word(
            lambda now, text: replace(
                now,
                reliability=replace(
                    now.reliability, device_mtbf_seconds=_or_none(text, parse_duration)
                ),
            ),
            "50000h",
        ),
        **{name: _pin(name) for name in _PIN_READERS},
    }


def _software(now: Request, text: str) -> Request:
    named = _or_none(text, software_named)
    return replace(now, software=Style.UNKNOWN if named is None else named)


def _devices(now: Request, text: str, prices: Prices) -> Request:
    known = {pool.kind: pool for pool in now.pools}
    sign = text[0] if text[0] in "+-−" else ""
    named = parse_pools(text[1:] if sign else text, prices)
    if not sign:
        return replace(now, pools=tuple(_like(pool, known.get(pool.kind)) for pool in named))
    for pool in named:
        have = known.get(pool.kind)
        more = pool.most if sign == "+" else -pool.most
        if have is None:
            if more < 0:
                kinds = " and ".join(known)
                what = f"there are no {pool.kind} to take {pool.most:,} away from"
                raise InputError(what, fix=f"the request has {kinds}")
            known[pool.kind] = pool
        elif have.most + more < 1:
            if len(known) == 1:
                what = f"{text} leaves no devices of {have.most:,} {pool.kind}"
                raise InputError(what, fix=f"take at most {have.most - 1:,} away")
            del known[pool.kind]
        else:
            known[pool.kind] = have.resized(have.most + more)
    return replace(now, pools=tuple(known.values()))


def _like(pool: Pool, known: Pool | None) -> Pool:
    """As many devices as were written, at the price and in the machines that are known."""
    if known is None:
        return pool
    return replace(known.resized(pool.most), fewest=pool.fewest)


def _limit(field: str, read: Callable[[str], float], example: str) -> _Word:
    def apply(now: Request, text: str) -> Request:
        value = _or_none(text, read)
        if value is None and field == "memory_risk":
            raise InputError("there is always some risk", fix="write memory_risk=0.1")
        moved: dict[str, Any] = {field: value}
        return replace(now, limits=replace(now.limits, **moved))

    return _Word(apply, example)


def _pin(name: str) -> _Word:
    def apply(now: Request, text: str) -> Request:
        read, _ = _PIN_READERS[name]
        # "none" is also a way to shard and to recompute: there it means just that.
        named = name in ("sharding", "recompute")
        value = read(text) if named else _or_none(text, read)
        pinned: dict[str, Any] = {name: value}
        return replace(now, pins=replace(now.pins, **pinned))

    return _Word(apply, _PIN_READERS[name][1])


def _or_none(text: str, read: Callable[[str], _Value]) -> _Value | None:
    return None if text.casefold() == NONE else read(text)


def _count(text: str) -> int:
    number = parse_count(text)
    if number < 1:
        raise InputError(f"'{text}' is too few", fix="write 1 or more")
    return number


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise InputError(f"'{text[:40]}' is not a number above 0", fix="write for example 2.1")
    return number


def _money(text: str) -> float:
    return float(parse_count(text.removeprefix("$")))


def _flag(text: str) -> bool:
    if text.casefold() in ("yes", "true", "on", "1"):
        return True
    if text.casefold() in ("no", "false", "off", "0"):
        return False
    raise InputError(f"'{text[:40]}' is neither yes nor no", fix="write yes or no")


def _one_of(choices: type[_Choice]) -> Callable[[str], _Choice]:
    def read(text: str) -> _Choice:
        try:
            return choices(text.casefold())
        except ValueError:
            raise UnknownName("choice", text[:40], [item.value for item in choices]) from None

    return read


_PIN_READERS: Mapping[str, tuple[Callable[[str], object], str]] = {
    **{
        field.name: (_count, "8")
        for field in fields(Pins)
        if field.name not in ("sharding", "recompute", "sequence_parallel", "flash", "compiled")
    },
    "sharding": (_one_of(Sharding), "zero3"),
    "recompute": (_one_of(Recompute), "full"),
    "sequence_parallel": (_flag, "yes"),
    "flash": (_flag, "yes"),
    "compiled": (_flag, "yes"),
}
