"""Policies side by side: in one process or several, with failures and interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from modelyard.errors import InputError, PolicyError
from modelyard.schedule.view import View
from modelyard.simulate import play as playing
from modelyard.simulate.compare import Comparison, compare
from modelyard.simulate.engine import snapshot
from modelyard.simulate.generate import generate
from modelyard.simulate.pool import pickled
from modelyard.simulate.readers import read_workload
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Faults, Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.fixed import FixedWork

POLICIES = ("fifo", "srtf", "tiresias-las:limits=600/3600", "pollux")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    workload = generate(30, seed=4, load=1.2, cluster_devices=16)
    faults = Faults(mean_seconds_between=200_000.0, seed=3)
    return Scenario(workload, uniform_cluster(2, 8), round_seconds=300.0, faults=faults)


def timeless(result: Result) -> Result:
    """A result without the one thing that is measured with a clock."""
    return replace(result, decision_seconds=())


def test_results_do_not_depend_on_the_number_of_workers(scenario: Scenario) -> None:
    alone = compare(scenario, POLICIES, workers=1)
    # Processes, because what is tested is that they change nothing.
    together = compare(scenario, POLICIES, workers=2)
    assert [result.policy for result in alone.results] == list(POLICIES)
    assert list(map(timeless, alone.results)) == list(map(timeless, together.results))
    assert not alone.failures
    assert not together.unfinished


def test_the_best_mean_comes_first(scenario: Scenario) -> None:
    ranked = compare(scenario, ("fifo", "srtf"), workers=1).ranked
    means = [result.metrics.jct_mean for result in ranked]
    assert means == sorted(means)


def test_a_policy_named_twice_is_played_once(scenario: Scenario) -> None:
    assert len(compare(scenario, ("fifo", "fifo"), workers=1).results) == 1


def test_progress_rises_and_everyone_is_reported_done(scenario: Scenario) -> None:
    shares: dict[str, list[float]] = {}
    ended: list[str] = []
    compare(
        scenario,
        ("fifo", "las"),
        workers=2,
        on_progress=lambda text, share: shares.setdefault(text, []).append(share),
        on_done=lambda text, outcome: ended.append(text),
    )
    assert sorted(ended) == ["fifo", "las"]
    for told in shares.values():
        assert told == sorted(told)
        assert 0.0 < told[0] <= told[-1] <= 1.0


def test_all_wrong_policies_are_told_at_once_and_nothing_is_played(scenario: Scenario) -> None:
    with pytest.raises(InputError) as caught:
        compare(scenario, ("fifo", "fivo", "srtf:speed=3"), workers=1, on_done=_never)
    assert "unknown policy 'fivo'" in str(caught.value)
    assert "no option 'speed'" in str(caught.value)
    with pytest.raises(InputError, match="no policy"):
        compare(scenario, (), workers=1)


def _never(text: str, outcome: object) -> None:
    raise AssertionError(f"{text} was played")


@pytest.mark.parametrize(
    "error", [PolicyError("it broke a rule", fix="mend it"), ZeroDivisionError("oh")]
)
def test_a_failing_run_does_not_lose_the_others(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real = playing.simulate

    def fragile(scenario: Scenario, policy: object, **options: object) -> Result:
        if getattr(policy, "name", "") == "las":
            raise error
        return real(scenario, policy, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(playing, "simulate", fragile)
    compared = compare(scenario, ("fifo", "las", "srtf"), workers=1)
    assert [result.policy for result in compared.results] == ["fifo", "srtf"]
    (failure,) = compared.failures
    assert failure.policy == "las"
    assert str(error.args[0]) in str(failure)
    # A mistake that Modelyard knows needs no traceback; any other cannot be found without.
    assert bool(failure.traceback) == isinstance(error, ZeroDivisionError)


def test_a_run_that_gets_nowhere_ends_with_an_explanation() -> None:
    # Rounds go on for ever, so this would too if nobody looked.
    jobs = (TraceJob("picky", 0.0, 1, FixedWork(10.0, 1), kinds=("absent",)),)
    stuck = Scenario(Workload("stuck", jobs), uniform_cluster(1, 4), round_seconds=60.0)
    (failure,) = compare(stuck, ("fifo",), workers=1).failures
    assert "waiting for ever" in failure.message


def test_an_interrupted_comparison_keeps_what_has_finished(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(text: str, outcome: object) -> None:
        raise KeyboardInterrupt

    compared = compare(scenario, ("fifo", "srtf"), workers=1, on_done=interrupt)
    assert [result.policy for result in compared.results] == ["fifo"]
    assert compared.unfinished == ("srtf",)


def test_frozen_tables_survive_the_way_to_a_worker(tmp_path: Path) -> None:
    # Gavel's table holds mapping proxies, which pickle refuses to take along by itself.
    tables = tmp_path / "table.json"
    tables.write_text(json.dumps({"v100": {"('Net', 1)": {"null": 4.0}}}))
    trace = tmp_path / "jobs.trace"
    trace.write_text("Net\tpython\t.\t-n\t0\t400\t1\t1\t-1\t0.0\n")
    workload = read_workload(trace, tables=tables)
    cluster = uniform_cluster(1, 2, kind="V100")
    scenario = Scenario(workload, cluster, restart_seconds=0.0)
    compared = compare(scenario, ("fifo", "srtf"), workers=2)
    assert [result.metrics.jct_mean for result in compared.results] == [100.0, 100.0]
    assert pickled(scenario)


INTERRUPTED_SCRIPT = """
import sys
from pathlib import Path
from modelyard.simulate.compare import compare
from modelyard.simulate.readers import read_workload
from modelyard.simulate.scenario import Scenario
from modelyard.spec.cluster import uniform_cluster

if __name__ == "__main__":
    # Gavel solves a linear programme in each of 1,500 rounds, fifo sorts a list.
    scenario = Scenario(read_workload(Path(sys.argv[1])), uniform_cluster(2, 8), round_seconds=30.0)
    done = compare(
        scenario, ("fifo", "gavel", "gavel:objective=fairness"), workers=2,
        on_done=lambda text, outcome: print("ended", text, flush=True),
    )
    print([result.policy for result in done.results], done.unfinished)
"""


def alive(group: int) -> list[int]:
    """Processes of a group that are more than an entry waiting to be collected."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find processes")
@pytest.mark.parametrize("whom", ["group", "parent"])
def test_ctrl_c_stops_all_workers_and_keeps_finished_runs(tmp_path: Path, whom: str) -> None:
    # Real processes and a real signal: which of them sees it, and that none survives it, is
    # exactly what no fake can show. A terminal signals the whole group, `kill -INT` one process.
    trace, script = tmp_path / "jobs.csv", tmp_path / "script.py"
    rows = [f"job-{number},{60 * number},4,{1800 + number}\n" for number in range(100)]
    trace.write_text("id,submitted,devices,duration\n" + "".join(rows))
    script.write_text(INTERRUPTED_SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(script), str(trace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ended fifo\n"
        send = os.killpg if whom == "group" else os.kill
        send(process.pid, signal.SIGINT)
        out, complaint = process.communicate(timeout=60)
    assert out == "['fifo'] ('gavel', 'gavel:objective=fairness')\n"
    assert complaint == ""
    assert process.returncode == 0
    deadline = time.monotonic() + 30
    while alive(process.pid) and time.monotonic() < deadline:
        os.sched_yield()  # The system needs a moment to take dead processes off its list.
    assert alive(process.pid) == []


def test_snapshot_is_the_state_of_the_run_at_that_moment() -> None:
    jobs = (
        TraceJob("first", 0.0, 4, FixedWork(100.0, 4)),
        TraceJob("second", 10.0, 4, FixedWork(50.0, 4)),
    )
    world = Scenario(Workload("two", jobs), uniform_cluster(1, 4), restart_seconds=0.0)

    def at(moment: float) -> View:
        from modelyard.schedule.fifo import fifo

        return snapshot(world, fifo(), at=moment)

    assert [(job.id, job.running, job.service) for job in at(5.0).jobs] == [("first", True, 20.0)]
    assert [(job.id, job.running) for job in at(10.0).jobs] == [("first", True), ("second", False)]
    assert [(job.id, job.running) for job in at(100.0).jobs] == [("second", True)]
    assert len(at(1_000.0).jobs) == 0
    assert at(99.0).now == 99.0


def test_comparison_without_results_has_no_ranking() -> None:
    assert Comparison(()).ranked == ()
