"""A model that FSDP2 divided is kept by its workers and read by another number of them.

Real processes: what each holds of a tensor is known only where torch has divided it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train`")

from modelyard.train.snapshots import restore_latest  # noqa: E402

from . import sharded_run  # noqa: E402


def run(action: str, folder: Path, mesh: str) -> None:
    count = 1
    for size in mesh.split("x"):
        count *= int(size)
    processes = [
        subprocess.Popen(
            [sys.executable, sharded_run.__file__, action, str(folder), str(rank), mesh],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    errors = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, errors


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("saved", "loaded"), [("2", "3"), ("2x2", "2")])
def test_kept_by_some_and_read_by_others(tmp_path: Path, saved: str, loaded: str) -> None:
    """`2x2` is two replicas of two shards: only one replica writes."""
    run("save", tmp_path, saved)
    run("load", tmp_path, loaded)
    restored = restore_latest(tmp_path / "kept")
    assert restored is not None
    assert isinstance(restored.tree, dict)
    expected = torch.load(tmp_path / "whole.pt")
    for name, tensor in restored.tree["model"].items():
        assert torch.equal(tensor, expected[name])
