"""Who held which devices when: nodes × time, drawn as a few paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from modelyard.simulate.charts import SIDE, Axis
from modelyard.simulate.result import Result
from modelyard.spec.cluster import Cluster

#: More rectangles than this are not told apart and make the file heavy: the largest are kept.
MOST_BLOCKS = 4_000
#: More lanes than this are thinner than a line of text.
MOST_NODES = 64
#: Labels that fit above each other in the least height of the drawing.
MOST_LABELS = 16
#: Colours that people can tell apart; owners beyond share one.
COLOURS = 8


@dataclass(frozen=True, slots=True)
class Block:
    """Some neighbouring devices of one node, held by one job for a while."""

    node: int
    first: int
    count: int
    start: float
    end: float
    owner: str

    @property
    def device_seconds(self) -> float:
        return self.count * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Lane:
    """The strip of one node: its name and place, from the top, in per cent."""

    label: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Gantt:
    """A drawing: one path per colour, a legend, and what was left out of it."""

    paths: tuple[str, ...]
    lanes: tuple[Lane, ...]
    #: (owner, colour); empty when each job has a colour and no owner a name
    legend: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = field(default=())


def gantt(result: Result, cluster: Cluster, across: Axis) -> Gantt:
    """Coloured by tenant where there are several, by job otherwise."""
    shown = min(len(cluster.nodes), MOST_NODES)
    blocks = _blocks(result, cluster, shown)
    kept = sorted(blocks, key=lambda block: -block.device_seconds)[:MOST_BLOCKS]
    colour = _colours(result)
    lanes = _lanes(cluster, shown)
    paths = [""] * COLOURS
    for block in kept:
        lane = lanes[block.node]
        share = lane.height / cluster.nodes[block.node].devices
        left, right = across.place(block.start), across.place(block.end)
        paths[colour[block.owner]] += _rectangle(
            left, right - left, (lane.top + block.first * share) / 100, block.count * share / 100
        )
    tenants = sorted({job.tenant for job in result.jobs})
    return Gantt(
        paths=tuple(paths),
        lanes=_labelled(lanes),
        legend=tuple((name, _slot(tenants, name)) for name in tenants) if len(tenants) > 1 else (),
        notes=tuple(_notes(blocks, kept, shown, len(cluster.nodes))),
    )


def _blocks(result: Result, cluster: Cluster, shown: int) -> list[Block]:
    """Every stretch on the first nodes; each takes the lowest devices that are free by then."""
    free_at = [[float("-inf")] * node.devices for node in cluster.nodes[:shown]]
    owner = _owners(result)
    blocks: list[Block] = []
    for segment in sorted(result.segments, key=lambda segment: (segment.start, segment.end)):
        for node, count in segment.parts:
            if node >= shown:
                continue
            taken = _take(free_at[node], count, segment.start)
            for device in taken:
                free_at[node][device] = segment.end
            blocks += [
                Block(node, first, length, segment.start, segment.end, owner[segment.job])
                for first, length in _runs(taken)
            ]
    return blocks


def _take(free_at: Sequence[float], count: int, start: float) -> list[int]:
    """The lowest free devices; a job beside another on the same devices is drawn over it."""
    free = [device for device, since in enumerate(free_at) if since <= start]
    busy = [device for device, since in enumerate(free_at) if since > start]
    return sorted((free + busy)[:count])


def _runs(devices: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Neighbours together: 0, 1, 4 are (0, 2) and (4, 1)."""
    edges = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(devices)) if b != a + 1)]
    for begin, end in pairwise((*edges, len(devices))):
        yield devices[begin], end - begin


def _owners(result: Result) -> dict[str, str]:
    by_tenant = len({job.tenant for job in result.jobs}) > 1
    return {job.id: job.tenant if by_tenant else job.id for job in result.jobs}


def _colours(result: Result) -> dict[str, int]:
    owners = _owners(result)
    by_tenant = len({job.tenant for job in result.jobs}) > 1
    if by_tenant:
        tenants = sorted(set(owners.values()))
        return {name: _slot(tenants, name) for name in tenants}
    return {job: number % COLOURS for number, job in enumerate(owners)}


def _slot(names: Sequence[str], name: str) -> int:
    return min(names.index(name), COLOURS - 1)


def _lanes(cluster: Cluster, shown: int) -> list[Lane]:
    """A node is as high as it has devices."""
    nodes = cluster.nodes[:shown]
    total, top = sum(node.devices for node in nodes), 0
    lanes = []
    for node in nodes:
        lanes.append(Lane(node.name, 100 * top / total, 100 * node.devices / total))
        top += node.devices
    return lanes


def _labelled(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """As many names as there is room for."""
    every = -(-len(lanes) // MOST_LABELS)
    return tuple(
        Lane(lane.label if at % every == 0 else "", round(lane.top, 3), round(lane.height, 3))
        for at, lane in enumerate(lanes)
    )


def _rectangle(left: float, width: float, top: float, height: float) -> str:
    x, y, w, h = (round(SIDE * value, 2) for value in (left, top, width, height))
    return f"M{x:g} {y:g}h{w:g}v{h:g}h{-w:g}z"


def _notes(blocks: Sequence[Block], kept: Sequence[Block], shown: int, nodes: int) -> Iterable[str]:
    if shown < nodes:
        yield f"The first {shown} of {nodes:,} nodes are shown."
    if len(kept) < len(blocks):
        part = sum(block.device_seconds for block in kept)
        whole = sum(block.device_seconds for block in blocks)
        yield (
            f"The largest {len(kept):,} of {len(blocks):,} stretches are drawn: "
            f"{100 * part / whole:.0f}% of the device time."
        )
