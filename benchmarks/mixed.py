"""Mixed clusters: yard's choice of kinds, places and partners beside Gavel's and Sia's.

    python benchmarks/mixed.py [--jobs N] [--quick] [--write]

Jobs are drawn from the 26 types that Gavel measured on V100, P100 and K80, with its laws: 70, 10,
15 and 5 % on 1, 2, 4 and 8 devices; on V100 four in five last 10^1.5 to 10^3 minutes, the others
10^3 to 10^4, log-uniformly; arrivals are Poisson. Load is work over what the cluster does at the
mean speed of its kinds while jobs arrive. Gavel decides every 360 s and Sia every 60 s in their
papers; here everyone decides every 360 s: jobs last for hours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measure import Task, report, run_each
from modelyard.schedule.jobs import FloatArray
from modelyard.schedule.registry import policy
from modelyard.simulate.compare import cores
from modelyard.simulate.engine import simulate
from modelyard.simulate.readers.gavel import read_throughputs
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.spec.cluster import Cluster, Node
from modelyard.speed.steps import StepsWork
from modelyard.speed.table import TableSpeed, ThroughputTable
from table import Table, write_section
from traces import traces_folder

THROUGHPUTS = "gavel/simulation_throughputs.json.gz"
#: The fastest first: durations are those on it.
KINDS = ("V100", "P100", "K80")
DEVICES_PER_NODE = 4
NODES_PER_KIND = 3
SIZES = (1, 2, 4, 8)
SIZE_SHARES = (0.7, 0.1, 0.15, 0.05)
#: Share of long jobs, and the powers of ten of minutes between which jobs last.
LONG_SHARE = 0.2
SHORT_RANGE, LONG_RANGE = (1.5, 3.0), (3.0, 4.0)
LOADS = (2.0, 4.0)
SEEDS = (1, 2)
JOBS = 80
ROUND_SECONDS = 360.0
RESTART_SECONDS = 30.0

#: By what the tables call them.
POLICIES = {
    "gavel": "gavel",
    "sia": "sia",
    "yard alone": "yard:share=false",
    "yard": "yard",
    "yard declared alone": "yard:declared=true:share=false",
    "yard declared": "yard:declared=true",
}
PEERS = ("gavel", "sia")


def cluster() -> Cluster:
    return Cluster(
        tuple(
            Node(f"{kind.lower()}-{index}", kind, DEVICES_PER_NODE)
            for kind in KINDS
            for index in range(NODES_PER_KIND)
        ),
        name="mixed",
    )


def workload(table: ThroughputTable, jobs: int, load: float, seed: int) -> Workload:
    """Jobs by the laws above; the same seed gives the same jobs at every load."""
    draw = np.random.default_rng(seed)
    drawn = [_job(table, draw, f"job-{index}") for index in range(jobs)]
    arrivals = np.cumsum(draw.exponential(size=jobs))
    demand = sum(devices * seconds for _, devices, seconds, _ in drawn)
    served = sum(devices * seconds * speeds for _, devices, seconds, speeds in drawn)
    # Devices of the fastest kind that would do as much as all kinds on these jobs.
    capacity = float(np.sum(served)) / demand * NODES_PER_KIND * DEVICES_PER_NODE
    span = demand / (load * capacity)
    submitted = (arrivals - arrivals[0]) * span / arrivals[-1]
    return Workload(
        f"gavel-{jobs}-load-{load:g}-seed-{seed}",
        tuple(make(float(at)) for at, (make, *_) in zip(submitted, drawn, strict=True)),
    )


def _job(
    table: ThroughputTable, draw: np.random.Generator, name: str
) -> tuple[Callable[[float], TraceJob], int, float, FloatArray]:
    """How to make the job, its devices, its seconds on the first kind and its relative speeds."""
    devices = int(draw.choice(SIZES, p=SIZE_SHARES))
    types = [one for one in table.job_types if devices in table.scales(KINDS[0], one)]
    speed = TableSpeed(table, types[int(draw.integers(len(types)))], DEVICES_PER_NODE)
    powers = LONG_RANGE if draw.random() < LONG_SHARE else SHORT_RANGE
    seconds = 60.0 * 10.0 ** draw.uniform(*powers)
    counts = packed_counts(devices, DEVICES_PER_NODE)
    rates = np.array([speed.goodput(Footprint(kind, counts)) for kind in KINDS])
    kinds = tuple(kind for kind, rate in zip(KINDS, rates, strict=True) if rate > 0.0)

    def make(submitted: float) -> TraceJob:
        work = StepsWork(float(seconds * rates[0]), speed)
        return TraceJob(name, submitted, devices, work, model=speed.job_type, kinds=kinds)

    return make, devices, float(seconds), rates / rates[0]


@dataclass(frozen=True, slots=True)
class Played:
    jct_mean_seconds: float
    jct_p99_seconds: float
    fairness_worst: float
    restarts: int
    decision_ms: float
    cpu_seconds: float


def play(folder: Path, name: str, jobs: int, load: float, seed: int) -> Played:
    """One policy on one workload."""
    table = read_throughputs(folder / THROUGHPUTS)
    scenario = Scenario(
        workload(table, jobs, load, seed),
        cluster(),
        round_seconds=ROUND_SECONDS,
        restart_seconds=RESTART_SECONDS,
    )
    began = time.process_time()
    metrics = simulate(scenario, policy(POLICIES[name]), on_progress=report).metrics
    return Played(
        metrics.jct_mean,
        metrics.jct_p99,
        metrics.fairness_worst,
        metrics.restarts,
        metrics.decision_ms_mean,
        time.process_time() - began,
    )


def measure(
    folder: Path, jobs: int, load: float, seeds: tuple[int, ...], workers: int
) -> tuple[Table, bool]:
    """All policies at one load; the table, and whether the aim was met."""
    devices = NODES_PER_KIND * DEVICES_PER_NODE
    seeded = f"{len(seeds)} seeds" if len(seeds) > 1 else "1 seed"
    table = Table(
        f"Gavel's job types, {devices} each of {', '.join(KINDS)}, {jobs} jobs, load {load:g}, "
        f"{seeded} (means, seconds)",
        {"policy": 20, "JCT": 8, "to sia": 7, "p99": 9, "worst ρ": 8, "restarts": 8, "CPU s": 6},
        words=("policy",),
    )
    tasks = [
        Task(f"{name}, load {load:g}, seed {seed}", play, (folder, name, jobs, load, seed))
        for name in POLICIES
        for seed in seeds
    ]
    played: dict[str, list[Played]] = {name: [] for name in POLICIES}
    for place, result in run_each(tasks, workers=workers):
        played[list(POLICIES)[place // len(seeds)]].append(result)
    table.begin()
    means = {name: _mean(runs) for name, runs in played.items()}
    for name, mean in means.items():
        ratio = mean.jct_mean_seconds / means["sia"].jct_mean_seconds
        table.add(
            name,
            f"{mean.jct_mean_seconds:,.0f}",
            f"{ratio:.3f}",
            f"{mean.jct_p99_seconds:,.0f}",
            f"{mean.fairness_worst:.2f}",
            f"{mean.restarts:,}",
            f"{mean.cpu_seconds:.0f}",
        )
    peer = min(means[name].jct_mean_seconds for name in PEERS)
    return table, means["yard"].jct_mean_seconds < peer


def _mean(runs: list[Played]) -> Played:
    return Played(
        float(np.mean([run.jct_mean_seconds for run in runs])),
        float(np.mean([run.jct_p99_seconds for run in runs])),
        max(run.fairness_worst for run in runs),
        round(float(np.mean([run.restarts for run in runs]))),
        float(np.mean([run.decision_ms for run in runs])),
        sum(run.cpu_seconds for run in runs),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of each workload")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="loads to play")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="workloads to draw")
    parser.add_argument("--workers", type=int, default=cores(), help="runs at the same time")
    parser.add_argument("--quick", action="store_true", help="few jobs, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    folder = traces_folder()
    jobs, loads, seeds = chosen.jobs, tuple(chosen.loads), tuple(chosen.seeds)
    if chosen.quick:
        jobs, loads, seeds = 20, (4.0,), (1,)
    tables, good = [], True
    for load in loads:
        table, ahead = measure(folder, jobs, load, seeds, chosen.workers)
        tables.append(table)
        good = good and ahead
    if chosen.quick:
        print("\ntoo few jobs compete here to judge by")
        return 0
    print("\nyard is below both peers" if good else "\nyard is not below both peers")
    if chosen.write:
        write_section("mixed", [table.markdown() for table in tables])
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
