"""What `yard checkpoints` says of a place: what is whole, what is not, and what is newest."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.errors import InputError
from modelyard.keep.folder import Folder
from modelyard.keep.listing import Condition, listed, run_checkpoints
from modelyard.keep.store import Store

from .states import write

TREE = {"model": {"weight": np.arange(3000, dtype=np.float32)}, "lineage": 0}


def part_of(store: Store, step: int) -> str:
    names = [entry.name for entry in store.entries(f"00000001-{step:012d}")]
    return next(name for name in names if name.endswith(".safetensors"))


def test_newest_first_with_what_is_wrong(store: Store) -> None:
    for step in (5, 10, 15, 20):
        write(store, TREE, step)
    damaged = bytearray(store.get(part_of(store, 15)))
    damaged[-5] ^= 1
    store.put(part_of(store, 15), bytes(damaged))
    store.put(part_of(store, 10), b"short")
    store.delete(["00000001-000000000005/manifest.json"])
    found = listed(store)
    assert [(one.version.step, one.condition) for one in found] == [
        (20, Condition.COMPLETE),
        (15, Condition.COMPLETE),
        (10, Condition.DAMAGED),
        (5, Condition.UNFINISHED),
    ]
    assert found[0].size_bytes > 12_000
    assert found[0].position == 160
    assert abs(time.time() - found[0].written_at) < 3_600
    verified = [one.condition for one in listed(store, verify=True)]
    assert verified[:2] == [Condition.VERIFIED, Condition.DAMAGED]


def test_the_command(tmp_path: Path) -> None:
    store = Folder(tmp_path / "run" / "checkpoints")
    write(store, TREE, 5)
    write(store, TREE, 10)
    run = str(tmp_path / "run")
    assert run_checkpoints(run) == str(tmp_path / "run" / "checkpoints")
    done = CliRunner().invoke(yard, ["checkpoints", run, "--verify"])
    assert done.exit_code == 0, done.output
    assert done.output.index("10") < done.output.index(" 5 ")
    assert "2 checkpoints" in done.output
    part = tmp_path / "run" / "checkpoints" / part_of(store, 10)
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    done = CliRunner().invoke(yard, ["checkpoints", run, "--verify", "-o", "json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)["checkpoints"]
    assert [one["condition"] for one in told] == ["damaged", "verified"]
    assert told[0]["problems"]
    with pytest.raises(InputError, match="no such folder"):
        run_checkpoints(str(tmp_path / "nowhere"))


def test_in_a_bucket(s3: Any, bucket: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    write(bucket, TREE, 7)
    done = CliRunner().invoke(yard, ["checkpoints", bucket.place, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["checkpoints"][0]["step"] == 7
