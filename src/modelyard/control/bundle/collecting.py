"""What goes into a bundle. What cannot be had is noted in it instead: there is always a bundle."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path

import psutil

from modelyard.control.bundle.redaction import Redactor, secrets_of
from modelyard.control.client import Client
from modelyard.control.doctor.machine import machine_findings
from modelyard.control.doctor.yard import yard_findings
from modelyard.errors import YardError

#: of a log or a journal; the end is what matters
TAIL_BYTES = 1 << 20
MOST_JOBS, MOST_EVENTS = 1_000, 1_000
#: which the server needs to write where its threads are
DUMP_SECONDS = 0.5

Make = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the bundle, with all secrets removed."""

    name: str
    data: bytes


def redactor_of(folder: Path) -> Redactor:
    """Knows the secrets of the yard in a folder, and of this process."""
    known = secrets_of(os.environ)
    for name in ("admin.token", "secret"):
        with suppress(OSError):
            known.append((folder / name).read_text().strip())
    return Redactor(known)


def parts(client: Client, folder: Path, *, job: str | None = None) -> Iterator[Part]:
    """Every part of the bundle; the last one lists the others."""
    redactor = redactor_of(folder)
    listed = []
    for name, make in (*_of_yard(client, folder), *(_of_job(client, folder, job) if job else ())):
        try:
            found = make()
            text = found if isinstance(found, str) else json.dumps(redactor.value(found), indent=1)
        except (YardError, OSError, ValueError, psutil.Error) as error:
            name, text = f"{name}.missing", f"{error}\n"
        data = redactor.text(text).encode() if name.endswith(_TEXTS) else text.encode()
        listed.append(f"{name}\t{len(data):,} bytes")
        yield Part(name, data)
    yield Part("CONTENTS.txt", ("\n".join(listed) + "\n").encode())


#: whose content is no JSON, and is redacted as it stands
_TEXTS = (".log", ".txt", ".jsonl", ".missing", ".yaml")


def _of_yard(client: Client, folder: Path) -> list[tuple[str, Make]]:
    return [
        ("versions.json", _versions),
        ("doctor.json", lambda: _findings(client, folder)),
        ("servers.json", lambda: _servers(folder)),
        ("status.json", client.status),
        ("inside.json", client.doctor),
        ("nodes.json", client.nodes),
        ("tenants.json", client.tenants),
        ("jobs.json", lambda: client.jobs(all=True, most=MOST_JOBS)),
        ("events.json", lambda: client.events(last=MOST_EVENTS)),
        ("audit.json", client.audit),
        # After all calls: it ends with where the server's threads are now.
        ("server.log", lambda: _server_log(folder)),
    ]


def _of_job(client: Client, folder: Path, job: str) -> list[tuple[str, Make]]:
    found = client.job(job)
    name = str(found["id"])
    roles = [str(task["role"]) for task in found["tasks"]] or [""]
    logs: list[tuple[str, Make]] = [
        (f"job/log-{role or 'first'}.log", lambda role=role: _log(client, name, role))  # type: ignore[misc]
        for role in roles
    ]
    return [
        ("job/job.json", lambda: found),
        ("job/why.json", lambda: client.why(name)),
        ("job/events.json", lambda: client.events(name)),
        ("job/journal.jsonl", lambda: _tail(folder / "runs" / name / "journal.jsonl")),
        *logs,
    ]


def _versions() -> dict[str, str]:
    import platform

    found = {one.name: one.version for one in distributions()}
    own = {"python": platform.python_version(), "platform": platform.platform()}
    return own | dict(sorted(found.items(), key=lambda one: one[0].lower()))


def _findings(client: Client, folder: Path) -> list[dict[str, object]]:
    return [asdict(one) for one in (*machine_findings(folder), *yard_findings(client))]


def _servers(folder: Path) -> list[dict[str, object]]:
    """Each server of this machine: how it was started, and what it uses."""
    found: list[dict[str, object]] = []
    for path in sorted((folder / "servers").glob("*.json")):
        where = json.loads(path.read_text())
        process = psutil.Process(where["pid"])
        used = {"memory_bytes": process.memory_info().rss, "threads": process.num_threads()}
        found.append({**where, "settings": " ".join(process.cmdline()), **used})
    return found


def _server_log(folder: Path) -> str:
    for path in (folder / "servers").glob("*.json"):
        with suppress(OSError, ValueError, KeyError):
            os.kill(json.loads(path.read_text())["pid"], signal.SIGUSR1)
    time.sleep(DUMP_SECONDS)
    return _tail(folder / "server.log")


def _log(client: Client, job: str, role: str) -> str:
    whole, start = b"", 0
    while True:
        piece, after = client.log(job, role=role, start=start)
        whole = (whole + piece)[-TAIL_BYTES:]
        if after <= start:
            return whole.decode(errors="replace")
        start = after


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return file.read().decode(errors="replace")
