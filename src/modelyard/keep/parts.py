"""Parts of checkpoints: objects in the safetensors format, hashed in chunks as they are written.

The format is public and small: eight bytes with the length of a JSON header, the header (names,
types, shapes and byte ranges), then the tensors without gaps. Any tool that knows it can read
a part on its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from modelyard.errors import YardError
from modelyard.keep.manifest import CHUNK_BYTES, Part
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.slices import ITEM_BYTES, Box, Shape
from modelyard.keep.store import Store

#: Parts are written and read side by side; a box that is larger has a part to itself.
PART_BYTES = 512 << 20
#: Read at a time to check hashes; see `READ_BYTES` for why it is no more.
VERIFY_BYTES = 16 << 20
#: Tensors begin where any processor can read them in place.
ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A box of a tensor and its bytes, row by row."""

    tensor: str
    dtype: str
    #: of the whole tensor
    shape: Shape
    box: Box
    data: memoryview

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise YardError(f"'{self.tensor}' is of a type that cannot be kept: {self.dtype}")
        expected = self.box.count * ITEM_BYTES[self.dtype]
        if self.data.nbytes != expected or not self.box.within(self.shape):
            raise ValueError(f"'{self.tensor}' has {self.data.nbytes} bytes for {self.box}")

    @property
    def label(self) -> str:
        """The name in a part: the tensor's own, with the ranges when it is only a part of it."""
        if self.box.shape == self.shape:
            return self.tensor
        ranges = (
            f"{start}:{start + size}"
            for start, size in zip(self.box.start, self.box.shape, strict=True)
        )
        return f"{self.tensor}[{','.join(ranges)}]"


@dataclass(frozen=True, slots=True)
class Planned:
    """A part that is to be written: its header, and where each piece will begin."""

    pieces: tuple[Piece, ...]
    header: bytes
    offsets: tuple[int, ...]
    size_bytes: int


def planned(pieces: Iterable[Piece], *, metadata: dict[str, str]) -> list[Planned]:
    """Pieces divided into parts, in their order."""
    groups: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if groups[-1] and size + piece.data.nbytes > PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.data.nbytes
    return [_plan(group, metadata) for group in groups if group]


def write_part(store: Store, name: str, plan: Planned) -> tuple[str, ...]:
    """Write a part; the hashes of its chunks."""
    hashes: list[str] = []
    buffers = (memoryview(plan.header), *(piece.data for piece in plan.pieces))
    store.write(name, _hashed(_in_chunks(buffers), hashes), size_bytes=plan.size_bytes)
    return tuple(hashes)


class PartReader:
    """Bytes of a part, none of which leaves without its hash having been checked."""

    def __init__(self, store: Store, name: str, part: Part, chunk_bytes: int) -> None:
        self._store = store
        self._name = name
        self._part = part
        self._chunk_bytes = chunk_bytes
        #: The last chunk that was read: small tensors that follow each other share one.
        self._kept: tuple[int, memoryview] = (-1, memoryview(b""))

    def read(self, start: int, stop: int) -> memoryview:
        """Some bytes; `Damaged` when those, or others of their chunks, are not what was written."""
        size = self._chunk_bytes
        first, last = start // size, -(-stop // size)
        index, kept = self._kept
        if first == index and last == index + 1:
            return kept[start - first * size : stop - first * size]
        data = self._verified(first, last)
        self._kept = (last - 1, data[(last - 1 - first) * size :])
        return data[start - first * size : stop - first * size]

    def verify(self) -> None:
        """Check every chunk."""
        step = max(1, VERIFY_BYTES // self._chunk_bytes)
        for first in range(0, len(self._part.sha256), step):
            self._verified(first, min(first + step, len(self._part.sha256)))

    def _verified(self, first: int, last: int) -> memoryview:
        size = self._chunk_bytes
        start, stop = first * size, min(last * size, self._part.size_bytes)
        try:
            data = self._store.read(self._name, start, stop)
        except NoSuchObject as error:
            raise self._damaged("is missing") from error
        if len(data) != stop - start:
            raise self._damaged("is shorter than it was")
        for index in range(first, last):
            chunk = data[(index - first) * size : (index + 1 - first) * size]
            if hashlib.sha256(chunk).hexdigest() != self._part.sha256[index]:
                raise self._damaged(
                    f"has changed within its bytes {index * size}–{index * size + len(chunk)}"
                )
        return data

    def _damaged(self, what: str) -> Damaged:
        return Damaged(
            f"'{self._name}' in '{self._store.place}' {what}", fix="restore an older checkpoint"
        )


def _plan(pieces: Sequence[Piece], metadata: dict[str, str]) -> Planned:
    entries: dict[str, object] = {"__metadata__": metadata}
    begins: list[int] = []
    end = 0
    for piece in pieces:
        begins.append(end)
        end += piece.data.nbytes
        if piece.label in entries:
            raise ValueError(f"'{piece.label}' occurs twice")
        entries[piece.label] = {
            "dtype": piece.dtype,
            "shape": list(piece.box.shape),
            "data_offsets": [begins[-1], end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    offsets = tuple(len(header) + begin for begin in begins)
    return Planned(tuple(pieces), header, offsets, len(header) + end)


def _in_chunks(buffers: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """The buffers one after the other, cut into chunks; each chunk as the views that make it up."""
    views: list[memoryview] = []
    size = 0
    for buffer in buffers:
        rest = buffer.cast("B") if buffer.nbytes else memoryview(b"")
        while rest:
            view = rest[: CHUNK_BYTES - size]
            views.append(view)
            size += len(view)
            rest = rest[len(view) :]
            if size == CHUNK_BYTES:
                yield views
                views, size = [], 0
    if views:
        yield views


def _hashed(chunks: Iterable[list[memoryview]], hashes: list[str]) -> Iterator[memoryview]:
    for views in chunks:
        digest = hashlib.sha256()
        for view in views:
            digest.update(view)
            yield view
        hashes.append(digest.hexdigest())
