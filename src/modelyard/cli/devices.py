"""`yard devices`: the catalogue of accelerators, or everything about one of them."""

from __future__ import annotations

from typing import Any

import click

from modelyard.cli.output import output_option, print_json, print_table
from modelyard.spec.devices import TERA, Device, Precision, catalogue, device
from modelyard.units import format_bandwidth, format_bytes, format_flops

#: The precisions that tell devices apart at a glance; `yard devices NAME` shows all.
COLUMNS = (Precision.FP32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.FP4)

UNKNOWN = "?"
NOT_SUPPORTED = "-"
LEGEND = (
    f"Rates are dense TFLOP/s. {UNKNOWN} = nobody published it, {NOT_SUPPORTED} = not supported.\n"
    "Everything about one device, with sources: yard devices NAME"
)


@click.command()
@click.argument("name", required=False)
@output_option
def devices(name: str | None, output: str) -> None:
    """Show the accelerators that the yard knows, or all about the one called NAME.

    Case, punctuation and the maker's name do not matter: A100, h100 and "Tesla T4" all work.
    """
    if name is None:
        known = catalogue()
        if output == "json":
            print_json([as_json(item) for item in known])
        else:
            print_catalogue(known)
        return
    found = device(name)
    if output == "json":
        print_json(as_json(found))
    else:
        print_device(found)


def as_json(item: Device) -> dict[str, Any]:
    """A device for programs: unknown figures are null, unknown rates are absent."""
    return {
        "name": item.name,
        "maker": item.maker,
        "aliases": list(item.aliases),
        "memory_bytes": item.memory_bytes,
        "memory_bandwidth_bytes_per_second": item.memory_bandwidth,
        "peak_flops": {str(precision): rate for precision, rate in item.peak_flops},
        "matmul_flops": {str(precision): rate for precision, rate in item.matmul_flops},
        "unsupported": sorted(str(precision) for precision in item.unsupported),
        "source": item.source,
    }


def print_catalogue(known: tuple[Device, ...]) -> None:
    """One line per device."""
    numbers = ("memory", "bandwidth", *COLUMNS)
    print_table(
        ("device", "maker", *numbers),
        [
            (
                item.name,
                item.maker,
                _memory(item),
                _bandwidth(item),
                *(_teraflops(item, precision) for precision in COLUMNS),
            )
            for item in known
        ],
        numbers=numbers,
    )
    click.echo(LEGEND)


def print_device(item: Device) -> None:
    """Everything about one device, one fact per line."""
    facts = [
        ("device", f"{item.maker} {item.name}".strip()),
        ("also called", ", ".join(item.aliases)),
        ("memory", _memory(item)),
        ("memory bandwidth", _bandwidth(item)),
        *((f"peak {precision}", _rate(item, precision)) for precision in Precision),
        *(
            (f"measured {precision}", f"{format_flops(rate)}, best matrix product")
            for precision, rate in item.matmul_flops
        ),
        ("source", item.source),
    ]
    width = max(len(label) for label, _ in facts)
    for label, text in facts:
        if text:
            click.echo(f"{label:<{width}}  {text}")


def _memory(item: Device) -> str:
    return UNKNOWN if item.memory_bytes is None else format_bytes(item.memory_bytes, binary=True)


def _bandwidth(item: Device) -> str:
    return UNKNOWN if item.memory_bandwidth is None else format_bandwidth(item.memory_bandwidth)


def _teraflops(item: Device, precision: Precision) -> str:
    rate = item.peak(precision)
    if rate is None:
        return NOT_SUPPORTED if item.supports(precision) is False else UNKNOWN
    return f"{rate / TERA:,.1f}".removesuffix(".0")


def _rate(item: Device, precision: Precision) -> str:
    rate = item.peak(precision)
    if rate is not None:
        return format_flops(rate)
    return "not supported" if item.supports(precision) is False else "not published"
