"""Samples of whole documents: none is cut unless it is longer than a sample.

Cutting the concatenation of all documents wastes no place, but most samples then begin in mid-text.
Packing documents by best fit, longest first, costs a little padding instead (Ding et
al., "Fewer Truncations Improve Language Modeling", 2024).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from pathlib import Path

import numpy as np

from modelyard.errors import InputError
from modelyard.train.data.luck import Numbers
from modelyard.train.data.tokens import Shards, read_header, special_tokens

#: Documents are packed so many at a time: the fit gets no better with more.
WINDOW = 1 << 17


class PackedSamples:
    """The samples of a data set, each of whole documents and padding; read as `TokenSamples` is."""

    def __init__(self, folder: str | Path, sequence: int, *, split: str = "train") -> None:
        if sequence < 1:
            raise InputError(f"samples of {sequence} tokens", fix="use 1 or more")
        header = read_header(Path(folder))
        self.sequence = sequence
        self.pad = special_tokens(Path(folder), header).pad
        self._shards = Shards(Path(folder), header, split)
        starts, lengths = _chunks(self._shards, sequence + 1)
        sample = _packed_in_windows(lengths, sequence + 1)
        order = np.argsort(sample, kind="stable")
        self._starts, self._lengths = starts[order], lengths[order]
        self.size = int(sample.max()) + 1 if len(sample) else 0
        #: the chunks of sample i are [first[i], first[i + 1])
        self._first = np.searchsorted(sample[order], np.arange(self.size + 1))
        self._filled = np.zeros(self.size, dtype=np.int64)
        np.add.at(self._filled, sample, lengths)
        if not self.size:
            what = f"the {split} data has no document"
            raise InputError(what, fix="prepare more text", where=str(folder))

    def read(self, ids: Numbers) -> Numbers:
        """The samples with these numbers, each `sequence + 1` tokens, padding last."""
        found = np.full((len(ids), self.sequence + 1), self.pad, dtype=np.int64)
        for row, number in enumerate(ids.tolist()):
            place = 0
            for chunk in range(self._first[number], self._first[number + 1]):
                start, length = int(self._starts[chunk]), int(self._lengths[chunk])
                found[row, place : place + length] = self._shards.stretch(start, start + length)
                place += length
        return found

    def lengths(self, ids: Numbers) -> Numbers:
        """The tokens of each that are no padding."""
        found: Numbers = self._filled[ids]
        return found


def packed(lengths: Numbers, capacity: int) -> Numbers:
    """Which sample each chunk goes to: the fullest that has room, longest chunks first."""
    samples = np.empty(len(lengths), dtype=np.int64)
    #: samples by how much room they have, and the rooms that there are, in order
    by_room: dict[int, list[int]] = {}
    rooms: list[int] = []
    made = 0
    for chunk in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[chunk])
        place = bisect_left(rooms, length)
        if place < len(rooms):
            room = rooms[place]
            sample = by_room[room].pop()
            if not by_room[room]:
                del by_room[room]
                rooms.pop(place)
        else:
            room, sample, made = capacity, made, made + 1
        samples[chunk] = sample
        left = room - length
        if left and left not in by_room:
            insort(rooms, left)
        if left:
            by_room.setdefault(left, []).append(sample)
    return samples


def document_numbers(tokens: Numbers, end: int) -> Numbers:
    """For each token of each row, which document of the row it is of: for masks of attention."""
    ended = np.cumsum(tokens == end, axis=1)
    return np.concatenate([np.zeros((len(tokens), 1), dtype=np.int64), ended[:, :-1]], axis=1)


def _packed_in_windows(lengths: Numbers, capacity: int) -> Numbers:
    parts, made = [], 0
    for start in range(0, len(lengths), WINDOW):
        part = packed(lengths[start : start + WINDOW], capacity) + made
        made = int(part.max()) + 1
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _chunks(shards: Shards, most: int) -> tuple[Numbers, Numbers]:
    """Starts and lengths of all documents, in pieces of at most `most` tokens."""
    ends = shards.ends()
    if not len(ends) or ends[-1] < shards.tokens:
        ends = np.append(ends, shards.tokens)
    starts = np.concatenate([[0], ends[:-1]])
    pieces = -(-(ends - starts) // most)
    document = np.repeat(np.arange(len(ends)), pieces)
    within = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = starts[document] + within * most
    return begins, np.minimum(ends[document] - begins, most)
