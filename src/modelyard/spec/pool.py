"""Devices that a run could have: so many of one kind, at a price.

| written            | means                                                          |
|--------------------|----------------------------------------------------------------|
| `64xH100`          | up to 64 devices, in the usual machines of that kind            |
| `8..64xH100`       | at least 8 and up to 64                                        |
| `8x4xH100`         | up to 32 devices, 4 to a node                                  |
| `64xH100+32xA100`  | either kind; both in one run where the request allows mixing   |

Nothing here reads a file, because the planner must not; `pool_source` adds cluster files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelyard.errors import InputError, Problem
from modelyard.spec.devices import Device, device
from modelyard.spec.platform import Platform, platform

#: more than anybody has; a larger number is a typing mistake
MOST_DEVICES = 10_000_000
MOST_DEVICES_PER_NODE = 1_024
#: longer text is a mistake, and its numbers would be slow to read
_MOST_CHARACTERS = 1_000
_EXAMPLE = "write for example '64xH100', '8..64xH100', '8x8xH100' or '64xH100+32xA100'"

_TIMES = r"\s*[xX×*]\s*"
_KIND = r"([A-Za-z][\w .()/-]*?)"
# Kinds may contain an x (MI300X), which is why the numbers come first.
_PLAIN = re.compile(rf"\s*(?:(\d+)\s*\.\.\s*)?(\d+){_TIMES}{_KIND}\s*")
_NODES = re.compile(rf"\s*(?:(\d+)\s*\.\.\s*)?(\d+){_TIMES}(\d+){_TIMES}{_KIND}\s*")
_NEGATIVE = re.compile(r"\s*[-−]\s*\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one device costs per hour, in US dollars, and who says so."""

    usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    source: str = ""


#: prices by the catalogue's names of device kinds
Prices = Mapping[str, Price]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Up to `platform.devices` devices of one kind, and what they cost."""

    platform: Platform
    #: the fewest that a plan may use
    fewest: int = 1
    #: of one device on demand and as a spot instance; None when nobody said
    usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    #: where the prices come from
    price_source: str = ""

    @property
    def kind(self) -> str:
        return self.platform.device.name

    @property
    def most(self) -> int:
        """The most devices that a plan may use."""
        return self.platform.devices

    def price(self, *, spot: bool) -> float | None:
        """US dollars for one device and hour."""
        return self.spot_usd_per_hour if spot else self.usd_per_hour

    def resized(self, most: int) -> Pool:
        """The same devices, more or fewer of them."""
        fewer = replace(self.platform, devices=most)
        return replace(self, platform=fewer, fewest=min(self.fewest, most))

    def __str__(self) -> str:
        least = f"{self.fewest}.." if self.fewest > 1 else ""
        return f"{least}{self.most}x{self.kind}"


def parse_pools(text: str, prices: Prices | None = None) -> tuple[Pool, ...]:
    """The pools of a shorthand; parts of one kind add up. All problems are reported at once."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"devices of {len(text):,} characters are too long", fix=_EXAMPLE)
    found: dict[str, Pool] = {}
    problems: list[Problem] = []
    for part in text.split("+"):
        try:
            pool = _pool(part, text)
        except InputError as error:
            problems.extend(error.problems)
            continue
        found[pool.kind] = _sum(found[pool.kind], pool) if pool.kind in found else pool
    problems.extend(
        _too_many(pool.most, str(pool)) for pool in found.values() if pool.most > MOST_DEVICES
    )
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return tuple(priced(pool, prices or {}) for pool in found.values())


def priced(pool: Pool, prices: Prices) -> Pool:
    """The pool with the price of its kind, where there is one."""
    price = prices.get(pool.kind)
    if price is None:
        return pool
    return replace(
        pool,
        usd_per_hour=price.usd_per_hour,
        spot_usd_per_hour=price.spot_usd_per_hour,
        price_source=price.source,
    )


def pool_of(found: Device, platform_of_kind: Platform, *, fewest: int = 1) -> Pool:
    """A pool of a device of which enough is known to plan with it."""
    missing = [
        name
        for name, known in (
            ("arithmetic rates", bool(found.peak_flops)),
            ("the size of its memory", found.memory_bytes is not None),
            ("the bandwidth of its memory", found.memory_bandwidth is not None),
        )
        if not known
    ]
    if missing:
        what = f"nothing can be planned on '{found.name}': nobody gave {' and '.join(missing)}"
        raise InputError(what, fix="name a kind of 'yard devices', as in '64xH100'")
    return Pool(platform=platform_of_kind, fewest=fewest)


def _pool(part: str, whole: str) -> Pool:
    if _NEGATIVE.match(part):
        raise InputError(f"'{part.strip()}' is a negative number of devices", fix=_EXAMPLE)
    nodes, plain = _NODES.fullmatch(part), _PLAIN.fullmatch(part)
    if nodes is not None:
        fewest, first, second, kind = nodes.groups()
        per_node: int | None = _whole(second, part)
        count = _whole(first, part) * (per_node or 0)
        if not 1 <= (per_node or 0) <= MOST_DEVICES_PER_NODE:
            fix = f"use 1 to {MOST_DEVICES_PER_NODE:,} devices per node"
            raise InputError(f"'{part.strip()}' has {per_node:,} devices per node", fix=fix)
    elif plain is not None:
        fewest, first, kind = plain.groups()
        per_node, count = None, _whole(first, part)
    else:
        where = f"'{part.strip()}' in '{whole}'" if part != whole else f"'{whole}'"
        raise InputError(f"{where} is not a number of devices of a kind", fix=_EXAMPLE)
    least = _whole(fewest, part) if fewest else 1
    if count < 1 or least < 1:
        fix = f"ask for at least one, as in '8x{kind}'"
        raise InputError(f"'{part.strip()}' has no devices", fix=fix)
    if count > MOST_DEVICES:
        problem = _too_many(count, part.strip())
        raise InputError(problem.what, fix=problem.fix)
    if least > count:
        fix = f"exchange the two: '{count}..{least}x{kind}'"
        raise InputError(f"'{part.strip()}' asks for at least {least} of {count}", fix=fix)
    found = device(kind)
    return pool_of(found, platform(found, count, devices_per_node=per_node), fewest=least)


def _whole(digits: str, part: str) -> int:
    if len(digits) > len(str(MOST_DEVICES)) + 1:
        shown = part.strip() if len(part) < 40 else f"{part.strip()[:30]}…"
        problem = _too_many(None, shown)
        raise InputError(problem.what, fix=problem.fix)
    return int(digits)


def _too_many(count: int | None, part: str) -> Problem:
    number = f"{count:,}" if count is not None else "too many"
    return Problem(f"'{part}' has {number} devices", f"ask for at most {MOST_DEVICES:,}")


def _sum(one: Pool, other: Pool) -> Pool:
    if one.platform.devices_per_node != other.platform.devices_per_node:
        what = f"{one.kind} comes in nodes of {one.platform.devices_per_node} and of "
        what += f"{other.platform.devices_per_node}"
        raise InputError(what, fix="give one size of node for each kind")
    total = replace(one.platform, devices=one.most + other.most)
    return replace(one, platform=total, fewest=max(one.fewest, other.fewest))
