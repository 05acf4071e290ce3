"""`yard doctor` and `yard bundle` beside a real yard with planted secrets and faults."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import EXIT_UNWELL
from modelyard.cli.main import yard as command

from ..control.live import LiveYard, command_job

PLANTED = "hunter2hunter2"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path_factory.mktemp("doctor") / "state")
    try:
        live.start()
        yield live
    finally:
        live.end()


@pytest.fixture(autouse=True)
def here(yard: LiveYard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(yard.folder))
    monkeypatch.setenv("SOME_API_KEY", f"{PLANTED}-of-mine")
    monkeypatch.chdir(tmp_path)


def findings() -> dict[str, dict[str, str]]:
    done = CliRunner().invoke(command, ["doctor", "-o", "json"])
    assert done.exit_code in (0, EXIT_UNWELL), done.output
    return {one["check"]: one for one in json.loads(done.output)}


def test_a_yard_that_is_well(yard: LiveYard) -> None:
    found = findings()
    for check in ("python", "packages", "disk writes", "server", "leader", "database", "clock"):
        assert found[check]["grade"] == "ok", found[check]
    for check in ("decisions", "records", "orphaned tasks", "admin.token", "secret"):
        assert found[check]["grade"] == "ok", found[check]
    assert found["backups"]["grade"] == "warning"
    assert "sqlite, revision" in found["database"]["says"]
    assert all(one["fix"] for one in found.values() if one["grade"] != "ok")
    shown = CliRunner().invoke(command, ["doctor", "--all"])
    assert "invariant" in shown.output
    assert CliRunner().invoke(command, ["doctor", "--strict"]).exit_code in (1, EXIT_UNWELL)


def test_a_token_that_others_can_read_is_a_problem(yard: LiveYard) -> None:
    (yard.folder / "admin.token").chmod(0o644)
    try:
        done = CliRunner().invoke(command, ["doctor"])
        assert done.exit_code == EXIT_UNWELL
        assert "chmod 600" in done.output.replace("\n", " ")
    finally:
        (yard.folder / "admin.token").chmod(0o600)


def test_no_yard_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "none"))
    done = CliRunner().invoke(command, ["doctor", "-o", "json"])
    assert done.exit_code == EXIT_UNWELL
    assert json.loads(done.output)[-1]["check"] == "server"


@pytest.mark.parametrize("name", ["report.tar.gz", "report.zip"])
def test_a_bundle_has_everything_but_secrets(yard: LiveYard, tmp_path: Path, name: str) -> None:
    token = yard.client.issue_token(user="ann", tenant="red", role="member")
    script = f"echo password={PLANTED}; echo {token}; echo postgresql://u:{PLANTED}@db/x; echo fine"
    job = yard.client.submit_text(command_job("leaky", script))["id"]
    yard.client.wait(job, seconds=60.0)
    done = CliRunner().invoke(command, ["bundle", "--job", job[:6], "--to", name])
    assert done.exit_code == 0, done.output
    texts = contents(tmp_path / name)
    names = {one.partition("/")[2] for one in texts}
    assert {"doctor.json", "jobs.json", "server.log", "job/job.json", "job/log-first.log"} <= names
    assert {one for one in names if one.endswith(".missing")} <= {"job/journal.jsonl.missing"}
    everything = "\n".join(texts.values())
    admin = (yard.folder / "admin.token").read_text().strip()
    for secret in (PLANTED, token, admin, (yard.folder / "secret").read_text()):
        assert secret not in everything
    assert "fine" in texts["report/job/log-first.log"]
    assert "Thread 0x" in texts["report/server.log"]
    for one, text in texts.items():
        if one.endswith(".json"):
            json.loads(text)
    again = CliRunner().invoke(command, ["bundle", "--to", name])
    assert (again.exit_code, "there already" in again.output) == (2, True)


def contents(path: Path) -> dict[str, str]:
    assert path.stat().st_mode & 0o077 == 0
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {one: archive.read(one).decode() for one in archive.namelist()}
    with tarfile.open(path) as archive:
        found = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_a_bundle_without_a_yard_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "none"))
    done = CliRunner().invoke(command, ["bundle", "--to", "none.tgz", "-o", "json"])
    assert done.exit_code == 0, done.output
    names = [one["name"] for one in json.loads(done.output)["parts"]]
    assert "versions.json" in names
    assert "status.json.missing" in names
