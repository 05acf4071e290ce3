"""Prepared data is the text, whoever was interrupted; and samples are cut from it exactly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from modelyard.errors import InputError
from modelyard.train.data import prepare as preparing
from modelyard.train.data import shards as shard_writing
from modelyard.train.data import tokens as token_files
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.data.tokens import (
    Header,
    Shards,
    TokenSamples,
    damaged,
    read_header,
    read_tokenizer,
)

LINES = [f"line {number} says – hello {number * 7919 % 1009}\n" for number in range(3000)]


def quiet(phase: str, done: int, total: int) -> None:
    """Nobody watches."""


def made(inputs: list[Path], out: Path, *, workers: int = 1, **settings: object) -> Header:
    chosen = Settings(**{"validation": 0.0, **settings})
    return prepare([str(path) for path in inputs], out, chosen, workers=workers, watch=quiet)


def stored(folder: Path, split: str = "train") -> np.ndarray:
    shards = Shards(folder, read_header(folder), split)
    return shards.stretch(0, shards.tokens)


def texts_of(folder: Path, split: str = "train") -> list[str]:
    """The documents of a split, by their ends."""
    header, tokenizer = read_header(folder), read_tokenizer(folder)
    shards = Shards(folder, header, split)
    ends = shards.ends().tolist()
    starts = [0, *ends[:-1]]
    found = []
    for start, stop in zip(starts, ends, strict=True):
        tokens = shards.stretch(start, stop)
        assert tokens[-1] == tokenizer.special.end
        found.append(tokenizer.decode(tokens[:-1]))
    return found


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few kilobytes become several parts."""
    monkeypatch.setattr(preparing, "SMALLEST_PART", 10_000)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES), encoding="utf-8")
    return path


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:600"])
def test_the_tokens_are_the_text(tmp_path: Path, book: Path, lines: Path, tokenizer: str) -> None:
    pytest.importorskip("tokenizers")
    header = made([book, lines], tmp_path / "data", tokenizer=tokenizer)
    assert texts_of(tmp_path / "data") == ["".join(LINES), *LINES]
    assert header == read_header(tmp_path / "data")
    assert len(header.shards["train"]) > 5
    assert header.shards["validation"] == ()
    assert not (tmp_path / "data" / "unfinished").exists()
    assert list(damaged(tmp_path / "data")) == []


@pytest.mark.usefixtures("small_parts")
def test_what_is_held_out_is_not_learned_from(tmp_path: Path, book: Path, lines: Path) -> None:
    made([lines], tmp_path / "documents", validation=0.1)
    train, held_out = (texts_of(tmp_path / "documents", split) for split in ("train", "validation"))
    assert sorted(train + held_out) == sorted(LINES)
    assert len(held_out) == pytest.approx(300, abs=15)
    made([book], tmp_path / "stretches", validation=0.1)
    train, held_out = (texts_of(tmp_path / "stretches", split) for split in ("train", "validation"))
    assert sorted("".join(train + held_out).splitlines()) == sorted("".join(LINES).splitlines())
    assert len("".join(held_out)) == pytest.approx(len("".join(LINES)) * 0.1, rel=0.1)


@pytest.mark.usefixtures("small_parts")
def test_samples_are_stretches_of_the_tokens(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "MOST_OPEN", 2)
    made([book], tmp_path / "data")
    tokens = stored(tmp_path / "data")
    for sequence in (1, 7, 1000, 20_000):
        chosen = TokenSamples(tmp_path / "data", sequence)
        assert chosen.size == (len(tokens) - 1) // sequence
        ids = np.random.default_rng(0).permutation(chosen.size)[:200]
        rows = chosen.read(ids)
        assert rows.dtype == np.int64
        expected = [tokens[i * sequence : i * sequence + sequence + 1] for i in ids]
        assert (rows == np.stack(expected)).all()
    assert chosen.read(np.empty(0, dtype=np.int64)).shape == (0, 20_001)
    with pytest.raises(IndexError):
        chosen.read(np.array([chosen.size]))


def test_data_that_is_too_short_is_refused(tmp_path: Path, book: Path) -> None:
    made([book], tmp_path / "data", validation=0.01)
    with pytest.raises(InputError, match=r"no sample of 100,000.*--validation"):
        TokenSamples(tmp_path / "data", 100_000, split="validation")
    with pytest.raises(InputError, match=r"unknown split 'valid'.*did you mean 'validation'"):
        TokenSamples(tmp_path / "data", 10, split="valid")
    with pytest.raises(InputError, match="use 1 or more"):
        TokenSamples(tmp_path / "data", 0)


def test_tokens_of_others_are_taken_over(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(200, dtype=np.uint16))
    made([tmp_path / "a.npy"], tmp_path / "data")
    assert stored(tmp_path / "data").tolist() == [*range(200), 256]
    np.save(tmp_path / "b.npy", np.array([5, 320]))
    with pytest.raises(InputError, match=r"tokens up to 320.*name the tokenizer"):
        made([tmp_path / "b.npy"], tmp_path / "other")


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_preparation_goes_on(
    tmp_path: Path, book: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at every part, in the middle of its file."""
    made([book, lines], tmp_path / "whole", validation=0.05)
    out = tmp_path / "data"
    finish = shard_writing.ShardWriter.finish
    calls = 0

    def interrupted(self: shard_writing.ShardWriter) -> object:
        nonlocal calls
        calls += 1
        if calls % 3 == 2:
            raise KeyboardInterrupt
        return finish(self)

    monkeypatch.setattr(shard_writing.ShardWriter, "finish", interrupted)
    interruptions = 0
    while True:
        try:
            made([book, lines], out, validation=0.05)
            break
        except KeyboardInterrupt:
            interruptions += 1
            with pytest.raises(InputError, match="did not finish"):
                read_header(out)
    assert interruptions > 5
    assert read_header(out) == read_header(tmp_path / "whole")
    names = {path.name for path in out.iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}
    assert list(damaged(out)) == []


def test_a_finished_data_set_is_not_made_again(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "data"
    made([book], out)
    before = (out / "train-00000.tokens").stat().st_mtime_ns
    assert made([book], out, sequence=64).sequence == 64
    assert (out / "train-00000.tokens").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"other settings.*--force"):
        made([book], out, validation=0.5)
    book.write_text("another text\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"other input.*--force"):
        made([book], out)
    prepare([str(book)], out, Settings(validation=0), workers=1, watch=quiet, force=True)
    assert texts_of(out) == ["another text\n"]
    with pytest.raises(InputError, match="a data set already"):
        made([out], tmp_path / "other")


def test_folders_with_other_files_are_left_alone(tmp_path: Path, book: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train-00000.tokens").write_text("precious")
    with pytest.raises(InputError, match="other files in it"):
        made([book], tmp_path / "mine")
    with pytest.raises(InputError, match="this is a file"):
        made([book], book)
    assert (tmp_path / "mine" / "train-00000.tokens").read_text() == "precious"


def test_damage_is_found(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "data"
    made([book], out, validation=0.1)
    file = out / "train-00000.tokens"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    (out / "validation-00000.ends").unlink()
    assert list(damaged(out)) == [
        "train-00000.tokens has changed since it was written",
        "validation-00000.ends is missing",
    ]
    file.write_bytes(content[:-2])
    with pytest.raises(InputError, match="instead of"):
        TokenSamples(out, 64).read(np.array([0]))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "else"}', '{"format": "modelyard-tokens", "version": 99}'],
)
def test_headers_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(InputError, match="not the header of a data set"):
        read_header(tmp_path)


def test_places_without_data_say_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="yard data prepare"):
        read_header(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_header(tmp_path / "missing")


def test_a_disk_without_space_is_seen_in_advance(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(preparing.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=r"1 kB are free.*bpe:8192"):
        made([book], tmp_path / "data")


#: Runs the preparation of sys.argv[1] to sys.argv[2], in three processes.
SCRIPT = """
import resource, sys
from pathlib import Path
from modelyard.train.data import crew, prepare as preparing
if __name__ == "__main__":
    preparing.SMALLEST_PART, crew.BYTES_WORTH_A_PROCESS = 10_000, 1
    workers, limit = int(sys.argv[3]), int(sys.argv[4])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    settings = preparing.Settings(tokenizer="bytes", validation=0.0)
    watch = lambda phase, done, total: print(done, flush=True)
    preparing.prepare([sys.argv[1]], Path(sys.argv[2]), settings, workers=workers, watch=watch)
"""


def command(tmp_path: Path, book: Path, workers: int, limit: int = 0) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = str(tmp_path / "data")
    return [sys.executable, str(script), str(book), out, str(workers), str(limit)]


def test_killed_on_several_cores_it_goes_on(tmp_path: Path, book: Path) -> None:
    """A process of its own, because what is tested is what the operating system leaves of it."""
    words = command(tmp_path, book, 2)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline().strip() in ("", "0") and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 60
    while True:  # until those whom it started have noticed, and let go of the folder
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0 or time.monotonic() > deadline:
            break
    assert done.returncode == 0, done.stderr
    assert texts_of(tmp_path / "data") == ["".join(LINES)]
    assert list(damaged(tmp_path / "data")) == []


def test_a_full_disk_is_said_and_costs_nothing_that_is_done(tmp_path: Path, book: Path) -> None:
    """A limit on sizes of files stands for the full disk: writing fails in the same place."""
    words = command(tmp_path, book, 1, limit=15_000)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no space left on the device" in done.stderr
    assert "run the same command again" in done.stderr
    done = subprocess.run(command(tmp_path, book, 1), capture_output=True, check=False)
    assert done.returncode == 0
    assert texts_of(tmp_path / "data") == ["".join(LINES)]
