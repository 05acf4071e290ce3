"""The process that writes snapshots: it imports no torch and outlives the worker that started it.

A worker copies its state into memory that it shares with this process, says so, and trains on. When
the worker dies, what it had handed over is written all the same, and then this process ends. The
memory has no name in any file system: it is gone with the last process that has it, so nothing
is left to clean up whoever is killed.

Messages are small JSON objects over a socket that keeps their borders; memory travels as open
files beside them. Large descriptions lie in the shared memory, behind the tensors.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, fields

from modelyard.errors import YardError
from modelyard.keep.checkpoint import write_checkpoint
from modelyard.keep.manifest import About, Manifest
from modelyard.keep.parts import Piece
from modelyard.keep.problems import AlreadyThere
from modelyard.keep.retention import Retention, prune
from modelyard.keep.slices import ITEM_BYTES, Box
from modelyard.keep.store import Store, StoreOptions, open_store

MESSAGE_BYTES = 1 << 16
#: How soon the death of the worker is noticed when another process holds its end of the socket.
LOOK_SECONDS = 1.0
#: Training comes first.
NICENESS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A state that lies in a shared buffer and is to be written."""

    buffer: int
    #: where the description begins, and how long it is
    start: int
    size: int
    #: whether another writer may have begun, or even finished, the same
    again: bool


def encoded(kind: str, **values: object) -> bytes:
    """A message."""
    return json.dumps({"kind": kind, **values}).encode()


def description(
    about: About,
    tree: object,
    pieces: list[tuple[str, str, tuple[int, ...], Box, int]],
    *,
    writer: int,
    writers: int,
) -> bytes:
    """What lies in a buffer; each piece with its name, type, global shape, box and offset."""
    return json.dumps(
        {
            "about": {field.name: getattr(about, field.name) for field in fields(about)},
            "tree": tree,
            "pieces": [
                [name, dtype, shape, box.start, box.shape, offset]
                for name, dtype, shape, box, offset in pieces
            ],
            "writer": writer,
            "writers": writers,
        },
        allow_nan=False,
    ).encode()


class Writer:
    """What the process knows: where to write, what to keep, and the worker's memory."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._store: Store | None = None
        self._retention: Retention | None = None
        self._buffers: dict[int, mmap.mmap] = {}

    def serve(self, parent: int) -> None:
        """Do what the worker says until it says no more, or is dead."""
        while True:
            ready, _, _ = select.select([self._line], [], [], LOOK_SECONDS)
            if not ready:
                if os.getppid() != parent:
                    return
                continue
            data, files, _, _ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
            if not data:
                return
            message = json.loads(data)
            match message.pop("kind"):
                case "store":
                    self._open(message)
                case "buffer":
                    self._buffers[message["buffer"]] = mmap.mmap(files[0], message["size"])
                    os.close(files[0])
                case "write":
                    self._write(Order(**message))

    def _open(self, message: dict[str, object]) -> None:
        match message:
            case {"place": str(place), "options": dict(options), "retention": dict(kept)}:
                self._retention = Retention(**kept) if kept else None
                try:
                    self._store = open_store(place, StoreOptions(**options))
                except YardError as error:
                    self._say("warning", text=str(error))

    def _write(self, order: Order) -> None:
        began = time.monotonic()
        buffer = memoryview(self._buffers[order.buffer])
        told = json.loads(bytes(buffer[order.start : order.start + order.size]))
        about = About(**told["about"])
        manifest: Manifest | None = None
        problem: BaseException | None = None
        try:
            manifest = self._persist(about, told, buffer)
        except AlreadyThere as error:
            # Else the writer before this one died after its work, without having told.
            problem = None if order.again else error
        except (YardError, OSError, MemoryError) as error:
            problem = error
        if problem is not None:
            self._say("failed", buffer=order.buffer, step=about.step, text=str(problem))
            return
        self._say(
            "written",
            buffer=order.buffer,
            step=about.step,
            generation=about.generation,
            complete=manifest is not None or order.again,
            size_bytes=0 if manifest is None else manifest.size_bytes,
            seconds=time.monotonic() - began,
        )
        if manifest is not None:
            self._prune()

    def _persist(
        self, about: About, told: dict[str, object], buffer: memoryview
    ) -> Manifest | None:
        store = self._store
        if store is None:
            raise YardError("the store could not be opened", fix="see the first warning")
        match told:
            case {"tree": tree, "pieces": list(rows), "writer": int(writer), "writers": int(count)}:
                pieces = [_piece(buffer, *row) for row in rows]
                return write_checkpoint(store, about, tree, pieces, writer=writer, writers=count)
        raise YardError("a snapshot's description makes no sense")

    def _prune(self) -> None:
        if self._store is None or self._retention is None:
            return
        try:
            prune(self._store, self._retention, warn=lambda text: self._say("warning", text=text))
        except (YardError, OSError) as error:
            self._say("warning", text=f"old checkpoints were not deleted: {error}")

    def _say(self, kind: str, **values: object) -> None:
        """The worker may be dead; then there is nobody to tell."""
        text = values.get("text")
        if isinstance(text, str):
            values["text"] = text[: MESSAGE_BYTES // 8]
        with contextlib.suppress(OSError):
            self._line.send(encoded(kind, **values))


def _piece(
    buffer: memoryview,
    name: str,
    dtype: str,
    shape: list[int],
    start: list[int],
    box_shape: list[int],
    offset: int,
) -> Piece:
    box = Box(tuple(start), tuple(box_shape))
    data = buffer[offset : offset + box.count * ITEM_BYTES[dtype]]
    return Piece(tensor=name, dtype=dtype, shape=tuple(shape), box=box, data=data)


def main() -> None:
    """`python -m modelyard.keep.writer FILE PARENT`: the socket's number and the worker's."""
    # A Ctrl-C or a polite stop is the worker's business; its end is what ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as line:
        Writer(line).serve(int(sys.argv[2]))


if __name__ == "__main__":
    main()
