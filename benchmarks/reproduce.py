"""Published results of the policies against ours, on the traces that made them.

    python benchmarks/reproduce.py [--only itp|muri|pollux] [--quick] [--write]

Prints a table per source; ends with 1 when a figure misses its tolerance, with 0 otherwise and
where the traces are absent.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Task, run_each
from modelyard.simulate.compare import cores
from table import Table, write_section
from traces import GITTINS, ITP, Played, Run, play, traces_folder

COLUMNS = {
    "setting": 10,
    "policy": 16,
    "published": 9,
    "measured": 9,
    "ratio": 6,
    "within": 6,
    "": 4,
    "CPU s": 6,
}

#: How Tiresias runs inside Pollux's artifact: two queues, each in order of submission.
TIRESIAS_OF_POLLUX = "tiresias-las:limits=57600:by_arrival=true:strategy=roomiest"
#: How Muri's simulator places: tight spots only, everything anew at each decision.
REPACKED = "strategy=strict:repack=true"


@dataclass(frozen=True, slots=True)
class Figure:
    """A published mean completion time and the run that should give it."""

    setting: str
    policy: str
    published_seconds: float
    run: Run


@dataclass(frozen=True, slots=True)
class Source:
    """Figures of one origin. `tolerance` is for each, `mean_tolerance` for a policy's mean."""

    name: str
    title: str
    tolerance: float
    figures: tuple[Figure, ...]
    mean_tolerance: float | None = None


def itp() -> Source:
    """Run with Tiresias' public simulator on the trace."""
    policies = ("fifo", "fifo-backfill", "srtf", "srsf", "las", "tiresias-las", GITTINS)
    published = {
        12: (366_465, 132_190, 40_409, 41_166, 67_475, 74_117, 60_768),
        16: (81_211, 42_455, 29_501, 29_252, 34_561, 38_548, 34_051),
    }
    return Source(
        "itp",
        "ITP cluster06, 2,396 rigid jobs: Tiresias' public simulator (mean JCT in seconds)",
        0.05,
        tuple(
            Figure(f"{nodes} × 8", text.partition(":")[0], seconds, Run(ITP, nodes, 8, text))
            for nodes, row in published.items()
            for text, seconds in zip(policies, row, strict=True)
        ),
    )


def muri() -> Source:
    """Muri's own simulator: results in its repository."""
    published = {
        f"srtf:{REPACKED}": (1_370_603, 2_665_607),
        f"srsf:{REPACKED}": (980_141, 2_213_950),
        "tiresias-las": (3_330_371, 7_396_369),
    }
    return Source(
        "muri",
        "Muri traces on 8 × 8: the simulator of Muri (mean JCT in seconds)",
        0.10,
        tuple(
            Figure(
                f"trace{number}",
                text.partition(":")[0],
                row[number - 1],
                Run(f"muri/trace{number}.csv.gz", 8, 8, text),
            )
            for number in (1, 2)
            for text, row in published.items()
        ),
    )


def pollux() -> Source:
    """The raw results in the artifact of the paper, at its usual load."""
    published = {
        TIRESIAS_OF_POLLUX: (2_474, 5_145, 3_876, 3_280),
        "optimus": (4_087, 6_914, 3_944, 5_968),
        "pollux": (2_089, 3_323, 2_188, 2_721),
    }
    return Source(
        "pollux",
        "Pollux workloads, 160 elastic jobs on 16 × 4: Pollux's artifact (mean JCT in seconds)",
        0.10,
        tuple(
            Figure(
                f"workload-{number}",
                text.partition(":")[0],
                seconds,
                Run(f"pollux/workloads/workload-{number}.csv", 16, 4, text, 60.0, 30.0),
            )
            for text, row in published.items()
            for number, seconds in enumerate(row, start=1)
        ),
        mean_tolerance=0.05,
    )


#: The fast ones first.
SOURCES = (itp, muri, pollux)


def measure(source: Source, folder: Path, workers: int) -> tuple[Table, int]:
    """Play all figures of a source; the table and how many missed."""
    table = Table(source.title, COLUMNS, words=("setting", "policy", ""))
    table.begin()
    tasks = [
        Task(f"{figure.policy} {figure.setting}", play, (folder, figure.run))
        for figure in source.figures
    ]
    played: dict[int, Played] = {}
    missed = 0
    for place, result in run_each(tasks, workers=workers):
        figure, played[place] = source.figures[place], result
        cells, good = _judged(figure.published_seconds, result.jct_mean_seconds, source.tolerance)
        table.add(figure.setting, figure.policy, *cells, f"{result.cpu_seconds:.1f}", place=place)
        missed += not good
    if source.mean_tolerance is not None:
        for policy, published, measured in _means(source.figures, played):
            cells, good = _judged(published, measured, source.mean_tolerance)
            table.add("mean", policy, *cells, "")
            missed += not good
    return table, missed


def _judged(published: float, measured: float, tolerance: float) -> tuple[list[str], bool]:
    ratio = measured / published
    good = abs(ratio - 1.0) <= tolerance
    return [
        f"{published:,.0f}",
        f"{measured:,.0f}",
        f"{ratio:.3f}",
        f"{tolerance:.0%}",
        "ok" if good else "MISS",
    ], good


def _means(
    figures: Sequence[Figure], played: dict[int, Played]
) -> Iterator[tuple[str, float, float]]:
    """Each policy with its mean over settings, published and measured."""
    for policy in dict.fromkeys(figure.policy for figure in figures):
        places = [place for place, figure in enumerate(figures) if figure.policy == policy]
        published = sum(figures[place].published_seconds for place in places) / len(places)
        measured = sum(played[place].jct_mean_seconds for place in places) / len(places)
        yield policy, published, measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [make.__name__ for make in SOURCES]
    parser.add_argument("--only", choices=names, help="one source instead of all")
    parser.add_argument("--workers", type=int, default=cores(), help="runs at the same time")
    parser.add_argument("--quick", action="store_true", help="two figures, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    folder = traces_folder()
    sources = [make() for make in SOURCES if chosen.only in (None, make.__name__)]
    if chosen.quick:
        first = itp()
        sources = [Source(first.name, first.title, first.tolerance, first.figures[:2])]
    tables, missed = [], 0
    for source in sources:
        table, misses = measure(source, folder, chosen.workers)
        tables.append(table)
        missed += misses
    print(f"\n{missed} figures miss their tolerance" if missed else "\nall within tolerance")
    if chosen.write:
        write_section("reproduce", [table.markdown() for table in tables])
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
