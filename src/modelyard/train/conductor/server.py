"""The conductor's process: sockets and time around the machine.

    python -m modelyard.train.conductor.server FOLDER

reads its settings from `FOLDER/conductor.json`, the job's secret from the environment, keeps its
journal in the same folder, and says on standard output where it listens. It may be killed and
started again at any time: workers come back and go on where the journal ends.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from modelyard.errors import InputError, YardError, cause_of
from modelyard.train.conductor.events import (
    Came,
    Event,
    Fence,
    Finished,
    Instruction,
    Lost,
    Said,
    Send,
    Tick,
)
from modelyard.train.conductor.journal import Journal
from modelyard.train.conductor.machine import ALL_DONE, Machine
from modelyard.train.conductor.messages import (
    LONGEST_LINE,
    Dismissed,
    FromWorker,
    Hello,
    from_worker,
    line,
)
from modelyard.train.conductor.progress import Settings

TOKEN_VARIABLE = "MODELYARD_JOB_TOKEN"
SETTINGS_FILE = "conductor.json"
JOURNAL_FILE = "journal.jsonl"
#: The exit status of a conductor that could not write its journal: the disk is full, or broken.
UNWRITTEN = 3
#: How long a new connection may take to say who it is.
HELLO_SECONDS = 5.0
#: How long a conductor of a job that is done already tells so whoever asks: longer than workers
#: wait between two attempts to find it.
FAREWELL_SECONDS = 1.0


class Listening(msgspec.Struct, frozen=True):
    """What `conductor.json` says: where to listen, and what the job wants."""

    settings: Settings
    host: str = "127.0.0.1"
    #: 0 takes a free one; a restarted conductor is told the one that it had
    port: int = 0


class Server:
    """One job's conductor: a connection for each worker, one machine, one journal."""

    def __init__(self, listening: Listening, journal: Journal, token: str) -> None:
        self._listening = listening
        self._journal = journal
        self._token = token
        self._machine = Machine(listening.settings, journal.progress)
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._over = asyncio.Event()
        self.outcome: Finished | None = None
        #: why the journal cannot be written
        self.unwritten: OSError | None = None

    async def run(self) -> None:
        """Serve until the job is over."""
        server = await asyncio.start_server(
            self._serve, self._listening.host, self._listening.port, limit=LONGEST_LINE
        )
        host, port = server.sockets[0].getsockname()[:2]
        sys.stdout.write(f"{host}:{port}\n")
        sys.stdout.flush()
        if self._machine.done:
            self.outcome = Finished(ALL_DONE, done=True)
            # Some may not have heard it from the conductor before this one.
            asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._over.set)
        ticking = asyncio.create_task(self._tick())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        try:
            await self._over.wait()
        finally:
            ticking.cancel()
            for writer in list(self._writers.values()):
                writer.close()
            server.close()

    async def _tick(self) -> None:
        parent = os.getppid()
        while True:
            await asyncio.sleep(self._listening.settings.beat_seconds)
            if os.getppid() != parent:
                # Whoever started it is gone, and with them whoever would start it again.
                self._over.set()
                return
            self._happen(Tick())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = ""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = from_worker(await reader.readline())
            if not isinstance(hello, Hello) or not hmac.compare_digest(
                hello.token.encode(), self._token.encode()
            ):
                return
            worker = hello.worker
            if (former := self._writers.pop(worker, None)) is not None:
                # The same worker again: what its old connection still says is not listened to.
                former.close()
                self._happen(Lost(worker))
            self._writers[worker] = writer
            self._happen(Came(hello))
            while text := await reader.readline():
                if self._writers.get(worker) is not writer:
                    return
                self._heard(worker, from_worker(text))
        except (OSError, ValueError, TimeoutError, msgspec.DecodeError, asyncio.CancelledError):
            # A broken line is a broken worker: closing the connection says so to both sides. And
            # the end of the server is the end of all connections.
            pass
        finally:
            writer.close()
            if worker and self._writers.get(worker) is writer:
                del self._writers[worker]
                self._happen(Lost(worker))

    def _heard(self, worker: str, message: FromWorker) -> None:
        if not isinstance(message, Hello):
            self._happen(Said(worker, message))

    def _happen(self, event: Event) -> None:
        if self.unwritten is not None:
            return
        try:
            for instruction in self._machine.handle(event, time.monotonic()):
                self._carry_out(instruction)
            # Everybody knows by now and works; a slow disk holds up nobody.
            self._journal.force()
        except OSError as error:
            # The machine has gone on, and the journal has not: only the journal is true. What
            # follows is not told to anybody, and the next conductor begins where it ends.
            self.unwritten = error
            self._over.set()

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Send):
            if (writer := self._writers.get(instruction.worker)) is not None:
                writer.write(line(instruction.message))
        elif isinstance(instruction, Finished):
            self.outcome = instruction
            # What was sent last has to leave before the connections close.
            asyncio.get_running_loop().call_later(0.05, self._over.set)
        else:
            self._journal.write(instruction)
            if isinstance(instruction, Fence):
                self._fence(instruction)

    def _fence(self, fence: Fence) -> None:
        if (writer := self._writers.pop(fence.worker, None)) is not None:
            writer.write(line(Dismissed(fence.why, again=True)))
            writer.close()


def read_listening(folder: Path) -> Listening:
    """The settings of the job in a folder."""
    path = folder / SETTINGS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Listening)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"'{path}' cannot be read: {cause_of(error)}") from error


def main(folder: Path) -> int:
    """Conduct the job of a folder; 0 when it is done, 1 when it cannot go on.

    3 (`UNWRITTEN`) when the journal cannot be written, so that nothing more can be committed.
    """
    listening = read_listening(folder)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise InputError(f"{TOKEN_VARIABLE} is not set", fix="give the job a secret")
    with Journal(folder / JOURNAL_FILE) as journal:
        server: Server | None = None

        async def serve() -> None:
            nonlocal server
            server = Server(listening, journal, token)
            await server.run()

        asyncio.run(serve())
        assert server is not None
        if server.unwritten is not None:
            return UNWRITTEN
        return 0 if server.outcome is not None and server.outcome.done else 1


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except YardError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
