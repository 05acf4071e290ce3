"""The machines of a run: a device, how many share a node, and the links between them.

A cluster file says what its links can do. Where only a kind and a number are known, `platform`
takes the usual machine of that kind from `links.csv` beside this file: an eight-GPU server with the
network that its maker recommends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from modelyard.spec.bundled import bundled_rows
from modelyard.spec.devices import Device, device
from modelyard.units import parse_bandwidth, parse_duration

_LINKS_FILE = "links.csv"
#: the row for kinds that have none of their own
_ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """`devices` equal devices in equal nodes. Bandwidths are bytes per second, one direction."""

    device: Device
    devices: int
    devices_per_node: int
    #: of one device to the others of its node (NVLink, xGMI, PCIe, ICI)
    inside_bandwidth: float
    #: of one node to the others, all of its adapters together
    across_bandwidth: float
    #: seconds for one message, start to end
    inside_latency: float
    across_latency: float

    @property
    def nodes(self) -> int:
        return -(-self.devices // self.devices_per_node)

    @property
    def across_per_device(self) -> float:
        """What one device has of its node's network when all of them send."""
        return self.across_bandwidth / self.devices_per_node


@dataclass(frozen=True, slots=True)
class _Links:
    devices_per_node: int
    inside_bandwidth: float
    across_bandwidth: float
    inside_latency: float
    across_latency: float


def platform(
    kind: str | Device,
    devices: int,
    *,
    devices_per_node: int | None = None,
    inside_bandwidth: float | None = None,
    across_bandwidth: float | None = None,
) -> Platform:
    """The usual machine of a kind, with what the caller knows better in place of it."""
    found = kind if isinstance(kind, Device) else device(kind)
    links = _usual().get(found.name, _usual()[_ANY])
    per_node = devices_per_node or links.devices_per_node
    if inside_bandwidth is None:
        inside_bandwidth = links.inside_bandwidth
    if across_bandwidth is None:
        # Adapters come with devices: half the usual node has half the usual network.
        across_bandwidth = links.across_bandwidth * per_node / links.devices_per_node
    return Platform(
        device=found,
        devices=devices,
        devices_per_node=per_node,
        inside_bandwidth=inside_bandwidth,
        across_bandwidth=across_bandwidth,
        inside_latency=links.inside_latency,
        across_latency=links.across_latency,
    )


@cache
def _usual() -> Mapping[str, _Links]:
    return {
        row["kind"]: _Links(
            devices_per_node=int(row["devices_per_node"]),
            inside_bandwidth=parse_bandwidth(row["inside"]),
            across_bandwidth=parse_bandwidth(row["across"]),
            inside_latency=parse_duration(row["inside_latency"]),
            across_latency=parse_duration(row["across_latency"]),
        )
        for row in bundled_rows(_LINKS_FILE)
    }
