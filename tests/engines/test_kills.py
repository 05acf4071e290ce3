"""A server that is killed at random instants: nothing runs twice, nothing is lost or left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from modelyard.engines.interface import Phase

from .real_yard import Yard

#: starts tasks and stops some of those that there are, as fast as it can, for ever
SERVER = """
import random, sys
from modelyard.engines.interface import Phase, Task, TaskName
from modelyard.engines.local.engine import LocalEngine

folder, journal, term, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
luck = random.Random(term)
engine = LocalEngine(folder)
engine.lead(term=term)
print("ready", flush=True)
index = first
SCRIPT = '''
echo "start $YARD_TASK" >> $journal
trap "exit 0" TERM
setsid sleep 0.$1 &
sleep 0.$1 & wait $!
echo "end $YARD_TASK" >> $journal
'''
while True:
    # Some names were asked for by the server before this one, which may have been killed.
    index += luck.choice((-1, 0, 1))
    name = TaskName(f"job-{max(0, index)}", 1, "worker")
    argv = ("sh", "-c", SCRIPT, "task", str(luck.randrange(1, 9)))
    engine.start(
        Task(name=name, node="here", argv=argv, folder="/", environment={"journal": journal}),
        term=term,
    )
    living = [each.name for each in engine.reports() if each.phase is Phase.RUNNING]
    if len(living) > 3:
        engine.stop(luck.choice(living), grace_seconds=luck.random() / 2, term=term)
"""


def kill_servers(yard: Yard, kills: int) -> None:
    luck = random.Random(kills)
    for term in range(1, kills + 1):
        # Names at the border between two servers are asked for by both.
        first = len(yard.engine.reports())
        arguments = [str(yard.engine.folder), str(yard.journal), str(term), str(first)]
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE
        )
        with server:
            assert server.stdout is not None
            if luck.random() < 0.9:
                server.stdout.readline()
            time.sleep(luck.uniform(0.0, 0.3))
            assert server.poll() is None, "the server ended by itself"
            server.kill()


def judge(yard: Yard, kills: int) -> None:
    # What the last server had sent off before it was killed is here by now, or refused.
    yard.engine.lead(term=kills + 1)
    reports = yard.engine.reports()
    yard.until(lambda: all(each.phase is Phase.ENDED for each in yard.engine.reports()))
    assert yard.processes() == []
    lines = Counter(yard.lines())
    starts = {line.split()[1] for line in lines if line.startswith("start ")}
    assert not [line for line, count in lines.items() if count > 1], "something ran twice"
    names = {str(report.name) for report in reports}
    assert {start.partition("-")[2] for start in starts} <= names, "a task was not reported"
    asked = {str(each.name) for each in yard.engine.reports() if each.exit and each.exit.asked}
    ends = {line.split()[1].partition("-")[2] for line in lines if line.startswith("end ")}
    assert names - asked <= ends, "a task did not run to its end"
    assert len(starts) >= kills / 4, "the servers did nothing"
    assert os.listdir(yard.engine.folder / "state") == [f"term-{kills + 1}"]


def test_nothing_runs_twice_when_servers_are_killed(yard: Yard) -> None:
    kill_servers(yard, 12)
    judge(yard, 12)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_runs_twice_after_200_kills(yard: Yard) -> None:
    kill_servers(yard, 200)
    judge(yard, 200)


def test_whoever_is_killed_nothing_is_left_and_the_reports_are_true(yard: Yard) -> None:
    kill_anyone(yard, 16)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whoever_of_many_is_killed_nothing_is_left(yard: Yard) -> None:
    kill_anyone(yard, 200)


def kill_anyone(yard: Yard, tasks: int) -> None:
    """Kill guards, keepers, programs and their children, some of them together."""
    luck = random.Random(tasks)
    for index in range(tasks):
        name = yard.start(f"job-{index}", "setsid sleep 0.2 & sleep 600 & wait; exit 3")
        if luck.random() < 0.5:
            time.sleep(luck.uniform(0.0, 0.1))
        try:
            family = dict(zip(("guard", "keeper"), yard.keepers(name), strict=True))
        except psutil.NoSuchProcess as error:
            raise AssertionError(f"{name} was gone before it was killed") from error
        family["program"] = yard.report(name).pid or 0
        chosen = [who for who in family if luck.random() < 0.4] or ["keeper"]
        luck.shuffle(chosen)
        for who in chosen:
            # The death of one may have been the death of another.
            with contextlib.suppress(ProcessLookupError):
                os.kill(family[who], signal.SIGKILL)
        if chosen == ["guard"]:
            assert yard.report(name).phase is Phase.RUNNING
            yard.stop(name)
        report = yard.end(name)
        if "keeper" not in chosen:
            assert report.phase is Phase.ENDED
            assert report.exit is not None
            assert report.exit.asked == ("program" not in chosen)
        elif "program" not in chosen:
            assert report.phase is Phase.LOST
        assert yard.processes() == []
