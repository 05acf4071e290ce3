"""The benchmark of snapshots runs; how fast anything is, is not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "snapshot.py"


@pytest.mark.slow
def test_a_quick_run_measures_every_way(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `train`")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for way in ("Snapshots.take", "torch.save", "dcp.save", "dcp.async_save", "stager"):
        assert way in done.stdout
