"""Limits: kept by control groups where there are any, watched or plainly missing elsewhere."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from modelyard.engines.interface import Exit, Limits, Report
from modelyard.engines.local.engine import LocalEngine
from modelyard.engines.local.keeper import groups, hierarchy

from .real_yard import Yard

MIB = 1 << 20

#: touches 300 MiB, piece by piece
HUNGRY = """
import time
kept = []
for _ in range(30):
    kept.append(b"x" * (10 << 20))
    time.sleep(0.02)
time.sleep(600)
"""


def run(yard: Yard, argv: tuple[str, ...], limits: Limits) -> Report:
    """Run to the end under limits; skip where the machine cannot keep them."""
    task = replace(yard.task("job", ""), argv=argv, limits=limits)
    yard.engine.start(task, term=1)
    if yard.engine.use_groups and (missing := yard.report(task.name).unlimited):
        pytest.skip(f"limits cannot be kept here: {'; '.join(missing)}")
    return yard.end(task.name)


def ended(report: Report) -> Exit:
    assert report.exit is not None
    return report.exit


def test_too_much_memory_is_told_from_other_deaths(yard: Yard) -> None:
    report = run(yard, (sys.executable, "-c", HUNGRY), Limits(memory_bytes=100 * MIB))
    assert ended(report).out_of_memory
    assert ended(report).signal == signal.SIGKILL


def test_a_task_that_was_killed_within_its_memory_did_not_run_out_of_it(yard: Yard) -> None:
    """Whatever the machine killed for want of memory meanwhile, such as a test beside this one."""
    report = run(yard, ("sh", "-c", "kill -9 $$"), Limits(memory_bytes=100 * MIB))
    assert ended(report).signal == signal.SIGKILL
    assert not ended(report).out_of_memory


def test_a_killed_child_counts_as_out_of_memory_when_the_task_fails_for_it(yard: Yard) -> None:
    child = f"""import subprocess, sys
sys.exit(3 if subprocess.call([sys.executable, "-c", {HUNGRY!r}]) else 0)"""
    report = run(yard, (sys.executable, "-c", child), Limits(memory_bytes=100 * MIB))
    assert ended(report).out_of_memory
    # Version 2 kills all of the group, version 1 only the child.
    assert (ended(report).code, ended(report).signal) in ((3, None), (None, signal.SIGKILL))


def test_a_death_by_somebody_elses_limit_is_recognised(yard: Yard) -> None:
    """As in a container with less memory than its tasks want together."""
    places, missing = hierarchy.places_here(["memory"], use_groups=True)
    outer = groups.planned(places, f"yard-test-{os.getpid()}")
    missing += groups.make(outer, {"memory": float(100 * MIB)}, places)
    try:
        if missing:
            pytest.skip("; ".join(missing))
        enter = f"echo $$ > {outer.paths['memory']}/cgroup.procs; "
        name = yard.start("job", enter + f"exec {sys.executable} -c '{HUNGRY}'")
        report = yard.end(name)
        assert ended(report).signal == signal.SIGKILL
        assert ended(report).out_of_memory
    finally:
        outer.remove()


def test_without_groups_memory_is_watched_and_that_is_said(yard: Yard) -> None:
    yard.engine = LocalEngine(yard.engine.folder, use_groups=False)
    child = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {HUNGRY!r}])"
    report = run(
        yard,
        (sys.executable, "-c", child),
        Limits(memory_bytes=100 * MIB, cores=1, processes=100),
    )
    assert ended(report).out_of_memory
    assert len(report.unlimited) == 3
    assert any("memory" in each and "instead" in each for each in report.unlimited)


def test_memory_that_is_shared_with_forks_counts_once(yard: Yard) -> None:
    yard.engine = LocalEngine(yard.engine.folder, use_groups=False)
    family = """import os, time
kept = b"x" * (70 << 20)
for _ in range(3):
    if not os.fork():
        break
time.sleep(1.5)"""
    report = run(yard, (sys.executable, "-c", family), Limits(memory_bytes=100 * MIB))
    assert ended(report).code == 0


def test_a_task_within_its_limits_is_left_alone(yard: Yard) -> None:
    limits = Limits(memory_bytes=500 * MIB, cores=1.5, processes=50)
    report = run(yard, ("sh", "-c", "echo fine"), limits)
    assert ended(report).code == 0
    assert not ended(report).out_of_memory


def test_no_more_processes_than_allowed(yard: Yard) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; echo never"
    report = run(yard, ("sh", "-c", script), Limits(processes=5))
    assert ended(report).code not in (0, None)
    assert b"fork" in yard.log(yard.name("job"))


def test_half_a_core_is_half_a_core(yard: Yard) -> None:
    spin = "import time\nt = time.monotonic()\nwhile time.monotonic() < t + 1: pass\n"
    spin += "print(time.process_time() / (time.monotonic() - t))"
    run(yard, (sys.executable, "-c", spin), Limits(cores=0.3))
    assert float(yard.log(yard.name("job"))) < 0.45


def test_groups_are_gone_with_their_tasks(yard: Yard) -> None:
    task = replace(yard.task("job", "sleep 600"), limits=Limits(processes=20))
    yard.engine.start(task, term=1)
    if missing := yard.report(task.name).unlimited:
        pytest.skip("; ".join(missing))
    lines = (yard.facts(task.name) / "claim").read_text().splitlines()
    folders = [line.removeprefix("group ") for line in lines if line.startswith("group ")]
    assert [Path(folder).is_dir() for folder in folders] == [True]
    yard.stop(task.name)
    yard.end(task.name)
    assert [Path(folder).is_dir() for folder in folders] == [False]


@pytest.mark.slow
def test_a_fork_bomb_dies(yard: Yard) -> None:
    bomb = "b() { b | b & }; echo ready; b; sleep 600"
    task = replace(yard.task("job", bomb), limits=Limits(processes=200))
    yard.engine.start(task, term=1)
    if missing := yard.report(task.name).unlimited:
        pytest.skip("; ".join(missing))
    time.sleep(1.0)
    yard.stop(task.name)
    yard.end(task.name)
    assert yard.processes() == []


# Version 2 cannot be had on every machine: a folder with the kernel's files stands in for it.

MEMBERSHIP = b"0::/yard.service/server\n"


def unified(folder: Path, *, controllers: str = "cpu memory pids", enabled: str = "") -> Path:
    own = folder / "yard.service" / "server"
    own.mkdir(parents=True)
    for place in (own, own.parent):
        (place / "cgroup.controllers").write_text(controllers)
        (place / "cgroup.subtree_control").write_text(enabled)
    return own


def mounts(folder: Path) -> bytes:
    return b"30 23 0:26 / %s rw shared:4 - cgroup2 cgroup2 rw\n" % os.fsencode(folder)


def test_version_2_divides_its_own_group_where_the_kernel_lets_it(tmp_path: Path) -> None:
    own = unified(tmp_path)
    found, missing = hierarchy.places(
        ["memory", "cpu"], mounts=mounts(tmp_path), membership=MEMBERSHIP
    )
    assert missing == []
    assert found == {"memory": (str(own), True), "cpu": (str(own), True)}
    assert (own / "cgroup.subtree_control").read_text() == "+cpu"


def test_version_2_uses_a_delegated_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = unified(tmp_path, enabled="memory")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    found, _ = hierarchy.places(["memory"], mounts=mounts(tmp_path), membership=MEMBERSHIP)
    assert found == {"memory": (str(own.parent), True)}


def test_version_2_says_which_controller_is_missing(tmp_path: Path) -> None:
    unified(tmp_path, controllers="cpu")
    found, missing = hierarchy.places(["memory"], mounts=mounts(tmp_path), membership=MEMBERSHIP)
    assert found == {}
    assert missing[0].startswith("memory: ")


def test_version_1_is_preferred_where_it_has_the_controller(tmp_path: Path) -> None:
    (tmp_path / "pids" / "inner").mkdir(parents=True)
    text = b"31 23 0:27 /outer %s rw - cgroup cgroup rw,pids\n" % os.fsencode(tmp_path / "pids")
    found, missing = hierarchy.places(
        ["pids", "memory"], mounts=text, membership=b"4:pids:/outer/inner\n0::/\n"
    )
    assert found == {"pids": (str(tmp_path / "pids" / "inner"), False)}
    assert missing == ["memory: no control groups for memory are mounted"]


def test_limits_of_version_2_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    wanted = {"cpu": 1.5, "memory": float(100 * MIB), "pids": 20.0}
    places = dict.fromkeys(wanted, (str(tmp_path), True))
    planned = groups.planned(places, "yard-task")
    folder = tmp_path / "yard-task"
    folder.mkdir()
    for name in ("cpu.max", "memory.max", "memory.oom.group", "pids.max", "cgroup.procs"):
        (folder / name).touch()
    assert groups.make(planned, wanted, places) == []
    planned.enter(123)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "cpu.max": "150000 100000",
        "memory.max": str(100 * MIB),
        "memory.oom.group": "1",
        "pids.max": "20",
        "cgroup.procs": "123",
    }
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert planned.memory_kills() == 2


def test_a_limit_that_the_kernel_refuses_is_reported(tmp_path: Path) -> None:
    places = {"memory": (str(tmp_path), True)}
    refused = groups.make(groups.planned(places, "yard-task"), {"memory": 1.0}, places)
    assert len(refused) == 1
    assert refused[0].startswith("memory: ")
