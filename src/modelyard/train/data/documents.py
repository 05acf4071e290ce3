"""Samples of one document each, with the number that stands beside it: what tasks with labels read.

`yard data prepare --label FIELD` keeps a number for every document. A document that is longer than
a sample is cut, a shorter one is padded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from modelyard.errors import InputError
from modelyard.train.data.luck import Numbers, Shares
from modelyard.train.data.tokens import Shards, read_header, special_tokens


class DocumentSamples:
    """The documents of a data set by number, as `TokenSamples` are."""

    def __init__(self, folder: str | Path, sequence: int, *, split: str = "train") -> None:
        path = Path(folder)
        header = read_header(path)
        if not header.labelled:
            fix = "prepare it with --label FIELD"
            raise InputError("this data set has no labels", fix=fix, where=str(folder))
        self.sequence = sequence
        self.pad = special_tokens(path, header).pad
        self._shards = Shards(path, header, split)
        self._labels = self._shards.labels()
        ends = self._shards.ends()
        self._starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        self._lengths = np.minimum(ends - self._starts, sequence + 1)
        self.size = len(ends)
        if not self.size:
            what = f"the {split} data has no document"
            raise InputError(what, fix="prepare more text", where=str(folder))

    def read(self, ids: Numbers) -> Numbers:
        """The documents with these numbers, each `sequence + 1` tokens, padding last."""
        found = np.full((len(ids), self.sequence + 1), self.pad, dtype=np.int64)
        for row, number in enumerate(ids.tolist()):
            start, length = int(self._starts[number]), int(self._lengths[number])
            found[row, :length] = self._shards.stretch(start, start + length)
        return found

    def lengths(self, ids: Numbers) -> Numbers:
        """The tokens of each that are no padding."""
        found: Numbers = self._lengths[ids]
        return found

    def labels(self, ids: Numbers) -> Shares:
        """The number that stands beside each."""
        found: Shares = self._labels[ids]
        return found
