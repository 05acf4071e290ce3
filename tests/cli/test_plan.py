"""`yard plan` as people use it and as they misuse it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import EXIT_MISTAKE, EXIT_NO_PLAN, yard
from modelyard.cli.plan import SUBCOMMANDS
from modelyard.cli.plan_options import LAUNCHERS, MOST_TOP
from modelyard.plan.launch.launchers import LAUNCHERS as TOOLS
from modelyard.plan.solve import MOST_PLANS

#: A small question that is answered quickly.
SMALL = ("gpt2", "--devices", "8xA100", "--tokens", "10B")
HUGE = "9" * 5000


def run(*words: str) -> Result:
    return CliRunner().invoke(yard, ["plan", *words])


def config(folder: Path, **fields: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    return str(path)


def test_a_plan_comes_with_the_next_commands() -> None:
    done = run(*SMALL)
    assert done.exit_code == 0, done.output
    assert "× A100" in done.stdout
    assert "--report plan.html" in done.stdout
    assert "--launch" in done.stdout


def test_the_same_in_json() -> None:
    done = run(*SMALL, "-o", "json", "--top", "2")
    made = json.loads(done.stdout)
    assert made["outcome"] == "plan"
    assert len(made["plans"]) <= 2
    assert made["request"]["tokens"] == 10e9
    best = made["plans"][0]
    assert sum(best["step_parts"].values()) == pytest.approx(best["step_seconds"]["value"], 1e-6)
    assert sum(best["memory_parts"].values()) == pytest.approx(best["memory_bytes"]["value"], 1e-6)


def test_a_report_is_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    done = run(*SMALL, "--report", str(path))
    assert done.exit_code == 0, done.output
    assert str(path) in done.stdout
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_no_plan_ends_with_3_and_commands_that_work() -> None:
    done = run("llama2-7b", "--devices", "8xH100", "--tokens", "300B", "--deadline", "1d")
    assert done.exit_code == EXIT_NO_PLAN, done.output
    assert "No plan keeps the limits. Bound by deadline" in done.stdout
    commands = [line.split() for line in done.stdout.splitlines() if line.startswith("  yard plan")]
    assert commands
    for words in commands:
        assert run(*words[2:]).exit_code == 0


def test_no_plan_in_json_ends_with_3_too() -> None:
    done = run("llama2-7b", "--devices", "1xT4", "--tokens", "1B", "-o", "json")
    assert done.exit_code == EXIT_NO_PLAN, done.output
    made = json.loads(done.stdout)
    assert made["outcome"] == "no_plan"
    assert made["refusal"]["binding"] == "memory"


def test_what_if_shows_the_difference() -> None:
    done = run(*SMALL, "--what-if", "devices=+8xA100", "--what-if", "tokens=20B")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("tokens=20B")]
    assert lines[0].split()[-1] != ""
    assert "16 × A100" in done.stdout


def test_every_launcher_is_an_option() -> None:
    assert set(LAUNCHERS) == set(TOOLS)


@pytest.mark.parametrize("tool", LAUNCHERS)
def test_settings_are_printed_or_written(tool: str, tmp_path: Path) -> None:
    printed = run(*SMALL, "--launch", tool)
    assert printed.exit_code == 0, printed.output
    written = run(*SMALL, "--launch", tool, "--out", str(tmp_path / "run"))
    assert written.exit_code == 0, written.output
    files = sorted((tmp_path / "run").iterdir())
    assert files
    for file in files:
        assert str(file) in written.stdout
        assert file.name in printed.stdout
    made = json.loads(run(*SMALL, "--launch", tool, "-o", "json").stdout)
    assert made["launch"]["tool"] == tool


@pytest.mark.parametrize(
    ("words", "style"),
    [
        ((), "unknown"),
        (("--launch", "yard"), "unknown"),
        (("--launch", "deepspeed"), "eager"),
        (("--launch", "megatron"), "fused"),
        (("--launch", "deepspeed", "--software", "torchtitan"), "fused"),
        (("--software", "nemo"), "tuned"),
    ],
)
def test_a_plan_is_for_the_software_that_runs_it(words: tuple[str, ...], style: str) -> None:
    made = json.loads(run(*SMALL, *words, "-o", "json").stdout)
    assert made["request"]["software"] == style


def test_a_launcher_that_cannot_run_what_is_pinned() -> None:
    done = run(*SMALL, "--tensor", "2", "--launch", "fsdp")
    assert done.exit_code == EXIT_MISTAKE
    assert "FSDP cannot run this plan" in done.stderr


def test_a_batch_in_tokens_is_one_in_sequences() -> None:
    tokens = json.loads(run(*SMALL, "--batch", "512k tokens", "-o", "json").stdout)
    sequences = json.loads(run(*SMALL, "--batch", "500 sequences", "-o", "json").stdout)
    assert tokens["request"]["global_batch"] == 500
    assert sequences["request"]["global_batch"] == 500


def test_a_model_in_numbers() -> None:
    shape = ("--layers", "12", "--hidden", "768", "--heads", "12", "--vocab", "50257")
    done = run(*shape, "--devices", "8xA100", "-o", "json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["request"]["tokens"] == 20 * made["request"]["parameters"]


def test_adapters() -> None:
    done = run("llama2-7b", "--devices", "1xA100", "--tokens", "10M", "--lora", "8", "-o", "json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)["request"]
    assert (made["method"], made["rank"]) == ("lora", 8)


def test_top_may_ask_for_all_plans_of_an_answer() -> None:
    assert MOST_TOP == MOST_PLANS


def test_pins_are_kept() -> None:
    done = run(*SMALL, "--tensor", "2", "--no-flash", "--sharding", "fsdp", "-o", "json")
    assert done.exit_code == 0, done.output
    for plan in json.loads(done.stdout)["plans"]:
        layout = plan["layout"]
        assert (layout["tensor"], layout["flash"], layout["sharding"]) == (2, False, "zero3")


def test_subcommands_win_over_models_of_their_name() -> None:
    for name in SUBCOMMANDS:
        done = run(name, "--help")
        assert done.exit_code == 0, done.output
        assert f"Usage: yard plan {name}" in done.stdout


def test_help_names_the_subcommands_and_works_without_words() -> None:
    assert run().stdout == run("--help").stdout or run().exit_code == 2
    shown = run("--help").stdout
    assert "by its path" in shown
    assert all(name in shown for name in SUBCOMMANDS)


MISTAKES: Sequence[tuple[tuple[str, ...], tuple[str, ...]]] = (
    (("--devices", "8xA100"), ("there is none",)),
    (("gpt2",), ("'devices' is missing",)),
    (("gpt2", "--devices", "0xA100"), ("no devices", "at least one")),
    (("gpt2", "--devices", "-8xA100"), ("negative number of devices",)),
    (("gpt2", "--devices", "8xQ100"), ("unknown device 'Q100'",)),
    (("gpt2", "--devices", f"{HUGE}xA100"), ("devices",)),
    (("gpt2", "--devices", "8xA100", "--cluster", "4x8xA100"), ("keep one of them",)),
    (("gpt2", "--cluster", "no-such.yaml"), ("no such file",)),
    (("llama2-7", "--devices", "8xA100"), ("llama2-7b",)),
    (("x" * 5000, "--devices", "8xA100"), ("unknown model",)),
    (("./missing/config.json", "--devices", "8xA100"), ("config.json",)),
    ((*SMALL, "--tokens", "nan"), ("tokens",)),
    ((*SMALL, "--tokens", "-5"), ("negative",)),
    ((*SMALL, "--tokens", HUGE), ("tokens",)),
    ((*SMALL, "--tokens", "1e999"), ("tokens",)),
    ((*SMALL, "--sequence", "0"), ("sequence",)),
    ((*SMALL, "--batch", "0"), ("batch",)),
    ((*SMALL, "--batch", "100 tokens"), ("less than one sequence", "1024 tokens")),
    ((*SMALL, "--batch", "many tokens"), ("batch: 'many' is not a count",)),
    ((*SMALL, "--deadline", "soon"), ("'soon' is not a duration",)),
    ((*SMALL, "--deadline", "0s"), ("deadline",)),
    ((*SMALL, "--budget", "nan"), ("budget",)),
    ((*SMALL, "--budget", "inf"), ("budget",)),
    ((*SMALL, "--max-loss", "nan"), ("max_loss",)),
    ((*SMALL, "--memory-risk", "2"), ("memory_risk",)),
    ((*SMALL, "--precision", "bf61"), ("did you mean 'bf16'",)),
    ((*SMALL, "--precision", "int8"), ("for serving",)),
    ((*SMALL, "--lora", "8", "--qlora", "8"), ("keep one of them",)),
    ((*SMALL, "--lora", "0"), ("lora",)),
    ((*SMALL, "--lora-targets", "q", "--tensor", "x"), ("tensor",)),
    ((*SMALL, "--tensor", "5"), ("5 does not divide gpt2", "use 1, 2, 3")),
    ((*SMALL, "--tensor", "4", "--data", "4"), ("16 devices, and there are 8",)),
    ((*SMALL, "--expert", "2"), ("has no experts",)),
    ((*SMALL, "--virtual", "2", "--pipeline", "1"), ("--pipeline 1",)),
    ((*SMALL, "--batch", "10", "--micro-batch", "3"), ("does not divide a batch of 10",)),
    ((*SMALL, "--sharding", "zero9"), ("zero",)),
    ((*SMALL, "--recompute", "some"), ("'none', 'selective' or 'full'",)),
    ((*SMALL, "--layers", "12"), ("keep the name or the numbers",)),
    (("--layers", "12", "--devices", "8xA100"), ("hidden, heads and vocab are missing",)),
    (
        (
            "--layers",
            "12",
            "--hidden",
            "100",
            "--heads",
            "7",
            "--vocab",
            "9",
            "--devices",
            "8xA100",
        ),
        ("heads",),
    ),
    (
        ("--layers", "0", "--hidden", "-8", "--heads", "x", "--vocab", HUGE, "--devices", "8xA100"),
        ("layers: 0 is not possible", "hidden: '-8' is negative", "heads: 'x'", "vocab:"),
    ),
    ((*SMALL, "--what-if", "nodes=+1"), ("--what-if nodes=+1", "unknown change")),
    ((*SMALL, "--what-if", "devices=-99xA100"), ("--what-if",)),
    ((*SMALL, "--prices", "no-such.csv"), ("no such file",)),
    ((*SMALL, "--pilots", "no-such.csv"), ("no such file",)),
    ((*SMALL, "--calibration", "no-such.json"), ("no such file",)),
    ((*SMALL, "--mtbf", "never ever"), ("mtbf",)),
    (("bert-base", "--devices", "8xA100", "--tokens", "1B", "--max-loss", "2"), ("--max-loss",)),
    ((*SMALL, "--top", "0"), ("--top",)),
    ((*SMALL, "--top", "nan"), ("--top",)),
    ((*SMALL, "--launch", "sbatch"), ("--launch",)),
)


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=lambda value: " ".join(value)[:50])
def test_a_mistake_is_named_with_its_fix(words: tuple[str, ...], said: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == EXIT_MISTAKE, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in said:
        assert part in done.stderr
    assert max(len(line) for line in done.stderr.splitlines()) < 500
    if done.stderr.startswith("error:"):
        assert all("Fix: " in line for line in done.stderr.splitlines()), done.stderr


def test_all_mistakes_come_at_once() -> None:
    done = run("gpt2", "--devices", "0xA100", "--tokens", "x", "--deadline", "y", "--tensor", "z")
    assert done.exit_code == EXIT_MISTAKE
    assert len(done.stderr.splitlines()) == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "model_type"),
        ({"model_type": "unheard-of"}, "unheard-of"),
        ({"model_type": "llama", "hidden_size": 64}, "num_hidden_layers"),
        ({"model_type": "gpt2", "n_layer": -1, "n_head": 0, "n_embd": 1e400}, "n_layer"),
    ],
    ids=["empty", "unknown architecture", "missing fields", "impossible"],
)
def test_a_config_that_cannot_be_used(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    done = run(config(tmp_path, **fields), "--devices", "8xA100", "--tokens", "1B")
    assert done.exit_code == EXIT_MISTAKE, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_text_is_refused_without_a_traceback() -> None:
    # A process, because only a real command line can hold bytes that are no text.
    done = subprocess.run(
        [sys.executable, "-m", "modelyard", "plan", b"\xff\xfe-7b", "--devices", "8xA100"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == EXIT_MISTAKE
    assert b"Traceback" not in done.stderr
    assert b"unknown model" in done.stderr


@pytest.mark.parametrize("path", ["/dev/full", "file/plan.html", "."])
def test_a_report_that_cannot_be_written(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = run(*SMALL, "--report", path)
    assert done.exit_code == EXIT_MISTAKE, done.output
    assert "Traceback" not in done.stderr
    assert "Fix: " in done.stderr


@pytest.mark.parametrize(
    "settings",
    [{"TERM": "dumb"}, {"COLUMNS": "20"}, {"COLUMNS": "60"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=str,
)
def test_odd_terminals_get_an_answer(settings: dict[str, str]) -> None:
    # A process, because encodings belong to one.
    done = subprocess.run(
        [sys.executable, "-m", "modelyard", "plan", *SMALL],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert b"A100" in done.stdout


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(("limit", "code"), [("10000d", 0), ("1s", 3)])
def test_a_reader_that_goes_away_changes_no_exit_code(output: str, limit: str, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "modelyard", "plan", *SMALL, "--deadline", limit, "-o", output],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == code


def test_a_report_makes_no_folders(tmp_path: Path) -> None:
    done = run(*SMALL, "--report", str(tmp_path / "missing" / "plan.html"))
    assert done.exit_code == EXIT_MISTAKE
    assert "there is no folder" in done.stderr
    assert not (tmp_path / "missing").exists()
