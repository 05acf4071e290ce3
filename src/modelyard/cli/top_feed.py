"""What `yard top` knows: asked for now and then, and at once when the yard tells of something."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modelyard.errors import YardError

if TYPE_CHECKING:
    from modelyard.control.client import Client

#: between two looks at what changes slowly, and at all else; news shortens neither below the last
SLOW_SECONDS, LOOK_SECONDS, SHORTEST_SECONDS = 5.0, 1.0, 0.3
#: of the log, and of the queue, that is asked for; screens are not larger
MOST_EVENTS, MOST_ASKED_WHY = 60, 5
MOST_JOBS = 500
PLACED = ("starting", "running", "stopping")

Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a job is: a part from 0 to 1, steps a second, seconds left; None where not known."""

    part: float | None = None
    steps: float | None = None
    speed: float | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A yard at one instant."""

    at: float
    status: Found
    nodes: tuple[Found, ...] = ()
    #: that hold devices, and that want some; both in the order of their submission
    running: tuple[Found, ...] = ()
    waiting: tuple[Found, ...] = ()
    #: by job
    paces: Mapping[str, Pace] = field(default_factory=dict)
    whys: Mapping[str, str] = field(default_factory=dict)
    tenants: tuple[Found, ...] = ()
    #: the oldest first
    events: tuple[Found, ...] = ()
    #: why nothing new is known; empty when all is well
    trouble: str = ""


def _reason(said: Found) -> str:
    """Of a sentence that names the job and its wait, what the screen does not show anyway."""
    before, _, why = str(said["sentence"]).partition(": ")
    return why or before


class Feed:
    """Looks at a yard until it is stopped; `snapshot` is always whole."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wake, self._stop = threading.Event(), threading.Event()
        self._written: dict[str, Found] = {}
        self._events: deque[Found] = deque(maxlen=MOST_EVENTS)
        self._tenants: tuple[Found, ...] = ()
        self._whys: dict[str, str] = {}
        self._slow_at = float("-inf")
        self.snapshot = self.look()

    def start(self) -> None:
        threading.Thread(target=self._looking, daemon=True).start()
        threading.Thread(target=self._listening, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def look(self) -> Snapshot:
        """Ask once for everything; `YardError` when nobody answers."""
        client, now = self._client, time.time()
        status, nodes = client.status(), client.nodes()
        jobs = list(reversed(client.jobs(most=MOST_JOBS)["jobs"]))
        if not self._events:
            self._events.extend(client.events(last=MOST_EVENTS))
        running = tuple(job for job in jobs if job["state"] in PLACED)
        waiting = tuple(job for job in jobs if job["state"] not in PLACED)
        if time.monotonic() - self._slow_at > SLOW_SECONDS:
            self._tenants = tuple(client.tenants())
            asked = [job for job in waiting if job["state"] == "waiting"][:MOST_ASKED_WHY]
            self._whys = {job["id"]: _reason(client.why(job["id"])) for job in asked}
            self._slow_at = time.monotonic()
        return Snapshot(
            at=now,
            status=status,
            nodes=tuple(nodes),
            running=running,
            waiting=waiting,
            paces={job["id"]: self._pace(job) for job in running},
            whys=dict(self._whys),
            tenants=self._tenants,
            events=tuple(self._events),
        )

    def _pace(self, job: Found) -> Pace:
        name = job["id"]
        if name not in self._written:  # what was foreseen never changes
            self._written[name] = self._client.job(name)["estimate"]
        foreseen = self._written[name]
        whole, seconds = foreseen.get("steps"), foreseen.get("seconds")
        if whole:
            took, done = job["step_seconds"], job["steps"]
            left = max(whole - done, 0.0) * took if took else None
            return Pace(min(done / whole, 1.0), whole, 1.0 / took if took else None, left)
        if seconds:
            ran = job["run_seconds"]
            return Pace(min(ran / seconds, 1.0), None, None, max(seconds - ran, 0.0))
        return Pace()

    def _looking(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            try:
                self.snapshot = self.look()
            except YardError as error:
                self.snapshot = replace(self.snapshot, trouble=error.message)
            self._stop.wait(SHORTEST_SECONDS)

    def _listening(self) -> None:
        while not self._stop.is_set():
            after = self._events[-1]["number"] if self._events else 0
            try:
                for event in self._client.stream(after=after):
                    self._events.append(event)
                    self._wake.set()
                    if self._stop.is_set():
                        return
            except (YardError, OSError, ValueError):
                self._stop.wait(LOOK_SECONDS)
