"""The writing process, spoken to as a worker does: it finishes what it holds, and then ends."""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from modelyard.keep.checkpoint import complete
from modelyard.keep.folder import Folder
from modelyard.keep.slices import whole
from modelyard.keep.store import Store, StoreOptions, open_store
from modelyard.keep.tree import describe
from modelyard.keep.writer import description, encoded

from .conftest import Server
from .states import about, is_array, read
from .test_checkpoint import no_warning

STATE = {"w": np.arange(1000, dtype=np.float32), "step": 3}


class Worker:
    """The other end of a writer's line."""

    def __init__(self) -> None:
        self.line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.settimeout(60)
        with other:
            command = [sys.executable, "-m", "modelyard.keep.writer", str(other.fileno())]
            self.process = subprocess.Popen([*command, str(os.getpid())], pass_fds=[other.fileno()])

    def open(self, place: str, options: StoreOptions | None = None) -> None:
        values = asdict(options or StoreOptions())
        self.line.send(encoded("store", place=place, options=values, retention={"last": 2}))

    def hand_over(self, step: int) -> None:
        node, _ = describe(STATE, is_array)
        array = STATE["w"]
        assert isinstance(array, np.ndarray)
        text = description(
            about(step), node, [("w", "F32", (1000,), whole((1000,)), 0)], writer=0, writers=1
        )
        file = os.memfd_create("test")
        os.ftruncate(file, 4000 + len(text))
        with mmap.mmap(file, 4000 + len(text)) as memory:
            memory[:] = array.tobytes() + text
        message = encoded("buffer", buffer=0, size=4000 + len(text))
        socket.send_fds(self.line, [message], [file])
        os.close(file)
        self.line.send(encoded("write", buffer=0, start=4000, size=len(text), again=False))

    def answer(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.line.recv(1 << 16))
        return found


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.line.close()
    assert worker.process.wait(60) == 0


def holds_state(store: Store) -> bool:
    state = read(next(complete(store, no_warning)))
    assert isinstance(state, dict)
    return state["step"] == 3 and np.array_equal(state["w"].view("f4"), STATE["w"])


def test_it_writes_what_lies_in_shared_memory(worker: Worker, tmp_path: Path) -> None:
    worker.open(str(tmp_path))
    worker.hand_over(5)
    answer = worker.answer()
    assert (answer["kind"], answer["step"], answer["complete"]) == ("written", 5, True)
    assert holds_state(Folder(tmp_path))


def test_it_writes_to_a_real_service(worker: Worker, s3: Server) -> None:
    place = f"s3://{s3.bucket}/writer"
    worker.open(place, s3.options())
    worker.hand_over(5)
    assert worker.answer()["kind"] == "written"
    assert holds_state(open_store(place, s3.options()))


def test_it_finishes_for_a_worker_that_is_gone(tmp_path: Path) -> None:
    worker = Worker()
    worker.open(str(tmp_path))
    worker.hand_over(5)
    worker.line.close()
    assert worker.process.wait(60) == 0
    assert holds_state(Folder(tmp_path))


def test_politeness_does_not_stop_it(tmp_path: Path) -> None:
    """What ends a session of processes reaches the worker too, and its end is what counts."""
    worker = Worker()
    worker.open(str(tmp_path))
    worker.hand_over(5)
    assert worker.answer()["kind"] == "written"
    worker.process.terminate()
    worker.hand_over(6)
    assert worker.answer()["step"] == 6
    worker.line.close()
    assert worker.process.wait(60) == 0


def test_a_failure_is_said_and_the_next_snapshot_tried(worker: Worker, s3: Server) -> None:
    secret = "quite-another-secret"
    worker.open(f"s3://{s3.bucket}/refused", s3.options(secret_key=secret))
    for _ in range(2):
        worker.hand_over(5)
        answer = worker.answer()
        assert answer["kind"] == "failed"
        assert "the secret is wrong" in str(answer["text"])
        assert secret not in str(answer)


def test_it_does_not_import_torch(tmp_path: Path) -> None:
    code = "import sys, modelyard.keep.writer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
