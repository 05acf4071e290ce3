"""Public traces: where they are, and one policy played on one of them."""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import peak_bytes, report
from modelyard.schedule.registry import policy
from modelyard.simulate.engine import simulate
from modelyard.simulate.numbers import read_numbers
from modelyard.simulate.readers import read_workload
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import Workload
from modelyard.spec.cluster import uniform_cluster

DATA_VARIABLE = "MODELYARD_DATA"
DATA_BESIDE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"

ITP = "itp/cluster06.csv.gz"
PHILLY = "philly.csv.gz"
#: Tiresias' samples of GPU time, for Gittins' index
GITTINS = "tiresias-gittins:samples=tiresias/yarn-gput1000.csv"


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation. `policy` is what a user would type; its files are those of the traces."""

    trace: str
    nodes: int
    devices_per_node: int
    policy: str
    round_seconds: float = 0.0
    restart_seconds: float = 0.0
    #: the first so many jobs of a gzipped trace only
    jobs: int | None = None
    #: what distributed jobs that share a node lose of their speed
    interference: float = 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a run, and what it cost; reading the trace is not part of `cpu_seconds`."""

    jobs: int
    jct_mean_seconds: float
    jct_p99_seconds: float
    worst_fairness: float
    utilisation: float
    events: int
    cpu_seconds: float
    peak_bytes: int


def traces_folder() -> Path:
    """The folder of public traces; without one the script ends, saying that it was skipped."""
    named = os.environ.get(DATA_VARIABLE)
    folder = (Path(named) if named else DATA_BESIDE_REPOSITORY) / "traces"
    if not folder.is_dir():
        print(
            f"skipped: no public traces at {folder}; set {DATA_VARIABLE} to the folder of traces/"
        )
        raise SystemExit(0)
    return folder


def play(folder: Path, run: Run) -> Played:
    """Read a trace and play it."""
    profiles = folder / "pollux" / "profiles"
    with TemporaryDirectory() as scratch:
        path = folder / run.trace
        if run.jobs is not None:
            path = _first_lines(path, run.jobs + 1, Path(scratch))
        workload = read_workload(path, profiles=profiles)
    return played(workload, run, folder)


def _first_lines(path: Path, count: int, scratch: Path) -> Path:
    """A shorter copy: a process that read the whole trace would have its memory, not the run's."""
    copy = scratch / path.name.removesuffix(".gz")
    with gzip.open(path, "rt", encoding="utf-8") as whole:
        copy.write_text("".join(islice(whole, count)), encoding="utf-8")
    return copy


def played(workload: Workload, run: Run, folder: Path) -> Played:
    """Play a workload that is at hand."""
    scenario = Scenario(
        workload,
        uniform_cluster(run.nodes, run.devices_per_node),
        round_seconds=run.round_seconds,
        restart_seconds=run.restart_seconds,
        interference=run.interference,
    )
    made = policy(run.policy, read_numbers=lambda name: read_numbers(str(folder / name)))
    began = time.process_time()
    result = simulate(scenario, made, on_progress=report)
    cpu_seconds = time.process_time() - began
    return Played(
        jobs=len(result.jobs),
        jct_mean_seconds=result.metrics.jct_mean,
        jct_p99_seconds=result.metrics.jct_p99,
        worst_fairness=result.metrics.fairness_worst,
        utilisation=result.metrics.utilisation,
        events=result.events,
        cpu_seconds=cpu_seconds,
        peak_bytes=peak_bytes(),
    )
