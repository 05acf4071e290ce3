"""One script, alone and on a yard: the same file, the same result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard as command

from .live import LiveYard

torch = pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

SCRIPT = """
import sys
import torch
import modelyard.train

points = torch.randn(400, 4, generator=torch.Generator().manual_seed(1))
data = [(point, point.square().sum()) for point in points]
with modelyard.train.session(data, batch=16, micro_batch=8, steps=20, seed=3) as s:
    torch.manual_seed(5)
    model = torch.nn.Linear(4, 1)
    model, optimizer = s.train(model, torch.optim.AdamW(model.parameters(), lr=0.05))
    for x, y in s.batches():
        s.backward((model(x).squeeze(1) - y).square().mean())
    if s.done and s.rank == 0:
        torch.save(model.state_dict(), sys.argv[1])
"""
JOB = """
name: own
devices: 1
script: own.py
args: [{target}]
batch: 16
steps: 20
"""


@pytest.mark.slow
def test_a_script_gives_the_same_alone_and_on_a_yard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    (tmp_path / "own.yaml").write_text(JOB.format(target=tmp_path / "yard.pt"))
    words = [sys.executable, "own.py", str(tmp_path / "alone.pt")]
    subprocess.run(words, cwd=tmp_path, env=os.environ, check=True, timeout=120.0)
    live = LiveYard(tmp_path / "state", cluster="1x1")
    monkeypatch.setenv("YARD_FOLDER", str(live.folder))
    try:
        live.start()
        job = live.client.submit(tmp_path / "own.yaml")["id"]
        ended = live.client.wait(job, seconds=120.0)
        assert ended["state"] == "succeeded", live.client.log(job)[0].decode()
        kept = CliRunner().invoke(command, ["checkpoints", job[:6]])
        assert kept.exit_code == 0, kept.output
        assert "20" in kept.output.split()
    finally:
        live.end()
    alone, yard = torch.load(tmp_path / "alone.pt"), torch.load(tmp_path / "yard.pt")
    for name, value in alone.items():
        torch.testing.assert_close(yard[name], value)
