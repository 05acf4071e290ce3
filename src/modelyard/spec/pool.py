"""Devices that a run could have: so many of one kind, at a price."""

from __future__ import annotations

from dataclasses import dataclass

from modelyard.spec.platform import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Up to `platform.devices` devices of one kind, and what they cost."""

    platform: Platform
    #: the fewest that a plan may use
    fewest: int = 1
    #: of one device on demand and as a spot instance; None when nobody said
    usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None

    @property
    def kind(self) -> str:
        return self.platform.device.name

    @property
    def most(self) -> int:
        """The most devices that a plan may use."""
        return self.platform.devices
