"""`yard plan fit`: one table of ways, JSON for programs, mistakes in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import EXIT_MISTAKE, EXIT_NO_PLAN, yard

GPT2 = ("gpt2", "--devices", "8xA100", "--tokens", "5B")


def run(*words: str) -> Result:
    return CliRunner().invoke(yard, ["plan", "fit", *words])


def test_prints_every_way_with_its_reason() -> None:
    done = run(*GPT2)
    assert done.exit_code == 0, done.output
    for name in ("as asked", "tune", "shrink width", "shrink depth", "stage", "prune", "distil"):
        assert name in done.output
    assert "Kaddour et al. 2023" in done.output
    assert "Needs trained weights of gpt2" in done.output
    assert "pilots on your own data narrow them" in done.output


def test_json_has_all_figures_of_all_ways() -> None:
    done = run(*GPT2, "--deadline", "30m", "-o", "json")
    found = json.loads(done.stdout)
    assert found["limits"]["deadline_seconds"] == 1800.0
    names = [way["name"] for way in found["ways"]]
    assert names[0] == "as asked"
    assert {"tune", "stage", "prune", "distil", "quantise"} <= set(names)
    for way in found["ways"]:
        assert way["seconds"]["low"] <= way["seconds"]["value"] <= way["seconds"]["high"]
        assert way["keeps"] == (way["seconds"]["value"] <= 1800.0)
    assert done.exit_code == (0 if found["outcome"] == "ways" else EXIT_NO_PLAN)


@pytest.mark.parametrize("name", ["bert-large", "t5-base"])
def test_models_without_a_law_of_loss(name: str) -> None:
    done = run(name, "--devices", "8xA100", "--tokens", "1B", "--sequence", "512", "-o", "json")
    assert done.exit_code == 0, done.output
    assert all(way["loss"] is None for way in json.loads(done.stdout)["ways"])
    assert run(name, "--devices", "8xA100", "--tokens", "1B", "--sequence", "512").exit_code == 0


def test_pilots_narrow_the_losses(tmp_path: Path) -> None:
    runs = ["10M,1B,4.5", "30M,2B,4.0", "60M,4B,3.7", "100M,2B,3.7", "120M,4B,3.5"]
    (tmp_path / "pilots.csv").write_text("parameters,tokens,loss\n" + "\n".join(runs) + "\n")
    before = json.loads(run(*GPT2, "-o", "json").stdout)["ways"][0]["loss"]
    done = run(*GPT2, "--pilots", str(tmp_path / "pilots.csv"), "-o", "json")
    after = json.loads(done.stdout)["ways"][0]["loss"]
    assert after["high"] - after["low"] < 0.5 * (before["high"] - before["low"])


def test_no_way_keeps_an_impossible_deadline() -> None:
    done = run(*GPT2, "--deadline", "1s")
    assert done.exit_code == EXIT_NO_PLAN
    assert "No way keeps the limits" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpt2", "--devices", "0xA100", "--tokens", "5B"), "0"),
        (("gpt2", "--devices", "8xA100", "--tokens", "-5B"), "negative"),
        (("gpt2", "--devices", "8xA100", "--tokens", "5B", "--deadline", "soon"), "soon"),
        (("bert-large", "--devices", "8xA100", "--max-loss", "2"), "no law says which loss"),
        (("gpt2", "--devices", "8xA100", "--pilots", "no-such-file.csv"), "no such file"),
        (("no-such-model", "--devices", "8xA100"), "no-such-model"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.exit_code == EXIT_MISTAKE, done.output
    assert message in done.output
    assert "Traceback" not in done.output


def test_help_names_the_limits() -> None:
    done = run("--help")
    assert done.exit_code == 0
    for option in ("--deadline", "--budget", "--max-loss", "--pilots"):
        assert option in done.output
