"""How many requests a second are planned: one by one, by a sweep, and by Beam on this machine.

    python benchmarks/bulk.py [--requests N] [--quick] [--write]

The requests are a sweep as people run them: some models over device counts, kinds and deadlines.
"One by one" is what a shell loop over `yard plan` does; it is measured on a part of the requests.
Times include starting processes. Seconds are by the clock; CPU seconds, of all processes together,
do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from random import Random

from modelyard.bulk.planner import make_planner
from modelyard.bulk.sweeps import sweep
from modelyard.bulk.workers import cores
from modelyard.plan.knowledge import shipped_knowledge
from table import Table, write_section

MODELS = ("gpt2-xl", "llama2-7b", "gpt-neox-20b", "llama2-70b")
DEVICES = ("8xH100", "64xH100", "256xA100", "32xV100", "64xH100+64xA100")
DEADLINES = ("", "7d", "30d", "90d")
TOKENS = ("20B", "300B", "1T")

REQUESTS = 120
QUICK_REQUESTS = 12
#: Starting a process for each takes so long that a part has to do.
ONE_BY_ONE = 12
QUICK_ONE_BY_ONE = 2
SEED = 1

Words = dict[str, str]


def requests(count: int) -> list[Words]:
    """Different requests in an order of no meaning, so that any part of them is like the whole.

    A request without a solution costs several times as much as one with: in the order of the grid,
    the first ones would be the easy ones.
    """
    grid = list(product(TOKENS, DEADLINES, DEVICES, MODELS))
    Random(SEED).shuffle(grid)
    return [
        {"id": f"r{number}", "model": model, "devices": devices, "tokens": tokens}
        | ({"deadline": deadline} if deadline else {})
        for number, (tokens, deadline, devices, model) in enumerate(islice(cycle(grid), count))
    ]


def by_shell(items: list[Words]) -> None:
    """`yard plan` once for each; an exit code of 3 says that there is no plan."""
    for words in items:
        options = [
            text
            for name, value in words.items()
            if name not in ("id", "model")
            for text in (f"--{name}", value)
        ]
        command = [sys.executable, "-m", "modelyard", "plan", words["model"], *options]
        done = subprocess.run([*command, "-o", "json"], capture_output=True, check=False)
        if done.returncode not in (0, 3):
            raise SystemExit(done.stderr.decode())


def by_sweep(path: Path, workers: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        factory = partial(make_planner, shipped_knowledge())
        summary = sweep(path, out, factory, workers=workers)
        if summary.bad:
            raise SystemExit(f"bad requests: {summary.bad[0]}")


def by_beam(path: Path) -> None:
    from modelyard.bulk.beam import run_pipeline

    with tempfile.TemporaryDirectory() as out:
        run_pipeline(str(path), f"{out}/beam", partial(make_planner, shipped_knowledge()))


def cost(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of this process and those it started and awaited."""
    began, used = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - began, cpu_seconds() - used


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def beam_installed() -> bool:
    try:
        import apache_beam  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, help="how many requests to plan")
    parser.add_argument("--quick", action="store_true", help="few requests, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    count = chosen.requests or (QUICK_REQUESTS if chosen.quick else REQUESTS)
    part = QUICK_ONE_BY_ONE if chosen.quick else ONE_BY_ONE
    items = requests(count)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    title = f"{count} requests of {len(MODELS)} models: requests planned per second"
    headings = dict.fromkeys(("requests", "seconds", "requests/s", "per CPU s", "times"), 8)
    table = Table(title, {"way": 32} | headings, words=("way",))
    table.begin()
    sample = items[:part]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
        ways: list[tuple[str, int, Callable[[], None]]] = [
            ("one by one: yard plan for each", len(sample), partial(by_shell, sample)),
            ("yard plan sweep, 1 worker", count, partial(by_sweep, path, 1)),
            (f"yard plan sweep, {cores()} workers", count, partial(by_sweep, path, cores())),
        ]
        if beam_installed():
            ways.append(("Beam, direct runner", count, partial(by_beam, path)))
        else:
            print("skipped: Apache Beam is not installed; pip install 'modelyard[beam]'")
        slowest = 0.0
        for name, number, work in ways:
            took, used = cost(work)
            rate = number / used
            slowest = slowest or rate
            shown = f"{took:.1f}", f"{number / took:.1f}", f"{rate:.1f}", f"{rate / slowest:.1f}"
            table.add(name, str(number), *shown)
    if chosen.write:
        write_section("bulk", [table.markdown()])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
