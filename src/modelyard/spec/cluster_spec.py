"""A cluster as people write it: groups of equal nodes, where they stand, how they are linked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from modelyard.errors import UnknownName
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import Device, Precision, device, find_device
from modelyard.spec.fields import (
    SPEC_CONFIG,
    ByteCount,
    BytesPerSecond,
    Flops,
    Text,
    WholeNumber,
)
from modelyard.spec.problems import Finding, Inconsistent, validate
from modelyard.spec.shorthand import MOST_DEVICES_PER_NODE, MOST_NODES, numbered
from modelyard.spec.source import parse_document, read_document

#: levels of the network above a node, outermost first: the order of `Node.path`
LEVELS = ("datacentre", "pod", "rack")


class DeviceSpec(BaseModel):
    """A device kind: only the name of one in the catalogue, or a new one with its facts."""

    model_config = SPEC_CONFIG

    name: Text = Field(description="the kind; a catalogue name when nothing else is given")
    memory: ByteCount | None = Field(
        default=None, description="memory of one device, for example '24 GiB'"
    )
    memory_bandwidth: BytesPerSecond | None = Field(
        default=None, description="speed of that memory, for example '600 GB/s'"
    )
    peak: Mapping[Precision, Flops] = Field(
        default={},
        description="dense operations per second by precision, for example {bf16: 125 TFLOP/s}",
    )
    source: Text | None = Field(default=None, description="where the figures come from")

    @property
    def is_custom(self) -> bool:
        """Whether any fact is given, which makes the name a new kind."""
        return bool(self.memory or self.memory_bandwidth or self.peak)

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if self.is_custom:
            if find_device(self.name) is not None:
                what = f"'{self.name}' is in the catalogue, with figures of its own"
                raise Inconsistent([Finding(("name",), what, "give this device another name")])
            return self
        try:
            device(self.name)
        except UnknownName as error:
            fix = error.fix or "give its 'memory' and 'peak' to define a new kind"
            raise Inconsistent([Finding(("name",), error.message, fix)]) from error
        return self

    def resolve(self) -> Device:
        """The catalogue's device, or the new one."""
        if not self.is_custom:
            return device(self.name)
        return Device(
            name=self.name,
            peak_flops=tuple(self.peak.items()),
            memory_bytes=self.memory,
            memory_bandwidth=self.memory_bandwidth,
            source=self.source or "",
        )


class LinkSpec(BaseModel):
    """Bandwidths between devices, nearest first; what is left out is unknown."""

    model_config = SPEC_CONFIG

    inside_node: BytesPerSecond | None = Field(
        default=None, description="between two devices of a node, for example '300 GB/s'"
    )
    across_nodes: BytesPerSecond | None = Field(
        default=None, description="from a node to its network, for example '100 Gbit/s'"
    )
    across_racks: BytesPerSecond | None = Field(
        default=None, description="from a rack to the network above it"
    )
    across_pods: BytesPerSecond | None = Field(
        default=None, description="from a pod to the network above it"
    )
    across_datacentres: BytesPerSecond | None = Field(
        default=None, description="from a datacentre to the others"
    )

    def above(self, level: str) -> float | None:
        """Bandwidth of the link above a level of the network."""
        above: dict[str, float | None] = {
            "rack": self.across_racks,
            "pod": self.across_pods,
            "datacentre": self.across_datacentres,
        }
        return above[level]


class NodeLinks(BaseModel):
    """Bandwidths of one group of nodes, where they differ from those of the cluster."""

    model_config = SPEC_CONFIG

    inside_node: BytesPerSecond | None = Field(
        default=None, description="between two devices of a node of this group"
    )
    across_nodes: BytesPerSecond | None = Field(
        default=None, description="from a node of this group to its network"
    )


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class NodeGroup(BaseModel):
    """Nodes that are all alike."""

    model_config = SPEC_CONFIG

    count: WholeNumber | None = Field(
        default=None, ge=1, le=MOST_NODES, description="how many nodes; 1 when left out"
    )
    name: Text | None = Field(
        default=None, description="what the nodes' names start with; numbers follow"
    )
    names: tuple[Text, ...] | None = Field(
        default=None, min_length=1, description="the nodes' full names, instead of count and name"
    )
    device: Annotated[
        DeviceSpec, BeforeValidator(_named, json_schema_input_type=str | DeviceSpec)
    ] = Field(description="the kind of device: a name, or {name, memory, peak, …} for a new kind")
    devices: WholeNumber = Field(
        ge=1, le=MOST_DEVICES_PER_NODE, description="how many devices each node has"
    )
    rack: Text | None = Field(default=None, description="the rack in which all of them stand")
    nodes_per_rack: WholeNumber | None = Field(
        default=None, ge=1, description="fills racks with so many nodes each, instead of rack"
    )
    pod: Text | None = Field(default=None, description="the pod (group of racks) they are in")
    datacentre: Text | None = Field(default=None, description="the datacentre they are in")
    links: NodeLinks = Field(
        default=NodeLinks(), description="bandwidths that differ from those of the cluster"
    )

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.names) if self.names is not None else self.count or 1

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if findings := tuple(self._findings()):
            raise Inconsistent(findings)
        return self

    def _findings(self) -> Iterator[Finding]:
        for key in ("name", "count"):
            if self.names is not None and getattr(self, key) is not None:
                what = f"'names' and '{key}' are both given"
                yield Finding((key,), what, f"keep 'names', or '{key}'")
        if self.rack is not None and self.nodes_per_rack is not None:
            what = "'rack' and 'nodes_per_rack' are both given"
            yield Finding(("nodes_per_rack",), what, "keep one of the two")

    def names_level(self, level: str) -> bool:
        """Whether the group says where its nodes stand on a level of the network."""
        if level == "rack" and self.nodes_per_rack is not None:
            return True
        return getattr(self, level) is not None


class ClusterSpec(BaseModel):
    """A whole cluster."""

    model_config = SPEC_CONFIG

    name: Text = Field(default="cluster", description="what people call the cluster")
    nodes: tuple[NodeGroup, ...] = Field(min_length=1, description="groups of equal nodes")
    links: LinkSpec = Field(
        default=LinkSpec(), description="how fast devices reach each other, by distance"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if findings := tuple(self._findings()):
            raise Inconsistent(findings)
        return self

    def compile(self) -> Cluster:
        """The cluster as the rest of the code sees it."""
        levels = self._levels()
        bandwidths = tuple(self.links.above(level) or 0.0 for level in levels)
        return Cluster(
            nodes=tuple(self._nodes(levels)),
            name=self.name,
            level_bandwidth=bandwidths if any(bandwidths) else (),
        )

    def device_kinds(self) -> dict[str, Device]:
        """The facts of every kind in the cluster, by the name that its nodes carry."""
        found = (group.device.resolve() for group in self.nodes)
        return {item.name: item for item in found}

    def _levels(self) -> tuple[str, ...]:
        return tuple(
            level for level in LEVELS if any(group.names_level(level) for group in self.nodes)
        )

    def _nodes(self, levels: tuple[str, ...]) -> Iterator[Node]:
        racks = self._free_rack_names()
        for names, group in zip(self._node_names(), self.nodes, strict=True):
            kind = group.device.resolve().name
            rack = group.rack
            for index, name in enumerate(names):
                if group.nodes_per_rack is not None and index % group.nodes_per_rack == 0:
                    rack = next(racks)
                place = {"datacentre": group.datacentre, "pod": group.pod, "rack": rack}
                yield Node(
                    name=name,
                    kind=kind,
                    devices=group.devices,
                    path=tuple(place[level] or "" for level in levels),
                    inner_bandwidth=group.links.inside_node or self.links.inside_node or 0.0,
                    outer_bandwidth=group.links.across_nodes or self.links.across_nodes or 0.0,
                )

    def _free_rack_names(self) -> Iterator[str]:
        taken = {group.rack for group in self.nodes}
        names = (f"rack{number}" for number in itertools.count())
        return (name for name in names if name not in taken)

    def _node_names(self) -> list[list[str]]:
        """Names by group. Groups without a name are numbered as one, so that none repeats."""
        unnamed = [group for group in self.nodes if group.names is None and group.name is None]
        counted = iter(numbered("node", sum(group.size for group in unnamed)))
        names: list[list[str]] = []
        for group in self.nodes:
            if group.names is not None:
                names.append(list(group.names))
            elif group.name is not None:
                # A single node carries the name as it is written.
                single = group.count is None
                names.append([group.name] if single else numbered(group.name, group.size))
            else:
                names.append([next(counted) for _ in range(group.size)])
        return names

    def _findings(self) -> Iterator[Finding]:
        if sum(group.size for group in self.nodes) > MOST_NODES:
            what = f"more than {MOST_NODES:,} nodes in all"
            yield Finding(("nodes",), what, "check the counts")
            return
        yield from self._repeated_names()
        yield from self._conflicting_devices()
        yield from self._unplaced_groups()
        for level in LEVELS:
            if self.links.above(level) is not None and level not in self._levels():
                key = f"across_{level}s"
                what = f"'{key}' is given, but no nodes name a {level}"
                yield Finding(("links", key), what, f"name the {level} of each group, or remove it")

    def _repeated_names(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for index, names in enumerate(self._node_names()):
            for name in names:
                if name in seen:
                    what = f"the node name '{name}' is there twice"
                    yield Finding(("nodes", index), what, "give each group a 'name' of its own")
                    break
                seen.add(name)

    def _conflicting_devices(self) -> Iterator[Finding]:
        facts: dict[str, Device] = {}
        for index, group in enumerate(self.nodes):
            item = group.device.resolve()
            if facts.setdefault(item.name, item) != item:
                what = f"the device '{item.name}' has other figures further up"
                fix = "give it another name, or the same figures"
                yield Finding(("nodes", index, "device"), what, fix)

    def _unplaced_groups(self) -> Iterator[Finding]:
        for level in self._levels():
            for index, group in enumerate(self.nodes):
                if not group.names_level(level):
                    what = f"other groups name their {level}, this one does not"
                    yield Finding(("nodes", index), what, f"add '{level}: …'")


def read_cluster(path: str | os.PathLike[str]) -> ClusterSpec:
    """The cluster of a YAML file, or one `InputError` with all of its problems."""
    return validate(read_document(path), ClusterSpec)


def parse_cluster(text: str, source: str = "<string>") -> ClusterSpec:
    """The cluster of YAML text, or one `InputError` with all of its problems."""
    return validate(parse_document(text, source), ClusterSpec)
