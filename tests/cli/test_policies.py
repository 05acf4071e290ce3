"""`yard policies` shows what the registry knows, and nothing else."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.schedule import registry
from modelyard.schedule.registry import PolicyEntry


def show(*arguments: str) -> str:
    shown = CliRunner().invoke(yard, ["policies", *arguments])
    assert shown.exit_code == 0, shown.stderr
    return shown.stdout


def test_table_has_a_line_for_every_policy() -> None:
    first_words = {line.split(maxsplit=1)[0] for line in show().splitlines() if line.strip()}
    assert set(registry.policies()) <= first_words


@pytest.mark.parametrize("name", registry.policies())
def test_every_policy_can_be_shown_alone(name: str) -> None:
    printed = show(name)
    facts = json.loads(show(name, "-o", "json"))
    assert printed.startswith(f"{name}: {facts['summary']}")
    assert facts["description"]
    for option in facts["options"]:
        assert option in printed


def test_json_tells_oracles_from_the_others() -> None:
    oracle = {entry["name"]: entry["oracle"] for entry in json.loads(show("-o", "json"))}
    assert oracle["srtf"]
    assert not oracle["fifo"]


def test_defaults_are_written_as_the_command_line_takes_them() -> None:
    printed = show("tiresias-las")
    assert "3250/7200" in printed
    assert "--policy tiresias-las:limits=3250/7200" in printed


def test_misspelt_name_suggests_the_nearest() -> None:
    shown = CliRunner().invoke(yard, ["policies", "polux"])
    assert shown.exit_code == 2
    assert "did you mean 'pollux'?" in shown.stderr


def test_a_broken_plugin_is_listed_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"broken": PolicyEntry("broken", "no_such_module:policy", package="plugin")}
    monkeypatch.setattr(registry, "policies", lambda: broken)
    assert "cannot be loaded" in show()
    assert "no_such_module" in json.loads(show("broken", "-o", "json"))["error"]
