"""Weights in files: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.learn.stored import (
    SHIPPED,
    dl2,
    pack_weights,
    parse_weights,
    read_weights,
    shipped_weights,
    write_weights,
)
from modelyard.schedule.dl2 import Encoding, Weights

#: What the package may weigh more because of it.
MOST_BYTES = 500_000


def some_weights(hidden: int = 4) -> Weights:
    encoding = Encoding(("a", "b"), window=3, slot_seconds=600.0)
    draw = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return draw.normal(size=shape).astype(np.float32).astype(np.float64)

    return Weights(
        encoding, some(encoding.inputs, hidden), some(hidden), some(hidden, hidden), some(hidden),
        some(hidden, 2), some(2), some(hidden), 0.5,
    )  # fmt: skip


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written, path = some_weights(), tmp_path / "weights.npz"
    write_weights(path, written)
    found = read_weights(path)
    assert found.encoding == written.encoding
    assert found.end_bias == written.end_bias
    for name in ("first_FH", "first_H", "second_HH", "second_H", "job_HA", "job_A", "end_H"):
        assert np.array_equal(getattr(found, name), getattr(written, name))


def test_the_policy_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    write_weights(path, some_weights())
    assert dl2(str(path)).weights.encoding.window == 3
    assert dl2(strategy="spread").weights is shipped_weights()


def test_what_is_shipped_is_small() -> None:
    assert len(pack_weights(shipped_weights())) < MOST_BYTES
    assert SHIPPED.endswith(".npz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.npz: weights cannot be read.*Fix: name a file"):
        dl2(str(tmp_path / "none.npz"))


def _archive(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _changed(**changes: object) -> bytes:
    with np.load(io.BytesIO(pack_weights(some_weights()))) as archive:
        return _archive(**{**{name: archive[name] for name in archive.files}, **changes})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no file of dl2 weights"),
        (b"id,submitted\n", "no file of dl2 weights"),
        (_archive(x=np.zeros(3)), "about"),
        (_changed(about=np.array('{"format": "other"}')), "its format is 'other'"),
        (_changed(first_H=np.zeros(9)), "'first_FH' has the shape"),
        (_changed(end_H=np.full(4, np.nan)), "no finite numbers"),
        (_archive(about=np.array([{"a": 1}], dtype=object)), "no file of dl2 weights"),
        (pack_weights(some_weights())[:-40], "no file of dl2 weights"),
    ],
)
def test_foreign_files_are_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(InputError, match="Fix: name a file that 'yard learn'") as error:
        parse_weights(content, "x.npz")
    assert complaint in str(error.value)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_an_input_error(content: bytes) -> None:
    with pytest.raises(InputError):
        parse_weights(content, "x.npz")
