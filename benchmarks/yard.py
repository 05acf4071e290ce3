"""The `yard` policy beside the others, on the traces that they were published with.

    python benchmarks/yard.py [--only elastic|ablation|rigid|decisions] [--quick] [--write]

Prints a table per question; ends with 1 when `yard` is not as far ahead as it should be, with 0
otherwise and where the traces are absent. Mixed clusters: `mixed.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from measure import Task, peak_bytes, run_each
from modelyard.schedule.yard.policy import yard
from modelyard.simulate.compare import cores
from moments import moment
from promises import Promise, listed, told
from reproduce import TIRESIAS_OF_POLLUX
from table import PAGE, Table, write_section
from traces import GITTINS, PHILLY, Played, Run, play, traces_folder

#: Where the ideas are explained.
CONCEPT = PAGE.parent / "concepts" / "yard.md"
WORKLOADS = (1, 2, 3, 4)
DECLARED = "yard:declared=true"
OWN_ONLY = "yard:history=false"
#: Mean of workloads 1 to 4: what `yard` must reach without and with declared lengths.
MEAN_AIMS = {"yard": 2_320.0, DECLARED: 2_060.0}
WORST_FAIRNESS = 1.5
INTERFERENCE, INTERFERENCE_TOLERANCE = 0.5, 0.05

#: Each idea left out or replaced, everything else as it is.
ABLATIONS = {
    "all of it": "",
    "no history: own measurements and age only": "history=false",
    "growth to twice the largest size tried": "growth=2",
    "speed-ups as they are, without the root": "concavity=1.0",
    "every change of size for free": "hold_restarts=1e9",
    "all jobs worth the same": "ranked=false",
    "no redress for jobs that fall behind": "redress=0.0",
}

RIGID = {
    "ITP 06": ("itp/cluster06.csv.gz", 12, 8),
    # As many nodes as give each trace about the load of the first.
    "ITP 01": ("itp/cluster01.csv.gz", 8, 8),
    "ITP 03": ("itp/cluster03.csv.gz", 19, 8),
    "Philly": (PHILLY, 52, 8),
    # Three quarters busy: most jobs never wait, and little is left to win.
    "Philly+": (PHILLY, 64, 8),
}
RIGID_POLICIES = ("tiresias-las", GITTINS, "srsf", "yard")
ITP_06_SECONDS = 50_000.0

#: Devices and jobs; seconds that a decision may take.
DECISION_SIZES = ((64, 64), (256, 256), (512, 512), (2_048, 1_024), (10_000, 5_000))
DECISION_AIMS = {64: 0.1, 10_000: 1.0}
DECISIONS = 5
BELOW_GITTINS = 0.9


@dataclass(slots=True)
class Part:
    """A table and what it has to show."""

    name: str
    table: Table
    promises: list[Promise]
    page: Path = PAGE


def _workload(number: int, policy: str, interference: float = 0.0) -> Run:
    trace = f"pollux/workloads/workload-{number}.csv"
    return Run(trace, 16, 4, policy, 60.0, 30.0, interference=interference)


def _play_all(
    folder: Path, runs: Sequence[Run], workers: int, show: Callable[[int, Played], None]
) -> list[Played]:
    tasks = [Task(f"{run.policy} {Path(run.trace).name}", play, (folder, run)) for run in runs]
    found: dict[int, Played] = {}
    for place, played in run_each(tasks, workers=workers):
        found[place] = played
        show(place, played)
    return [found[place] for place in range(len(runs))]


def _quietly(place: int, played: Played) -> None:
    """For tables whose rows are made of several runs."""


def elastic(folder: Path, workers: int, *, quick: bool) -> Part:
    """Pollux's workloads: everyone, with and without declared lengths and interference."""
    policies = (TIRESIAS_OF_POLLUX, "optimus", "pollux", "sia", OWN_ONLY, "yard", DECLARED)
    numbers = WORKLOADS[:1] if quick else WORKLOADS
    if quick:
        policies = ("pollux", "yard")
    runs = [_workload(number, text) for text in policies for number in numbers]
    runs += [_workload(number, "yard", INTERFERENCE) for number in numbers]
    table = Table(
        "Pollux workloads, 160 elastic jobs on 16 × 4, rounds of 60 s, restart 30 s",
        {"policy": 20, "workload": 8, "disturbed": 9, "mean JCT": 8, "p99": 7, "worst ρ": 7},
        words=("policy",),
    )
    table.begin()

    def show(place: int, played: Played) -> None:
        run = runs[place]
        number = run.trace.removesuffix(".csv")[-1]
        table.add(
            _short(run.policy),
            number,
            f"{run.interference:.0%}" if run.interference else "",
            f"{played.jct_mean_seconds:,.0f}",
            f"{played.jct_p99_seconds:,.0f}",
            f"{played.worst_fairness:.2f}",
            place=place,
        )

    played = _play_all(folder, runs, workers, show)
    by_policy: dict[tuple[str, float], list[Played]] = {}
    for run, one in zip(runs, played, strict=True):
        by_policy.setdefault((run.policy, run.interference), []).append(one)
    for (policy, interference), rows in by_policy.items():
        table.add(
            _short(policy),
            "mean",
            f"{interference:.0%}" if interference else "",
            f"{mean(one.jct_mean_seconds for one in rows):,.0f}",
            f"{mean(one.jct_p99_seconds for one in rows):,.0f}",
            f"{max(one.worst_fairness for one in rows):.2f}",
        )
    promises = [] if quick else _elastic_promises(by_policy)
    return Part("elastic", table, promises)


def _elastic_promises(by_policy: dict[tuple[str, float], list[Played]]) -> list[Promise]:
    pollux = by_policy["pollux", 0.0]
    promises = []
    for policy, aim in MEAN_AIMS.items():
        rows = by_policy[policy, 0.0]
        average = mean(one.jct_mean_seconds for one in rows)
        promises.append(Promise(f"{policy}: mean {average:,.0f} s, aim {aim:,.0f}", average <= aim))
        ahead = [
            ours.jct_mean_seconds < theirs.jct_mean_seconds
            for ours, theirs in zip(rows, pollux, strict=True)
        ]
        promises.append(Promise(f"{policy}: below pollux on {sum(ahead)} of 4", all(ahead)))
        tails = [
            ours.jct_p99_seconds / theirs.jct_p99_seconds
            for ours, theirs in zip(rows, pollux, strict=True)
        ]
        ratios = ", ".join(f"{ratio:.2f}" for ratio in tails)
        promises.append(Promise(f"{policy}: p99 over pollux's {ratios}", max(tails) <= 1.0))
        worst = max(one.worst_fairness for one in rows)
        promises.append(
            Promise(f"{policy}: worst ρ {worst:.2f}, aim {WORST_FAIRNESS}", worst <= WORST_FAIRNESS)
        )
    calm = mean(one.jct_mean_seconds for one in by_policy["yard", 0.0])
    disturbed = mean(one.jct_mean_seconds for one in by_policy["yard", INTERFERENCE])
    change = disturbed / calm - 1.0
    promises.append(
        Promise(
            f"yard: {change:+.1%} with {INTERFERENCE:.0%} interference",
            abs(change) <= INTERFERENCE_TOLERANCE,
        )
    )
    return promises


def ablation(folder: Path, workers: int, *, quick: bool) -> Part:
    """What each idea is worth, on Pollux's workloads."""
    numbers = WORKLOADS[:1] if quick else WORKLOADS
    wanted = list(ABLATIONS.items())[:2] if quick else list(ABLATIONS.items())
    runs = [
        _workload(number, f"yard:{options}" if options else "yard")
        for _, options in wanted
        for number in numbers
    ]
    table = Table(
        "What each idea is worth: lengths unknown, means over Pollux workloads, seconds",
        {"yard with": 44, "mean JCT": 8, "change": 7, "p99": 7, "worst ρ": 7},
        words=("yard with",),
    )
    table.begin()
    played = _play_all(folder, runs, workers, _quietly)
    whole = mean(one.jct_mean_seconds for one in played[: len(numbers)])
    for row, (text, _) in enumerate(wanted):
        rows = played[row * len(numbers) : (row + 1) * len(numbers)]
        figure = mean(one.jct_mean_seconds for one in rows)
        table.add(
            text,
            f"{figure:,.0f}",
            f"{figure / whole - 1.0:+.1%}" if row else "",
            f"{mean(one.jct_p99_seconds for one in rows):,.0f}",
            f"{max(one.worst_fairness for one in rows):.2f}",
        )
    return Part("ablation", table, [], CONCEPT)


def rigid(folder: Path, workers: int, *, quick: bool) -> Part:
    """Rigid jobs of unknown length: least attained service, Gittins and the oracle beside."""
    wanted = dict(list(RIGID.items())[:1]) if quick else RIGID
    runs = [
        Run(trace, nodes, devices, policy)
        for trace, nodes, devices in wanted.values()
        for policy in RIGID_POLICIES
    ]
    labels = [label for label in wanted for _ in RIGID_POLICIES]
    table = Table(
        "Rigid jobs of unknown length (srsf is told the lengths), mean JCT in seconds",
        {"trace": 8, "cluster": 7, "policy": 16, "mean JCT": 9, "p99": 11, "CPU s": 6},
        words=("trace", "policy"),
    )
    table.begin()

    def show(place: int, played: Played) -> None:
        run = runs[place]
        table.add(
            labels[place],
            f"{run.nodes} × {run.devices_per_node}",
            _short(run.policy),
            f"{played.jct_mean_seconds:,.0f}",
            f"{played.jct_p99_seconds:,.0f}",
            f"{played.cpu_seconds:.1f}",
            place=place,
        )

    played = _play_all(folder, runs, workers, show)
    promises = []
    for label in wanted:
        found = {
            run.policy: one.jct_mean_seconds
            for run, one, of in zip(runs, played, labels, strict=True)
            if of == label
        }
        ratio = found["yard"] / found[GITTINS]
        promises.append(Promise(f"{label}: {ratio:.2f} of Gittins", ratio <= BELOW_GITTINS))
        if label == "ITP 06":
            text = f"{label}: {found['yard']:,.0f} s, aim {ITP_06_SECONDS:,.0f}"
            promises.append(Promise(text, found["yard"] <= ITP_06_SECONDS))
    return Part("rigid", table, promises)


@dataclass(frozen=True, slots=True)
class Decided:
    """CPU seconds of the first decision, of later ones (median), and the most memory held."""

    first_seconds: float
    later_seconds: float
    peak_bytes: int


def decide(devices: int, jobs: int) -> Decided:
    """Half of the jobs elastic, each with a speed of its own; see `moments.py`."""
    view = moment(devices, elastic=True, oracle=False, jobs=jobs)
    made = yard()
    seconds = []
    for _ in range(DECISIONS):
        began = time.process_time()
        made.decide(view)
        seconds.append(time.process_time() - began)
    return Decided(seconds[0], median(seconds[1:]), peak_bytes())


def decisions(folder: Path, workers: int, *, quick: bool) -> Part:
    """How long one decision takes, and how that grows."""
    del folder, workers
    sizes = DECISION_SIZES[:1] if quick else DECISION_SIZES
    table = Table(
        "One decision of yard: CPU milliseconds (later: beliefs that did not change are kept)",
        {"devices": 8, "jobs": 8, "first": 8, "later": 8, "peak MB": 8},
    )
    table.begin()
    tasks = [Task(f"{devices:,} devices", decide, (devices, jobs)) for devices, jobs in sizes]
    promises = []
    # One at a time: two would slow each other down.
    for place, one in run_each(tasks, workers=1):
        devices, jobs = sizes[place]
        table.add(
            f"{devices:,}",
            f"{jobs:,}",
            f"{1000 * one.first_seconds:,.0f}",
            f"{1000 * one.later_seconds:,.0f}",
            f"{one.peak_bytes / 1e6:,.0f}",
            place=place,
        )
        aim = DECISION_AIMS.get(devices)
        if aim is not None:
            text = f"{devices:,} devices: {one.first_seconds:.2f} s, aim {aim:.1f} s"
            promises.append(Promise(text, one.first_seconds <= aim))
    return Part("decisions", table, promises)


def _short(policy: str) -> str:
    """Without options that only say how the authors ran it."""
    return policy if policy.startswith("yard") else policy.partition(":")[0]


PARTS = (elastic, rigid, decisions, ablation)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS])
    parser.add_argument("--workers", type=int, default=cores(), help="runs at the same time")
    parser.add_argument("--quick", action="store_true", help="little of each, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    folder = traces_folder()
    kept = True
    for make in PARTS:
        if chosen.only not in (None, make.__name__):
            continue
        part = make(folder, chosen.workers, quick=chosen.quick)
        kept &= told(part.promises)
        if chosen.write:
            parts = [part.table.markdown(), *([listed(part.promises)] if part.promises else [])]
            write_section(f"yard-{part.name}", parts, part.page)
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
