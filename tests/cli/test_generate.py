"""`yard generate` writes what `yard simulate` reads."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.simulate.readers import read_workload


def test_the_same_seed_writes_the_same_file(tmp_path: Path) -> None:
    def written(name: str, seed: str) -> bytes:
        path = tmp_path / name
        done = CliRunner().invoke(
            yard, ["generate", "--jobs", "12", "--seed", seed, "-o", str(path)]
        )
        assert done.exit_code == 0, done.stderr
        return path.read_bytes()

    assert written("a.csv", "1") == written("b.csv", "1") != written("c.csv", "2")
    assert len(read_workload(tmp_path / "a.csv").jobs) == 12


@pytest.mark.parametrize("devices", ["16", "6"])
def test_the_next_command_works(tmp_path: Path, devices: str) -> None:
    path = tmp_path / "jobs.csv"
    arguments = ["generate", "--jobs", "8", "--devices", devices, "-o", str(path)]
    done = CliRunner().invoke(yard, arguments)
    command = shlex.split(done.stdout.partition("Next: ")[2])
    assert command[0] == "yard"
    out = str(tmp_path / "out")
    played = CliRunner().invoke(yard, [*command[1:], "--workers", "1", "--out", out])
    assert played.exit_code == 0, played.stderr


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("precious")
    refused = CliRunner().invoke(yard, ["generate", "-o", str(path)])
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert path.read_text() == "precious"
    assert CliRunner().invoke(yard, ["generate", "-o", str(path), "--force"]).exit_code == 0
    assert path.read_text() != "precious"


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--load", "0"], ["--devices", "-1"]])
def test_senseless_numbers_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    refused = CliRunner().invoke(yard, ["generate", *arguments, "-o", str(tmp_path / "x.csv")])
    assert refused.exit_code == 2
    assert not (tmp_path / "x.csv").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = CliRunner().invoke(yard, ["generate", "-o", str(tmp_path / "no" / "x.csv")])
    assert refused.exit_code == 2
    assert "cannot be written" in refused.stderr
