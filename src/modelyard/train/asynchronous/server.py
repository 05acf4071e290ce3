"""The process that has the parameters of a job whose workers do not keep step.

    python -m modelyard.train.asynchronous.server FOLDER

stands in for the conductor: it reads the same settings, keeps the same journal (one line for each
lease that became part of the model), and says where it listens. A push and the commit of its leases
are one: what a worker pushes after its leases were given to others is refused. Every second it
keeps a snapshot of parameters and ledger together, so that after its own death both go on from
the same moment, and what came later is trained again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing import ProcessError
from multiprocessing.connection import Listener
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import msgspec
import torch

from modelyard.errors import InputError
from modelyard.train.asynchronous.memory import Memory
from modelyard.train.asynchronous.pace import Pace
from modelyard.train.asynchronous.speeds import Speeds
from modelyard.train.asynchronous.wire import Line, admit, hang_up, receive, send
from modelyard.train.compress.combinations import compressor
from modelyard.train.conductor.events import Began, Committed, RolledBack
from modelyard.train.conductor.journal import Journal
from modelyard.train.conductor.server import JOURNAL_FILE, TOKEN_VARIABLE, Listening, read_listening
from modelyard.train.data.leases import Lease, Ledger, LedgerStanding
from modelyard.train.state import pack, skeleton

SNAPSHOT_FILE = "servers.snapshot"
SNAPSHOT_SECONDS = 1.0
#: How long the end waits for workers to leave.
FAREWELL_SECONDS = 10.0
#: Leases whose times tell how long one takes, and how many times that nobody is waited for.
REMEMBERED, TIMES = 32, 10.0


class Server:
    """One job: memory and ledger, changed together under one lock."""

    def __init__(self, folder: Path, listening: Listening, journal: Journal, token: str) -> None:
        self._folder = folder
        self._settings = listening.settings
        self._journal = journal
        self._token = token
        self._memory: Memory | None = None
        self._ledger: Ledger | None = None
        self._pace = Pace()
        #: held while ledger, journal and clocks change; waited on by those who may not go on yet
        self._changed = threading.Condition()
        self._clocks: dict[str, int] = {}
        self._lines: dict[str, Line] = {}
        self._taken: dict[int, float] = {}
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._speeds = Speeds()
        self._kept_at = time.monotonic()
        #: pushes that are committed and not yet wholly in memory
        self._pushing = 0
        self._generation = journal.progress.generation
        self.over = threading.Event()
        self._step = 0
        self._restore()

    @property
    def done(self) -> bool:
        return self._step >= self._settings.steps

    # One worker.

    def serve(self, line: Line) -> None:
        """Answer a worker until it is gone."""
        worker = ""
        try:
            admit(line, self._token)
            hello = receive(line)
            worker = str(hello["worker"])
            begin, begun = self._ledger is None, None
            refused = "" if begin else self._differs(hello)
            send(line, {"begin": begin, "refused": refused})
            if refused:
                return
            if begin:
                begun = receive(line)
            self._welcome(worker, hello, begun, line)
            while True:
                send(line, self._answer(worker, receive(line)))
        except (OSError, EOFError, ProcessError, ValueError, KeyError, TypeError, RuntimeError):
            # A worker that is gone or talks nonsense: its leases go to others.
            pass
        finally:
            line.close()
            self._lost(worker, line)

    def _differs(self, hello: Any) -> str:
        """What a worker has otherwise than the job; nothing when all is the same."""
        assert self._ledger is not None
        assert self._memory is not None
        here = {
            "pace": msgspec.to_builtins(self._pace),
            "data_size": self._ledger.size,
            "seed": self._ledger.seed,
            "shapes": self._memory.shapes(),
        }
        return ", ".join(
            f"{name} {hello[name]} and not {value}"
            for name, value in here.items()
            if hello[name] != value
        )

    def _welcome(self, worker: str, hello: Any, begun: Any, line: Line) -> None:
        with self._changed:
            if self._ledger is None:
                # Of several who come first, one begins.
                self._pace = msgspec.convert(hello["pace"], Pace)
                self._memory = Memory(self._pace, begun["dense"], begun["tables"])
                self._ledger = Ledger(hello["data_size"], self._settings.batch, hello["seed"])
            self._lines[worker] = line
            # Whoever comes late starts beside the slowest, so that nobody has to wait for it.
            self._clocks[worker] = min(self._clocks.values(), default=0)
            members = tuple(sorted(self._lines))
            self._generation += 1
            self._journal.write(Began(self._generation, members, f"{worker} has come"))

    def _answer(self, worker: str, asked: Any) -> object:
        kind = asked["kind"]
        assert self._memory is not None
        if kind == "lease":
            return self._lease(worker)
        if kind == "fetch":
            version, dense, rows = self._memory.fetch(asked["rows"], dense=asked["dense"])
            values = {name: found for name, (_, found) in rows.items()}
            return {"version": version, "dense": dense, "rows": values, "step": self._step}
        if kind == "push":
            return self._push(worker, asked)
        raise ValueError(f"a worker cannot ask for '{kind}'")

    def _lost(self, worker: str, line: Line) -> None:
        with self._changed:
            if worker and self._lines.get(worker) is line:
                del self._lines[worker]
                self._clocks.pop(worker, None)
                self._speeds.forget(worker)
                assert self._ledger is not None
                self._ledger.give_back(worker)
                self._changed.notify_all()

    def _lease(self, worker: str) -> object:
        with self._changed:
            assert self._ledger is not None
            while not self.done and not self.over.is_set():
                left = self._settings.steps - self._step - len(self._ledger.held())
                if left > 0 and not self._ahead(worker):
                    lease = self._ledger.lease(worker)
                    self._taken[lease.number] = time.monotonic()
                    return {"lease": msgspec.to_builtins(lease)}
                if any(one.worker == worker for one in self._ledger.held().values()):
                    # It may be waiting for itself: what it has gathered has to come first.
                    return {"lease": None, "flush": True}
                if not self._changed.wait(self._patience()):
                    self._cut_off_slowest(worker)
            return {"lease": None, "flush": False}

    def _ahead(self, worker: str) -> bool:
        if self._pace.staleness < 0:
            return False
        return self._clocks[worker] - min(self._clocks.values()) > self._pace.staleness

    def _patience(self) -> float:
        usual = median(self._times) if self._times else 0.0
        return max(TIMES * usual, 2.0 * self._settings.stall_seconds)

    def _cut_off_slowest(self, waiting: str) -> None:
        """Somebody has waited in vain: whoever it waits for is not counted on any more."""
        assert self._ledger is not None
        until = time.monotonic() - self._patience()
        for lease in list(self._ledger.held().values()):
            if lease.worker != waiting and self._taken.get(lease.number, until) <= until:
                line = self._lines.pop(lease.worker, None)
                self._clocks.pop(lease.worker, None)
                self._ledger.give_back(lease.worker)
                if line is not None:
                    hang_up(line)
        self._changed.notify_all()

    def _push(self, worker: str, asked: Any) -> object:
        assert self._memory is not None
        assert self._ledger is not None
        leases = [msgspec.convert(one, Lease) for one in asked["leases"]]
        gradient = asked["gradient"]
        if self._pace.compress:
            shape = (asked["numbers"],)
            gradient = compressor(self._pace.compress).decode(tuple(gradient), shape)
        with self._changed:
            while self._pushing and self._due():
                self._changed.wait()
            held = self._ledger.held()
            void = any(held.get(lease.number) != lease for lease in leases)
            if void or self.over.is_set():
                return {"accepted": False, "step": self._step, "staleness": 0}
            weight = self._weight(worker, leases)
            for lease, about in zip(leases, asked["about"], strict=True):
                self._commit(worker, lease, about, weight)
            self._clocks[worker] = self._clocks.get(worker, 0) + len(leases)
            self._pushing += 1
            step = self._step
        rows = {name: (at, values) for name, (at, values) in asked["rows"].items()}
        rate = asked["rate"] * weight
        staleness = self._memory.push(gradient, rows, rate=rate, fetched=asked["version"])
        with self._changed:
            self._pushing -= 1
            if not self._pushing and (self.done or self._due()):
                self._keep()
            if not self._pushing and self.done:
                self.over.set()
            self._changed.notify_all()
        return {"accepted": True, "step": step, "staleness": staleness}

    def _due(self) -> bool:
        return time.monotonic() - self._kept_at > SNAPSHOT_SECONDS

    def _weight(self, worker: str, leases: Sequence[Lease]) -> float:
        """What a push counts for the speed of its worker."""
        now = time.monotonic()
        began = min((self._taken.get(lease.number, now) for lease in leases), default=now)
        samples = sum(lease.stop - lease.start for lease in leases)
        self._speeds.saw(worker, samples=samples, seconds=now - began)
        return self._speeds.weight(worker, self._lines) if self._pace.weigh_speed else 1.0

    def _commit(self, worker: str, lease: Lease, about: Any, weight: float) -> None:
        assert self._ledger is not None
        seconds = time.monotonic() - self._taken.pop(lease.number, time.monotonic())
        self._journal.write(
            Committed(
                step=self._step,
                generation=self._generation,
                members=(worker,),
                start=lease.start,
                stop=lease.stop,
                tokens=about["tokens"],
                loss=about["loss"],
                # To and from the worker since it last told, without what it pushes just now.
                bytes_sent=about.get("bytes", 0),
                busy=(seconds,),
                values={"speed_weight": weight},
            )
        )
        self._journal.force()
        self._ledger.commit(lease)
        self._times.append(seconds)
        self._step += 1

    def see_off(self) -> None:
        """Wait for workers that may still want to keep what was trained."""
        until = time.monotonic() + FAREWELL_SECONDS
        while self._lines and self.done and time.monotonic() < until:
            time.sleep(0.02)

    # What survives.

    def keep_last(self) -> None:
        """Keep what is there at an end that came before that of the job."""
        with self._changed:
            # From now on pushes are refused: they would be in the journal and in no snapshot.
            self.over.set()
            self._changed.wait_for(lambda: not self._pushing, timeout=SNAPSHOT_SECONDS)
            if self._ledger is not None and not self._pushing and not self.done:
                self._keep()

    def _keep(self) -> None:
        """Parameters and ledger of one moment, in one file that is there or not."""
        assert self._memory is not None
        assert self._ledger is not None
        ledger = msgspec.to_builtins(self._ledger.standing())
        about = {
            "step": self._step,
            "pace": msgspec.to_builtins(self._pace),
            "data": [self._ledger.size, self._ledger.batch, self._ledger.seed],
            "ledger": ledger,
        }
        description, tensors = pack({"about": about, "memory": self._memory.state()})
        path = self._folder / SNAPSHOT_FILE
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(len(description).to_bytes(8, "little"))
            file.write(description)
            for tensor in tensors:
                file.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self._kept_at = time.monotonic()

    def _restore(self) -> None:
        path = self._folder / SNAPSHOT_FILE
        if path.exists():
            with path.open("rb") as file:
                tree, tensors = skeleton(file.read(int.from_bytes(file.read(8), "little")))
                for tensor in tensors:
                    file.readinto(tensor.reshape(-1).view(torch.uint8).numpy())
            about = tree["about"]
            self._step, self._pace = about["step"], msgspec.convert(about["pace"], Pace)
            self._memory = Memory.restored(self._pace, tree["memory"])
            size, batch, seed = about["data"]
            standing = msgspec.convert(about["ledger"], LedgerStanding)
            self._ledger = Ledger.replayed(size, batch, seed, [standing])
            for lease in standing.held:
                self._ledger.give_back(lease.worker)
        if self._journal.progress.step > self._step:
            self._journal.write(RolledBack(self._step, self._step * self._settings.batch))


def main(folder: Path) -> int:
    """Serve the job of a folder; 0 when it is done, 1 when it was told to end before."""
    torch.set_num_threads(1)
    listening = read_listening(folder)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise InputError(f"{TOKEN_VARIABLE} is not set", fix="give the job a secret")
    with (
        Journal(folder / JOURNAL_FILE) as journal,
        Listener((listening.host, listening.port), backlog=64) as listener,
    ):
        server = Server(folder, listening, journal, token)
        if server.done:
            server.over.set()

        def end(_number: int, _frame: FrameType | None) -> None:
            server.over.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)

        def accept() -> None:
            while True:
                line = listener.accept()
                threading.Thread(target=server.serve, args=(line,), daemon=True).start()

        threading.Thread(target=accept, name="accept", daemon=True).start()
        host, port = listener.address[:2]
        sys.stdout.write(f"{host}:{port}\n")
        sys.stdout.flush()
        # Whoever started this process watches it; without them nobody would end it.
        parent = os.getppid()
        while not server.over.wait(1.0) and os.getppid() == parent:
            pass
        server.see_off()
        server.keep_last()
        return 0 if server.done else 1


if __name__ == "__main__":
    sys.stdout.flush()
    status = main(Path(sys.argv[1]))
    # Threads that wait for workers must not hold up the end.
    os._exit(status)
