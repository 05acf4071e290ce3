"""Rights of tenants: the file, what was set since, and what decisions make of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from modelyard.cli.main import yard as command
from modelyard.control.client import CallRefused
from modelyard.control.tenancy import Tenancy
from modelyard.errors import InputError
from modelyard.schedule.view import TenantView

from .live import LiveYard, command_job
from .test_yard import other, until

FILE = {"red": TenantView("red", guaranteed=2, maximum=6)}


def test_what_is_set_wins_over_the_file_until_it_is_removed(database: Engine) -> None:
    tenancy = Tenancy(database, 8, FILE)
    assert tenancy.views() == FILE
    tenancy.set("red", {"guaranteed": "50%"}, by="ann", at=1.0)
    tenancy.set("blue", {"maximum": 3, "weight": 2.0}, by="ann", at=2.0)
    assert tenancy.views() == {
        "red": TenantView("red", guaranteed=4, maximum=6),
        "blue": TenantView("blue", maximum=3, weight=2.0),
    }
    tenancy.set("red", {"maximum": None}, by="bob", at=3.0)
    assert tenancy.views()["red"] == TenantView("red", guaranteed=4)
    assert tenancy.set_rights()["red"].by == "bob"
    assert tenancy.remove("red")
    assert not tenancy.remove("red")
    assert Tenancy(database, 8, FILE).views()["red"] == FILE["red"]


def test_rights_that_cannot_be(database: Engine) -> None:
    tenancy = Tenancy(database, 8, FILE)
    for words in (
        {"guaranteed": 7},
        {"guaranteed": 4, "maximum": 2},
        {"guaranteed": "a lot"},
        {"weight": 0},
        {"speed": 1},
    ):
        with pytest.raises(InputError):
            tenancy.set("blue", words, by="ann", at=1.0)
    assert tenancy.views() == FILE


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path_factory.mktemp("tenants") / "state")
    try:
        live.start()
        yield live
    finally:
        live.end()


def test_the_next_decision_follows(yard: LiveYard) -> None:
    red = other(yard, tenant="red")
    yard.client.set_tenant("red", maximum=1)
    jobs = [red.submit_text(command_job("some", "sleep 600"))["id"] for _ in "ab"]
    until(red, jobs[0], "running")
    assert red.job(jobs[1])["state"] == "waiting"
    assert "red" in red.why(jobs[1])["sentence"]
    (mine,) = red.tenants()
    assert (mine["devices"], mine["running"], mine["waiting"], mine["share"]) == (1, 1, 1, 0.25)
    assert yard.client.set_tenant("red", maximum=2)["maximum"] == 2
    until(red, jobs[1], "running")
    assert red.tenants()[0]["device_seconds"] > 0.0
    for job in jobs:
        red.cancel(job)
    with pytest.raises(CallRefused, match="only an admin"):
        red.set_tenant("red", maximum=4)
    with pytest.raises(CallRefused, match="only an admin"):
        red.audit()


def test_the_command_line_shows_and_sets(yard: LiveYard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(yard.folder))
    for words in (
        ["tenants", "set", "green", "--guaranteed", "1", "--max", "50%", "--weight", "3"],
        ["tenants"],
        ["audit"],
    ):
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
        assert "green" in done.output
    (green,) = [
        one
        for one in json.loads(CliRunner().invoke(command, ["tenants", "-o", "json"]).output)
        if one["name"] == "green"
    ]
    assert (green["guaranteed"], green["maximum"], green["weight"]) == (1, 2, 3.0)
    assert (green["source"], green["set_by"]) == ("set", "admin")
    assert CliRunner().invoke(command, ["tenants", "remove", "green"]).exit_code == 0
    again = CliRunner().invoke(command, ["tenants", "remove", "green"])
    assert again.exit_code == 2
    refused = CliRunner().invoke(command, ["audit", "--refused", "-o", "json"])
    assert json.loads(refused.output)[-1]["call"] == "DELETE /v1/tenants/green"
    assert any("green" in one["what"] for one in yard.client.events())


def test_what_was_set_outlives_the_server(yard: LiveYard, tmp_path: Path) -> None:
    yard.client.set_tenant("kept", guaranteed=1)
    yard.kill()
    yard.start()
    assert [one["guaranteed"] for one in yard.client.tenants() if one["name"] == "kept"] == [1]
