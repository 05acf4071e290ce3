"""Checks of this machine and of the folder that holds a yard's state."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil

from modelyard import __version__
from modelyard.control.doctor.findings import Finding, ok, problem, warning
from modelyard.engines.local.keeper.hierarchy import places_here
from modelyard.errors import cause_of
from modelyard.units import format_bytes

#: one module of each extra, which is not there without it
EXTRAS = {"train": "torch", "postgres": "psycopg", "backup": "cryptography"}
#: a checkpoint and a day of logs fit; below the second, writes fail soon
COMFORTABLE_BYTES, LEAST_BYTES = 5 * 10**9, 5 * 10**8
#: a submission waits for one of these; spinning disks take 10 to 20 milliseconds
SLOW_SYNC_SECONDS = 0.03
SYNCS = 9
#: whose locks and syncs cannot be trusted with SQLite
REMOTE_SYSTEMS = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre"))
FEWEST_FILES, FEWEST_PROCESSES = 4_096, 1_024


def machine_findings(folder: Path) -> Iterator[Finding]:
    """Everything that can be said without a server."""
    yield _python()
    yield from _packages()
    yield from _folder(folder)
    yield from _limits()
    yield _devices()


def _python() -> Finding:
    says = f"Modelyard {__version__} with Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever copied the package past pip)
        return problem("python", says, "use Python 3.11 or newer")
    return ok("python", says)


def _packages() -> Iterator[Finding]:
    missing = []
    for requirement in requires("modelyard") or ():
        if "extra ==" not in requirement:
            name = requirement.partition(">")[0].partition("=")[0].strip()
            try:
                version(name)
            except PackageNotFoundError:
                missing.append(name)
    if missing:
        yield problem("packages", f"missing: {', '.join(missing)}", "pip install modelyard")
    else:
        yield ok("packages", "all requirements of the core are installed")
    for extra, module in EXTRAS.items():
        try:
            yield ok(f"extra {extra}", f"{module} {version(module)}")
        except PackageNotFoundError:
            yield ok(f"extra {extra}", f"not installed; pip install 'modelyard[{extra}]' adds it")


def _folder(folder: Path) -> Iterator[Finding]:
    place = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    free = shutil.disk_usage(place).free
    says = f"{format_bytes(free)} free at {place}"
    fix = "make space, or move the yard with 'yard backup' and 'yard restore'"
    if free < LEAST_BYTES:
        yield problem("disk space", says, fix)
    elif free < COMFORTABLE_BYTES:
        yield warning("disk space", says, fix)
    else:
        yield ok("disk space", says)
    yield _sync(place)
    kind = _system(place)
    if kind in REMOTE_SYSTEMS:
        fix = "keep the state on a local disk (YARD_FOLDER), or use --database postgresql://…"
        yield problem("filesystem", f"{kind}, which is not of this machine", fix)
    else:
        yield ok("filesystem", kind or "unknown")
    yield from _private(folder)


def _sync(place: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            taken = []
            for _ in range(SYNCS):
                start = time.perf_counter()
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
                taken.append(time.perf_counter() - start)
    except OSError as error:
        fix = "let whoever starts the yard write there, or set YARD_FOLDER"
        return problem("disk writes", f"{place}: {cause_of(error)}", fix)
    middle = statistics.median(taken)
    says = f"a write is on the disk after {1000 * middle:.1f} ms"
    if middle > SLOW_SYNC_SECONDS:
        return warning("disk writes", says, "use a faster disk: every submission waits for one")
    return ok("disk writes", says)


def _system(place: Path) -> str:
    """The kind of file system that a folder is on."""
    mounted = [
        one
        for one in psutil.disk_partitions(all=True)
        if place.resolve().is_relative_to(one.mountpoint)
    ]
    return max(mounted, key=lambda one: len(one.mountpoint)).fstype if mounted else ""


def _private(folder: Path) -> Iterator[Finding]:
    for name in ("admin.token", "secret"):
        path = folder / name
        if not path.exists():
            continue
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            fix = f"chmod 600 {path}; then 'yard tokens' tells whom to replace"
            yield problem(name, f"others can read it (mode {mode:o})", fix)
        else:
            yield ok(name, "only its owner can read it")


def _limits() -> Iterator[Finding]:
    _, missing = places_here(["cpu", "memory", "pids"], use_groups=True)
    if missing:
        fix = "run it where control groups are delegated, such as systemd's Delegate=yes"
        said = "; ".join(missing)
        yield warning("limits of jobs", f"not all are enforced by the kernel: {said}", fix)
    else:
        yield ok("limits of jobs", "control groups for cores, memory and processes")
    for what, number, fewest, option in (
        ("open files", resource.RLIMIT_NOFILE, FEWEST_FILES, "-n"),
        ("processes", resource.RLIMIT_NPROC, FEWEST_PROCESSES, "-u"),
    ):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY and soft < fewest:
            yield warning(what, f"at most {soft:,}", f"ulimit {option} {fewest}")
        else:
            limit = "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft:,}"
            yield ok(what, limit)


def _devices() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ok("devices", "no nvidia-smi here: jobs use processors")
    words = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20.0, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        what = f"nvidia-smi fails: {cause_of(error)}"
        return problem("devices", what, "reload or reinstall the driver")
    found = done.stdout.strip().splitlines()
    return ok("devices", f"{len(found)}: {'; '.join(dict.fromkeys(found))}")
