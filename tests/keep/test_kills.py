"""A writer that is killed at any instant leaves the newest complete checkpoint as it was.

Real processes and SIGKILL: what is tested is what the operating system leaves behind.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from modelyard.keep.checkpoint import versions
from modelyard.keep.folder import Folder
from modelyard.keep.retention import Retention, prune
from modelyard.keep.store import Store, open_store
from modelyard.keep.verify import newest_whole

from . import states
from .conftest import Server
from .test_checkpoint import no_warning


def kill_many(place: str, store: Store, kills: int) -> dict[str, int]:
    """Kill one writer after another; after each, what it said it had written must restore."""
    luck = random.Random(11)
    first, found = 1, {"unfinished": 0, "written": 0}
    for generation in range(1, kills + 1):
        acknowledged = write_and_kill(place, first, generation, luck.uniform(0.0, 0.12))
        newest = newest_whole(store, warn=no_warning)
        if newest is None:
            assert not acknowledged
            continue
        step = states.holds_step(newest)
        assert step == newest.about.step
        # The last one may be complete without the process having come to say so.
        assert step in (
            max(acknowledged, default=first - 1),
            max(acknowledged, default=first - 1) + 1,
        )
        found["unfinished"] += versions(store)[0] != newest.version
        found["written"] += len(acknowledged)
        first = step + 1
    return found


def write_and_kill(place: str, first: int, generation: int, seconds: float) -> list[int]:
    """The steps of which a process said that they were written before it was killed."""
    # As a module of this folder: `tests` is no package.
    run = f"import sys; sys.path.insert(0, {str(Path(states.__file__).parent)!r}); import states; "
    call = f"states.write_until_killed({place!r}, {first}, {generation})"
    process = subprocess.Popen(
        [sys.executable, "-c", run + call], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    try:
        assert process.stdout.readline() == b"begin\n"
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    reader.join()
    process.stdout.close()
    return [int(line) for line in lines if line.endswith(b"\n")]


def test_fifteen_kills(tmp_path: Path) -> None:
    kill_many(str(tmp_path), Folder(tmp_path), 15)
    prune(Folder(tmp_path), Retention(last=1), warn=no_warning)
    # What the killed left under temporary names is gone with the checkpoints it belonged to.
    newest = newest_whole(Folder(tmp_path), warn=no_warning)
    assert newest is not None
    older = [path for path in tmp_path.iterdir() if path.name < newest.version.folder]
    assert older == []


def test_kills_while_writing_to_a_service(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    place = f"s3://{s3.bucket}/killed"
    kill_many(place, open_store(place), 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    found = kill_many(str(tmp_path), Folder(tmp_path), 200)
    # The kills did hit writers at work, not before or after.
    assert found["unfinished"] >= 50
    assert found["written"] >= 50
