"""What TensorBoard's own reader makes of the files, and the checksums that it insists on."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from modelyard.train.conductor.journal import BackLine, CommitLine, Line, ValidationLine
from modelyard.train.event_file import PATTERN, EventFile, crc32c, record, scalars


def commit(
    step: int, *, loss: float | None = 1.0, at: float = 0.0, tokens: int = 100
) -> CommitLine:
    return CommitLine(
        step=step,
        generation=1,
        members=("a", "b"),
        start=8 * step,
        stop=8 * step + 8,
        tokens=tokens,
        loss=loss,
        at=at or 1000.0 + step,
        values={"learning_rate": 0.5, "noise_scale": 2.0},
    )


def written(folder: Path, lines: list[Line]) -> Path:
    with EventFile(folder) as file:
        for line in lines:
            file.hear(line)
    (path,) = folder.glob(PATTERN)
    return path


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        # the check value in the catalogue of parametrised CRC algorithms
        (b"123456789", 0xE3069283),
    ],
)
def test_checksums_are_those_of_the_standard(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_records_say_how_long_they_are() -> None:
    text = record(b"abc")
    assert len(text) == 8 + 4 + 3 + 4
    assert struct.unpack("<Q", text[:8]) == (3,)


def test_a_step_tells_what_the_journal_has() -> None:
    assert scalars(commit(3), 0.5) == {
        "loss": 1.0,
        "tokens_per_second": 200.0,
        "members": 2.0,
        "learning_rate": 0.5,
        "noise_scale": 2.0,
    }
    assert set(scalars(commit(3, loss=None, tokens=0), 0.0)) == {
        "members",
        "learning_rate",
        "noise_scale",
    }


def test_watching_again_writes_the_file_anew(tmp_path: Path) -> None:
    written(tmp_path, [commit(0)])
    assert written(tmp_path, [commit(0), commit(1)]).stat().st_size > 0


def read(path: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: steps and values by name."""
    reason = "the package 'tensorboard' is not installed"
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=reason
    )
    accumulator = accumulators.EventAccumulator(str(path), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(one.step, one.value) for one in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_every_step_once(tmp_path: Path) -> None:
    found = read(written(tmp_path, [commit(step, loss=float(step)) for step in range(200)]))
    assert found["loss"] == [(step + 1, float(step)) for step in range(200)]
    assert found["members"] == [(step + 1, 2.0) for step in range(200)]
    assert found["tokens_per_second"] == [(step + 1, 100.0) for step in range(1, 200)]
    assert {"learning_rate", "noise_scale"} <= found.keys()


def test_validations_are_told_with_the_steps_they_follow(tmp_path: Path) -> None:
    lines: list[Line] = [commit(0), commit(1), ValidationLine(2, 1, 3.5, 8, 1001.0)]
    assert read(written(tmp_path, lines))["validation_loss"] == [(2, 3.5)]


def test_numbers_beyond_four_bytes_are_infinite(tmp_path: Path) -> None:
    assert read(written(tmp_path, [commit(0, loss=-1e300)]))["loss"] == [(1, -math.inf)]


def test_steps_that_training_went_back_over_are_not_shown_twice(tmp_path: Path) -> None:
    first: list[Line] = [commit(step, loss=float(step)) for step in range(10)]
    again: list[Line] = [commit(step, loss=-1.0, at=2000.0 + step) for step in range(4, 8)]
    path = written(tmp_path, [*first, BackLine(4, 32, 2000.0), *again])
    assert read(path)["loss"] == [
        *((step + 1, float(step)) for step in range(4)),
        *((step + 1, -1.0) for step in range(4, 8)),
    ]
