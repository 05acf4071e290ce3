"""A task's life: started once, reported truthfully, ended with all that it started."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from modelyard.engines.interface import (
    CannotStart,
    Limits,
    Phase,
    Superseded,
    TaskName,
    Unavailable,
    parse_task_name,
)
from modelyard.engines.local.engine import LocalEngine
from modelyard.errors import InputError

from .real_yard import Yard, alive


def test_a_task_runs_and_says_how_it_ended(yard: Yard) -> None:
    name = yard.start("job", "echo out; echo error >&2; exit 3")
    report = yard.end(name)
    assert (report.phase, report.node) == (Phase.ENDED, "here")
    assert report.exit is not None
    assert (report.exit.code, report.exit.signal, report.exit.asked) == (3, None, False)
    assert report.started is not None
    assert report.started <= report.exit.at
    assert yard.log(name) == b"out\nerror\n"


def test_starting_twice_starts_once(yard: Yard) -> None:
    task = yard.task("job", "echo start >> $journal; sleep 600")
    threads = [
        threading.Thread(target=yard.engine.start, args=(task,), kwargs={"term": 1})
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yard.until(yard.lines)
    yard.engine.start(task, term=1)
    assert yard.lines() == ["start"]
    assert [report.phase for report in yard.engine.reports()] == [Phase.RUNNING]


def test_what_cannot_run_is_refused_and_leaves_nothing(yard: Yard) -> None:
    task = yard.task("job", "true")
    for wrong in (
        replace(task, argv=("no-such-program",)),
        replace(task, argv=("./no-such-program",)),
        replace(task, argv=()),
        replace(task, argv=("sh", "-c", "echo \0")),
        replace(task, folder=str(yard.folder / "nowhere")),
        replace(task, environment={"A=B": "c"}),
        replace(task, limits=Limits(cores=float("nan"))),
        replace(task, limits=Limits(memory_bytes=0)),
    ):
        with pytest.raises(CannotStart):
            yard.engine.start(wrong, term=1)
    assert yard.engine.reports() == []


def test_a_program_without_its_interpreter_ends_with_the_reason(yard: Yard) -> None:
    program = yard.folder / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    yard.engine.start(replace(yard.task("job", ""), argv=("./program",)), term=1)
    report = yard.end(yard.name("job"))
    assert report.exit is not None
    assert report.exit.code == 127
    assert b"cannot run './program'" in yard.log(yard.name("job"))


def test_a_task_that_is_asked_to_end_may_take_its_time(yard: Yard) -> None:
    name = yard.start("job", 'trap "sleep 0.5; exit 5" TERM; echo ready; sleep 600 & wait')
    yard.until(lambda: yard.log(name))
    yard.stop(name, 600.0)
    assert yard.report(name).phase is Phase.STOPPING
    exit = yard.end(name).exit
    assert exit is not None
    assert (exit.code, exit.asked) == (5, True)


def test_grandchildren_that_hide_and_refuse_die_too(yard: Yard) -> None:
    hidden = 'setsid sh -c "trap \\"\\" TERM HUP; echo $$; env -i sleep 601 & sleep 602"'
    name = yard.start("job", f'trap "" TERM; {hidden} & echo ready; sleep 600; sleep 600')
    yard.until(lambda: len(yard.processes()) >= 4)
    children = [process for process in yard.processes() if process != yard.report(name).pid]
    yard.stop(name, 0.3)
    exit = yard.end(name).exit
    assert exit is not None
    assert (exit.code, exit.signal, exit.asked) == (None, signal.SIGKILL, True)
    assert not any(alive(child) for child in children)


def test_what_a_program_leaves_behind_is_gone_when_it_is_reported_as_ended(yard: Yard) -> None:
    name = yard.start("job", "setsid sleep 600 & setsid sleep 600 & exit 0")
    assert yard.end(name).exit is not None
    assert yard.processes() == []


def test_a_second_request_can_only_hurry(yard: Yard) -> None:
    name = yard.start("job", 'trap "" TERM; echo ready; while :; do sleep 0.1; done')
    yard.until(lambda: yard.log(name))
    yard.stop(name, 600.0)
    yard.stop(name, 0.0)
    yard.stop(name, 600.0)
    assert yard.end(name).exit is not None


def test_a_program_that_was_killed_was_not_asked(yard: Yard) -> None:
    name = yard.start("job", "sleep 600")
    os.kill(yard.report(name).pid or 0, signal.SIGKILL)
    exit = yard.end(name).exit
    assert exit is not None
    assert (exit.code, exit.signal, exit.asked) == (None, signal.SIGKILL, False)


def test_a_task_dies_with_its_keeper_and_is_lost(yard: Yard) -> None:
    name = yard.start("job", "setsid sleep 600 & sleep 600")
    yard.until(lambda: len(yard.processes()) == 3)
    _, keeper = yard.keepers(name)
    os.kill(keeper, signal.SIGKILL)
    assert yard.end(name).phase is Phase.LOST
    assert yard.processes() == []


def test_a_task_outlives_its_guard(yard: Yard) -> None:
    os.mkfifo(yard.journal)
    name = yard.start("job", "read _ < $journal; exit 4")
    guard, _ = yard.keepers(name)
    os.kill(guard, signal.SIGKILL)
    yard.until(lambda: not alive(guard))
    assert yard.report(name).phase is Phase.RUNNING
    yard.journal.write_text("\n")
    exit = yard.end(name).exit
    assert exit is not None
    assert exit.code == 4


@pytest.mark.parametrize("rebooted", [False, True])
def test_without_guard_and_keeper_the_engine_sees_to_the_orphans(
    yard: Yard, rebooted: bool
) -> None:
    name = yard.start("job", "setsid sleep 600 & sleep 600")
    yard.until(lambda: len(yard.processes()) == 3)
    guard, keeper = yard.keepers(name)
    os.kill(guard, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    yard.until(lambda: not alive(guard) and not alive(keeper))
    engine = LocalEngine(yard.engine.folder)
    if rebooted:
        # Nothing of another start of the machine is looked for, and nothing of it is there.
        claim = yard.facts(name) / "claim"
        claim.write_text(claim.read_text().replace("boot ", "boot other-"))
        assert yard.end(name, engine).phase is Phase.LOST
        yard.until(lambda: len(yard.processes()) == 2)
        for orphan in yard.processes():
            os.kill(orphan, signal.SIGKILL)
        return
    assert yard.end(name, engine).phase is Phase.LOST
    assert yard.processes() == []


def test_another_server_finds_everything_as_it_is(yard: Yard) -> None:
    running = yard.start("running", "echo here; sleep 600")
    ended = yard.start("ended", "exit 7")
    yard.end(ended)
    other = LocalEngine(yard.engine.folder)
    other.lead(term=5)
    assert {each.name: each for each in other.reports()} == {
        each.name: each for each in yard.engine.reports()
    }
    other.stop(running, grace_seconds=0.0, term=5)
    assert yard.end(running).phase is Phase.ENDED
    with pytest.raises(Superseded):
        yard.start("late", "true")


def test_a_keeper_that_is_told_to_end_ends_its_task_in_order(yard: Yard) -> None:
    name = yard.start("job", 'trap "exit 9" TERM; echo ready; sleep 600 & wait')
    yard.until(lambda: yard.log(name))
    os.kill(yard.keepers(name)[1], signal.SIGTERM)
    exit = yard.end(name).exit
    assert exit is not None
    assert (exit.code, exit.asked) == (9, True)


def test_a_request_is_seen_without_the_bell(yard: Yard) -> None:
    """Its server was killed between asking and ringing."""
    name = yard.start("job", "sleep 600")
    (yard.facts(name) / "stop-0").touch()
    assert yard.end(name).phase is Phase.ENDED


def test_what_was_stopped_before_it_started_never_starts(yard: Yard) -> None:
    yard.stop(yard.name("job"))
    yard.stop(yard.name("job"))
    yard.start("job", "echo start >> $journal")
    report = yard.report(yard.name("job"))
    assert (report.phase, report.exit) == (Phase.ENDED, None)
    assert yard.lines() == []
    yard.engine.forget(yard.name("job"), term=1)
    assert yard.engine.reports() == []


def test_nothing_of_a_forgotten_attempt_starts_again(yard: Yard) -> None:
    name = yard.start("job", "echo printed")
    yard.end(name)
    yard.engine.forget(name, term=1)
    yard.engine.forget(name, term=1)
    assert yard.engine.reports() == []
    assert yard.log(name) == b"printed\n"
    for attempt, role in ((1, "worker"), (1, "other"), (0, "worker")):
        late = TaskName("job", attempt, role)
        yard.engine.start(replace(yard.task("job", "true"), name=late), term=1)
        yard.engine.stop(late, grace_seconds=0.0, term=1)
    assert yard.engine.reports() == []
    following = replace(yard.task("job", "true"), name=TaskName("job", 2, "worker"))
    yard.engine.start(following, term=1)
    assert [report.name.attempt for report in yard.engine.reports()] == [2]


def test_a_running_task_cannot_be_forgotten(yard: Yard) -> None:
    name = yard.start("job", "sleep 600")
    with pytest.raises(InputError, match="has not ended"):
        yard.engine.forget(name, term=1)
    assert yard.report(name).phase is Phase.RUNNING


def test_secrets_reach_the_task_and_nobody_else(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "servers-own-secret")
    task = yard.task("job", "echo ${DATABASE_PASSWORD:-none} ${#TOKEN}", TOKEN="jobs-own-secret")
    yard.engine.start(task, term=1)
    yard.end(yard.name("job"))
    assert yard.log(yard.name("job")) == b"none 15\n"
    for path in yard.engine.folder.rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or not mode & (stat.S_IRWXG | stat.S_IRWXO), path
        if path.is_file():
            assert b"secret" not in path.read_bytes()


def test_devices_and_threads_are_in_the_environment(yard: Yard) -> None:
    task = yard.task(
        "job",
        "echo $CUDA_VISIBLE_DEVICES $YARD_DEVICES $OMP_NUM_THREADS $MKL_NUM_THREADS",
        CUDA_VISIBLE_DEVICES="0,1,2,3",
        MKL_NUM_THREADS="7",
    )
    limits = Limits(cores=2.5)
    yard.engine.start(replace(task, devices=(1, 3), limits=limits), term=1)
    yard.end(yard.name("job"))
    assert yard.log(yard.name("job")) == b"1,3 1,3 2 7\n"


@pytest.mark.parametrize("part", ["", ".", "..", "../x", "a/b", "a.b", "-a", "a\n", "a" * 81, "é"])
def test_names_cannot_become_paths(part: str) -> None:
    with pytest.raises(InputError):
        TaskName(part, 1, "worker")
    with pytest.raises(InputError):
        TaskName("job", 1, part)


def test_names_are_read_as_they_are_written() -> None:
    name = TaskName("a-b_C", 12, "worker-3", 4)
    assert parse_task_name(str(name)) == name
    for wrong in ("a.1.b", "a.01.b.0", "a.1.b.0.0", "../a.1.b.0", "a.-1.b.0", "a.x.b.0"):
        with pytest.raises(InputError):
            parse_task_name(wrong)


def test_strange_files_among_the_tasks_disturb_nobody(yard: Yard) -> None:
    name = yard.start("job", "true")
    tasks = yard.facts(name).parent
    (tasks / "README").write_text("hello")
    (tasks / "folder").mkdir()
    assert [report.name for report in yard.engine.reports()] == [name]


def test_a_folder_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot hold"):
        LocalEngine(tmp_path / "file" / "engine")


def test_tasks_end_when_their_yard_is_removed(yard: Yard) -> None:
    kept, yard.engine = yard.engine, LocalEngine(yard.folder / "removed")
    name = yard.start("job", "setsid sleep 600 & sleep 600")
    yard.until(lambda: len(yard.processes()) == 3)
    everybody = [*yard.processes(), *yard.keepers(name)]
    shutil.rmtree(yard.folder / "removed")
    yard.engine = kept
    yard.until(lambda: not any(alive(process) for process in everybody))


def test_lost_state_is_an_error_and_not_an_empty_yard(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "engine")
    (tmp_path / "engine" / "state" / "term-0").rename(tmp_path / "elsewhere")
    with pytest.raises(Unavailable):
        engine.reports()
