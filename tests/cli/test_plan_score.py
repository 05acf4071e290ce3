"""`yard plan score`: one file in, errors and reasons out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard

ROWS = """\
id,source,framework,model,layers,hidden,heads,params_b,seq_len,device,n_devices,tp,micro_batch,\
global_batch,precision,recompute,step_time_s,oom
1,us,Megatron-LM,gpt,24,2048,16,1.3,2048,A100,8,1,4,64,bf16,full,2.6,
2,us,Megatron-LM,gpt,24,2048,16,1.3,2048,A100,8,2,4,64,bf16,full,2.9,
3,us,Megatron-LM,gpt,24,2048,16,1.3,2048,A100,8,4,4,64,bf16,full,3.4,
4,us,Megatron-LM,gpt,24,2048,16,1.3,2048,A100,8,8,64,64,bf16,full,,yes
"""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(yard, ["plan", "score", *arguments])
    return result.exit_code, f"{result.output}{result.exception or ''}"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "runs.csv"
    path.write_text(ROWS)
    return str(path)


def test_errors_and_reasons_are_shown(rows: str) -> None:
    code, output = run(rows, "--by", "device")
    assert code == 0
    assert "A100" in output
    assert "1 row not predicted" in output
    assert "ran out of memory: there is no step to measure (4)" in output


def test_json_has_every_row(rows: str) -> None:
    code, output = run(rows, "--calibrate-rows", "1", "--draws", "2", "-o", "json")
    assert code == 0
    found = json.loads(output)
    assert found["measured"] == "speed"
    assert [row["id"] for row in found["rows"]] == ["1", "2", "3"]
    assert all(
        row["low_seconds"] < row["predicted_seconds"] < row["high_seconds"] for row in found["rows"]
    )
    assert found["not_predicted"][0]["id"] == "4"
    assert found["after_calibration"][-1]["rows"] == 4


def test_other_measurements_are_told_by_their_columns(tmp_path: Path) -> None:
    loss = tmp_path / "loss.csv"
    loss.write_text("model,params_total,tokens,dataset,eval,loss\nm,1e9,2e10,pile,val,2.5\n")
    code, output = run(str(loss))
    assert code == 0
    assert "before pilots" in output
    memory = tmp_path / "memory.csv"
    memory.write_text(
        "model,layers,hidden,heads,params_b,seq_len,device,n_devices,micro_batch,precision,mem_gb\n"
        "gpt,24,2048,16,1.3,2048,A100,1,1,bf16,30\n"
    )
    code, output = run(str(memory), "-o", "json")
    assert code == 0
    assert json.loads(output)["measured"] == "memory"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "do not say what was measured"), ("a,b\n1,2\n", "do not say what was measured")],
)
def test_files_about_nothing_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    code, output = run(str(path))
    assert code != 0
    assert reason in output
    assert "Traceback" not in output


def test_absurd_errors_stay_readable(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(Path(rows).read_text().replace(",2.6,", ",1e-300,"))
    code, output = run(str(path), "--by", "model")
    assert code == 0
    assert "> 10,000 %" in output


def test_a_missing_file_is_named() -> None:
    code, output = run("nowhere.csv")
    assert code != 0
    assert "no such file" in output


def test_it_is_said_that_published_rows_were_fitted(rows: str) -> None:
    assert "published rows; where yours are among them" in run(rows)[1]
    assert "fitted on" in json.loads(run(rows, "-o", "json")[1])["notes"][0]
