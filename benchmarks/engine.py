"""What the local engine costs: time to start, memory beside each task, reports of many tasks.

    python benchmarks/engine.py [--quick] [--write]

Everything is real: 1,000 tasks are started one after the other and end, then 100 that go on. The
peers, in the same run: a bare interpreter, which each keeper is, and a process without a keeper.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from modelyard.engines.interface import Phase, Task, TaskName
from modelyard.engines.local.engine import LocalEngine
from modelyard.simulate.compare import cores
from table import Table, write_section

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "engines.md"
IDLE_SECONDS = 5.0
LOOKS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 tasks that end, 5 that go on")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    options = parser.parse_args()
    ended, running = (20, 5) if options.quick else (1_000, 100)
    table = Table(
        "What the local engine costs", {"what": 62, "median": 9, "p99": 9}, words=["what"]
    )
    table.begin()
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        engine = LocalEngine(Path(folder))
        try:
            measure(engine, table, ended=ended, running=running)
        finally:
            end_all(engine)
    if options.write:
        note = (
            "Other work on the machine counts: its load, this included, was"
            f" {os.getloadavg()[0]:.0f} on {cores()} cores. Memory is proportional set size: what"
            " is shared is divided among those who share it."
        )
        write_section("engine", [table.markdown(), note], PAGE)
    return 0


def measure(engine: LocalEngine, table: Table, *, ended: int, running: int) -> None:
    peers = max(20, ended // 20)
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    times(table, "a process without a keeper, started and waited for", peers, lambda _: run("true"))
    times(table, "a bare interpreter, started and waited for", peers, lambda _: run(*bare))
    times(table, "`start`, until the program runs", ended, lambda i: start(engine, i, "true"))
    for index in range(running):
        start(engine, ended + index, "sleep", "3600")
    while sum(report.phase is Phase.RUNNING for report in engine.reports()) > running:
        time.sleep(0.1)
    keepers(table, engine)
    many = f"`reports` of {running} running and {ended} ended tasks"
    times(table, f"{many}, first", 10, lambda _: LocalEngine(engine.folder).reports())
    times(table, f"{many}, later", LOOKS, lambda _: engine.reports())
    name = TaskName("talkative", 1, "worker")
    began = time.perf_counter()
    size = 1 << 28
    argv = ("head", "-c", str(size), "/dev/zero")
    engine.start(Task(name=name, node="here", argv=argv, folder="/"), term=1)
    while {each.name: each.phase for each in engine.reports()}[name] is not Phase.ENDED:
        time.sleep(0.01)
    rate = size / 1e6 / (time.perf_counter() - began)
    table.add("a task that prints, MB/s", f"{rate:.0f}", "")


def times(table: Table, what: str, count: int, action: Callable[[int], object]) -> None:
    seconds = []
    for index in range(count):
        began = time.perf_counter()
        action(index)
        seconds.append(time.perf_counter() - began)
    slowest = statistics.quantiles(seconds, n=100)[98]
    table.add(what, f"{1000 * statistics.median(seconds):.1f} ms", f"{1000 * slowest:.1f} ms")


def keepers(table: Table, engine: LocalEngine) -> None:
    """Memory and processor time of guards and keepers while their tasks do nothing."""
    pairs = []
    for report in engine.reports():
        if report.phase is Phase.RUNNING:
            keeper = psutil.Process(report.pid).parent()
            guard = keeper.parent() if keeper else None
            if keeper and guard:
                pairs.append((guard, keeper))
    memory = [sum(each.memory_full_info().pss for each in pair) / 1e6 for pair in pairs]
    highest = max(memory)
    table.add(
        "memory of a task's guard and keeper",
        f"{statistics.median(memory):.1f} MB",
        f"{highest:.1f} MB",
    )
    before = processor_seconds(pairs)
    time.sleep(IDLE_SECONDS)
    share = (processor_seconds(pairs) - before) / IDLE_SECONDS
    table.add(
        f"processor use of all {len(pairs)} guards and keepers, of one core",
        f"{100 * share:.1f} %",
        "",
    )


def processor_seconds(pairs: list[tuple[psutil.Process, psutil.Process]]) -> float:
    # In nanoseconds; what psutil tells is counted in hundredths of a second, more than they use.
    files = [Path(f"/proc/{each.pid}/schedstat") for pair in pairs for each in pair]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def start(engine: LocalEngine, index: int, *argv: str) -> None:
    name = TaskName(f"job-{index}", 1, "worker")
    engine.start(Task(name=name, node="here", argv=argv, folder="/"), term=1)


def end_all(engine: LocalEngine) -> None:
    for report in engine.reports():
        if report.phase in (Phase.RUNNING, Phase.STOPPING):
            engine.stop(report.name, grace_seconds=0.0, term=1)
    while any(each.phase not in (Phase.ENDED, Phase.LOST) for each in engine.reports()):
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
