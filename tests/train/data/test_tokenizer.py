"""Tokenizers give back the text they were given, and say what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.data.tokenizer import (
    SPECIAL_NAMES,
    BpeTokenizer,
    ByteTokenizer,
    bpe_size,
    find_tokenizer,
    load_bpe,
    train_bpe,
)

SENTENCES = ["the quick brown fox jumps over the lazy dog\n" * 3, "the thin thing thinks"]


@pytest.fixture(scope="module")
def bpe() -> BpeTokenizer:
    pytest.importorskip("tokenizers")
    return train_bpe(iter(SENTENCES), 400)


@given(st.text(max_size=100))
def test_bytes_give_the_text_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    (ids,) = tokenizer.encode([text])
    assert ids.tolist() == list(text.encode())
    assert tokenizer.decode(ids) == text


@given(st.text(max_size=100))
def test_bpe_gives_the_text_back(bpe: BpeTokenizer, text: str) -> None:
    (ids,) = bpe.encode([text])
    assert bpe.decode(ids) == text
    assert not np.isin(ids, bpe.special.all).any()


def test_special_tokens_come_last_and_are_not_read_in_text(bpe: BpeTokenizer) -> None:
    for tokenizer in (bpe, ByteTokenizer()):
        special = tokenizer.special
        last = tokenizer.vocab - len(SPECIAL_NAMES)
        assert special.all == tuple(range(last, tokenizer.vocab))
        assert len(special.sentinels) == 60
        assert len({special.end, special.pad, special.mask, *special.sentinels}) == 63
        (ids,) = tokenizer.encode(["a<|end|>b"])
        assert (ids < last).all()
        assert tokenizer.decode(np.array([special.end])) == "<|end|>"


def test_what_is_saved_is_what_is_loaded(bpe: BpeTokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        again = load_bpe(path)
        assert again.fingerprint == bpe.fingerprint
        assert (again.vocab, again.special) == (bpe.vocab, bpe.special)
        assert again.encode(["the thing"])[0].tolist() == bpe.encode(["the thing"])[0].tolist()


def test_a_small_text_gives_a_small_vocabulary() -> None:
    pytest.importorskip("tokenizers")
    assert train_bpe(iter(["ab"]), 5000).vocab == 256 + len(SPECIAL_NAMES) + 1


def test_other_peoples_tokenizers(tmp_path: Path, bpe: BpeTokenizer) -> None:
    bpe.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["added_tokens"] = content["added_tokens"][:1]
    content["added_tokens"][0]["content"] = "<stop>"
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"--end-token; it has '<stop>'"):
        load_bpe(file)
    with pytest.raises(InputError, match=r"unknown end token '<stpo>'.*did you mean '<stop>'"):
        load_bpe(file, end="<stpo>")
    tokenizer = load_bpe(file, end="<stop>")
    special = tokenizer.special
    assert special.pad == special.end
    assert (special.mask, special.sentinels) == (None, ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("byte", "unknown tokenizer 'byte'.*did you mean 'bytes'"),
        ("gpt2", "unknown tokenizer 'gpt2'.*'bytes', 'bpe:SIZE'.*tokenizer.json"),
        ("no/such.json", "no such tokenizer"),
    ],
)
def test_unknown_tokenizers_are_refused_with_choices(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        find_tokenizer(text)


@pytest.mark.parametrize("text", ["bpe", "bpe:", "bpe:many", "bpe:-5", "bpe:" + "9" * 5000])
def test_sizes_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="write bpe:8192"):
        bpe_size(text)


@pytest.mark.parametrize("text", ["bpe:0", "bpe:319", "bpe:99999999"])
def test_sizes_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="choose between 320"):
        bpe_size(text)


def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_bytes(b"\xff{")
    with pytest.raises(InputError, match=r"not a tokenizer.json"):
        find_tokenizer(str(tmp_path))
    with pytest.raises(InputError, match="no tokenizer here"):
        load_bpe(tmp_path / "else")
