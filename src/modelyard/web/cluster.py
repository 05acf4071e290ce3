"""The cluster: every node and device, who has them, and how the yard is doing."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.control.store.callers import Caller
from modelyard.spec.cluster import Cluster, Node
from modelyard.web.colours import colour
from modelyard.web.picture import Picture
from modelyard.web.site import Site

#: Wider nodes have their devices in several rows.
MOST_ABREAST = 8
#: Maps with fewer nodes than these have large ones, and not so large ones.
LARGE_UP_TO, MEDIUM_UP_TO = 16, 64
#: in the lists beside the map
MOST_RUNNING, MOST_WAITING, MOST_LINES = 40, 6, 12
#: One cell of the map and the space after it, in the map's own units.
CELL, PITCH = 10, 12
#: what devices are coloured by
WAYS = ("job", "tenant")


@dataclass(frozen=True, slots=True)
class Run:
    """Devices of one node that are in the same hands, or in nobody's."""

    #: `job`, `another` (somebody else's tenant), `free` or `out`
    sort: str
    #: their cells, as SVG
    cells: Markup
    label: str
    job: str = ""
    fill: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node on the map."""

    name: str
    kind: str
    devices: int
    used: int
    health: Health
    detail: str
    outer_bandwidth: float
    width: int
    height: int
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Place:
    """A switch, and what is below it."""

    name: str
    #: bytes per second from here upwards; 0 when nobody said
    bandwidth: float = 0.0
    places: dict[str, Place] = field(default_factory=dict)
    nodes: list[NodeView] = field(default_factory=list)

    def below(self) -> Iterator[NodeView]:
        yield from self.nodes
        for place in self.places.values():
            yield from place.below()

    @property
    def used(self) -> int:
        return sum(node.used for node in self.below())

    @property
    def devices(self) -> int:
        return sum(node.devices for node in self.below())

    @property
    def count(self) -> int:
        return sum(1 for _ in self.below())


@dataclass(frozen=True, slots=True)
class Figures:
    """The yard in numbers."""

    devices: int
    in_service: int
    used: int
    #: free devices, those of them on nodes that others use too, and the most on one node
    free: int
    scattered: int
    largest: int
    nodes: int
    health: Mapping[Health, int]
    devices_out: int


def routes(site: Site) -> list[BaseRoute]:
    async def context(call: Call) -> dict[str, object]:
        picture = await site.camera.picture()
        store, scope = site.parts.yard.store, call.caller.scope
        counts = await run_in_threadpool(lambda: store.counts(tenant=scope))
        lines = await run_in_threadpool(lambda: store.latest(tenant=scope, most=MOST_LINES))
        way = call.request.query_params.get("by", "")
        way = way if way in WAYS else WAYS[0]
        cluster = site.parts.jobs.cluster
        seen = [job for job in picture.active if call.caller.may_see(job.facts.tenant)]
        waits = [
            job
            for job in picture.jobs
            if job.state is State.WAITING and call.caller.may_see(job.facts.tenant)
        ]
        return {
            "cluster": cluster,
            "place": place_of(cluster, picture, call.caller, way),
            "size": _size(len(cluster.nodes)),
            "figures": figures(picture),
            "counts": counts,
            "running": heapq.nsmallest(MOST_RUNNING, seen, key=_largest_first),
            "running_count": len(seen),
            "waiting": heapq.nsmallest(MOST_WAITING, waits, key=_first_in_line),
            "waiting_count": len(waits),
            "progress": picture.progress,
            "foreseen": picture.foreseen,
            "lines": lines,
            "names": {job.id: job.facts.name for job in picture.jobs},
            "way": way,
        }

    live = ("figures", "map", "running", "waiting", "lines")
    return [*site.page("/", "cluster", context, live=live)]


def place_of(cluster: Cluster, picture: Picture, caller: Caller, way: str) -> Place:
    """The whole network as a tree of switches, with nodes at its leaves."""
    holders = {(node, device): job for job in picture.active for node, device in job.occupied()}
    records = {node.name: node for node in picture.nodes}
    whole = Place(cluster.name)
    for node in cluster.nodes:
        record = records.get(node.name)
        if record is not None:
            at = _descend(whole, node, cluster.level_bandwidth)
            at.nodes.append(_node_view(node, record, holders, caller, way))
    return whole


def figures(picture: Picture) -> Figures:
    """What can be counted; devices of all tenants, without saying whose."""
    taken = Counter(node for job in picture.active for node, _ in job.occupied())
    free = {node.name: max(len(node.in_service()) - taken[node.name], 0) for node in picture.nodes}
    scattered = sum(count for name, count in free.items() if taken[name])
    return Figures(
        devices=sum(node.devices for node in picture.nodes),
        in_service=sum(len(node.in_service()) for node in picture.nodes),
        used=taken.total(),
        free=sum(free.values()),
        scattered=scattered,
        largest=max(free.values(), default=0),
        nodes=len(picture.nodes),
        health=Counter(node.health for node in picture.nodes),
        devices_out=sum(
            len(node.out) for node in picture.nodes if node.health is Health.IN_SERVICE
        ),
    )


def _descend(whole: Place, node: Node, level_bandwidth: tuple[float, ...]) -> Place:
    at = whole
    for level, name in enumerate(node.path):
        bandwidth = level_bandwidth[level] if level < len(level_bandwidth) else 0.0
        at = at.places.setdefault(name, Place(name, bandwidth))
    return at


def _node_view(
    node: Node,
    record: NodeRecord,
    holders: Mapping[tuple[str, int], Job],
    caller: Caller,
    way: str,
) -> NodeView:
    abreast = min(record.devices, MOST_ABREAST)
    rows = -(-record.devices // abreast)
    groups: dict[tuple[str, str], list[int]] = {}
    jobs: dict[str, Job] = {}
    for device in range(record.devices):
        job = holders.get((node.name, device))
        if job is not None:
            jobs[job.id] = job
        groups.setdefault(_group(record, device, job, caller), []).append(device)
    return NodeView(
        name=node.name,
        kind=node.kind,
        devices=record.devices,
        used=sum(1 for device in range(record.devices) if (node.name, device) in holders),
        health=record.health,
        detail=record.detail,
        outer_bandwidth=node.outer_bandwidth,
        width=abreast * PITCH - (PITCH - CELL),
        height=rows * PITCH - (PITCH - CELL),
        runs=tuple(
            _run(sort, name, devices, node.name, jobs, way, abreast)
            for (sort, name), devices in groups.items()
        ),
    )


def _group(record: NodeRecord, device: int, job: Job | None, caller: Caller) -> tuple[str, str]:
    if job is not None:
        return ("job", job.id) if caller.may_see(job.facts.tenant) else ("another", "")
    if device not in record.in_service():
        return "out", record.out.get(device) or record.detail or record.health
    return "free", ""


def _run(
    sort: str,
    name: str,
    devices: list[int],
    node: str,
    jobs: Mapping[str, Job],
    way: str,
    abreast: int,
) -> Run:
    cells = cells_of(tuple(devices), abreast)
    where = f"{node}, device{'s' if len(devices) > 1 else ''} {numbers(devices)}"
    if sort == "job":
        facts = jobs[name].facts
        words = f"{facts.name} of {facts.tenant}, {jobs[name].state}: {where}"
        fill = colour(facts.tenant if way == "tenant" else name)
        return Run(sort, cells, words, job=name, fill=fill)
    said = {"another": "another tenant's", "free": "free", "out": f"out of service ({name})"}
    return Run(sort, cells, f"{said[sort]}: {where}")


@lru_cache(maxsize=4_096)
def cells_of(devices: tuple[int, ...], abreast: int) -> Markup:
    """Squares of devices; most nodes of a yard look like many others."""
    shape = Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="2"/>')
    return Markup("").join(
        shape.format(device % abreast * PITCH, device // abreast * PITCH, CELL, CELL)
        for device in devices
    )


def numbers(devices: Iterable[int]) -> str:
    """`0–3, 6`"""
    spans: list[list[int]] = []
    for device in sorted(devices):
        if spans and spans[-1][-1] == device - 1:
            spans[-1][-1] = device
        else:
            spans.append([device, device])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in spans)


def _largest_first(job: Job) -> tuple[float, ...]:
    return -job.devices, job.facts.submitted


def _first_in_line(job: Job) -> tuple[float, ...]:
    return -job.priority, job.since


def _size(nodes: int) -> str:
    if nodes <= LARGE_UP_TO:
        return "large"
    return "medium" if nodes <= MEDIUM_UP_TO else "small"
