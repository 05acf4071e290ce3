"""Bytes sent and time per step of each compression over slow links between two machines.

    python benchmarks/links.py [--steps 8] [--write] [--quick]

Two network namespaces stand for two machines, with a cable between them that lets through
100 Mbit/s or 1 Gbit/s; one worker in each trains a GPT of four million parameters, and nothing else
is on the cable. Needs root, and `ip` and `tc` of iproute2; both namespaces are gone when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from links_job import Post, Seen
from modelyard.train.conductor.progress import Settings
from modelyard.train.conductor.server import SETTINGS_FILE, TOKEN_VARIABLE, Listening
from promises import Promise, listed, told
from recovery_job import BATCH
from table import Table, write_section

ADDRESSES = ("10.213.7.1", "10.213.7.2")
CABLES = ("yard-a", "yard-b")
#: of the first conductor; each job has the next one
FIRST_PORT = 7_300
#: by what people call it, what `tc` calls it and the most that may leave at once: less than a
#: timer's tick of the rate would slow it down further
LINKS = {"100 Mbit/s": ("100mbit", "64kb"), "1 Gbit/s": ("1gbit", "1mb")}
WAYS: dict[str, Mapping[str, object]] = {
    "none": {},
    "fp16": {"compress": "fp16"},
    "bf16": {"compress": "bf16"},
    "int8": {"compress": "int8"},
    "top 1 %": {"compress": {"name": "top-k", "share": 0.01}},
    "PowerSGD of rank 4": {"compress": {"name": "power-sgd", "rank": 4}},
    "one bit": {"compress": "one-bit"},
}
#: steps that are not counted: connections are slow at first
FIRST_STEPS = 2
#: what travels beside the payloads may be this share of them, and so much of every step
FRAMING, STEP_BYTES = 0.15, 50_000


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace, its end of the cable and its address."""

    name: str
    cable: str
    address: str

    def command(self, *words: str) -> list[str]:
        """A command as run in there."""
        return ["ip", "netns", "exec", self.name, *words]


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two namespaces and a cable; gone afterwards, whatever happens."""
    machines = tuple(
        Machine(f"{cable}-{os.getpid()}", cable, address)
        for cable, address in zip(CABLES, ADDRESSES, strict=True)
    )
    first, second = machines
    try:
        for machine in machines:
            ip("netns", "add", machine.name)
        ends = ["name", first.cable, "netns", first.name, "type", "veth"]
        ip("link", "add", *ends, "peer", "name", second.cable, "netns", second.name)
        for machine in machines:
            ip("-n", machine.name, "address", "add", f"{machine.address}/30", "dev", machine.cable)
            for device in ("lo", machine.cable):
                ip("-n", machine.name, "link", "set", device, "up")
        yield first, second
    finally:
        for machine in machines:
            subprocess.run(
                ["ip", "netns", "delete", machine.name], check=False, stderr=subprocess.DEVNULL
            )


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ip {' '.join(words)}: {done.stderr.strip()}")


def narrow(machine: Machine, rate: str, burst: str) -> None:
    """Let so much out of a machine."""
    shape = ["root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"]
    command = ["tc", "-n", machine.name, "qdisc", "replace", "dev", machine.cable, *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one way over one link."""

    seconds: float
    #: that a member told of, and that left its machine
    told_bytes: float
    wire_bytes: float


def measure(
    machines: tuple[Machine, Machine], steps: int, scratch: Path
) -> dict[tuple[str, str], Measured]:
    """Every way over every link; workers stay, and go from job to job."""
    jobs = [(link, way) for link in LINKS for way in WAYS]
    token = os.urandom(16).hex()
    environment = {**os.environ, TOKEN_VARIABLE: token}
    workers = [
        subprocess.Popen(
            machine.command(sys.executable, str(Path(__file__).with_name("links_job.py"))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for machine in machines
    ]
    found = {}
    try:
        for number, (link, way) in enumerate(jobs):
            for machine in machines:
                narrow(machine, *LINKS[link])
            folder = scratch / str(number)
            with conductor(machines[0], folder, FIRST_PORT + number, steps, environment):
                seen = one_job(workers, machines, FIRST_PORT + number, WAYS[way])
            found[link, way] = judged(seen)
            print(f"  {link:<12}{way:<20}{found[link, way].seconds:8.3f} s", flush=True)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return found


@contextlib.contextmanager
def conductor(
    machine: Machine, folder: Path, port: int, steps: int, environment: Mapping[str, str]
) -> Iterator[None]:
    """One on the first machine."""
    folder.mkdir()
    settings = Settings(batch=BATCH, steps=steps, fewest=2, most=2, stall_seconds=60.0)
    listening = Listening(settings, host=machine.address, port=port)
    (folder / SETTINGS_FILE).write_bytes(msgspec.json.encode(listening))
    module = ["-m", "modelyard.train.conductor.server", str(folder)]
    process = subprocess.Popen(
        machine.command(sys.executable, *module), stdout=subprocess.DEVNULL, env=environment
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def one_job(
    workers: list[subprocess.Popen[bytes]],
    machines: tuple[Machine, Machine],
    port: int,
    options: Mapping[str, object],
) -> list[Seen]:
    """What the first worker saw at the end of each step."""
    for machine, worker in zip(machines, workers, strict=True):
        post = Post(
            address=machines[0].address,
            port=port,
            host=machine.address,
            cable=machine.cable,
            worker=machine.name,
            options=dict(options),
        )
        assert worker.stdin is not None
        worker.stdin.write(msgspec.json.encode(post) + b"\n")
        worker.stdin.flush()
    answers = []
    for worker in workers:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise SystemExit("a worker died: see its message above")
        answers.append(msgspec.json.decode(line, type=list[Seen]))
    return answers[0]


def judged(seen: list[Seen]) -> Measured:
    """Medians over the steps after the first ones."""
    steps = list(zip(seen[FIRST_STEPS - 1 :], seen[FIRST_STEPS:], strict=False))
    return Measured(
        median(after.at - before.at for before, after in steps),
        median(after.told_bytes - before.told_bytes for before, after in steps),
        median(after.wire_bytes - before.wire_bytes for before, after in steps),
    )


def why_not() -> str:
    """What is missing to make machines out of namespaces."""
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install iproute2"
    if os.geteuid() != 0:
        return "network namespaces are for root: run it as root"
    done = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no network namespaces here: {done.stderr.strip()}"


def main() -> int:
    """Print the table; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="four steps of each")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    if why := why_not():
        print(f"skipped: {why}")
        return 0
    # Ctrl-C and a polite end leave nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["OMP_NUM_THREADS"] = "1"
    # The machines have no names, and torch would say so for every connection.
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])
    with tempfile.TemporaryDirectory() as name, two_machines() as machines:
        found = measure(machines, 4 if chosen.quick else chosen.steps, Path(name))
    table = table_of(found)
    promises = promised(found)
    kept = told(promises)
    if chosen.write:
        write_section("links", [table.markdown(), listed(promises)])
    return 0 if kept or chosen.quick else 1


def table_of(found: Mapping[tuple[str, str], Measured]) -> Table:
    links = list(LINKS)
    table = Table(
        "Two workers on two machines, all-reduce: megabytes that each sends per step, as it says "
        "and as counted on the cable, and seconds per step",
        {"compression": 20, "MB told": 8, "MB counted": 10, **dict.fromkeys(links, 10)},
        words=("compression",),
    )
    table.begin()
    for way in WAYS:
        one = found[links[0], way]
        seconds = [f"{found[link, way].seconds:.3f}" for link in links]
        table.add(way, f"{one.told_bytes / 1e6:.3f}", f"{one.wire_bytes / 1e6:.3f}", *seconds)
    return table


def promised(found: Mapping[tuple[str, str], Measured]) -> list[Promise]:
    slow = next(iter(LINKS))
    honest = [
        one.wire_bytes <= one.told_bytes * (1.0 + FRAMING) + STEP_BYTES for one in found.values()
    ]
    plain = found[slow, "none"].seconds
    faster = [way for way in WAYS if way != "none" and found[slow, way].seconds < plain]
    return [
        Promise(
            f"{sum(honest)} of {len(honest)} times no more on the cable than told, but for framing",
            all(honest),
        ),
        Promise(
            f"{len(faster)} of {len(WAYS) - 1} compressions make steps faster at {slow}",
            len(faster) == len(WAYS) - 1,
        ),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
