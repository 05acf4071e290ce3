"""Names, files and folders: what is read, and what is said when nothing can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.model import Model
from modelyard.spec.model_source import load_model

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "vocab_size": 50,
    "n_positions": 8,
    "architectures": ["GPT2LMHeadModel"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved = tmp_path / "my-model"
    saved.mkdir()
    (saved / "config.json").write_text(json.dumps(GPT2), encoding="utf-8")
    return saved


def test_a_folder_and_its_config_are_the_same_model(folder: Path) -> None:
    model = load_model(str(folder))
    assert model == load_model(str(folder / "config.json"))
    assert model.name == "my-model"
    assert model.parameters.total == 50 * 16 + 8 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16


def test_a_byte_order_mark_does_not_matter(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(GPT2).encode())
    assert load_model(str(folder)).layers == 2


def test_the_config_may_say_what_it_was_loaded_from(folder: Path) -> None:
    config = {**GPT2, "_name_or_path": "somebody/small-gpt"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert load_model(str(folder)).name == "small-gpt"


def test_a_folder_wins_over_the_zoo_if_it_has_a_config(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    folder.rename("gpt2")
    Path("bert-base").mkdir()
    assert load_model("gpt2").layers == 2
    assert load_model("bert-base").layers == 12


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"{'model_type': 'gpt2'}", "config.json:1:2: this is not JSON"),
        (b"[1, 2]", "found a list"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b'{"model_type": "\xff"}', "0xff is not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"model_type": "gpt2", "n_layer": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"model_type": "gpt2", "n_layer": NaN}', "'n_layer' is nan"),
        (b'{"a": "' + b"x" * 5_000_000 + b'"}', "larger than 4 MiB"),
    ],
)
def test_what_is_wrong_with_a_config(folder: Path, content: bytes, told: str) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model(str(folder))
    assert told in str(caught.value)
    assert "config.json" in str(caught.value)


def test_what_is_no_config_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_model(str(folder / "missing.json"))
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"no 'config\.json' in this folder"):
        load_model(str(empty))
    (empty / "config.json").mkdir()
    with pytest.raises(InputError, match="this is a folder"):
        load_model(str(empty))
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError, match="pipe"):
        load_model(str(folder / "pipe"))


@pytest.mark.parametrize("text", ["", "  ", "\0", "x" * 5000, "x" * 5000 + ".json", "a/b/c"])
def test_no_text_is_a_traceback(text: str) -> None:
    with pytest.raises(InputError, match="Fix"):
        load_model(text)


@given(st.text(max_size=40))
def test_any_text_is_a_model_or_an_error(text: str) -> None:
    try:
        assert isinstance(load_model(text), Model)
    except InputError as error:
        message = str(error)
    else:
        message = "a model"
    assert message
