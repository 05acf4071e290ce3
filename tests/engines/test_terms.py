"""Who may change anything: no order of an earlier term is carried out, and nobody waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from modelyard.engines.interface import Superseded
from modelyard.engines.local import changes
from modelyard.engines.local.engine import LocalEngine
from modelyard.engines.local.terms import Terms

from .real_yard import Yard

#: starts task after task until somebody else leads; its exit code says that this was noticed
OLD_LEADER = """
import itertools, os, sys
from modelyard.engines.interface import Superseded, Task, TaskName
from modelyard.engines.local.engine import LocalEngine

engine = LocalEngine(sys.argv[1])
print("ready", flush=True)
for index in itertools.count():
    name = TaskName(f"old-{index}", 1, "worker")
    task = Task(name=name, node="here", argv=("sleep", "600"), folder="/")
    try:
        engine.start(task, term=1)
        engine.stop(name, grace_seconds=0.0, term=1)
    except Superseded:
        sys.exit(7)
"""


def test_earlier_terms_are_refused(yard: Yard) -> None:
    name = yard.start("job", "exit 0")
    yard.end(name)
    yard.engine.lead(term=3)
    with pytest.raises(Superseded):
        yard.engine.lead(term=2)
    with pytest.raises(Superseded):
        yard.engine.stop(name, grace_seconds=1.0, term=1)
    with pytest.raises(Superseded):
        yard.engine.forget(name, term=1)
    with pytest.raises(Superseded):
        yard.start("other", "true")
    yard.engine.lead(term=3)
    assert [report.name for report in yard.engine.reports()] == [name]


def test_changes_of_an_earlier_term_that_were_under_way_come_to_nothing(yard: Yard) -> None:
    """The server slept between looking and acting."""
    name = yard.start("job", "sleep 600")
    old = Terms(yard.engine.folder).lead(1)
    yard.engine.lead(term=2)
    assert not changes.ask_to_end(old, name, 0)
    assert not changes.prevent(old, yard.name("other"))
    assert not changes.forget(old, name)
    assert [report.name for report in yard.engine.reports()] == [name]
    assert not list(yard.facts(name).glob("stop-*"))


@pytest.mark.parametrize("asleep", [False, True])
def test_nothing_of_a_predecessor_comes_after_the_reports(yard: Yard, asleep: bool) -> None:
    for turn in range(2):
        folder = yard.folder / f"engine-{turn}"
        yard.engine = LocalEngine(folder)
        old = subprocess.Popen(
            [sys.executable, "-c", OLD_LEADER, str(folder)], stdout=subprocess.PIPE
        )
        with old:
            assert old.stdout is not None
            assert old.stdout.readline() == b"ready\n"
            time.sleep(0.15 * (turn + 1))
            if asleep:
                old.send_signal(signal.SIGSTOP)
            yard.engine.lead(term=2)
            seen = {report.name for report in yard.engine.reports()}
            time.sleep(0.2)
            old.send_signal(signal.SIGCONT)
            assert old.wait() == 7
        assert {report.name for report in yard.engine.reports()} == seen
        yard.end_all()
        assert yard.processes() == []


def test_of_two_who_want_to_lead_the_later_one_does(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    led: list[int] = []

    def lead(term: int) -> None:
        try:
            Terms(folder).lead(term)
            led.append(term)
        except Superseded:
            return

    threads = [threading.Thread(target=lead, args=(term,)) for term in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(led) == 16
    assert os.listdir(folder / "state") == ["term-16"]
    assert Terms(folder).current() == 16
    assert sorted(path.name for path in folder.iterdir()) == ["state"]


def test_whoever_reads_is_not_disturbed_by_new_leaders(yard: Yard) -> None:
    names = [yard.start(f"job-{index}", "echo printed") for index in range(3)]
    for name in names:
        yard.end(name)
    stop = threading.Event()
    seen: list[tuple[int, bytes]] = []

    def read() -> None:
        reader = LocalEngine(yard.engine.folder)
        while not stop.is_set():
            seen.append((len(reader.reports()), reader.log(names[0])[0]))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for term in range(2, 200):
        yard.engine.lead(term=term)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {(3, b"printed\n")}
