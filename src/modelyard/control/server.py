"""One server of a yard: a database, an engine, a thread that leads, and HTTP in front of it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from sqlalchemy import Engine as Database
from starlette.applications import Starlette

from modelyard.control import progress
from modelyard.control.api.app import Calls, application
from modelyard.control.api.future import Future
from modelyard.control.api.inside import Inside
from modelyard.control.api.jobs import Jobs
from modelyard.control.api.lists import Lists
from modelyard.control.api.past import Past
from modelyard.control.api.shapes import line_shape
from modelyard.control.api.tenants import Tenants
from modelyard.control.api.yard import Yard
from modelyard.control.backup.schedule import BackupPlan, Schedule
from modelyard.control.deciding import Scheduler
from modelyard.control.estimating import estimate_of
from modelyard.control.feed import Feed
from modelyard.control.forecast.forecasts import Forecasts
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.leading import PACE, Leading, Pace
from modelyard.control.lifecycle.events import Decided, Event, NodeSeen, Noted, Progressed
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.states import State
from modelyard.control.loop import Decide
from modelyard.control.parts import Pages, Parts, no_pages
from modelyard.control.pressure import READ_SECONDS, Watch, read_memory
from modelyard.control.progress import Reached
from modelyard.control.recipes import PROBE, Recipes
from modelyard.control.recording import Recording
from modelyard.control.store import past
from modelyard.control.store.callers import Caller, Role, issue, recognise
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from modelyard.control.tenancy import Tenancy
from modelyard.engines.local.engine import LocalEngine
from modelyard.errors import InputError, cause_of
from modelyard.files import write_atomically
from modelyard.schedule.view import Policy, TenantView
from modelyard.spec.cluster import Cluster

log = logging.getLogger(__name__)

TOKEN_FILE, SECRET_FILE = "admin.token", "secret"
#: where clients find the servers of a yard on this machine: each in a file with its address
SERVERS = "servers"
#: how long the thread of backups waits for its line in the log
TOLD_SECONDS = 30.0
#: Ended jobs of which a new leader learns: enough for policies and forecasts, and few enough that
#: nobody waits for it.
MOST_RECALLED = 500
#: how long open connections may keep a server from ending
END_SECONDS = 2
#: For so long may the policy's thread keep others from running. Each row of SQLite is a chance to
#: be kept waiting: with Python's own 5 ms, a hundred of them take half a second.
SWITCH_SECONDS = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What a server is started with."""

    #: state of the yard on this machine: database, tasks, logs
    folder: Path
    cluster: Cluster
    policy: Policy
    tenants: dict[str, TenantView]
    #: tells servers apart that share a folder, and so the processes of this machine
    name: str = "main"
    host: str = "127.0.0.1"
    port: int = 0
    #: of PostgreSQL where several servers share a yard; SQLite in the folder otherwise
    database: str | None = None
    round_seconds: float = 5.0
    grace_seconds: float = 30.0
    pace: Pace = PACE
    #: what tells whether a device is well, as a task on it
    probe: tuple[str, ...] = PROBE
    #: what is backed up where and how often; none when nobody wants that
    backup: BackupPlan | None = None
    #: where every decision is written with what the policy was shown; nowhere when left out
    record: Path | None = None


class YardServer:
    """Everything that one process of the control plane has."""

    def __init__(self, settings: ServerSettings, pages: Pages = no_pages) -> None:
        self.settings = settings
        self._pages = pages
        (settings.folder / SERVERS).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._alone = _only_one(settings.folder / SERVERS / f"{settings.name}.lock")
        self._database = open_database(settings.database or sqlite_url(settings.folder / "yard.db"))
        upgrade(self._database)
        self._store = Store(self._database)
        self.tenancy = Tenancy(self._database, settings.cluster.devices, settings.tenants)
        self._engine = LocalEngine(settings.folder / "tasks")
        self._recipes = Recipes(
            self._store, settings.folder / "runs", yard_secret(settings.folder), settings.probe
        )
        self._pressure, self._read_at = Watch(), float("-inf")
        self._scheduler: Scheduler | None = None
        self._succeeded: deque[Job] = deque(maxlen=MOST_RECALLED)
        self._feed = Feed(self._store, line_shape)
        before = settings.folder / SERVERS / f"{settings.name}.port"
        self._socket = _listen(settings.host, settings.port or _port_before(settings.host, before))
        host, port = self._socket.getsockname()[:2]
        write_atomically(before, f"{port}\n")
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self.leading = Leading(
            store=self._store,
            engine=self._engine,
            recipe=self._recipes,
            probe=self._recipes.probing,
            deciding=self._deciding,
            watch=self._news,
            settled=self._settled,
            holder=f"{socket.gethostname()}:{settings.folder.resolve()}:{settings.name}",
            address=self.address,
            pace=settings.pace,
            grace_seconds=settings.grace_seconds,
        )
        self._backups = self._schedule(settings.backup) if settings.backup else None

    def run(self) -> None:
        """Serve until somebody ends the process; running jobs do not notice that."""
        admin_token(self._database, self.settings.folder, at=self.leading.now)
        where = {"address": self.address, "pid": os.getpid()}
        found = self.settings.folder / SERVERS / f"{self.settings.name}.json"
        write_atomically(found, json.dumps(where))
        config = uvicorn.Config(
            self._application(),
            log_level="warning",
            access_log=False,
            lifespan="off",
            # Nobody waits for slow clients; those who listen to the log are let go before.
            timeout_graceful_shutdown=END_SECONDS,
        )
        sys.setswitchinterval(SWITCH_SECONDS)
        self.leading.start()
        if self._backups is not None:
            self._backups.start()
        try:
            _Uvicorn(config, self._feed).run(sockets=[self._socket])
        finally:
            if self._backups is not None:
                self._backups.stop()
            self.leading.stop()
            self._database.dispose()
            found.unlink(missing_ok=True)
            os.close(self._alone)

    def _application(self) -> Starlette:
        forecasts = Forecasts(self.leading, lambda: self._scheduler, lambda: tuple(self._succeeded))
        lists = Lists(self._store, self.leading)
        jobs = Jobs(
            self._store,
            self.leading,
            self._engine,
            self.settings.cluster,
            lambda: self._scheduler,
            forecasts,
            lists,
        )
        calls = Calls(
            jobs=jobs,
            yard=Yard(self._store, self.leading, self._feed, lists, self._backups),
            tenants=Tenants(self._store, self.leading, self.tenancy),
            inside=Inside(self._database, self.leading, self._engine),
            past=Past(self._store, self.leading, lambda: self._scheduler, self._recipes.run),
            future=Future(forecasts, self.leading, self.settings.cluster),
        )
        parts = Parts(calls=calls, run=self._recipes.run, secret=yard_secret(self.settings.folder))
        return application(calls, self._pages(parts))

    def _schedule(self, plan: BackupPlan) -> Schedule:
        def tell(what: str) -> None:
            event = Noted(self.leading.now, what)
            self.leading.ask(event).result(timeout=TOLD_SECONDS)

        return Schedule(
            plan,
            database=self._database,
            folder=self.settings.folder,
            leads=lambda: self.leading.leads,
            clock=lambda: self.leading.now,
            tell=tell,
        )

    def _deciding(self) -> Decide:
        """A scheduler of what is known when this server begins to lead."""
        settings = self.settings
        self._pressure = Watch()
        self._scheduler = Scheduler(
            settings.policy,
            settings.cluster,
            self._introduced,
            self.tenancy.views(),
            round_seconds=settings.round_seconds,
            restart_seconds=settings.grace_seconds,
            watch=Recording(settings.record).note if settings.record else None,
        )
        ended = list(self._ended_before())
        self._scheduler.recall(ended)
        self._succeeded = deque(_succeeded(job for job, _ in ended), maxlen=MOST_RECALLED)
        return self._decided

    def _settled(self, outcomes: Sequence[Outcome]) -> None:
        self._feed.wake()
        self._succeeded.extend(_succeeded(job for outcome in outcomes for job in outcome.jobs))

    def _ended_before(self) -> Iterator[tuple[Job, Estimate]]:
        """Jobs that have ended, with what was foreseen of them."""
        for kept in past.ended_last(self._database, most=MOST_RECALLED):
            written = json.loads(kept.spec) if kept.spec else {}
            found = estimate_of(written["estimate"]) if "estimate" in written else Estimate()
            yield kept.job, found

    def _decided(self, lifecycle: Lifecycle, now: float) -> list[Decided]:
        """What the policy decides, with the rights that tenants have by now."""
        assert self._scheduler is not None
        self._scheduler.tenants = self.tenancy.views()
        return self._scheduler.decide(lifecycle, now)

    def _introduced(self, jobs: Sequence[Job]) -> list[LiveKnowledge]:
        estimates = self._recipes.estimates([job.id for job in jobs])
        return [
            LiveKnowledge(estimate, job.min_devices)
            for job, estimate in zip(jobs, estimates, strict=True)
        ]

    def _news(self, lifecycle: Lifecycle, now: float) -> Sequence[Event]:
        """Nodes that the yard does not know yet, and steps that jobs have committed."""
        nodes = [
            NodeSeen(now, NodeRecord(name=node.name, kind=node.kind, devices=node.devices))
            for node in self.settings.cluster.nodes
            if node.name not in lifecycle.nodes
            or lifecycle.nodes[node.name].devices != node.devices
        ]
        reached = list(progress.news(lifecycle.active.values(), self._recipes.run))
        for one in reached:
            self._learn(lifecycle.active[one.job], one)
        steps = [Progressed(now, one.job, one.steps, one.usual_seconds) for one in reached]
        return [*nodes, *steps, *self._strain(lifecycle, now)]

    def _strain(self, lifecycle: Lifecycle, now: float) -> Iterator[Event]:
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            yield from self._pressure.news(lifecycle, read_memory(), now)

    def _learn(self, job: Job, reached: Reached) -> None:
        scheduler, whole = self._scheduler, reached.members == len(job.slots)
        if scheduler is not None and job.state.placed and reached.step_seconds and whole:
            scheduler.measured(job, reached.step_seconds)


def _succeeded(jobs: Iterable[Job]) -> list[Job]:
    return [job for job in jobs if job.state is State.SUCCEEDED]


class _Uvicorn(uvicorn.Server):
    """It ends although somebody listens to the log."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.close()
        await super().shutdown(sockets)


def admin_token(database: Database, folder: Path, *, at: float) -> str:
    """The token of this machine's admin, made when there is none; only its owner can read it."""
    path = folder / TOKEN_FILE
    if path.exists():
        token = path.read_text().strip()
        if recognise(database, token) is not None:
            return token
    token = issue(database, Caller("admin", "default", Role.ADMIN), at=at)
    with _private(path) as file:
        os.write(file, token.encode() + b"\n")
    return token


def yard_secret(folder: Path) -> bytes:
    """What only this yard knows, made when there is none."""
    path = folder / SECRET_FILE
    if not path.exists():
        with _private(path) as file:
            os.write(file, secrets.token_hex(32).encode())
    return path.read_bytes()


def _only_one(path: Path) -> int:
    """A lock that is held for as long as this process lives; `InputError` when another has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        what = f"a server called '{path.stem}' is up in {path.parent.parent}"
        raise InputError(what, fix="stop it with 'yard down', or choose a --name") from error
    return file


@contextmanager
def _private(path: Path) -> Iterator[int]:
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _port_before(host: str, path: Path) -> int:
    """The port that this server had in its former life, so that addresses stay valid; or any."""
    try:
        port = int(path.read_text())
        _listen(host, port).close()
    except (OSError, ValueError, OverflowError, InputError):
        return 0
    return port


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said in full: asyncio sends small answers at once only where it knows that this is TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        what = f"nobody can listen at {host}:{port}: {cause_of(error)}"
        raise InputError(what, fix="choose another --listen, or stop whoever has it") from error
    return listening
