"""Snapshots of a worker's state: training stands still for one copy, another process writes it.

    snapshots = Snapshots("s3://bucket/runs/one", job="one")
    snapshots.prepare(state)                  # touch the memory while the first steps run
    snapshots.take(step, state, generation=…, position=…)
    …
    snapshots.finish()

    restored = restore_latest("s3://bucket/runs/one")

A state is a tree of dicts, lists, numbers, texts and tensors, as `state_dict()` gives it. Nothing
that goes wrong with writing ends the training: it is said through `warn`, and training goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import torch

from modelyard.errors import InputError, YardError, cause_of
from modelyard.keep.checkpoint import Checkpoint, Wanted, versions
from modelyard.keep.manifest import About
from modelyard.keep.retention import Retention
from modelyard.keep.store import Store, StoreOptions, open_store
from modelyard.keep.tree import Node, describe, rebuild
from modelyard.keep.verify import first_that_reads
from modelyard.keep.writer import MESSAGE_BYTES, description, encoded
from modelyard.train.shared_buffer import COPIERS, SharedBuffer
from modelyard.train.tensor_parts import LocalPart, divide, empty_like_stored, local_part

BUFFERS = 2
#: Pieces begin on lines of the processor's cache, whatever their types.
ALIGNMENT = 64
#: Room behind the tensors for the description of the tree.
DESCRIPTION_BYTES = 4 << 20
#: A snapshot that has taken that many writers with it is given up.
MOST_ATTEMPTS = 3

Warn = Callable[[str], None]
#: of a tensor and the path that leads to it
Owned = Callable[[str, torch.Tensor], bool]


class Written(msgspec.Struct, frozen=True, tag="written", tag_field="kind"):
    """The writer's word that a snapshot is kept; `complete` once all its writers' shares are."""

    buffer: int
    step: int
    generation: int
    complete: bool
    size_bytes: int
    seconds: float


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="kind"):
    buffer: int
    step: int
    text: str


class Warned(msgspec.Struct, frozen=True, tag="warning", tag_field="kind"):
    text: str


@dataclass(slots=True)
class _Held:
    """A snapshot that the writer has not written yet."""

    step: int
    message: bytes
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A state that was kept."""

    about: About
    tree: object
    #: where it was
    where: str


@dataclass(slots=True)
class _Writer:
    """The process that writes, the line to it, and the thread that hears its answers."""

    line: socket.socket
    process: subprocess.Popen[bytes]
    listener: threading.Thread


class Snapshots:
    """Takes snapshots of one worker, each written by a process of its own.

    Nothing is started before the first of them: most workers never take one.
    """

    def __init__(
        self,
        place: str | Path,
        *,
        job: str,
        options: StoreOptions | None = None,
        retention: Retention | None = None,
        warn: Warn | None = None,
    ) -> None:
        self.place = str(place)
        self.job = job
        #: the newest snapshot that is kept, None before the first
        self.written: Written | None = None
        self._options = options or StoreOptions()
        self._retention = retention
        self._warn = warn or logging.getLogger("modelyard.snapshots").warning
        # A wrong address is the caller's mistake and said at once, not by the other process later.
        open_store(place, self._options)
        self._changed = threading.Condition()
        self._buffers: list[SharedBuffer] = []
        self._held: dict[int, _Held] = {}
        self._preparing: threading.Thread | None = None
        self._copiers = ThreadPoolExecutor(COPIERS, thread_name_prefix="snapshot-copy")
        self._closed = False
        self._writer: _Writer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    def prepare(self, tree: object, *, writer: int = 0, writers: int = 1) -> None:
        """Have memory ready for snapshots of this state, in the background."""
        _, parts = _parts(tree, writer, writers)
        _, size = _layout(parts)
        self._preparing = threading.Thread(
            target=self._prepare, args=(size,), name="snapshot-memory", daemon=True
        )
        self._preparing.start()

    def take(
        self,
        step: int,
        tree: object,
        *,
        generation: int,
        position: int,
        writer: int = 0,
        writers: int = 1,
        owned: Owned | None = None,
    ) -> bool:
        """Copy a state and have it written; False, with a warning, when that is not possible now.

        With several writers each calls this with its own number, and the checkpoint is there when
        all have written their share. `owned` says which tensors this one is to write its part of;
        without it writers divide among themselves what all of them hold.
        """
        about = About(job=self.job, step=step, generation=generation, position=position)
        try:
            node, parts = _parts(tree, writer, writers, owned)
            offsets, size = _layout(parts)
            index = self._free_buffer(size)
            if index is None:
                what = f"no snapshot of step {step}: those before it are still being written"
                self._warn(f"{what}. Fix: take them less often, or write to a faster place")
                return False
            text = description(
                about,
                node,
                [
                    (part.name, part.dtype, part.shape, part.box, offset)
                    for part, offset in zip(parts, offsets, strict=True)
                ],
                writer=writer,
                writers=writers,
            )
            message = self._copy(index, parts, offsets, size, text)
        except (YardError, OSError, MemoryError) as error:
            self._warn(f"no snapshot of step {step}: {cause_of(error)}")
            return False
        with self._changed:
            self._held[index] = _Held(step, message)
        self._send(message)
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all that was taken is written or has failed; False when time ran out."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while self._held:
                self._revive()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(1.0 if left is None else min(left, 1.0))
        return True

    def finish(self, seconds: float | None = None) -> bool:
        """Wait for what was taken, and end the writer; False when time ran out.

        What was taken and is not written yet is written all the same, by the process left behind.
        """
        done = self.wait(seconds)
        self._closed = True
        if self._preparing is not None:
            self._preparing.join()
        if (writer := self._writer) is not None:
            with contextlib.suppress(OSError):
                writer.line.shutdown(socket.SHUT_WR)
            if done:
                # It may still be deleting old checkpoints.
                writer.process.wait()
                writer.listener.join()
                writer.line.close()
        self._copiers.shutdown()
        for buffer in self._buffers:
            buffer.close()
        self._buffers = []
        return done

    def _start(self) -> _Writer:
        """Start a writer in a session of its own: what ends the worker's does not reach it."""
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "modelyard.keep.writer", str(other.fileno())]
        with other:
            process = subprocess.Popen(
                [*command, str(os.getpid())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                # Whoever waits for the worker's output to end must not wait for the writer.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        options = asdict(self._options)
        kept = asdict(self._retention) if self._retention else {}
        # Through the socket and not as arguments, which every user of the machine can read.
        mine.send(encoded("store", place=self.place, options=options, retention=kept))
        listener = threading.Thread(
            target=self._listen, args=(mine,), name="snapshot-writer", daemon=True
        )
        listener.start()
        return _Writer(mine, process, listener)

    def _started(self) -> _Writer:
        with self._changed:
            if self._writer is None:
                self._writer = self._start()
            return self._writer

    def _prepare(self, size: int) -> None:
        try:
            for index in range(BUFFERS):
                with self._changed:
                    # What waits to be written must stay where it is.
                    buffer = None if index in self._held else self._buffer(index, size)
                if buffer is not None:
                    buffer.touch()
        except YardError as error:
            self._warn(str(error))

    def _buffer(self, index: int, size: int) -> SharedBuffer:
        """A free buffer that is large enough, made or made anew where it is not."""
        with self._changed:
            if index < len(self._buffers) and self._buffers[index].size_bytes >= size:
                return self._buffers[index]
            buffer = SharedBuffer(size + DESCRIPTION_BYTES)
            if index < len(self._buffers):
                self._buffers[index].close()
                self._buffers[index] = buffer
            else:
                self._buffers.append(buffer)
            self._share(index, buffer)
            return buffer

    def _share(self, index: int, buffer: SharedBuffer) -> None:
        message = encoded("buffer", buffer=index, size=buffer.size_bytes)
        with contextlib.suppress(OSError):
            socket.send_fds(self._started().line, [message], [buffer.file])

    def _free_buffer(self, size: int) -> int | None:
        """One that the writer is done with."""
        with self._changed:
            self._revive()
            free = [index for index in range(BUFFERS) if index not in self._held]
        if not free:
            return None
        self._buffer(free[0], size)
        return free[0]

    def _copy(
        self, index: int, parts: list[LocalPart], offsets: list[int], size: int, text: bytes
    ) -> bytes:
        buffer = self._buffer(index, size + len(text))
        buffer.touch()
        end = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        tensors = [part.tensor for part in parts]
        buffer.fill(zip([*offsets, size], [*tensors, end], strict=True), self._copiers)
        return encoded("write", buffer=index, start=size, size=len(text), again=False)

    def _send(self, message: bytes) -> None:
        """What cannot be sent is sent to the next writer: its buffer is held."""
        with contextlib.suppress(OSError):
            self._started().line.send(message)

    def _revive(self) -> None:
        """Start another writer when the last one died, and give it what that one had."""
        dead = self._writer
        if dead is None or dead.process.poll() is None or self._closed:
            return
        for index, held in list(self._held.items()):
            if held.attempts >= MOST_ATTEMPTS:
                del self._held[index]
                self._warn(f"the snapshot of step {held.step} is given up: its writers all died")
        self._warn(f"the writer of snapshots died ({_how(dead.process.returncode)}): starting anew")
        dead.line.close()
        self._writer = self._start()
        for index, buffer in enumerate(self._buffers):
            self._share(index, buffer)
        for held in self._held.values():
            held.attempts += 1
            self._send(held.message.replace(b'"again": false', b'"again": true'))

    def _listen(self, line: socket.socket) -> None:
        decoder = msgspec.json.Decoder(Written | Failed | Warned)
        for data in _messages(line):
            message = decoder.decode(data)
            if isinstance(message, Warned):
                self._warn(message.text)
                continue
            if isinstance(message, Failed):
                self._warn(f"the snapshot of step {message.step} is not kept: {message.text}")
            with self._changed:
                if isinstance(message, Written):
                    self.written = message
                self._held.pop(message.buffer, None)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


def restore_latest(
    place: str | Path | Store,
    *,
    options: StoreOptions | None = None,
    like: object = None,
    warn: Warn | None = None,
) -> Restored | None:
    """The newest state that was kept whole, None when there is none.

    With `like`, a tree of the same form, only what it holds is read; and of what it holds as
    distributed tensors this worker's part, whatever the division in which they were written.
    """
    store = open_store(place, options) if isinstance(place, (str, Path)) else place
    models: dict[str, object] = {}
    if like is not None:
        models = dict(describe(like, lambda value: isinstance(value, torch.Tensor))[1])

    def read(checkpoint: Checkpoint) -> Restored:
        tensors: dict[str, torch.Tensor] = {}
        wanted: list[Wanted] = []
        for name, stored in checkpoint.manifest.tensors.items():
            model = models.get(name)
            if like is not None and model is None:
                continue
            tensor, box, words = empty_like_stored(
                name,
                stored.dtype,
                stored.shape,
                model if isinstance(model, torch.Tensor) else None,
            )
            tensors[name] = tensor
            wanted.append(Wanted(name, box, words))
        checkpoint.fill(wanted)
        tree = rebuild(checkpoint.manifest.tree, tensors.get)
        return Restored(about=checkpoint.about, tree=tree, where=checkpoint.where)

    say = warn or logging.getLogger("modelyard.snapshots").warning
    return first_that_reads(store, read, warn=say)


def next_generation(place: str | Path, options: StoreOptions | None = None) -> int:
    """A generation later than all that wrote there, for a run without a conductor to number it."""
    found = versions(open_store(place, options))
    return max((version.generation for version in found), default=0) + 1


def _parts(
    tree: object, writer: int, writers: int, owned: Owned | None = None
) -> tuple[Node, list[LocalPart]]:
    if not 0 <= writer < writers:
        what = f"there is no writer {writer} among {writers}"
        raise InputError(what, fix="number the writers from 0")
    node, tensors = describe(tree, lambda value: isinstance(value, torch.Tensor))
    parts = []
    for name, tensor in tensors:
        if isinstance(tensor, torch.Tensor) and (owned is None or owned(name, tensor)):
            part = local_part(name, tensor)
            if part is not None:
                parts.append(part)
    return node, divide(parts, writer, writers) if owned is None else parts


def _layout(parts: list[LocalPart]) -> tuple[list[int], int]:
    """Where each part begins in a buffer, and where the last one ends."""
    offsets: list[int] = []
    end = 0
    for part in parts:
        offsets.append(end)
        end += -(-part.size_bytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def _messages(line: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            data = line.recv(MESSAGE_BYTES)
        except OSError:
            return
        if not data:
            return
        yield data


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
