"""How fast the simulator plays a trace, on one core, and how that grows.

    python benchmarks/simulator.py [--quick] [--write]

Every run has a process of its own. CPU seconds are those of the simulation alone; reading the
trace is left out. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from measure import Task, run_each
from modelyard.simulate.generate import Mix, generate
from table import Table, write_section
from traces import GITTINS, ITP, PHILLY, Played, Run, play, played, traces_folder

#: CPU seconds of Tiresias' public simulator for the same jobs on the same cluster. They were
#: measured on a like machine, not in this run.
PUBLIC_CPU_SECONDS = {"fifo": 3.4, "tiresias-las": 3.7, GITTINS: 16.4}
ITP_NODES = 12

#: The original cluster had about 2,500 devices and is a fifth used by these jobs; on 512 they
#: use three quarters, and the queue is never empty for long.
PHILLY_NODES = (64, 312)
PHILLY_POLICIES = ("tiresias-las", GITTINS, "srsf")

JOB_COUNTS = (1_000, 3_000, 10_000, 30_000, 82_247)
NODE_COUNTS = (8, 40, 200, 1_250)
JOBS_PER_CLUSTER = 20_000
LOAD = 1.0
#: Durations close to each other: a few long jobs would keep a large cluster almost empty for most
#: of the run, and what is measured here is a full one.
EVEN_MIX = Mix(
    log_deviation=0.5, tail_share=0.0, daily_swing=0.0, elastic_share=0.0, priority_weights=(1.0,)
)
GROWTH_POLICY = "tiresias-las"

MEBIBYTE = 2**20


def beside_public(folder: Path) -> Table:
    """The trace on which the public simulator was timed."""
    table = Table(
        f"ITP cluster06, 2,396 jobs on {ITP_NODES} × 8: CPU seconds",
        {"policy": 16, "public simulator": 16, "Modelyard": 9, "times faster": 12},
        words=("policy",),
    )
    texts = list(PUBLIC_CPU_SECONDS)
    runs = [Run(ITP, ITP_NODES, 8, text) for text in texts]
    for place, result in _each(table, play, [(folder, run) for run in runs]):
        public = PUBLIC_CPU_SECONDS[texts[place]]
        table.add(
            texts[place].partition(":")[0],
            f"{public:.1f}",
            f"{result.cpu_seconds:.2f}",
            f"{public / result.cpu_seconds:.1f}",
        )
    return table


def whole_philly(folder: Path) -> Table:
    """The largest public trace, on a crowded cluster and on one of the original's size."""
    table = Table(
        "Philly, 82,247 jobs, one core",
        {"cluster": 9, "policy": 16, "CPU s": 7, "events": 9, "events/s": 9, "used": 5, "MiB": 5},
        words=("cluster", "policy"),
    )
    runs = [Run(PHILLY, nodes, 8, text) for nodes in PHILLY_NODES for text in PHILLY_POLICIES]
    for place, result in _each(table, play, [(folder, run) for run in runs]):
        run = runs[place]
        table.add(
            f"{run.nodes} × 8",
            run.policy.partition(":")[0],
            f"{result.cpu_seconds:.1f}",
            f"{result.events:,}",
            f"{result.events / result.cpu_seconds:,.0f}",
            f"{result.utilisation:.0%}",
            f"{result.peak_bytes / MEBIBYTE:.0f}",
        )
    return table


def growth_with_jobs(folder: Path, counts: Sequence[int], trace: str = PHILLY) -> Table:
    """The first so many jobs of one trace on one cluster."""
    table = _growth_table(
        f"Growth with jobs: the first of {trace}, 64 × 8, {GROWTH_POLICY}", "jobs"
    )
    runs = [(folder, Run(trace, 64, 8, GROWTH_POLICY, jobs=count)) for count in counts]
    return _grown(table, play, runs, counts)


def growth_with_nodes(folder: Path, counts: Sequence[int], jobs: int) -> Table:
    """As many jobs on clusters of every size, each with the same load."""
    table = _growth_table(
        f"Growth with nodes of 8 devices: {jobs:,} generated jobs, load {LOAD}, {GROWTH_POLICY}",
        "nodes",
    )
    return _grown(table, play_generated, [(folder, nodes, jobs) for nodes in counts], counts)


def play_generated(folder: Path, nodes: int, jobs: int) -> Played:
    """Rigid jobs that keep a cluster of this size busy."""
    workload = generate(jobs, seed=1, load=LOAD, cluster_devices=8 * nodes, mix=EVEN_MIX)
    return played(workload, Run("", nodes, 8, GROWTH_POLICY), folder)


def _each(
    table: Table, function: Callable[..., Played], arguments: Sequence[tuple[object, ...]]
) -> Iterator[tuple[int, Played]]:
    """Results in order, one at a time: a second run would slow the one that is measured."""
    table.begin()
    tasks = [
        Task(f"row {place + 1} of {len(arguments)}", function, given)
        for place, given in enumerate(arguments)
    ]
    return run_each(tasks, workers=1)


def _growth_table(title: str, what: str) -> Table:
    columns = {what: 12, "CPU s": 8, "events/s": 9, "µs per event": 12, "used": 5, "MiB": 8}
    return Table(title, columns)


def _grown(
    table: Table,
    function: Callable[..., Played],
    arguments: Sequence[tuple[object, ...]],
    counts: Sequence[int],
) -> Table:
    """A row per run and the exponents of the power laws that fit them best."""
    seconds, memory = [], []
    for place, result in _each(table, function, arguments):
        seconds.append(result.cpu_seconds)
        memory.append(result.peak_bytes / MEBIBYTE)
        table.add(
            f"{counts[place]:,}",
            f"{result.cpu_seconds:.2f}",
            f"{result.events / result.cpu_seconds:,.0f}",
            f"{1e6 * result.cpu_seconds / result.events:.0f}",
            f"{result.utilisation:.0%}",
            f"{memory[-1]:.0f}",
        )
    fits = [f"{exponent(counts, costs):.2f}" for costs in (seconds, memory)]
    table.add("exponent", fits[0], "", "", "", fits[1])
    return table


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    folder = traces_folder()
    if chosen.quick:
        growth_with_jobs(folder, (50, 100), trace=ITP)
        growth_with_nodes(folder, (2, 4), 50)
        return 0
    tables = [
        beside_public(folder),
        whole_philly(folder),
        growth_with_jobs(folder, JOB_COUNTS),
        growth_with_nodes(folder, NODE_COUNTS, JOBS_PER_CLUSTER),
    ]
    if chosen.write:
        write_section("simulator", [table.markdown() for table in tables])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
