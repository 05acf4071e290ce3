"""The trained scheduler against those it learnt from, on workloads that it has never seen.

    python benchmarks/dl2.py [--quick] [--write] [--weights FILE]

The setting is DL²'s: eight job types with parameter servers (`modelyard.learn.setting`). Prints a
row per workload; ends with 1 when `dl2` misses what it promises, with 0 otherwise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import fmean

from measure import Task, report, run_each
from modelyard.learn.course import teacher
from modelyard.learn.plan import JUDGING_SEED
from modelyard.learn.setting import Setting
from modelyard.simulate.compare import cores
from modelyard.simulate.engine import simulate
from table import Table, write_section

#: Mean completion time over all workloads has to be below these policies' by so much.
PROMISES = {"mesos": 0.15, "optimus": 0.05}
#: `mesos` leaves jobs the sizes that users ask for, `drf` gives all of them equal shares, as the
#: paper's does. `soonest` is the teacher.
OTHERS = ("mesos", "drf", "optimus", "soonest")
WORKLOADS = 10
QUICK_WORKLOADS = 2
COLUMNS = {"workload": 10, **dict.fromkeys(OTHERS, 9), "dl2": 9, "below optimus": 13}


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one workload; `text` is what a user would type, or the name of a teacher."""

    text: str
    seed: int


def play(run: Run) -> float:
    """Mean completion time in seconds."""
    made = teacher(run.text)
    return simulate(Setting().scenario(run.seed), made, on_progress=report).metrics.jct_mean


def measure(workloads: int, own: str, workers: int) -> tuple[Table, dict[str, float]]:
    """Play everything; the table, and each policy's mean over the workloads."""
    table = Table(
        f"Mean JCT in seconds on {workloads} unseen workloads of 60 jobs with parameter servers, "
        "4 × 8 devices, 20-minute slots",
        COLUMNS,
        words=("workload",),
    )
    table.begin()
    texts = (*OTHERS, own)
    seeds = range(JUDGING_SEED, JUDGING_SEED + workloads)
    runs = [Run(text, seed) for seed in seeds for text in texts]
    tasks = [Task(f"{run.text} {run.seed}", play, (run,)) for run in runs]
    seconds: dict[Run, float] = {}
    for place, value in run_each(tasks, workers=workers):
        run = runs[place]
        seconds[run] = value
        row = [seconds.get(Run(text, run.seed)) for text in texts]
        if None not in row:
            table.add(*_cells(str(run.seed), [value for value in row if value]), place=run.seed)
    means = {text: fmean(seconds[Run(text, seed)] for seed in seeds) for text in texts}
    table.add(*_cells("mean", list(means.values())), place=JUDGING_SEED + workloads)
    return table, {"dl2" if text == own else text: value for text, value in means.items()}


def _cells(name: str, row: list[float]) -> list[str]:
    below = 1.0 - row[-1] / row[OTHERS.index("optimus")]
    return [name, *(f"{value:,.0f}" for value in row), f"{below:.1%}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=cores(), help="runs at the same time")
    parser.add_argument("--quick", action="store_true", help="two workloads, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--weights", default="", help="a file of 'yard learn' instead of ours")
    chosen = parser.parse_args()
    own = f"dl2:{chosen.weights}" if chosen.weights else "dl2"
    workloads = QUICK_WORKLOADS if chosen.quick else WORKLOADS
    table, means = measure(workloads, own, chosen.workers)
    verdicts = []
    missed = 0
    for name, promise in PROMISES.items():
        below = 1.0 - means["dl2"] / means[name]
        good = below >= promise
        missed += not good
        verdicts.append(
            f"{'ok' if good else 'MISS'}: {below:.1%} below {name}, at least {promise:.0%} promised"
        )
    print("\n" + "\n".join(verdicts))
    if chosen.write:
        write_section("dl2", [table.markdown(), "\n".join(f"- {line}" for line in verdicts)])
    return 1 if missed and not chosen.quick else 0


if __name__ == "__main__":
    raise SystemExit(main())
