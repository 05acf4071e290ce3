"""`yard schema` prints what the reader of those files really checks."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.spec.schema import json_schema


@pytest.mark.parametrize("kind", ["job", "cluster", "tenants"])
def test_schema_is_printed_whole_as_json(kind: str) -> None:
    shown = CliRunner().invoke(yard, ["schema", kind])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == json_schema(kind)


@pytest.mark.parametrize("arguments", [[], ["planet"]], ids=["missing", "unknown"])
def test_kind_that_is_not_one_lists_those_there_are(arguments: list[str]) -> None:
    shown = CliRunner().invoke(yard, ["schema", *arguments])
    assert shown.exit_code == 2
    for kind in ("job", "cluster", "tenants"):
        assert kind in shown.stderr
