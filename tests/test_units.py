"""Amounts with units: exact to read, short to print, and never read in two ways."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.units import (
    describe,
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration,
    format_flops,
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_flops,
)

#: four significant digits: half a unit of the fourth
PRINTED_PRECISION = 5e-4

ALL_PARSERS = [parse_bytes, parse_bandwidth, parse_flops, parse_duration, parse_count]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("80 GB", 80 * 10**9),
        ("16GiB", 16 * 2**30),
        ("80gb", 80 * 10**9),
        ("1.5 TB", 1_500_000_000_000),
        ("512Mi", 512 * 2**20),
        ("0.1 KB", 100),
        ("7 bytes", 7),
        ("12_000", 12_000),
        (4096, 4096),
        (1e9, 10**9),
        (0, 0),
    ],
)
def test_bytes_are_read(text: str | float, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("900 GB/s", 900e9),
        ("100 Gbit/s", 12.5e9),
        ("100Gbps", 12.5e9),
        ("100 gbps", 12.5e9),
        ("25 Gb/s", 25e9 / 8),
        ("16 GBps", 16e9),
        ("1.6 Tbit/s", 200e9),
        ("2 GiB/s", 2 * 2**30),
        (12.5e9, 12.5e9),
    ],
)
def test_bandwidth_is_read(text: str | float, bytes_per_second: float) -> None:
    assert parse_bandwidth(text) == bytes_per_second


@pytest.mark.parametrize(
    ("text", "flops"),
    [("312 TFLOP/s", 312e12), ("312T", 312e12), ("2.5 PFLOPS", 2.5e15), ("130 TOPS", 130e12)],
)
def test_flops_are_read(text: str, flops: float) -> None:
    assert parse_flops(text) == flops


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2h30m", 9_000),
        ("2 h 30 min", 9_000),
        ("1.5d", 129_600),
        ("250ms", 0.25),
        ("1w", 604_800),
        ("1 hour 1 second", 3_601),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        ("1e3", 1000),
    ],
)
def test_durations_are_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1.5k", 1500),
        ("3M", 3 * 10**6),
        ("7B", 7 * 10**9),
        ("2T", 2 * 10**12),
        ("1e9", 10**9),
        ("12,000", 12000),
        (256, 256),
        ("2.3k", 2300),
        (1000000.0, 10**6),
    ],
)
def test_counts_are_read(text: str | float, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("parse", "value", "complaint"),
    [
        (parse_bytes, "80 Gb", "could mean bits"),
        (parse_bytes, "80 GX", "unknown unit of memory 'GX'"),
        (parse_bytes, "0.5", "not a whole number of bytes"),
        (parse_bandwidth, "100 gb/s", "could mean bits or bytes"),
        (parse_bandwidth, "100 Gbit", "unknown unit of bandwidth 'Gbit'"),
        (parse_flops, "3 TB", "unknown unit 'TB'"),
        (parse_duration, "1:30", "could mean hours or minutes"),
        (parse_duration, "3 fortnights", "unknown unit of time 'fortnights'"),
        (parse_duration, "1h2h", "names the unit 'h' twice"),
        (parse_duration, "h", "not a duration"),
        (parse_count, "1.5", "not a whole number"),
        (parse_count, "3x", "unknown suffix 'x'"),
    ],
)
def test_what_is_wrong_or_ambiguous_is_refused(
    parse: Callable[[str], float], value: str, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        parse(value)
    assert "write" in caught.value.fix


@pytest.mark.parametrize("parse", ALL_PARSERS)
@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "many",
        "-1",
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        {},
        "1e999",
        "9" * 200,
        "9" * 60,
        "1 2",
        "1..2",
        "\n",
        "①",
    ],
)
def test_no_parser_accepts_nonsense(parse: Callable[[object], float], value: object) -> None:
    with pytest.raises(InputError) as caught:
        parse(value)
    assert caught.value.fix


@given(st.text(max_size=80))
@pytest.mark.parametrize("parse", ALL_PARSERS)
def test_any_text_is_read_or_refused_clearly(parse: Callable[[str], float], text: str) -> None:
    try:
        amount = parse(text)
    except InputError:
        return
    assert 0 <= amount < math.inf


@given(st.integers(0, 10**21), st.booleans())
@example(999_960_000, False)
@example(1023 * 1024 + 1023, True)
def test_printed_bytes_read_back(size_bytes: int, binary: bool) -> None:
    printed = format_bytes(size_bytes, binary=binary)
    again = parse_bytes_leniently(printed)
    assert again == pytest.approx(size_bytes, rel=PRINTED_PRECISION)
    assert format_bytes(again, binary=binary) == printed


def parse_bytes_leniently(printed: str) -> float:
    """Printing rounds, so `1.001 KiB` need not be whole bytes; bandwidth has no such rule."""
    return parse_bandwidth(f"{printed}/s")


@given(st.floats(1, 1e21))
def test_printed_bandwidth_reads_back(bytes_per_second: float) -> None:
    printed = format_bandwidth(bytes_per_second)
    assert parse_bandwidth(printed) == pytest.approx(bytes_per_second, rel=PRINTED_PRECISION)
    assert format_bandwidth(parse_bandwidth(printed)) == printed


@given(st.floats(1, 1e21))
def test_printed_flops_read_back(flops: float) -> None:
    printed = format_flops(flops)
    assert parse_flops(printed) == pytest.approx(flops, rel=PRINTED_PRECISION)
    assert format_flops(parse_flops(printed)) == printed


@given(st.integers(0, 10**18))
def test_printed_counts_read_back(count: int) -> None:
    printed = format_count(count)
    assert parse_count(printed) == pytest.approx(count, rel=PRINTED_PRECISION)
    assert format_count(parse_count(printed)) == printed


@given(st.floats(0, 1e10))
@example(59.996)
@example(3599.7)
@example(86_399.0)
@example(0.9999999)
def test_printed_durations_read_back(seconds: float) -> None:
    printed = format_duration(seconds)
    again = parse_duration(printed)
    # Two units are kept: half of the smaller one is lost at most, under 1/48 of the larger.
    assert again == pytest.approx(seconds, rel=1 / 48, abs=1e-6)
    assert format_duration(again) == printed


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0, "0s"),
        (0.0125, "12.5ms"),
        (1.25, "1.25s"),
        (60, "1m"),
        (125, "2m5s"),
        (9_000, "2h30m"),
        (366_465, "4d6h"),
    ],
)
def test_durations_print_their_two_largest_units(seconds: float, printed: str) -> None:
    assert format_duration(seconds) == printed


def test_amounts_print_short() -> None:
    assert format_bytes(80 * 2**30, binary=True) == "80 GiB"
    assert format_bytes(999_960_000) == "1 GB"
    assert format_bandwidth(12.5e9) == "12.5 GB/s"
    assert format_flops(312e12) == "312 TFLOP/s"
    assert format_count(7_240_000_000) == "7.24B"


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_what_is_no_amount_is_not_printed(amount: float) -> None:
    for print_amount in (format_bytes, format_bandwidth, format_count, format_duration):
        with pytest.raises(InputError):
            print_amount(amount)


def test_values_are_described_in_words_of_yaml() -> None:
    values: tuple[object, ...] = (None, True, "a", 1, 1.5, [], (), {}, {1})
    words = ["nothing", "true or false", "text", "a number", "a number", "a list", "a list"]
    assert [describe(value) for value in values] == [*words, "a mapping", "a set"]
