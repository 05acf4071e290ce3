"""The data of a job: one data set or several by weights, read as one by whoever takes part.

One data set is read in the order of the seed (`train/order.py`), an epoch after the other. Several
are mixed by weights: each position belongs to one of them, and each goes through its own epochs
(`mixing.py`), so that after each block of positions all samples of a data set were used equally
often, but for the epoch that is going on, of which each was used once or not yet. What stands at
a position is computed, so a run resumes exactly from a position alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modelyard.errors import InputError, Problem
from modelyard.spec.training import TrainSpec
from modelyard.spec.training_data import DataSource
from modelyard.train.data.documents import DocumentSamples
from modelyard.train.data.luck import Numbers, Shares
from modelyard.train.data.mixing import MixedSamples
from modelyard.train.data.packing import PackedSamples
from modelyard.train.data.tokenizer import FILE, Special
from modelyard.train.data.tokens import (
    Header,
    TokenSamples,
    file_hash,
    read_header,
    special_tokens,
)
from modelyard.train.order import OWN_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some samples: tokens (rows, sequence + 1), and what is known of them beside that."""

    tokens: Numbers
    #: the tokens of each row that are no padding; None where there is none
    lengths: Numbers | None
    #: which of the sources each row is of
    source: Numbers
    #: of each row; None where no source has labels
    labels: Shares | None


class JobData:
    """The samples of a job by number (of one source) or by position (of several)."""

    def __init__(
        self,
        sources: Sequence[DataSource],
        *,
        train: TrainSpec,
        folder: Path,
        split: str = "train",
        whole_steps: int = 1,
        held_out: float = 0.0,
    ) -> None:
        """Folders are relative to `folder`; all that is wrong with them is one `InputError`.

        With `whole_steps` of so many samples an epoch ends with a step: it has some places more
        than samples, and nothing stands there. A share `held_out` of the samples, the last ones,
        can be read and belongs to no epoch.
        """
        problems: list[Problem] = []
        found: list[TokenSamples | PackedSamples | DocumentSamples] = []
        headers: dict[Path, Header] = {}
        for source in sources:
            place = folder / source.folder
            try:
                headers[place] = read_header(place)
                found.append(_samples(headers[place], place, train, source, split))
            except InputError as error:
                problems.extend(error.problems)
        problems.extend(_differences(headers))
        if problems:
            raise InputError(f"{len(problems)} problems with the data", problems=problems)
        self.sources = tuple(sources)
        self.header = headers[folder / sources[0].folder]
        self.folder = folder / sources[0].folder
        self.sequence = train.sequence
        self._samples = found
        self._mixed = None
        if len(found) > 1:
            weights = [source.weight for source in sources]
            self._mixed = MixedSamples(found, weights, seed=train.seed)
        self.size = found[0].size if self._mixed is None else self._mixed.size
        #: samples from `size` on that are held out
        self.held_out = self._hold_out(held_out) if held_out else 0
        self.size -= self.held_out
        self._places = -(-self.size // whole_steps) * whole_steps

    def _hold_out(self, share: float) -> int:
        if self._mixed is not None:
            what = "a share can only be held out of one data set"
            fix = "write 'validate: {data: …}', or prepare the data with --validation"
            raise InputError(what, fix=fix)
        count = max(1, round(share * self.size))
        if count >= self.size:
            what = f"holding out {share:g} of {self.size:,} samples leaves nothing to train on"
            raise InputError(what, fix="write a smaller 'share', or use more data")
        return count

    @property
    def places(self) -> int:
        """What an order is made of: places of an epoch, or `OWN_ORDER` where this data has one."""
        return self._places if self._mixed is None else OWN_ORDER

    def present(self, passes: Iterable[Numbers]) -> Iterator[Numbers]:
        """What stands at the places of each pass; passes in which nothing stands are left out."""
        for places in passes:
            found = places if self.mixed else places[places < self.size]
            if len(found):
                yield found

    @property
    def mixed(self) -> bool:
        """Whether samples are asked for by position, over all epochs."""
        return self._mixed is not None

    @property
    def special(self) -> Special:
        """Tokens that are no text."""
        return special_tokens(self.folder, self.header)

    def read(self, numbers: Numbers) -> Rows:
        """The samples with these numbers, or at these positions."""
        which, ids = np.zeros(len(numbers), dtype=np.int64), numbers
        if self._mixed is not None:
            which, ids = self._mixed.locate(numbers)
        tokens = np.empty((len(numbers), self.sequence + 1), dtype=np.int64)
        lengths = np.full(len(numbers), self.sequence + 1, dtype=np.int64)
        labels = np.full(len(numbers), np.nan)
        for number, samples in enumerate(self._samples):
            here = which == number
            tokens[here] = samples.read(ids[here])
            if not isinstance(samples, TokenSamples):
                lengths[here] = samples.lengths(ids[here])
            if isinstance(samples, DocumentSamples):
                labels[here] = samples.labels(ids[here])
        padded = bool((lengths <= self.sequence).any())
        labelled = any(isinstance(one, DocumentSamples) for one in self._samples)
        return Rows(
            tokens=tokens,
            lengths=lengths if padded else None,
            source=which,
            labels=labels if labelled else None,
        )


def _samples(
    header: Header, folder: Path, train: TrainSpec, source: DataSource, split: str
) -> TokenSamples | PackedSamples | DocumentSamples:
    """What a sample of a data set is: labelled documents stand for themselves in a task."""
    if header.labelled and source.task is not None:
        return DocumentSamples(folder, train.sequence, split=split)
    return (PackedSamples if train.packing else TokenSamples)(folder, train.sequence, split=split)


def _differences(headers: Mapping[Path, Header]) -> Iterable[Problem]:
    """Data sets that one model cannot read together."""
    tokenizers = {folder: _tokenizer_of(header, folder) for folder, header in headers.items()}
    for folder in tokenizers:
        first = next(iter(tokenizers))
        if tokenizers[folder] != tokenizers[first]:
            what = f"it was prepared with another tokenizer than '{first}'"
            yield Problem(what, f"prepare it with --tokenizer {first}", str(folder))


def _tokenizer_of(header: Header, folder: Path) -> tuple[int, str]:
    file = folder / FILE
    return header.vocab, file_hash(file) if file.is_file() else header.tokenizer
