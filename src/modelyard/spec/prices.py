"""What devices cost: the prices that come with the package, or a file that replaces them.

A price file is a CSV table with the columns `kind`, `usd_per_hour` and, where spot instances can be
had, `spot_usd_per_hour`; other columns are left alone, lines that begin with `#` are comments.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping
from functools import cache

from modelyard.errors import InputError, Problem
from modelyard.spec.bundled import bundled_text
from modelyard.spec.devices import device
from modelyard.spec.pool import Price, Prices
from modelyard.spec.text_file import read_text

_PRICES_FILE = "prices.csv"
_KIND, _ON_DEMAND, _SPOT = "kind", "usd_per_hour", "spot_usd_per_hour"
_MOST_BYTES = 4 * 1024 * 1024
#: no device costs more; a larger number is in another currency or for a whole cluster
MOST_USD_PER_HOUR = 1e5
_PROBLEMS_SHOWN = 20
_EXAMPLE = "write for example\nkind,usd_per_hour,spot_usd_per_hour\nH100,2.50,1.10"


@cache
def shipped_prices() -> Prices:
    """The prices that come with the package; `prices.csv` says where they are from."""
    return parse_prices(bundled_text(_PRICES_FILE), _PRICES_FILE)


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """The prices of a user's file, or one `InputError` with all of its problems."""
    return parse_prices(read_text(path, _MOST_BYTES), os.fspath(path))


def parse_prices(text: str, source: str = "<string>") -> Prices:
    """The prices of CSV text, or one `InputError` with all of its problems."""
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        raise InputError("there is no price in it", fix=_EXAMPLE, where=source)
    rows = _rows([line for _, line in numbered], source)
    header, body = rows[0], rows[1:]
    names = [cell.strip().casefold() for cell in header]
    _check_header(names, source, numbered[0][0])
    prices: dict[str, Price] = {}
    problems: list[Problem] = []
    for (number, _), cells in zip(numbered[1:], body, strict=False):
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        try:
            kind, price = _price(row, source)
        except InputError as error:
            problems.extend(Problem(p.what, p.fix, source, number) for p in error.problems)
            continue
        if kind in prices:
            what = f"{kind} has two prices"
            problems.append(Problem(what, "keep one of them", source, number))
        prices[kind] = price
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        raise InputError(shown[0].what, fix=shown[0].fix, where=source, problems=shown)
    if not prices:
        raise InputError("there is no price in it", fix=_EXAMPLE, where=source)
    return prices


def _rows(lines: Iterable[str], source: str) -> list[list[str]]:
    try:
        # A quoted line break would shift every line number after it, and no price needs one.
        return [next(csv.reader([line], strict=True)) for line in lines]
    except csv.Error as error:
        raise InputError(f"not a CSV table: {error}", fix=_EXAMPLE, where=source) from error


def _check_header(names: list[str], source: str, line: int) -> None:
    problems = [
        Problem(f"the column '{name}' is missing", _EXAMPLE, source, line)
        for name in (_KIND, _ON_DEMAND)
        if name not in names
    ]
    problems += [
        Problem(f"the column '{name}' stands there twice", "remove one", source, line)
        for name in (_KIND, _ON_DEMAND, _SPOT)
        if names.count(name) > 1
    ]
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, where=source, problems=problems)


def _price(row: Mapping[str, str], source: str) -> tuple[str, Price]:
    problems: list[Problem] = []
    numbers: dict[str, float | None] = {}
    kind = ""
    try:
        kind = device(row.get(_KIND, "")).name
    except InputError as error:
        problems.extend(error.problems)
    for name in (_ON_DEMAND, _SPOT):
        try:
            numbers[name] = _usd(row.get(name, ""), name)
        except InputError as error:
            problems.extend(error.problems)
    if not problems and numbers[_ON_DEMAND] is None and numbers[_SPOT] is None:
        problems.append(Problem(f"{kind} has no price", "add one, or remove the line"))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    place = " ".join(part for part in (row.get("cloud"), row.get("instance")) if part)
    told = ", ".join(part for part in (place, row.get("date")) if part)
    return kind, Price(
        usd_per_hour=numbers[_ON_DEMAND], spot_usd_per_hour=numbers[_SPOT], source=told or source
    )


def _usd(text: str, column: str) -> float | None:
    cleaned = text.removeprefix("$").strip()
    if not cleaned:
        return None
    fix = "write US dollars per device and hour, as in 2.50"
    shown = cleaned if len(cleaned) < 40 else f"{cleaned[:30]}…"
    try:
        number = float(cleaned)
    except ValueError:
        raise InputError(f"'{shown}' in '{column}' is not a price", fix=fix) from None
    if not math.isfinite(number) or not 0.0 <= number <= MOST_USD_PER_HOUR:
        what = f"'{shown}' in '{column}' is not between 0 and {MOST_USD_PER_HOUR:,.0f} dollars"
        raise InputError(what, fix=fix)
    return number
