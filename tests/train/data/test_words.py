"""Remembered words give the library's tokens, whatever the text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.train.data import words
from modelyard.train.data.tokenizer import BpeTokenizer, train_bpe
from modelyard.train.data.words import splits_as_gpt2

TEACHING = [
    "the thing's that they'll think, they're thin; we've 123 and 4567 – ‘quoted’ für Ä Москва\n\n"
    * 5,
    "    def code(self):\n\treturn {'a': 1}  # it's\r\n\n\n  x_y __z__ 3.14 $5% \\n ''s ''\n" * 5,
]
#: What patterns trip over: apostrophes, runs of blanks, digits and letters of all sorts.
TRICKY = st.text(
    st.sampled_from(
        "aAtszdmlrev 019_'’\"-.,\n\t\r\x0b\x0c\x1c\x1f\x85\xa0\xadªº²½Àéß"
        "ĀɏΣσЯж–…\u2028\u3000Ⅷ٣中한😀\u0301\u200b"
    ),
    max_size=60,
)
#: ASCII has a pattern of its own.
PLAIN = st.text(st.sampled_from("aZtslrevd 019_'-.\n\t\r"), max_size=60)


@pytest.fixture(scope="module")
def bpe() -> BpeTokenizer:
    pytest.importorskip("tokenizers")
    return train_bpe(iter(TEACHING), 700)


def by_library(bpe: BpeTokenizer, text: str) -> list[int]:
    return bpe.library.encode(text, add_special_tokens=False).ids


@settings(max_examples=400, deadline=None)
@given(text=TRICKY | PLAIN | st.text(max_size=60))
def test_words_give_the_tokens_of_the_library(bpe: BpeTokenizer, text: str) -> None:
    assert bpe.words is not None
    assert bpe.encode([text])[0].tolist() == by_library(bpe, text)


def test_every_character_that_is_sure_is_split_alike(bpe: BpeTokenizer) -> None:
    """Each between letters, digits, blanks and signs, where its kind shows."""
    sure = [c for c in map(chr, range(0x3000)) if not words._UNSURE.search(c)]
    assert len(sure) > 600
    for character in sure:
        text = f"a{character}a1{character}1 {character} .{character}. {character}{character}"
        assert bpe.encode([text])[0].tolist() == by_library(bpe, text), repr(character)


def test_a_vocabulary_without_line_ends(bpe: BpeTokenizer) -> None:
    """A library whose end of a line is two tokens, one of which stands in words as well."""

    def encode(texts: list[str]) -> list[list[int]]:
        return [list(text.replace("\n", "aa").encode()) for text in texts]

    text = "a banana and  an apple"
    assert words.Words(encode).encode([text])[0].tolist() == list(text.encode())


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(TRICKY | PLAIN, max_size=20))
def test_long_texts_are_cut_where_nobody_minds(bpe: BpeTokenizer, parts: list[str]) -> None:
    text = "\n".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_STRETCH_CHARACTERS", 5)
        patch.setattr(words, "MOST_WORDS", 20)
        patch.setattr(words, "LONGEST_WORD", 4)
        assert bpe.encode([text])[0].tolist() == by_library(bpe, text)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": None},
        {"model": {"type": "WordPiece"}},
        {"added_tokens": [{"content": "thing", "special": False}]},
    ],
)
def test_tokenizers_of_another_sort_are_left_to_the_library(
    bpe: BpeTokenizer, change: dict[str, object]
) -> None:
    told = json.loads(bpe.library.to_str())
    assert splits_as_gpt2(json.dumps(told))
    assert not splits_as_gpt2(json.dumps({**told, **change}))
