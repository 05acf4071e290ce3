"""`yard models` shows the zoo as it is, and configs of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import yard
from modelyard.cli.models import as_json
from modelyard.spec.model import Model
from modelyard.spec.zoo import zoo, zoo_model


def run(*arguments: str) -> Result:
    return CliRunner().invoke(yard, ["models", *arguments])


def show(*arguments: str) -> str:
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.stderr
    return shown.stdout


def test_the_table_has_a_line_for_every_model() -> None:
    first_words = [line.split(maxsplit=1)[0] for line in show().splitlines() if line.strip()]
    assert {item.name for item in zoo()} <= set(first_words)


def test_json_lists_the_whole_zoo() -> None:
    assert json.loads(show("-o", "json")) == [as_json(item) for item in zoo()]


@pytest.mark.parametrize("item", zoo()[::10], ids=lambda item: item.name)
def test_a_model_can_be_shown_alone(item: Model) -> None:
    assert json.loads(show(item.name, "-o", "json")) == as_json(item)
    assert f"{item.parameters.total:,}" in show(item.name)


def test_the_parts_are_there_and_sum_up() -> None:
    counts = json.loads(show("mixtral", "-o", "json"))["parameters"]
    parts = ("embedding", "attention", "mlp", "experts", "head")
    assert sum(counts[part] for part in parts) == counts["total"] == 46_702_792_704
    told = show("deepseek-v3")
    assert "256 of 2,048, 8 for each token, in 58 layers" in told
    assert "DeepSeek-V3 Technical Report" in told


def test_part_of_a_name_narrows_the_list() -> None:
    names = [item["name"] for item in json.loads(show("--like", "Pythia", "-o", "json"))]
    assert names == [item.name for item in zoo() if item.name.startswith("pythia")]
    assert "no model has" in show("--like", "nothing-like-this")


def test_a_config_of_ones_own(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shown = json.loads(show(str(tmp_path), "-o", "json"))
    assert shown["layers"] == 2
    assert shown["aliases"] == []
    assert "source" not in show(str(tmp_path))


def test_mistakes_are_told_with_their_fix() -> None:
    missing = run("lama3-8b")
    assert missing.exit_code == 2
    assert "did you mean 'llama3-8b'?" in missing.stderr
    both = run("gpt2", "--like", "gpt")
    assert both.exit_code == 2
    assert "not both" in both.stderr


def test_help_has_examples() -> None:
    assert "yard models llama3-8b" in " ".join(show("--help").split())


def test_shared_blocks_and_windows_are_told() -> None:
    assert "one block 12 times" in show("albert-base")
    assert "in 83% of the layers" in show("gemma3-12b")
    assert zoo_model("gemma3-12b").windowed_share == 40 / 48
