"""Where placement strategies put a stream of jobs in a real and in a generated network.

    python benchmarks/topology.py [--quick] [--write]

Jobs arrive, wait in order of arrival until enough devices are free, run and leave; every strategy
sees the same stream, and because none of them refuses a job that fits, each job starts at the same
moment under all of them. What differs is where. Links have the bandwidths below: the table of
hosts says nothing of them.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measure import Task, report, run_each
from modelyard.schedule.groups import Slot, arrange, listed, straddling
from modelyard.schedule.placement import Strategy, place, take
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster
from modelyard.spec.shorthand import load_cluster
from modelyard.speed.collectives import Communication, Exchange, Groups, communication
from modelyard.speed.interference import uplink_slowdowns
from table import Table, write_section
from traces import traces_folder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "topology.md"

#: Eight devices with NVLink and a 400 Gbit/s port each; four to one at every switch, as in Ethernet
#: networks that were not built for training. At one to one no placement would matter here.
LINKS = ":inside-node=450GB/s:across-nodes=3.2Tbit/s:oversubscription=4"
LINGJUN = "lingjun/topo.csv"
FAT_TREE = f"fat-tree:10x8x16x8xH100{LINKS}"

#: Shares of jobs by devices: small ones as in Philly's trace, where most of the devices' time goes
#: to gangs of 4 to 16, and language models on 32 to 512; some are no powers of two.
SIZES = {
    1: 0.32, 2: 0.08, 4: 0.10, 8: 0.16, 12: 0.02, 16: 0.12, 24: 0.03,
    32: 0.07, 48: 0.02, 64: 0.04, 96: 0.01, 128: 0.02, 512: 0.01,
}  # fmt: skip
#: What the stream asks for, as shares of the cluster: room to choose from, and hardly any.
LOADS = (0.8, 0.95)
MEAN_SECONDS = 3_600.0
#: Jobs before this share of the stream fill the empty cluster and are not counted.
WARM_UP = 0.25
JOBS = 2_500
QUICK_JOBS = 300
SEED = 7

#: Per device and step of a model of 70 billion parameters on 32 devices a replica: gradients in 16
#: bits, and activations of 32 sequences of 4,096 tokens.
EXCHANGE = Exchange(tensor_bytes=1e9, pipeline_bytes=2.7e8, data_bytes=4.4e9)
TENSOR = 8
PIPELINE = 4
#: From so many devices on, a job has pipelines.
PIPELINED_FROM = 64
#: What a job at full speed sends out of each of its nodes, as a share of the node's links.
DEMAND = 0.5
#: Contention is measured after every so many starts.
SNAPSHOT_EVERY = 50


@dataclass(frozen=True, slots=True)
class Way:
    """One row of the comparison."""

    name: str
    strategy: Strategy
    groups: bool = False


WAYS = (
    Way("consolidated", Strategy.CONSOLIDATED),
    Way("spread", Strategy.SPREAD),
    Way("fragmentation", Strategy.FRAGMENTATION),
    Way("topology", Strategy.TOPOLOGY),
    Way("topology, whole groups", Strategy.TOPOLOGY, groups=True),
)


@dataclass(frozen=True, slots=True)
class Start:
    """One gang as it was placed, and what its step sends with its ranks in three orders."""

    devices: int
    layers_crossed: int
    listed: Communication
    close_pipelines: Communication
    arranged: Communication
    #: share of tensor groups on more than one node
    straddling: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one stream under one strategy."""

    starts: tuple[Start, ...]
    #: share of speed that gangs over several nodes lose to each other
    contention: float
    seconds_per_placement: float


def stream(cluster: Cluster, load: float, count: int) -> Iterator[tuple[float, int, float]]:
    """(arrival, devices, seconds) of each job."""
    luck = np.random.default_rng(SEED)
    sizes = np.array(list(SIZES))
    shares = np.array(list(SIZES.values()))
    devices = luck.choice(sizes, size=count, p=shares / shares.sum())
    seconds = luck.exponential(MEAN_SECONDS, size=count)
    mean_work = float((sizes * shares).sum() / shares.sum()) * MEAN_SECONDS
    gaps = luck.exponential(mean_work / (load * cluster.devices), size=count)
    return zip(np.cumsum(gaps).tolist(), devices.tolist(), seconds.tolist(), strict=True)


def play(written: str, way: Way, load: float, count: int) -> Outcome:
    """The whole stream through one strategy."""
    cluster = load_cluster(written)
    free = cluster.capacity.copy()
    held: dict[str, Allocation] = {}
    ends: list[tuple[float, str]] = []
    starts: list[Start] = []
    lost: list[float] = []
    now, placing_seconds = 0.0, 0.0
    for number, (arrival, devices, seconds) in enumerate(stream(cluster, load, count)):
        now = max(now, arrival)
        while ends and (ends[0][0] <= now or int(free.sum()) < devices):
            ended, job = heapq.heappop(ends)
            now = max(now, ended)
            take(free, held.pop(job), sign=1)
        groups = parallelism(devices)
        began = time.process_time()
        group = groups.tensor if way.groups else 1
        found = place(cluster, free, devices, strategy=way.strategy, group=group)
        placing_seconds += time.process_time() - began
        assert found is not None, "every strategy here places whatever fits"
        take(free, found)
        held[str(number)] = found
        heapq.heappush(ends, (now + seconds, str(number)))
        if number < WARM_UP * count:
            continue
        if devices > int(cluster.capacity.max()):
            starts.append(_start(cluster, found, groups))
        if number % SNAPSHOT_EVERY == 0:
            lost.append(_contention(cluster, held))
            report(number / count)
    return Outcome(tuple(starts), float(np.mean(lost)), placing_seconds / count)


def parallelism(devices: int) -> Groups:
    """Tensor groups as wide as a node where the size allows it, pipelines in large jobs."""
    tensor = next(size for size in (TENSOR, 4, 2, 1) if devices % size == 0)
    pipeline = PIPELINE if devices >= PIPELINED_FROM else 1
    return Groups(tensor, pipeline, devices // (tensor * pipeline))


def _start(cluster: Cluster, found: Allocation, groups: Groups) -> Start:
    def step(ranks: Sequence[Slot]) -> Communication:
        return communication(cluster, [node for node, _ in ranks], groups, EXCHANGE)

    depth = len(cluster.nodes[0].path)
    crossed = depth + 1 - cluster.common_depth(found.nodes) if len(found.nodes) > 1 else 0
    ranks = arrange(cluster, found, groups, exchange=EXCHANGE)
    return Start(
        devices=found.devices,
        layers_crossed=crossed,
        listed=step(listed(found)),
        close_pipelines=step(arrange(cluster, found, groups)),
        arranged=step(ranks),
        straddling=straddling(ranks, groups) * groups.tensor / groups.devices,
    )


def _contention(cluster: Cluster, held: dict[str, Allocation]) -> float:
    """Mean share of speed lost on shared links by gangs on several nodes."""
    spanning = [job for job, parts in held.items() if len(parts.nodes) > 1]
    rate = DEMAND * cluster.nodes[0].outer_bandwidth
    slowdowns = uplink_slowdowns(cluster, held, dict.fromkeys(spanning, rate))
    return float(np.mean([slowdowns[job] for job in spanning] or [0.0]))


def compare(title: str, written: str, layers: tuple[str, str], count: int) -> list[Table]:
    """Where gangs go in one network, by load; and what the order of their ranks is worth."""
    cluster = load_cluster(written)
    alone_seconds = {devices: _alone_seconds(cluster, devices) for devices in SIZES}
    tables = []
    roomy: dict[int, Outcome] = {}
    for load in LOADS:
        table = Table(
            f"{title}, {load:.0%} asked for: gangs wider than a node",
            {"strategy": 22, f"in one {layers[0]}": 11, f"in one {layers[1]}": 11}
            | {"layers crossed": 14, "tensor groups split": 19, "step": 7}
            | {"lost to others": 14, "placing": 14},
            words=("strategy",),
        )
        table.begin()
        tasks = [Task(f"{title}: {way.name}", play, (written, way, load, count)) for way in WAYS]
        outcomes: dict[int, Outcome] = {}
        for position, outcome in run_each(tasks, workers=1):
            outcomes[position] = outcome
            table.add(WAYS[position].name, *_cells(outcome, outcomes[0], alone_seconds))
        tables.append(table)
        roomy = roomy or outcomes
    return [*tables, _orders(title, layers, roomy[len(WAYS) - 1])]


def _alone_seconds(cluster: Cluster, devices: int) -> float:
    """The step of a gang that has the empty cluster to choose from."""
    best = place(cluster, cluster.capacity, devices, strategy=Strategy.TOPOLOGY, group=TENSOR)
    assert best is not None, "no gang of the stream is wider than the cluster"
    return _start(cluster, best, parallelism(devices)).arranged.seconds


def _cells(outcome: Outcome, first: Outcome, alone_seconds: dict[int, float]) -> Iterator[str]:
    starts = outcome.starts
    ratio = outcome.seconds_per_placement / first.seconds_per_placement
    steps = [start.arranged.seconds / alone_seconds[start.devices] for start in starts]
    yield f"{np.mean([start.layers_crossed <= 1 for start in starts]):.0%}"
    yield f"{np.mean([start.layers_crossed <= 2 for start in starts]):.0%}"
    yield f"{np.mean([start.layers_crossed for start in starts]):.2f}"
    yield f"{np.mean([start.straddling for start in starts]):.1%}"
    yield f"{np.mean(steps):.2f}×"
    yield f"{outcome.contention:.1%}"
    yield f"{ratio:.1f}× ({1e6 * outcome.seconds_per_placement:.0f} µs)"


def _orders(title: str, layers: tuple[str, str], outcome: Outcome) -> Table:
    """What three orders of ranks send over each layer on the same allocations."""
    table = Table(
        f"{title}, {LOADS[0]:.0%} asked for: order of ranks in jobs with pipelines",
        {"order": 23, f"out of {layers[0]}s": 12, f"out of {layers[1]}s": 12, "step": 7},
        words=("order",),
    )
    table.begin()
    wide = [start for start in outcome.starts if start.devices >= PIPELINED_FROM]
    reference = [start.listed for start in wide]
    for name, steps in (
        ("as the nodes are listed", reference),
        ("pipelines close", [start.close_pipelines for start in wide]),
        ("by what they send", [start.arranged for start in wide]),
    ):
        inner, outer = (
            _relative(
                [step.layer_bytes[layer] for step in steps],
                [step.layer_bytes[layer] for step in reference],
            )
            for layer in (-1, -2)
        )
        seconds = _relative([s.seconds for s in steps], [s.seconds for s in reference])
        table.add(name, inner, outer, seconds)
    return table


def _relative(values: Sequence[float], reference: Sequence[float]) -> str:
    return f"{sum(values) / sum(reference):.2f}×" if sum(reference) else "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few jobs, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/concepts/topology.md")
    chosen = parser.parse_args()
    count = QUICK_JOBS if chosen.quick else JOBS
    tables = compare("Fat tree of 10,240 devices", FAT_TREE, ("rack", "pod"), count)
    lingjun = f"{traces_folder() / LINGJUN}:8xH100{LINKS}"
    tables += compare("Lingjun, 6,776 devices", lingjun, ("ASW", "PSW"), count)
    if chosen.write:
        write_section("topology", [table.markdown() for table in tables], page=PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
