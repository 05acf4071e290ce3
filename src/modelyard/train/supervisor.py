"""A job on this machine: a conductor and workers that are kept alive until the job is done.

The conductor is started again when it dies, at the same address; workers that die are replaced as
`staffing` says, which also knows when the job itself is wrong. Everything is a child of this
process or of its nursery, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec
import psutil

from modelyard.errors import cause_of
from modelyard.train.conducting import Conducting, end
from modelyard.train.conductor.journal import CommitLine, LeftBehindLine, Line, ValidationLine
from modelyard.train.conductor.progress import Settings
from modelyard.train.conductor.server import JOURNAL_FILE, TOKEN_VARIABLE
from modelyard.train.hangs import Hangs
from modelyard.train.happenings import UNKEPT, Happening, JobFailed, Kind
from modelyard.train.history import History
from modelyard.train.nursery import Birth, Born, Died, read_log
from modelyard.train.staffing import (
    Failure,
    Hopeless,
    Place,
    Request,
    Staffing,
    ThisMachine,
    Verdict,
)

CONDUCTOR = "modelyard.train.conductor.server"
#: What the job wants of whoever has machines, one request a line.
REQUESTS_FILE = "requests.jsonl"
POLL_SECONDS = 0.02
#: How long members may take to tidy up when all steps are done: to keep what they have trained.
FAREWELL_SECONDS = 600.0
#: How long workers may take to end when the process that started them has died.
ORPHAN_SECONDS = 10.0


class Supervisor:
    """Processes of one job; `run` returns when the job is done."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        workers: int,
        entry: str,
        argument: Callable[[str, str], str],
        conductor: str = CONDUCTOR,
    ) -> None:
        """`argument` makes the text that `entry` is called with, of an address and a name.

        `conductor` is the module that conducts, or that serves where workers do not keep step.

        The job's secret is in the environment of workers, not in what they are told.
        """
        self.folder = folder
        self._settings = settings
        self._staffing = Staffing(ThisMachine(socket.gethostname()), workers)
        self._entry = entry
        self._module = conductor
        self._argument = argument
        self._token = secrets.token_urlsafe(24)
        self._born = 0
        self._alive: dict[str, int] = {}
        self._places: dict[str, Place] = {}
        #: those asked to leave, of whom fewer are wanted already
        self._asked: set[str] = set()
        self._hangs = Hangs(settings.stall_seconds)
        self._answers: deque[Born | Died] = deque()
        self._history = History(folder / JOURNAL_FILE)
        self._news: list[Line] = []
        self._done_since: float | None = None
        self._conductor: Conducting | None = None
        self._nursery: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the folder '{self.folder}' cannot be made: {cause_of(error)}"
            raise JobFailed(what, fix="name another one") from error
        self._conductor = Conducting(
            self.folder, self._settings, module=self._module, token=self._token
        )
        self._start_nursery()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._nursery is not None and self._nursery.poll() is not None:
            self._end_orphans()
        if self._conductor is not None:
            self._conductor.end()
        if self._nursery is not None:
            assert self._nursery.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._nursery.stdin.close()
            end(self._nursery)

    @property
    def address(self) -> str:
        """Where the conductor listens, as host:port."""
        return self._conductor.address if self._conductor is not None else ""

    @property
    def conductor_pid(self) -> int:
        assert self._conductor is not None
        return self._conductor.pid

    @property
    def workers(self) -> dict[str, int]:
        """Process numbers of living workers by name."""
        return dict(self._alive)

    @property
    def members(self) -> tuple[str, ...]:
        """Who takes part, as the journal says."""
        self._read()
        return self._history.members

    def run(self) -> Iterator[Happening]:
        """Keep the job alive; tells what happens, and ends when the job is over."""
        while not self.over:
            yield from self.tend()
            time.sleep(POLL_SECONDS)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for the conductor."""
        return self._conductor is not None and self._conductor.status == 0

    @property
    def over(self) -> bool:
        """Whether the job is done and its last members have kept what they had to keep."""
        if not self.done:
            return False
        if self._done_since is None:
            self._done_since = time.monotonic()
        late = time.monotonic() > self._done_since + FAREWELL_SECONDS
        return late or not any(name in self._alive for name in self.members)

    def tend(self) -> list[Happening]:
        """Look after all processes once, without waiting for anything."""
        happened = list(self._hear())
        happened.extend(self._end_hung())
        assert self._conductor is not None
        status = self._conductor.status
        if status == 0:
            return happened
        if status is not None:
            happened.extend(self._conductor.revive(status, self._history.steps))
        if not self._all_staffed():
            places = self._staffing.births(time.monotonic())
            happened.extend(self._birth(place) for place in places)
        return happened

    def resize(self, workers: int) -> None:
        """Want another number of workers; those too many are asked to leave after their step.

        Those who take part stay before those who have just come and know nothing yet.
        """
        self._staffing.wanted = workers
        committed = self.committed()
        members = committed[-1].members if committed else ()
        by_worth = sorted(self._alive, key=lambda name: name not in members)
        for name in by_worth[workers:]:
            self._asked.add(name)
            if pid := self._alive[name]:
                _signal(pid, signal.SIGTERM)

    def committed(self) -> Sequence[CommitLine]:
        """The steps that are committed so far; what was rolled back is not among them."""
        self._read()
        return self._history.committed

    def validated(self) -> Sequence[ValidationLine]:
        """The validations so far, by step."""
        self._read()
        return self._history.validated

    def news(self) -> list[Line]:
        """Lines that were added to the journal since the last call, and those of earlier starts."""
        self._read()
        told, self._news = self._news, []
        return told

    def _read(self) -> None:
        for line in self._history.read():
            self._news.append(line)
            # Names come again when a job is started again: what is told of others is not meant.
            if not isinstance(line, LeftBehindLine) or line.worker in self._alive:
                self._hangs.hear(line, time.monotonic())

    def _end_hung(self) -> Iterator[Happening]:
        """Kill those who were left behind and do not come back; others take their places."""
        self._read()
        for name, why in self._hangs.hung(time.monotonic()).items():
            self._hangs.forget(name)
            if pid := self._alive.get(name):
                yield Happening(f"hangs ({why}) and is ended", name, Kind.HUNG)
                _signal(pid, signal.SIGKILL)

    def _end_orphans(self) -> None:
        """See that workers end whose nursery has died, and that they keep what they have before."""
        until = time.monotonic() + ORPHAN_SECONDS
        left = {pid for pid in self._alive.values() if pid}
        for pid in left:
            _signal(pid, signal.SIGTERM)
        while left and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            left = {pid for pid in left if psutil.pid_exists(pid)}
        for pid in left:
            _signal(pid, signal.SIGKILL)

    def _all_committed(self) -> bool:
        self._read()
        return self._history.steps >= self._settings.steps

    def _all_staffed(self) -> bool:
        """Whether nobody is needed: all steps are kept, or enough are there to see to that."""
        if not self._all_committed():
            return False
        kept = self._history.kept >= self._settings.steps or not self._settings.keeps
        return kept or len(self._alive) >= self._settings.fewest

    def _start_nursery(self) -> None:
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "modelyard.train.nursery", self._entry.partition(":")[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self._nursery.stdout is not None
        listener = threading.Thread(
            target=self._listen, args=(self._nursery.stdout,), name="nursery", daemon=True
        )
        listener.start()

    def _listen(self, lines: IO[bytes]) -> None:
        decoder: msgspec.json.Decoder[Born | Died] = msgspec.json.Decoder(Born | Died)
        for line in lines:
            self._answers.append(decoder.decode(line))

    def _birth(self, place: Place) -> Happening:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        name = f"worker-{self._born}"
        self._born += 1
        birth = Birth(
            name=name,
            entry=self._entry,
            argument=self._argument(self.address, name),
            log=str(self.folder / f"{name}.log"),
            environment={TOKEN_VARIABLE: self._token},
        )
        self._nursery.stdin.write(msgspec.json.encode(birth) + b"\n")
        self._nursery.stdin.flush()
        self._alive[name], self._places[name] = 0, place
        return Happening("started", name, Kind.STARTED)

    def _hear(self) -> Iterator[Happening]:
        assert self._nursery is not None
        if self._nursery.poll() is not None:
            raise JobFailed("the process that starts workers has ended", fix="start the job again")
        while self._answers:
            answer = self._answers.popleft()
            if isinstance(answer, Born):
                if answer.name in self._alive:
                    self._alive[answer.name] = answer.pid
                    if answer.name in self._asked:
                        _signal(answer.pid, signal.SIGTERM)
                continue
            self._alive.pop(answer.name, None)
            self._hangs.forget(answer.name)
            yield from self._ended(answer.name, answer.status)

    def _ended(self, name: str, status: int) -> Iterator[Happening]:
        place, asked = self._places.pop(name), name in self._asked
        self._asked.discard(name)
        if status:
            yield Happening(f"died ({status})", name, Kind.DIED)
        if status == UNKEPT:
            # The last line of a traceback: the name of the error, and what it says.
            said = read_log(self.folder / f"{name}.log").rpartition("\n")[2].partition(": ")[2]
            what, _, fix = said.partition(". Fix: ")
            raise JobFailed(what, fix=fix)
        spare = self._staffing.wanted > self._settings.fewest
        peaceful = not (status and self._settings.keeps)
        ended = self.done or (peaceful and self._all_committed())
        if ended or (not status and (asked or spare)):
            # Where it was not asked here, somebody else has asked it, and wants fewer.
            self._staffing.left(place, fewer=not asked)
            return
        said = read_log(self.folder / f"{name}.log")
        failure = Failure(
            status=status,
            said=said.rpartition("\n")[2],
            took_part=name in self._history.took_part,
            committed=self._history.steps,
        )
        for verdict in self._staffing.failed(place, failure, time.monotonic()):
            yield from self._judged(verdict, name, said)

    def _judged(self, verdict: Verdict, name: str, said: str) -> Iterator[Happening]:
        if isinstance(verdict, Hopeless):
            log = self.folder / f"{name}.log"
            what = f"{verdict.why}; the last one said:\n{said or 'nothing'}\n"
            raise JobFailed(what, fix=f"correct the job; all that {name} said is in '{log}'")
        if isinstance(verdict, Request):
            self._request(verdict)
            what = f"the job wants {verdict.workers} more worker: {verdict.why}"
            yield Happening(what, kind=Kind.WANTED)
        elif verdict.seconds:
            what = f"gets its next worker in {verdict.seconds:.0f} s"
            yield Happening(f"{verdict.place} {what}", kind=Kind.DELAYED)

    def _request(self, request: Request) -> None:
        """Write down what a control plane may read; a job goes on as well where nobody does."""
        with (
            contextlib.suppress(OSError),
            (self.folder / REQUESTS_FILE).open("ab") as requests,
        ):
            line = {"at": time.time(), **asdict(request)}
            requests.write(msgspec.json.encode(line) + b"\n")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
