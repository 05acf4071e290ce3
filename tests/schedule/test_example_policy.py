"""The example package is found, listed, made and obeyed like any other third party's."""

from __future__ import annotations

import math
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.registry import ENTRY_POINT_GROUP, policies, policy
from modelyard.simulate.engine import simulate
from modelyard.simulate.generate import Mix, generate
from modelyard.simulate.result import JobOutcome
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.fixed import FixedWork

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "policies"
#: What the guide promises of each example.
MOST_LINES = 40

HOUR = 3600.0


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What an installer leaves behind: the modules, and the metadata beside them."""
    folder = tmp_path_factory.mktemp("site-packages")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for module in EXAMPLE.glob("*.py"):
        shutil.copy(module, folder)
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    points = project["entry-points"][ENTRY_POINT_GROUP]
    lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{name} = {target}" for name, target in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", ["patient", "even"])
def test_an_installed_policy_is_listed_with_its_package(name: str) -> None:
    entry = policies()[name]
    assert entry.package == "yard-policies-example"
    assert entry.error is None


def test_options_are_read_as_for_our_own() -> None:
    assert policies()["patient"].options() == {"hours": 24.0}
    assert policy("patient:hours=2").name == "patient:hours=2"


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**16),
    name=st.sampled_from(["patient", "patient:hours=0.5", "even"]),
    restart_seconds=st.sampled_from([0.0, 30.0]),
)
def test_every_job_ends_and_the_rules_hold(seed: int, name: str, restart_seconds: float) -> None:
    # `simulate` refuses decisions that break an invariant, so to come to an end is the test.
    workload = generate(25, seed=seed, load=1.5, cluster_devices=16, mix=_SMALL)
    scenario = Scenario(workload, uniform_cluster(4, 4), restart_seconds=restart_seconds)
    result = simulate(scenario, policy(name))
    assert len(result.jobs) == 25
    assert all(math.isfinite(job.finished) for job in result.jobs)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**16), hours=st.floats(0.1, 10.0))
def test_a_rank_that_expires_is_the_same_with_and_without_a_lane(seed: int, hours: float) -> None:
    workload = generate(40, seed=seed, load=1.5, cluster_devices=16, mix=_SMALL)
    scenario = Scenario(workload, uniform_cluster(4, 4))
    chosen = policy(f"patient:hours={hours}")
    assert simulate(scenario, chosen).jobs == simulate(scenario, chosen, use_lane=False).jobs


def test_patience_ends_at_the_promised_moment() -> None:
    """A large job is passed by small ones for two hours, and then by nobody."""
    small = [_rigid(f"small-{index}", 600.0 * index, 1, HOUR) for index in range(40)]
    workload = _workload([*small, _rigid("large", 300.0, 4, HOUR)])
    scenario = Scenario(workload, uniform_cluster(1, 4), restart_seconds=0.0)
    started = {
        hours: _run(scenario, f"patient:hours={hours}")["large"].started for hours in (2, 100)
    }
    assert started[2] == pytest.approx(300.0 + 2 * HOUR)
    assert started[100] > started[2]


def test_even_shares_grow_when_others_end() -> None:
    elastic = [
        TraceJob(f"job-{index}", 0.0, 4, FixedWork(HOUR * (1 + index), 1), 1, 8)
        for index in range(2)
    ]
    scenario = Scenario(_workload(elastic), uniform_cluster(1, 8), restart_seconds=0.0)
    segments = simulate(scenario, policy("even")).segments
    assert [(part.job, part.parts[0][1]) for part in segments] == [
        ("job-0", 4),
        ("job-1", 4),
        ("job-1", 8),
    ]


_SMALL = Mix(
    median_seconds=1_200.0,
    tail_share=0.0,
    longest_seconds=20_000.0,
    size_weights=(0.5, 0.2, 0.2, 0.1),
    priority_weights=(1.0,),
    elastic_share=0.5,
)


def _rigid(name: str, submitted: float, devices: int, seconds: float) -> TraceJob:
    return TraceJob(name, submitted, devices, FixedWork(seconds, devices))


def _workload(jobs: list[TraceJob]) -> Workload:
    return Workload("made by hand", tuple(sorted(jobs, key=lambda job: job.submitted)))


def _run(scenario: Scenario, name: str) -> dict[str, JobOutcome]:
    return {job.id: job for job in simulate(scenario, policy(name)).jobs}
