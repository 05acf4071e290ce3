"""The arithmetic of a sample is that of plans, and a machine has a peak."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.cli.main import yard
from modelyard.spec.job import JobSpec, parse_job
from modelyard.train import utilisation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("a rose is a rose is a rose\n" * 200)
    asked = ["data", "prepare", str(folder / "text.txt"), "--out", str(folder / "data")]
    assert CliRunner().invoke(yard, asked).exit_code == 0
    return folder


def job(model: str, options: str) -> JobSpec:
    return parse_job(
        f"name: a\ndevices: 1\nmodel: {model}\nbatch: 4\nsteps: 5\n"
        f"train: {{data: data, sequence: 64, model_options: {options}}}\n"
    )


def test_a_gpt_needs_six_operations_for_each_weight_and_token(folder: Path) -> None:
    """Of blocks and output, and the scores: PaLM (2022), appendix B."""
    found = utilisation.sample_flops(
        job("gpt", "{layers: 2, hidden: 64, heads: 2, longest: 64, vocab: 300}"), folder
    )
    blocks = 2 * 12 * 64 * 64
    plain = 64 * 6 * (blocks + 64 * 300) + 12 * 2 * 64 * 64 * 64
    # Biases and norms are counted as well.
    assert found == pytest.approx(plain, rel=0.03)


def test_models_without_a_shape_are_not_counted(folder: Path) -> None:
    assert utilisation.sample_flops(job("context-mlp", "{}"), folder) is None
    script = parse_job("name: a\ndevices: 1\nscript: t.py\nbatch: 4\nsteps: 5\n")
    assert utilisation.sample_flops(script, folder) is None


def test_a_machine_has_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilisation, "MEASURED_SECONDS", 0.01)
    monkeypatch.setattr(utilisation, "PRODUCT_WIDTH", 32)
    assert utilisation.measured_peak(1) > 0.0
