"""A worker's line to its conductor: a thread that listens, one that beats, and what they heard.

The training loop asks three things: which generation am I in, was my step committed, and has
anything happened that makes it pointless to wait for others. The last is an event that anything
may wait for together with its own work, so that no call is stuck with a peer that is gone.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from modelyard.errors import YardError, cause_of
from modelyard.train.conductor.messages import (
    Beat,
    Commit,
    Dismissed,
    FromWorker,
    Generation,
    Hello,
    Kept,
    Leave,
    Note,
    Phase,
    Trouble,
    Validated,
    Vote,
    from_conductor,
    line,
)

#: First and longest pause between attempts to find a conductor that is gone.
RETRY_SECONDS = (0.02, 0.5)


class Dismissal(YardError):
    """The conductor does not count on this worker any more."""


class NoConductor(YardError):
    """The conductor is gone and has not come back."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a worker is; said again whenever it has to introduce itself."""

    applied: int
    pending: int
    lineage: int
    #: in which it voted for what is pending
    pending_generation: int = 0
    #: samples that its parameters have seen
    position: int = 0
    #: steps of what it knows to be kept; -1 when that is nothing
    kept: int = -1
    #: whether it is keeping what all steps have trained
    keeping: bool = False

    def said(self, hello: Hello) -> Hello:
        """A hello that says so."""
        return msgspec.structs.replace(
            hello,
            applied=self.applied,
            pending=self.pending,
            pending_generation=self.pending_generation,
            lineage=self.lineage,
            position=self.position,
            kept=self.kept,
            keeping=self.keeping,
        )


class Member:
    """The connection of one worker, kept up for as long as the worker lives."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        hello: Hello,
        standing: Callable[[], Standing],
        beat_seconds: float,
        patience_seconds: float = 60.0,
    ) -> None:
        self._address = address
        self._hello = hello
        self._standing = standing
        self._beat_seconds = beat_seconds
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._generation: Generation | None = None
        self._entered = 0
        self._commits: dict[int, Commit] = {}
        self._phase = Phase.GATHERING
        self._end: YardError | None = None
        self._closed = False
        self._leaving = False
        self._connected = False
        #: whether the training loop waits for a word of the conductor
        self._ready = False
        self._socket: socket.socket | None = None
        #: notes of the time before the first connection
        self._untold: list[str] = []
        self._sending = threading.Lock()
        #: set while waiting for peers of the present generation is pointless
        self.disturbed = threading.Event()
        #: called whenever `disturbed` is set
        self.on_disturbance: Callable[[], None] | None = None
        self._listener = threading.Thread(target=self._listen, name="conductor", daemon=True)
        self._beater = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        self._beater.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._socket is not None:
            self._close_socket()

    # What the training loop asks.

    @property
    def ended(self) -> bool:
        """Whether the conductor does not count on this worker any more."""
        return self._end is not None

    def next_generation(self) -> Generation:
        """Wait for a generation that was not entered yet, and enter it."""
        with self._changed:
            while True:
                self._raise_end()
                found = self._generation
                if self._connected and found is not None and found.number > self._entered:
                    self._entered = found.number
                    self._commits.clear()
                    self._phase = Phase.GATHERING
                    self.disturbed.clear()
                    return found
                self._wait()

    def enter(self, phase: Phase) -> None:
        """Say what this worker does from now on, with the next heartbeat.

        Steps are full of votes and commits already, which say the most of it. Only the end of
        gathering is told at once, for a group that was slow to connect is built again, and keeping,
        which one member does for all.
        """
        at_once = phase is Phase.KEEPING or self._phase is Phase.GATHERING
        self._phase = phase
        if at_once:
            self._send(Beat(self._entered, phase))

    def vote(self, vote: Vote) -> None:
        self._phase = Phase.VOTED
        self._send(vote)

    def validated(self, found: Validated) -> None:
        self._send(found)

    def kept(self, step: int) -> None:
        """Have the last word: what all steps have trained is kept."""
        self._send(Kept(step))

    def note(self, text: str) -> None:
        """Tell people something; before there is a connection, once there is one."""
        with self._changed:
            if self._socket is None:
                self._untold.append(text)
                return
        self._send(Note(text))

    def trouble(self, what: str) -> None:
        """Tell that the group failed; the next generation will follow."""
        self._phase = Phase.GATHERING
        self._send(Trouble(self._entered, what))

    def verdict(self, step: int) -> Commit | None:
        """Wait for what becomes of a step that was voted for; None when it is discarded."""
        with self._changed:
            while True:
                if (commit := self._commits.pop(step, None)) is not None:
                    return commit
                if self._end is not None:
                    # Whoever asks for the next step is told why there is none.
                    return None
                newer = self._generation is not None and self._generation.number > self._entered
                if self._connected and newer:
                    return None
                self._wait()

    def _wait(self) -> None:
        """Until something is heard: the training loop, which is ready for anything meanwhile."""
        self._ready = True
        self._changed.notify_all()
        self._changed.wait()
        self._ready = False

    def leave(self) -> None:
        """Ask to be let go after the step in flight; safe to call from a signal handler."""
        self._leaving = True

    # The two threads.

    def _listen(self) -> None:
        while not self._closed:
            left_behind = False
            try:
                self._introduce()
                left_behind = self._hear()
            except (OSError, msgspec.DecodeError):
                pass
            except YardError as error:
                self._finish(error)
                return
            self._disconnect()
            if left_behind:
                self._until_ready()

    def _until_ready(self) -> None:
        """Whoever was left behind comes again with a training loop that gets on, or not at all."""
        with self._changed:
            while not (self._ready or self._closed):
                self._changed.wait()

    def _introduce(self) -> None:
        """Say who is there to the conductor, once it is found."""
        found = self._find()
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._socket = found
            self._commits.clear()
            untold, self._untold = self._untold, []
        self._send(self._standing().said(self._hello))
        for text in untold:
            self._send(Note(text))

    def _find(self) -> socket.socket:
        """A connection to the conductor, tried for as long as patience lasts."""
        pause, longest = RETRY_SECONDS
        until = time.monotonic() + self._patience_seconds
        while True:
            try:
                return socket.create_connection(self._address, timeout=longest * 4.0)
            except OSError as error:
                if self._closed or time.monotonic() > until:
                    host, port = self._address
                    what = f"no conductor at {host}:{port}: {cause_of(error)}"
                    raise NoConductor(what, fix="start the job again: it goes on") from error
            time.sleep(pause)
            pause = min(2.0 * pause, longest)

    def _hear(self) -> bool:
        """Until the connection ends; whether the conductor goes on without this worker."""
        assert self._socket is not None
        with self._socket.makefile("rb") as lines:
            for text in lines:
                message = from_conductor(text)
                if isinstance(message, Dismissed):
                    if message.again:
                        return True
                    raise Dismissal(message.why)
                with self._changed:
                    self._connected = True
                    if isinstance(message, Commit):
                        if message.generation == self._entered:
                            self._commits[message.step] = message
                    else:
                        self._generation = message
                        self._disturb()
                    self._changed.notify_all()
        return False

    def _disconnect(self) -> None:
        with self._changed:
            self._connected = False
            self._disturb()
            self._changed.notify_all()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _finish(self, error: YardError) -> None:
        with self._changed:
            self._end = error
            self._disturb()
            self._changed.notify_all()

    def _disturb(self) -> None:
        self.disturbed.set()
        if self.on_disturbance is not None:
            self.on_disturbance()

    def _raise_end(self) -> None:
        if self._end is not None:
            raise self._end

    def _beat(self) -> None:
        while not self._closed and self._end is None:
            time.sleep(self._beat_seconds)
            self._send(Leave() if self._leaving else Beat(self._entered, self._phase))

    def _send(self, message: FromWorker) -> None:
        """What cannot be sent is lost with the connection; the listener notices that."""
        with self._sending:
            if self._socket is None:
                return
            try:
                self._socket.sendall(line(message))
            except OSError:
                self._close_socket()
