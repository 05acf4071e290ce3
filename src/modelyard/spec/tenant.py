"""Tenants as people write them: who is guaranteed how much, and how much they may borrow."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from modelyard.errors import InputError
from modelyard.spec.band import Band
from modelyard.spec.fields import SPEC_CONFIG, Name, Number
from modelyard.spec.problems import Finding, Inconsistent, validate
from modelyard.spec.source import Document, parse_document, read_document
from modelyard.units import describe

#: shares are written with few digits: three thirds of 33.4 % are not a mistake worth refusing
SHARE_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Share:
    """So many devices, or a fraction of all devices; exactly one of the two is set."""

    devices: int | None = None
    fraction: float | None = None

    def of(self, total_devices: int) -> int:
        """The share of a cluster in whole devices, rounded down."""
        if self.devices is not None:
            return self.devices
        # 0.29 × 100 is 28.999…: the small addition keeps whole results whole.
        return int((self.fraction or 0.0) * total_devices + 1e-9)

    def __str__(self) -> str:
        if self.devices is not None:
            return f"{self.devices} devices"
        return f"{100 * (self.fraction or 0.0):g}%"


def parse_share(value: object) -> Share:
    """`16` is 16 devices; `50%` and `0.5` are half of all devices."""
    fix = "write a number of devices such as 16, or a part such as 50%"
    if isinstance(value, Share):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Share(devices=value)
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            percent = float(value.strip().removesuffix("%"))
        except ValueError:
            raise InputError(f"'{value}' is not a percentage", fix=fix) from None
        if 0 <= percent <= 100:
            return Share(fraction=percent / 100)
    if isinstance(value, float) and 0 <= value <= 1:
        return Share(fraction=value)
    found = f"'{value}'" if isinstance(value, (str, int, float)) else describe(value)
    raise InputError(f"{found} is not a share", fix=fix)


ShareField = Annotated[
    Share, BeforeValidator(parse_share, json_schema_input_type=int | float | str)
]


class TenantSpec(BaseModel):
    """A team that shares the yard."""

    model_config = SPEC_CONFIG

    name: Name = Field(description="what jobs write as their tenant")
    guaranteed: ShareField = Field(
        default=Share(devices=0),
        # The schema describes what people write, and nobody writes a Share.
        json_schema_extra={"default": 0},
        description="what the tenant gets whenever it asks: devices (16) or a part (50%)",
    )
    maximum: ShareField | None = Field(
        default=None,
        description="the most it may hold when others are idle: devices or a part; none by default",
    )
    band: Band = Field(default=Band.BATCH, description="the highest band in which its jobs may run")
    weight: Number = Field(
        default=1.0, gt=0, description="its part of what nobody is guaranteed, against the others"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        low, high = self.guaranteed, self.maximum
        if high is not None and (
            (low.devices or 0) > (high.devices if high.devices is not None else float("inf"))
            or (low.fraction or 0.0) > (high.fraction if high.fraction is not None else 1.0)
        ):
            what = f"the guarantee of {low} is more than the maximum of {high}"
            raise Inconsistent([Finding(("guaranteed",), what, "lower it, or raise 'maximum'")])
        return self


class TenantsSpec(BaseModel):
    """All tenants of a yard."""

    model_config = SPEC_CONFIG

    tenants: tuple[TenantSpec, ...] = Field(
        min_length=1, description="the teams that share the yard, one entry each"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if findings := tuple(self._findings()):
            raise Inconsistent(findings)
        return self

    def _findings(self) -> Iterator[Finding]:
        seen: Counter[str] = Counter()
        for index, tenant in enumerate(self.tenants):
            seen[tenant.name] += 1
            if seen[tenant.name] == 2:
                what = f"the tenant '{tenant.name}' is there twice"
                yield Finding(("tenants", index, "name"), what, "rename or remove one")
        promised = sum(tenant.guaranteed.fraction or 0.0 for tenant in self.tenants)
        if promised > 1 + SHARE_TOLERANCE:
            what = f"the guarantees add up to {100 * promised:g}% of the cluster"
            yield Finding(("tenants",), what, "lower them to 100% or less")


def read_tenants(path: str | os.PathLike[str]) -> tuple[TenantSpec, ...]:
    """The tenants of a YAML file, or one `InputError` with all of its problems."""
    return _tenants(read_document(path))


def parse_tenants(text: str, source: str = "<string>") -> tuple[TenantSpec, ...]:
    """The tenants of YAML text, or one `InputError` with all of its problems."""
    return _tenants(parse_document(text, source))


def _tenants(document: Document) -> tuple[TenantSpec, ...]:
    return validate(document, TenantsSpec).tenants
