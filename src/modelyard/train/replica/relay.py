"""One voice for all places of a replica: a worker to the conductor, a conductor to the places.

A thread of the lead. What the conductor says goes to all places as it is; what they say becomes one
message: a vote when all have voted, a heartbeat when all have beaten, a hello when all are there.
A place that hangs therefore silences its replica, and the conductor leaves that behind. When the
conductor's connection closes, those of all places close, and everybody says hello again; when
a place's connection closes, the replica is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from modelyard.train.conductor.messages import (
    LONGEST_LINE,
    Beat,
    Dismissed,
    FromConductor,
    FromWorker,
    Hello,
    Leave,
    Note,
    Phase,
    Trouble,
    Vote,
    from_conductor,
    from_worker,
    line,
)
from modelyard.train.member import RETRY_SECONDS

#: how long a conductor that is gone is looked for
PATIENCE_SECONDS = 60.0
#: between the name of a replica and the number of a place
PLACE_MARK = "."
_PHASES = tuple(Phase)
_Said = TypeVar("_Said", Vote, Beat)


@dataclass(slots=True)
class Chorus:
    """What the places have said so far, and what follows for the conductor. No socket is here."""

    places: int
    _votes: dict[int, Vote] = field(default_factory=dict)
    _beats: dict[int, Beat] = field(default_factory=dict)
    #: the newest generation in which trouble was told
    _troubled: int = 0

    def hear(self, place: int, message: FromWorker) -> FromWorker | None:
        """What is to be said now, if anything."""
        if isinstance(message, Vote):
            known = next(iter(self._votes.values()), message)
            if (known.generation, known.step) != (message.generation, message.step):
                self._votes.clear()
            self._votes[place] = message
            return self._all(self._votes, one_vote)
        if isinstance(message, Beat):
            self._beats[place] = message
            return self._all(self._beats, one_beat)
        if isinstance(message, Trouble):
            # Once is enough: all places have the same trouble.
            self._votes.clear()
            if message.generation <= self._troubled:
                return None
            self._troubled = message.generation
            return message
        # Anybody may ask to leave, and tell people something, as that its share cannot be written;
        # what else there is, all places say alike.
        return message if isinstance(message, Leave | Note) or place == 0 else None

    def _all(self, said: dict[int, _Said], one: Callable[[Sequence[_Said]], _Said]) -> _Said | None:
        if len(said) < self.places:
            return None
        found = one([said[place] for place in range(self.places)])
        said.clear()
        return found


def one_vote(votes: Sequence[Vote]) -> Vote:
    """Losses and counts are those of different samples; seconds passed at the same time."""
    losses = [vote.loss for vote in votes if vote.loss is not None]
    return Vote(
        generation=votes[0].generation,
        step=votes[0].step,
        loss=sum(losses) if len(losses) == len(votes) else None,
        samples=sum(vote.samples for vote in votes),
        tokens=sum(vote.tokens for vote in votes),
        busy_seconds=max(vote.busy_seconds for vote in votes),
        bytes_sent=sum(vote.bytes_sent for vote in votes),
        values=_means(votes),
    )


def _means(votes: Sequence[Vote]) -> dict[str, float]:
    means = {}
    for name in {name: None for vote in votes for name in vote.values}:
        having = [vote for vote in votes if name in vote.values and vote.samples]
        if count := sum(vote.samples for vote in having):
            means[name] = sum(vote.values[name] * vote.samples for vote in having) / count
    return means


def one_beat(beats: Sequence[Beat]) -> Beat:
    """A replica is where the last of its places is."""
    oldest = min(beat.generation for beat in beats)
    phases = [beat.phase for beat in beats if beat.generation == oldest]
    return Beat(oldest, min(phases, key=_PHASES.index))


def one_hello(hellos: Sequence[Hello], worker: str, store_port: int) -> Hello:
    """A replica knows what all of its places know."""
    least = min(hellos, key=lambda hello: (hello.applied, hello.pending))
    return msgspec.structs.replace(least, worker=worker, store_port=store_port)


class Relay:
    """The relay of one replica, served by a thread of its own until the process ends."""

    def __init__(
        self,
        listening: socket.socket,
        conductor: tuple[str, int],
        *,
        worker: str,
        token: str,
        places: int,
        store_port: int,
    ) -> None:
        self._listening = listening
        self._conductor = conductor
        self._worker = worker
        self._token = token
        self._places = places
        self._store_port = store_port
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._hellos: dict[int, Hello] = {}
        self._chorus = Chorus(places)
        self._upstream: asyncio.StreamWriter | None = None
        self._complete = asyncio.Event()
        #: whether places may go, because the job is done or the replica was let go
        self._over = False

    def start(self) -> None:
        thread = threading.Thread(target=self._serve_forever, name="relay", daemon=True)
        thread.start()

    def _serve_forever(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            if not self._over:
                os._exit(1)

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._hear_place, sock=self._listening, limit=LONGEST_LINE
        )
        async with server:
            while not self._over:
                await self._complete.wait()
                await self._speak()
            # Places go in their own time; this thread ends with the process.
            await asyncio.Event().wait()

    # The side of the places.

    async def _hear_place(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = await self._welcomed(reader, writer)
        if place is None:
            # Nobody of ours.
            writer.close()
            return
        # A line that makes no sense is a place that is out of its mind: it is lost as well.
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
            while text := await reader.readline():
                if self._writers.get(place) is not writer:
                    return
                self._heard(place, from_worker(text))
        if self._writers.get(place) is writer and not self._over:
            # A place is gone, and with it what only it knew.
            os._exit(1)

    async def _welcomed(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int | None:
        """The place that says hello, if it is one of this replica."""
        try:
            hello = from_worker(await reader.readline())
        except (OSError, ValueError, msgspec.DecodeError):
            return None
        if not isinstance(hello, Hello) or not hmac.compare_digest(
            hello.token.encode(), self._token.encode()
        ):
            return None
        place = int(hello.worker.rpartition(PLACE_MARK)[2])
        self._writers[place], self._hellos[place] = writer, hello
        if len(self._hellos) == self._places:
            self._complete.set()
        return place

    def _heard(self, place: int, message: FromWorker) -> None:
        answer = self._chorus.hear(place, message)
        if answer is not None and self._upstream is not None:
            self._upstream.write(line(answer))

    # The side of the conductor.

    async def _speak(self) -> None:
        """For as long as a connection to the conductor lasts, be one worker."""
        reader, writer = await self._found()
        hellos = [self._hellos[place] for place in range(self._places)]
        writer.write(line(one_hello(hellos, self._worker, self._store_port)))
        self._chorus, self._upstream = Chorus(self._places), writer
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
            while text := await reader.readline():
                message = from_conductor(text)
                self._over = self._over or _is_end(message)
                if isinstance(message, Dismissed) and message.again:
                    break
                for place in self._writers.values():
                    place.write(text)
        self._upstream = None
        writer.close()
        if not self._over:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Have all places introduce themselves again: they may know more than before."""
        writers, self._writers = self._writers, {}
        self._hellos.clear()
        self._complete.clear()
        for writer in writers.values():
            writer.close()

    async def _found(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        pause, longest = RETRY_SECONDS
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await asyncio.open_connection(*self._conductor, limit=LONGEST_LINE)
            except OSError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2.0 * pause, longest)


def _is_end(message: FromConductor) -> bool:
    """Whether places may go after this."""
    return isinstance(message, Dismissed) and not message.again
