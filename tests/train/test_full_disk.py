"""No space left for checkpoints: people are told, training goes on, and what was kept is whole.

A real small disk and real processes: what is tested is what people see of `yard train`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train.snapshots import restore_latest

REPOSITORY = Path(__file__).resolve().parents[2]
#: a checkpoint of the model below is about 1.3 MB
DISK_BYTES = 3 << 20
STEPS = 320


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be made here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def yard(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modelyard", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_training_goes_on_without_room_for_checkpoints(tmp_path: Path, small_disk: Path) -> None:
    text = REPOSITORY / "examples" / "sonnets.txt"
    yard("data", "prepare", str(text), "--out", str(tmp_path / "data"), "--tokenizer", "bytes")
    job = {
        "name": "full",
        "devices": {"min": 1, "max": 1},
        "model": "gpt",
        "batch": 4,
        "steps": STEPS,
        "train": {
            "data": "data",
            "sequence": 32,
            "model_options": {"layers": 2, "hidden": 64, "heads": 4, "longest": 32},
            "checkpoints": {"every": 80, "keep": 9, "to": str(small_disk)},
        },
    }
    path = tmp_path / "full.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    done = yard("train", str(path), "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "no space is left" in done.stderr
    assert "free some" in done.stderr
    kept = restore_latest(small_disk)
    assert kept is not None
    assert 0 < kept.about.step < STEPS
