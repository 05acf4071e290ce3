"""The device catalogue: what makers publish about each accelerator, and what others measured.

The facts live in `devices.csv` beside this file, each row with its sources. A device is found by
its name or any alias, whatever the case, the punctuation and the maker's words around it:
`A100`, `h100`, `NVIDIA A100-SXM4-80GB` and `Tesla T4` all work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from modelyard.errors import InputError, UnknownName
from modelyard.spec.bundled import bundled_rows, bundled_text
from modelyard.units import parse_bandwidth, parse_bytes

TERA = 1e12
_NOT_SUPPORTED = "-"
_CATALOGUE_FILE = "devices.csv"

#: words that makers and drivers put around a product's name without changing what it is
_MAKERS_WORDS = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "instinct", "google", "intel", "aws", "huawei"}
)


class Precision(StrEnum):
    """Number formats in which a device multiplies matrices."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    NVFP4 = "nvfp4"


Rates = tuple[tuple[Precision, float], ...]


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of device. Rates are dense operations per second, without sparsity.

    A precision that is in neither `peak_flops` nor `unsupported` is one of which nobody
    published the rate. `memory_bandwidth` is in bytes per second.
    """

    name: str
    maker: str = ""
    aliases: tuple[str, ...] = ()
    peak_flops: Rates = ()
    unsupported: frozenset[Precision] = frozenset()
    memory_bytes: int | None = None
    memory_bandwidth: float | None = None
    #: the best rate anybody measured for one large matrix product
    matmul_flops: Rates = ()
    source: str = ""

    def peak(self, precision: Precision | str) -> float | None:
        """Published peak rate; None when it is unknown or the precision is not supported."""
        return dict(self.peak_flops).get(Precision(precision))

    def best_matmul(self, precision: Precision | str) -> float | None:
        """Best measured rate of a matrix product; None when nobody measured one."""
        return dict(self.matmul_flops).get(Precision(precision))

    @property
    def has_flash(self) -> bool:
        """Whether kernels of attention that never store its scores are usual on it.

        Those for NVIDIA's need Ampere or newer, with which its bf16 began.
        """
        return self.maker != "NVIDIA" or self.supports(Precision.BF16) is not False

    def supports(self, precision: Precision | str) -> bool | None:
        """Whether the hardware has this precision; None when nobody said."""
        if Precision(precision) in self.unsupported:
            return False
        return True if self.peak(precision) is not None else None


def device(name: str) -> Device:
    """The device of that name or alias; `UnknownName` with the nearest name otherwise."""
    found = find_device(name)
    if found is None:
        error = UnknownName("device", name, _suggestible_names())
        if error.fix:
            raise error
        raise InputError(error.message, fix="run 'yard devices' to see every name")
    return found


def find_device(name: str) -> Device | None:
    """The device of that name or alias, or None."""
    return _by_key().get(_key(name))


def kind_name(name: str) -> str:
    """The catalogue's spelling of a device kind; names it does not know stay as they are."""
    found = find_device(name)
    return found.name if found is not None else name


@cache
def catalogue() -> tuple[Device, ...]:
    """All known devices, in the order of the file: fastest family first within a maker."""
    return tuple(_device(row) for row in bundled_rows(_CATALOGUE_FILE))


@cache
def _by_key() -> Mapping[str, Device]:
    return {_key(name): item for item in catalogue() for name in (item.name, *item.aliases)}


@cache
def _suggestible_names() -> tuple[str, ...]:
    return tuple(name for item in catalogue() for name in (item.name, *item.aliases))


def _key(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return "".join(word for word in words if word not in _MAKERS_WORDS)


def _device(row: Mapping[str, str]) -> Device:
    return Device(
        name=row["name"],
        maker=row["maker"],
        aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
        peak_flops=_rates(row, ""),
        unsupported=frozenset(item for item in Precision if row[item] == _NOT_SUPPORTED),
        memory_bytes=parse_bytes(row["memory"]) if row["memory"] else None,
        memory_bandwidth=parse_bandwidth(row["bandwidth"]) if row["bandwidth"] else None,
        matmul_flops=_rates(row, "matmul_"),
        source=_sources(row["source"]),
    )


def _rates(row: Mapping[str, str], column_prefix: str) -> Rates:
    texts = ((item, row.get(f"{column_prefix}{item}", "")) for item in Precision)
    return tuple(
        (item, float(text) * TERA) for item, text in texts if text and text != _NOT_SUPPORTED
    )


@cache
def _legend() -> Mapping[str, str]:
    """The sources that the file's comments explain, by their letter."""
    sources: dict[str, str] = {}
    letter = ""
    for line in bundled_text(_CATALOGUE_FILE).splitlines():
        if start := re.fullmatch(r"# ([a-z]) = (.+)", line):
            letter = start.group(1)
            sources[letter] = start.group(2)
        elif letter and (more := re.fullmatch(r"#     (\S.*)", line)):
            sources[letter] += f" {more.group(1)}"
    return sources


def _sources(letters: str) -> str:
    return "; ".join(_legend()[letter] for letter in dict.fromkeys(letters.split()))
