"""The cluster: every node and device, who has them, and how the yard is doing."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.history import as_seen, curves
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.control.store.callers import Caller
from modelyard.errors import InputError
from modelyard.spec.cluster import Cluster, Node
from modelyard.units import format_bandwidth
from modelyard.web.charts import area_chart
from modelyard.web.colours import colour
from modelyard.web.picture import Picture
from modelyard.web.site import Site

#: Wider nodes have their devices in several rows.
MOST_ABREAST = 8
#: Maps with fewer nodes than these have large ones, and not so large ones.
LARGE_UP_TO, MEDIUM_UP_TO = 16, 64
#: in the lists beside the map
MOST_RUNNING, MOST_WAITING, MOST_LINES = 40, 6, 20
#: behind the figures: how far back, and in how many steps
TREND_SECONDS, TREND_POINTS = 3_600.0, 60
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
    #: of a job, since when it is so; 0 of others
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node on the map."""

    name: str
    kind: str
    devices: int
    used: int
    health: Health
    detail: str
    #: its kind and its links, in words
    built: str
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

    def joined(self) -> Place:
        """The same without switches that have nothing but one other switch below them."""
        below = {name: place.joined() for name, place in self.places.items()}
        if len(below) == 1 and not self.nodes:
            (only,) = below.values()
            slowest = min((one for one in (self.bandwidth, only.bandwidth) if one), default=0.0)
            name = " · ".join(one for one in (self.name, only.name) if one)
            return Place(name, slowest, only.places, only.nodes)
        return Place(self.name, self.bandwidth, below, self.nodes)


@dataclass(frozen=True, slots=True)
class Figures:
    """The yard in numbers."""

    devices: int
    in_service: int
    used: int
    #: free devices, on how many nodes, and the most on one of them
    free: int
    free_nodes: int
    largest: int
    #: free devices in pieces: what is left of several nodes that are partly in use
    scattered: int
    nodes: int
    health: Mapping[Health, int]
    devices_out: int


@dataclass(frozen=True, slots=True)
class Trend:
    """The last hour, or as much of it as there has been: what was in use and how many waited."""

    seconds: float
    #: devices in the mean
    used: float
    #: shapes to draw; empty where there was nothing
    used_path: str
    waiting_path: str


def routes(site: Site) -> list[BaseRoute]:
    async def context(call: Call) -> dict[str, object]:
        picture = await site.camera.picture()
        store, scope = site.parts.yard.store, call.caller.scope
        counts = await run_in_threadpool(lambda: store.counts(tenant=scope))
        lines = await run_in_threadpool(lambda: store.latest(tenant=scope, most=MOST_LINES))
        told = sorted({line.entry.job for line in lines if line.entry.job})
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
            "tenants": sorted(held_by(seen).items()) if way == "tenant" else [],
            "figures": figures(picture),
            "counts": counts,
            "running": heapq.nsmallest(MOST_RUNNING, seen, key=_largest_first),
            "running_count": len(seen),
            "waiting": heapq.nsmallest(MOST_WAITING, waits, key=_first_in_line),
            "waiting_count": len(waits),
            "waiting_since": min((job.since for job in waits), default=None),
            "trend": await trend(site, call.caller, picture.at, cluster.devices),
            "progress": picture.progress,
            "foreseen": picture.foreseen,
            "lines": lines,
            "names": await run_in_threadpool(store.names, told),
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
    below = {name: place.joined() for name, place in whole.places.items()}
    return Place(whole.name, whole.bandwidth, below, whole.nodes)


def held_by(jobs: Iterable[Job]) -> Counter[str]:
    """How many devices each tenant has."""
    held: Counter[str] = Counter()
    for job in jobs:
        held[job.facts.tenant] += job.devices
    return held


async def trend(site: Site, caller: Caller, now: float, devices: int) -> Trend | None:
    """How the last hour was, as the caller may see it."""
    try:
        whole, _ = await site.pasts.read(TREND_SECONDS, now)
    except InputError:
        # So much happened that nobody waits for it: the figures do without.
        return None
    means = await run_in_threadpool(
        lambda: curves(as_seen(whole, caller.may_see), points=TREND_POINTS)
    )
    return Trend(
        seconds=whole.until - whole.since,
        used=sum(means.devices) / len(means.devices),
        used_path=_area(means.devices, float(devices)),
        waiting_path=_area(means.waiting, max(means.waiting)),
    )


def _area(line: Sequence[float], top: float) -> str:
    return area_chart("", {"": ("", line)}, top=top).series[0].path if top else ""


def figures(picture: Picture) -> Figures:
    """What can be counted; devices of all tenants, without saying whose."""
    taken = Counter(node for job in picture.active for node, _ in job.occupied())
    free = {node.name: max(len(node.in_service()) - taken[node.name], 0) for node in picture.nodes}
    pieces = [count for name, count in free.items() if count and taken[name]]
    return Figures(
        devices=sum(node.devices for node in picture.nodes),
        in_service=sum(len(node.in_service()) for node in picture.nodes),
        used=taken.total(),
        free=sum(free.values()),
        free_nodes=sum(1 for count in free.values() if count),
        largest=max(free.values(), default=0),
        # What is left of a single node is one place, not several.
        scattered=sum(pieces) if len(pieces) > 1 else 0,
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
        built=_built(node),
        outer_bandwidth=node.outer_bandwidth,
        width=abreast * PITCH - (PITCH - CELL),
        height=rows * PITCH - (PITCH - CELL),
        runs=tuple(
            _run(sort, name, devices, node.name, jobs, way, abreast)
            for (sort, name), devices in groups.items()
        ),
    )


def _built(node: Node) -> str:
    links = ((node.inner_bandwidth, "between its devices"), (node.outer_bandwidth, "to others"))
    return ", ".join([node.kind, *(f"{format_bandwidth(one)} {to}" for one, to in links if one)])


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
        return Run(sort, cells, words, job=name, fill=fill, since=jobs[name].since)
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
