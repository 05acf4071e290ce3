"""A grid of policies, clusters and loads: how completion times grow, and what would be enough.

sweep(scenario, ["fifo", "srtf"], clusters=["4x8", "6x8"], loads=[0.5, 1.0, 1.5])
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from modelyard.errors import InputError, Problem
from modelyard.simulate.compare import play_runs
from modelyard.simulate.play import Failure, OnDone, OnProgress, Outcome, Run
from modelyard.simulate.result import Metrics, Result
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.what_if import Change, changed, denser

POINT_COLUMNS = (
    *("policy", "cluster", "nodes", "devices", "load"),
    *(item.name for item in fields(Metrics)),
)


@dataclass(frozen=True, slots=True)
class Point:
    """What a policy makes of one cluster at one load."""

    policy: str
    cluster: str
    nodes: int
    devices: int
    load: float
    metrics: Metrics

    def as_json(self) -> dict[str, str | int | float]:
        """One level deep, in the order of `POINT_COLUMNS`."""
        return {
            "policy": self.policy,
            "cluster": self.cluster,
            "nodes": self.nodes,
            "devices": self.devices,
            "load": self.load,
            **asdict(self.metrics),
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """A place of the grid that can be played; its scenario has the load already."""

    scenario: Scenario
    policy: str
    load: float

    def __str__(self) -> str:
        return f"{self.policy} on {self.scenario.cluster.name} at load {self.load:.12g}"

    def point(self, metrics: Metrics) -> Point:
        """The place with what came of it."""
        cluster = self.scenario.cluster
        return Point(
            self.policy, cluster.name, len(cluster.nodes), cluster.devices, self.load, metrics
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """What came of each place of the grid: cluster by cluster, load by load, policy by policy."""

    points: tuple[Point, ...]
    #: by the text of their `Cell`
    failures: Mapping[str, Failure] = field(default_factory=dict)
    #: places that were not played to the end because somebody interrupted
    unfinished: tuple[str, ...] = ()

    def smallest(self, jct_mean: float) -> dict[tuple[str, float], Point | None]:
        """By policy and load the point with the fewest devices whose mean JCT is at most that.

        None where no cluster of the grid is enough.
        """
        best: dict[tuple[str, float], Point | None] = {}
        for point in self.points:
            key = point.policy, point.load
            known = best.setdefault(key, None)
            if point.metrics.jct_mean <= jct_mean and (not known or point.devices < known.devices):
                best[key] = point
        return best


def sweep(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    clusters: Sequence[str] = (),
    loads: Sequence[float] = (1.0,),
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone | None = None,
) -> Sweep:
    """Play every policy on every cluster (the scenario's own without any) at every load.

    Clusters are written as in `Change.nodes`. A failing point does not stop the others, and
    KeyboardInterrupt ends the sweep early: the points that are missing then are in `unfinished`.
    """
    scenarios = [changed(scenario, Change(nodes=text)) for text in clusters] or [scenario]
    grid = cells(scenarios, policies, loads)
    outcomes: dict[str, Metrics | Failure] = {}

    def done(name: str, outcome: Outcome) -> None:
        # The whole result of each point would fill the memory.
        outcomes[name] = outcome.metrics if isinstance(outcome, Result) else outcome
        if on_done:
            on_done(name, outcome)

    runs = {str(cell): Run(cell.scenario, cell.policy) for cell in grid}
    play_runs(runs, workers=workers, on_progress=on_progress, on_done=done)
    return gather_sweep(grid, outcomes)


def cells(
    scenarios: Iterable[Scenario], policies: Iterable[str], loads: Iterable[float]
) -> tuple[Cell, ...]:
    """Every policy in every scenario at every load, each once.

    Scenarios differ in their clusters, and by their names; `InputError` where they do not.
    """
    by_name: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for scenario in scenarios:
        name = scenario.cluster.name
        if by_name.setdefault(name, scenario).cluster != scenario.cluster:
            fix = "give each a 'name' of its own in its file"
            problems.append(Problem(f"two different clusters are called '{name}'", fix=fix))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    texts, steps = tuple(dict.fromkeys(policies)), tuple(dict.fromkeys(loads))
    # Clusters mostly have their workload in common, and a large one is not wanted many times over.
    workloads = {id(scenario.workload): scenario.workload for scenario in by_name.values()}
    dense = {
        (key, load): denser(workload, load) for key, workload in workloads.items() for load in steps
    }
    worlds = [
        (replace(scenario, workload=dense[id(scenario.workload), load]), load)
        for scenario in by_name.values()
        for load in steps
    ]
    return tuple(Cell(scenario, text, load) for scenario, load in worlds for text in texts)


def gather_sweep(grid: Iterable[Cell], outcomes: Mapping[str, Metrics | Failure]) -> Sweep:
    """What is known of each place; one without an outcome is unfinished."""
    known = [(cell, outcomes.get(str(cell))) for cell in grid]
    return Sweep(
        points=tuple(cell.point(found) for cell, found in known if isinstance(found, Metrics)),
        failures={str(cell): found for cell, found in known if isinstance(found, Failure)},
        unfinished=tuple(str(cell) for cell, found in known if found is None),
    )


def points_csv(points: Iterable[Point]) -> str:
    """One row per point; floats as `repr` writes them, so that nothing is lost."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, POINT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(point.as_json() for point in points)
    return stream.getvalue()
