"""Writing shards: one part of the input becomes at most two, one to learn from, one held out.

Files are written under temporary names and renamed when they are on the disk. A part is done when
its record is there, which is written last; what a killed process left of others is written anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.files import write_atomically
from modelyard.train.data.luck import shares
from modelyard.train.data.places import Kind
from modelyard.train.data.readers import Piece, Slice, read_slice
from modelyard.train.data.tokenizer import Tokenizer
from modelyard.train.data.tokens import (
    END_TYPE,
    LABEL_TYPE,
    SPLITS,
    Shard,
    token_bytes,
    token_type,
)

TEMPORARY = ".partial"
#: Enough text for a call of the tokenizer to be worth it, little enough to hold.
BATCH_CHARACTERS = 1 << 20
BATCH_PIECES = 4096
#: Files whose documents are so long that they are held out in part.
LONG = (Kind.TEXT, Kind.TOKENS)

Tell = Callable[[int], None]
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A share of the input that one process turns into shards."""

    number: int
    slices: tuple[Slice, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The shards of a part, by split; none where nothing fell into one."""

    train: Shard | None
    validation: Shard | None


def write_part(
    folder: Path,
    part: Part,
    tokenizer: Tokenizer,
    *,
    field: str,
    label: str = "",
    validation: float,
    tell: Tell,
) -> Written:
    """Turn a part into shards and record that; `tell` hears how much of the input was read."""
    kept = bool(label)
    with (
        ShardWriter(folder, f"train-{part.number:05d}", tokenizer, labelled=kept) as train,
        ShardWriter(folder, f"validation-{part.number:05d}", tokenizer, labelled=kept) as held_out,
    ):
        batch: list[tuple[ShardWriter, Piece]] = []
        characters = 0
        for is_held_out, piece in _split(part, field, label, validation):
            batch.append((held_out if is_held_out else train, piece))
            characters += len(piece.content)
            if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_PIECES:
                _write_batch(batch, tokenizer)
                tell(sum(each.size_bytes for _, each in batch))
                batch, characters = [], 0
        _write_batch(batch, tokenizer)
        tell(sum(each.size_bytes for _, each in batch))
        written = Written(train=train.finish(), validation=held_out.finish())
    write_atomically(record_path(folder, part.number), json.dumps(asdict(written)))
    return written


def record_path(folder: Path, number: int) -> Path:
    return folder / "unfinished" / f"part-{number:05d}.json"


def read_record(folder: Path, number: int) -> Written | None:
    """What was recorded of a part that is done."""
    try:
        fields = json.loads(record_path(folder, number).read_text(encoding="utf-8"))
        found = {split: Shard(**fields[split]) if fields[split] else None for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not all((folder / f"{shard.name}.tokens").is_file() for shard in found.values() if shard):
        return None
    return Written(train=found["train"], validation=found["validation"])


# -- what is held out ---------------------------------------------------------------------------


def _split(part: Part, field: str, label: str, share: float) -> Iterator[tuple[bool, Piece]]:
    """The pieces of a part, each with whether it is held out.

    Of long documents the last stretch of the part is held out, of others one in so many.
    """
    chosen = _chosen(part.number, share)
    following = next(chosen)
    document = 0
    long_bytes = sum(each.size_bytes for each in part.slices if each.source.kind in LONG)
    before = 0
    for each in part.slices:
        if each.source.kind in LONG and not label:
            until = (long_bytes * (1 - share) - before) / max(each.size_bytes, 1)
            before += each.size_bytes
            yield from _cut_in_two(each, field, min(max(until, 0.0), 1.0))
            continue
        for piece in read_slice(each, field, label):
            yield document == following, piece
            if piece.ends:
                following = next(chosen) if document == following else following
                document += 1


def _chosen(number: int, share: float) -> Iterator[int]:
    """The documents of a part that are held out: one of every 1/share, by luck."""
    stratum = 0
    while share > 0:
        luck = float(shares(number, 0, np.array([stratum]), 1)[0, 0])
        yield math.floor((stratum + luck) / share)
        stratum += 1
    yield -1


def _cut_in_two(each: Slice, field: str, kept: float) -> Iterator[tuple[bool, Piece]]:
    cut = each.start + round((each.stop - each.start) * kept)
    for held_out, start, stop in ((False, each.start, cut), (True, cut, each.stop)):
        last: Piece | None = None
        for piece in (
            read_slice(replace(each, start=start, stop=stop), field) if start < stop else ()
        ):
            if last is not None:
                yield held_out, last
            last = piece
        if last is not None:
            # What continues in the other split is a document of its own in each.
            yield held_out, replace(last, ends=last.ends or kept < 1)


# -- files --------------------------------------------------------------------------------------


def _write_batch(batch: Sequence[tuple[ShardWriter, Piece]], tokenizer: Tokenizer) -> None:
    texts = [piece.content for _, piece in batch if isinstance(piece.content, str)]
    encoded = iter(tokenizer.encode(texts) if texts else ())
    for writer, piece in batch:
        content = next(encoded) if isinstance(piece.content, str) else piece.content
        writer.add(content, ends=piece.ends, label=piece.label)


class ShardWriter:
    """A shard while it is written; nothing of it stays unless `finish` is called."""

    def __init__(
        self, folder: Path, name: str, tokenizer: Tokenizer, *, labelled: bool = False
    ) -> None:
        self._folder, self._name, self._labelled = folder, name, labelled
        self._type = token_type(token_bytes(tokenizer.vocab))
        self._vocab = tokenizer.vocab
        self._end = np.array([tokenizer.special.end], dtype=np.int64)
        # Of this process alone: one that was started by a killed parent may still be ending.
        self._temporary = f".{os.getpid()}{TEMPORARY}"
        self._path = folder / f"{name}.tokens{self._temporary}"
        self._file = self._path.open("wb", buffering=1 << 20)
        self._hash = hashlib.sha256()
        self._tokens = 0
        self._ends: list[int] = []
        self._labels: list[float] = []

    def add(self, tokens: Tokens, *, ends: bool, label: float = math.nan) -> None:
        """Some tokens of a document, and its end with the number beside it."""
        if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < self._vocab):
            what = (
                f"the input has tokens up to {tokens.max()}, the tokenizer {self._vocab:,} tokens"
            )
            raise InputError(what, fix="name the tokenizer that the tokens were made with")
        if ends and not (len(tokens) and tokens[-1] == self._end[0]):
            tokens = np.concatenate([tokens, self._end])
        data = tokens.astype(self._type).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self._tokens += len(tokens)
        if ends:
            self._ends.append(self._tokens)
            self._labels.append(label)

    def finish(self) -> Shard | None:
        """The shard, on the disk; None when it has no tokens."""
        if not self._tokens:
            return None
        self._file.flush()
        os.fsync(self._file.fileno())
        ends = np.array(self._ends, dtype=END_TYPE).tobytes()
        labels = np.array(self._labels, dtype=LABEL_TYPE).tobytes()
        self._write("ends", ends)
        if self._labelled:
            self._write("labels", labels)
        self._path.replace(self._folder / f"{self._name}.tokens")
        return Shard(
            name=self._name,
            tokens=self._tokens,
            documents=len(self._ends),
            tokens_hash=self._hash.hexdigest(),
            ends_hash=hashlib.sha256(ends).hexdigest(),
            labels_hash=hashlib.sha256(labels).hexdigest() if self._labelled else "",
        )

    def _write(self, ending: str, data: bytes) -> None:
        path = self._folder / f"{self._name}.{ending}{self._temporary}"
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.replace(self._folder / f"{self._name}.{ending}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        except OSError:
            # A full disk complains again about what is thrown away below.
            if error is None:
                raise
        finally:
            self._path.unlink(missing_ok=True)
            for ending in ("ends", "labels"):
                left = self._path.with_name(f"{self._name}.{ending}{self._temporary}")
                left.unlink(missing_ok=True)
