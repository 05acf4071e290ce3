"""Packing puts every document somewhere, whole, and wastes little."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.data.packing import PackedSamples, document_numbers, packed
from modelyard.train.data.prepare import Settings, prepare

END, PAD = 256, 257


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=200), capacity=st.just(50))
def test_no_sample_is_overfull_and_few_are_half_empty(lengths: list[int], capacity: int) -> None:
    sample = packed(np.array(lengths), capacity)
    filled = np.bincount(sample, weights=lengths)
    assert filled.max() <= capacity
    assert filled.min() > 0
    # Any-fit: two samples that are at most half full would have been one.
    assert (filled <= capacity / 2).sum() <= 1


def test_documents_stay_whole(tmp_path: Path) -> None:
    texts = [f"{number:03d}" + "x" * (number * 37 % 90) for number in range(300)]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = Settings(validation=0.0)
    out = tmp_path / "data"
    prepare([str(file)], out, settings, workers=1, watch=lambda phase, done, total: None)
    chosen = PackedSamples(out, 127)
    rows = chosen.read(np.arange(chosen.size))
    assert rows.shape == (chosen.size, 128)
    found = []
    for row in rows:
        whole = bytes(row[row < 256].astype(np.uint8))
        lengths = np.diff(np.flatnonzero(row == END), prepend=-1) - 1
        assert (row[int((row != PAD).sum()) :] == PAD).all()
        for length in lengths:
            found.append(whole[:length].decode())
            whole = whole[length:]
    assert sorted(found) == texts
    assert (rows == PAD).mean() < 0.05
    # Longer documents than samples are cut, and lose nothing.
    short = PackedSamples(out, 19)
    rows = short.read(np.arange(short.size))
    assert (rows != PAD).sum() == sum(len(text) + 1 for text in texts)
    with pytest.raises(InputError, match="no document"):
        PackedSamples(out, 127, split="validation")


def test_documents_of_a_row_are_numbered() -> None:
    rows = np.array([[1, END, 2, 3, END, PAD], [4, 5, 6, 7, 8, END]])
    assert document_numbers(rows, END).tolist() == [[0, 0, 1, 1, 1, 2], [0] * 6]
