"""Amounts as people write them: memory, bandwidth, arithmetic rates, durations, counts.

Parsing is exact (decimal arithmetic, no binary rounding) and refuses what could be read in two
ways, such as `80 Gb`. Printing is for people and keeps four significant digits; reading back
what was printed gives the same amount to within that rounding, and prints the same again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from modelyard.errors import InputError

#: no amount in this field needs more; longer text is a mistake or an attack on the parser
MOST_CHARACTERS = 64

#: far above anything real, and within the 28 digits that decimal arithmetic keeps exactly
LARGEST = Decimal(10) ** 24

SIGNIFICANT_DIGITS = 4

_DECIMAL_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

_FACTOR: Mapping[str, int] = {
    **{prefix.lower(): 1000**power for power, prefix in enumerate(_DECIMAL_PREFIXES)},
    **{prefix.lower(): 1024**power for power, prefix in enumerate(_BINARY_PREFIXES)},
}

_COUNT_SUFFIXES: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "b": 10**9,
    "g": 10**9,
    "t": 10**12,
}

_SECONDS_MS = Decimal("0.001")
_SECONDS: Mapping[str, Decimal] = {
    name: Decimal(seconds)
    for names, seconds in (
        (("ms",), _SECONDS_MS),
        (("s", "sec", "secs", "second", "seconds"), 1),
        (("m", "min", "mins", "minute", "minutes"), 60),
        (("h", "hr", "hrs", "hour", "hours"), 3_600),
        (("d", "day", "days"), 86_400),
        (("w", "week", "weeks"), 604_800),
    )
    for name in names
}

_NUMBER = r"\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z][A-Za-z/]*)?\s*")
# No exponent here: in "2e3s" nobody can tell a number from a unit at a glance.
_DURATION_PART = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_MEMORY_UNIT = re.compile(r"([kmgtpe]i?)?(b|bytes?)?", re.IGNORECASE)
_BANDWIDTH_UNIT = re.compile(r"([kmgtpe]i?)?(b|bytes?|bits?)(?:/s|/sec|ps)", re.IGNORECASE)
_RATE_UNIT = re.compile(r"([kmgtpe])?(?:flops?(?:/s)?|ops(?:/s)?)?", re.IGNORECASE)


def parse_bytes(value: str | int | float) -> int:
    """Memory in bytes from `80 GB` (decimal), `16GiB` (binary) or a plain number of bytes."""
    example = "write for example '80 GB' or '16 GiB'"
    number, unit = _split(value, "an amount of memory", example)
    match = _MEMORY_UNIT.fullmatch(unit)
    if match is None:
        raise _refuse(value, f"has an unknown unit of memory '{unit}'", example)
    prefix, noun = match.group(1) or "", match.group(2) or ""
    if noun == "b" and prefix != prefix.lower():
        raise _refuse(value, "could mean bits", "write 'B' for bytes, as in '80 GB'")
    return _whole(value, number * _FACTOR[prefix.lower()], "number of bytes", example)


def parse_bandwidth(value: str | int | float) -> float:
    """Bytes per second from `900 GB/s`, `100 Gbit/s`, `100 Gbps` or a plain number of bytes/s."""
    example = "write for example '900 GB/s' or '100 Gbit/s'"
    number, unit = _split(value, "a bandwidth", example)
    if not unit:
        return float(number)
    match = _BANDWIDTH_UNIT.fullmatch(unit)
    if match is None:
        raise _refuse(value, f"has an unknown unit of bandwidth '{unit}'", example)
    prefix, noun = match.group(1) or "", match.group(2)
    if noun == "b" and unit == unit.lower() and not unit.endswith("ps"):
        raise _refuse(value, "could mean bits or bytes", "write 'GB/s' or 'Gbit/s'")
    is_bits = noun == "b" or noun.lower().startswith("bit")
    return float(number * _FACTOR[prefix.lower()] / (8 if is_bits else 1))


def parse_flops(value: str | int | float) -> float:
    """Operations per second from `312 TFLOP/s`, `312T` or a plain number."""
    example = "write for example '312 TFLOP/s'"
    number, unit = _split(value, "an arithmetic rate", example)
    match = _RATE_UNIT.fullmatch(unit)
    if match is None:
        raise _refuse(value, f"has an unknown unit '{unit}'", example)
    return float(number * _FACTOR[(match.group(1) or "").lower()])


def parse_duration(value: str | int | float) -> float:
    """Seconds from `90s`, `2h30m`, `1.5d`, `250ms` or a plain number of seconds."""
    example = "write for example '90s', '2h30m' or '1.5d'"
    text = _text(value, "a duration", example)
    if re.fullmatch(rf"\s*{_NUMBER}\s*", text):
        return float(_number(value, text, example))
    if ":" in text:
        raise _refuse(value, "could mean hours or minutes", "write for example '1h30m'")
    total, used, end = Decimal(0), set[Decimal](), 0
    while end < len(text):
        part = _DURATION_PART.match(text, end)
        if part is None:
            raise _refuse(value, "is not a duration", example)
        seconds = _SECONDS.get(part.group(2).lower())
        if seconds is None:
            raise _refuse(value, f"has an unknown unit of time '{part.group(2)}'", example)
        if seconds in used:
            raise _refuse(value, f"names the unit '{part.group(2)}' twice", example)
        used.add(seconds)
        total += _number(value, part.group(1), example) * seconds
        end = part.end()
    if not used:
        raise _refuse(value, "is not a duration", example)
    return float(total)


def parse_count(value: str | int | float) -> int:
    """A whole number from `1.5k`, `3M`, `7B`, `2T`, `1e9` or `12,000`."""
    example = "write a whole number, for example '12000', '1.5k', '3M' or '7B'"
    number, unit = _split(value, "a count", example)
    factor = _COUNT_SUFFIXES.get(unit.lower())
    if factor is None:
        raise _refuse(value, f"has an unknown suffix '{unit}'", example)
    return _whole(value, number * factor, "number", example)


def format_bytes(size_bytes: float, *, binary: bool = False) -> str:
    """`80 GB`, or `80 GiB` when `binary`."""
    prefixes = _BINARY_PREFIXES if binary else _DECIMAL_PREFIXES
    return _scaled(size_bytes, prefixes, 1024 if binary else 1000, "B", gap=" ")


def format_bandwidth(bytes_per_second: float) -> str:
    """`900 GB/s`."""
    return _scaled(bytes_per_second, _DECIMAL_PREFIXES, 1000, "B/s", gap=" ")


def format_flops(flops: float) -> str:
    """`312 TFLOP/s`."""
    return _scaled(flops, _DECIMAL_PREFIXES, 1000, "FLOP/s", gap=" ")


def format_count(count: float) -> str:
    """`950`, `1.5k`, `3M`, `7B`, `2T`."""
    return _scaled(count, ("", "k", "M", "B", "T"), 1000, "", gap="")


#: (large unit, its seconds, small unit, its seconds, print in the next unit from here on)
_DURATION_STEPS = (
    ("m", 60, "s", 1, 3_600.0),
    ("h", 3_600, "m", 60, 86_400.0),
    ("d", 86_400, "h", 3_600, float("inf")),
)


def format_duration(seconds: float) -> str:
    """The two largest units: `90ms`, `1.25s`, `2m5s`, `2h30m`, `4d6h`; `0s` below a microsecond."""
    _check_printable(seconds)
    if seconds < 0.9999995:
        milliseconds = _short(seconds * 1000)
        return "0s" if milliseconds == "0" else f"{milliseconds}ms"
    if seconds < 59.995:
        return f"{_short(seconds)}s"
    text = ""
    for large, large_seconds, small, small_seconds, limit_seconds in _DURATION_STEPS:
        whole, rest = divmod(round(seconds / small_seconds), large_seconds // small_seconds)
        text = f"{whole}{large}{rest}{small}" if rest else f"{whole}{large}"
        # Decide on the rounded amount, so that 59m59.9s prints as 1h and not as 60m.
        if whole * large_seconds < limit_seconds:
            break
    return text


def _split(value: object, noun: str, example: str) -> tuple[Decimal, str]:
    text = _text(value, noun, example)
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise _refuse(value, f"is not {noun}", example)
    return _number(value, match.group(1), example), match.group(2) or ""


def _text(value: object, noun: str, example: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"expected {noun}, found {describe(value)}", fix=example)
    text = str(value)
    if re.match(r"\s*-\s*\d", text):
        raise _refuse(value, "is negative", example)
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{noun} of {len(text)} characters is too long", fix=example)
    return text


def _number(value: object, digits: str, example: str) -> Decimal:
    number = Decimal(digits.strip().replace("_", "").replace(",", ""))
    if number > LARGEST:
        raise _refuse(value, "is too large", example)
    return number


def _whole(value: object, number: Decimal, noun: str, example: str) -> int:
    if number > LARGEST:
        raise _refuse(value, "is too large", example)
    if number != number.to_integral_value():
        raise _refuse(value, f"is not a whole {noun}", example)
    return int(number)


def describe(value: object) -> str:
    """What sort of value this is, in the words of somebody who writes YAML."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    for kinds, words in (
        (str, "text"),
        ((int, float), "a number"),
        ((list, tuple), "a list"),
        (dict, "a mapping"),
    ):
        if isinstance(value, kinds):
            return words
    return f"a {type(value).__name__}"


def _refuse(value: object, complaint: str, fix: str) -> InputError:
    return InputError(f"'{value}' {complaint}", fix=fix)


def _scaled(amount: float, prefixes: tuple[str, ...], step: int, noun: str, *, gap: str) -> str:
    _check_printable(amount)
    value, prefix = float(amount), prefixes[0]
    for prefix in prefixes:
        # Compare after rounding, so that 999.96 MB prints as 1 GB and not as 1000 MB.
        if float(_short(value)) < step or prefix == prefixes[-1]:
            break
        value /= step
    return f"{_short(value)}{gap}{prefix}{noun}".rstrip()


def _short(value: float) -> str:
    whole_digits = len(str(int(value)))
    text = f"{value:.{max(SIGNIFICANT_DIGITS - whole_digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _check_printable(amount: float) -> None:
    if not 0 <= amount < float("inf"):
        raise InputError(f"cannot print {amount} as an amount", fix="amounts are 0 or larger")


def counted(number: int, noun: str) -> str:
    """`1 job`, `1,200 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
