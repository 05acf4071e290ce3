"""Token files: what `yard data prepare` writes once and every worker reads by number.

A data set is a folder:

    data.json               the header: tokenizer, type of a token, shards with sizes and hashes
    tokenizer.json          unless tokens are bytes
    train-00000.tokens      tokens of a shard, little-endian uint16 or uint32, nothing else
    train-00000.ends        where documents end in it, little-endian int64: one past their last
    validation-00000.…      the same for what is held out

A split is the concatenation of its shards, every document followed by the tokenizer's end token;
sample `i` of a sequence length `s` is the `s + 1` tokens from `i·s` on, so that each token but the
first is predicted exactly once. Files are mapped into memory, never read whole.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError, UnknownName, cause_of
from modelyard.train.data.luck import Numbers, Shares
from modelyard.train.data.tokenizer import FILE, ByteTokenizer, Special, Tokenizer, load_bpe

HEADER = "data.json"
FORMAT = "modelyard-tokens"
VERSION = 1
SPLITS = ("train", "validation")
END_TYPE, LABEL_TYPE = np.dtype("<i8"), np.dtype("<f8")
#: A mapping holds a file descriptor, of which a process usually has 1,024.
MOST_OPEN = 256
_HASH_BYTES = 8 << 20

Stored = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A file of tokens and the file of its documents' ends."""

    name: str
    tokens: int
    documents: int
    #: sha256 of the two files
    tokens_hash: str
    ends_hash: str
    #: of the file with a number for each document, where there is one
    labels_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What `data.json` says."""

    tokenizer: str
    #: the token that ends documents in a tokenizer that calls it unusually, else empty
    end_token: str
    vocab: int
    #: bytes of a stored token: 2 or 4
    token_bytes: int
    #: tokens of a sample, as advised when the data was prepared; 0 for none
    sequence: int
    #: what it was made of, with which settings
    made_of: str
    shards: Mapping[str, tuple[Shard, ...]]
    #: tokens that are no text; None in data sets of earlier releases
    special: Special | None = None
    #: whether every document has a number beside it
    labelled: bool = False

    def tokens(self, split: str) -> int:
        return sum(shard.tokens for shard in self.shards[split])

    def documents(self, split: str) -> int:
        return sum(shard.documents for shard in self.shards[split])


def token_bytes(vocab: int) -> int:
    """Bytes that hold a token of such a vocabulary."""
    return 2 if vocab <= 1 << 16 else 4


def token_type(width: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    return np.dtype("<u2") if width == 2 else np.dtype("<u4")


def header_text(header: Header) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, **asdict(header)}, indent=1) + "\n"


def read_header(folder: Path) -> Header:
    """The header of a data set; whatever is wrong with it is an `InputError` that says so."""
    file = folder / HEADER
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _no_data(folder) from None
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read: {cause_of(error)}"
        raise InputError(what, fix="check it", where=str(file)) from error
    try:
        fields = json.loads(text)
        if fields.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not '{FORMAT}'")
        if (version := fields.pop("version", None)) != VERSION:
            raise ValueError(f"its version is {version}; this program reads {VERSION}")
        header = _header(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"this is not the header of a data set: {error}"
        raise InputError(what, fix="prepare the data again", where=str(file)) from error
    return header


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that a data set was made with."""
    header = read_header(folder)
    if header.tokenizer == "bytes" and not (folder / FILE).exists():
        return ByteTokenizer()
    return load_bpe(folder, end=header.end_token)


def special_tokens(folder: Path, header: Header) -> Special:
    """What ends, pads, hides and marks, in a data set."""
    return header.special or read_tokenizer(folder).special


class TokenSamples:
    """The samples of a data set, in any order, by number."""

    def __init__(self, folder: str | Path, sequence: int, *, split: str = "train") -> None:
        self.folder = Path(folder)
        self.header = read_header(self.folder)
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        if sequence < 1:
            raise InputError(f"samples of {sequence} tokens", fix="use 1 or more")
        self.sequence = sequence
        self.split = split
        self.shards = Shards(self.folder, self.header, split)
        self.size = max(self.shards.tokens - 1, 0) // sequence
        if self.size < 1:
            what = f"the {split} data has {self.shards.tokens:,} tokens: no sample of {sequence:,}"
            raise InputError(what, fix=_more_data(split), where=str(folder))

    def read(self, ids: Numbers) -> Numbers:
        """The samples with these numbers, each `sequence + 1` tokens, in the order asked for."""
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < self.size):
            raise IndexError(f"samples are [0, {self.size}); asked for {ids.min()}..{ids.max()}")
        return self.shards.rows(ids * self.sequence, self.sequence + 1)


class Shards:
    """The tokens of a split as one long array, of which rows are cut."""

    def __init__(self, folder: Path, header: Header, split: str) -> None:
        self._folder = folder
        self._type = token_type(header.token_bytes)
        self._shards = tuple(shard for shard in header.shards[split] if shard.tokens)
        self.begins = np.cumsum([0, *(shard.tokens for shard in self._shards)], dtype=np.int64)
        self.tokens = int(self.begins[-1])
        self._open: OrderedDict[int, Stored] = OrderedDict()

    def rows(self, starts: Numbers, width: int) -> Numbers:
        """`width` tokens from each start, over the bounds of shards where need be."""
        found = np.empty((len(starts), width), dtype=np.int64)
        shard = np.searchsorted(self.begins, starts, side="right") - 1
        offsets = starts - self.begins[shard]
        crosses = starts + width > self.begins[shard + 1]
        # Rows lie all over the files: copying each beats indexing them together.
        places = zip(shard.tolist(), offsets.tolist(), crosses.tolist(), strict=True)
        for row, (number, offset, over) in enumerate(places):
            if over:
                start = int(starts[row])
                found[row] = self.stretch(start, start + width)
            else:
                found[row] = self._mapped(number)[offset : offset + width]
        return found

    def stretch(self, start: int, stop: int) -> Numbers:
        """The tokens of [start, stop)."""
        parts = []
        while start < stop:
            number = int(np.searchsorted(self.begins, start, side="right")) - 1
            until = min(stop, int(self.begins[number + 1]))
            offset = int(self.begins[number])
            parts.append(self._mapped(number)[start - offset : until - offset].astype(np.int64))
            start = until
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def ends(self) -> Numbers:
        """Where documents end, in the numbering of the whole split."""
        parts = [
            np.fromfile(self._folder / f"{shard.name}.ends", dtype=END_TYPE).astype(np.int64)
            + self.begins[number]
            for number, shard in enumerate(self._shards)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def labels(self) -> Shares:
        """The numbers that stand beside documents, in the order of `ends`."""
        parts = [
            np.fromfile(self._folder / f"{shard.name}.labels", dtype=LABEL_TYPE).astype(np.float64)
            for shard in self._shards
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float64)

    def _mapped(self, number: int) -> Stored:
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        if len(self._open) >= MOST_OPEN:
            self._open.popitem(last=False)
        self._open[number] = mapped = _map(self._folder, self._shards[number], self._type)
        return mapped


def damaged(folder: Path) -> Iterator[str]:
    """The files of a data set that are not as they were written, each with what is wrong."""
    header = read_header(folder)
    width = header.token_bytes
    for shard in (each for split in SPLITS for each in header.shards[split]):
        expected = [
            ("tokens", shard.tokens * width, shard.tokens_hash),
            ("ends", shard.documents * END_TYPE.itemsize, shard.ends_hash),
        ]
        if header.labelled:
            size = shard.documents * LABEL_TYPE.itemsize
            expected.append(("labels", size, shard.labels_hash))
        for ending, size, digest in expected:
            path = folder / f"{shard.name}.{ending}"
            if not path.is_file():
                yield f"{path.name} is missing"
            elif path.stat().st_size != size:
                yield f"{path.name} has {path.stat().st_size:,} bytes instead of {size:,}"
            elif file_hash(path) != digest:
                yield f"{path.name} has changed since it was written"


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASH_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _map(folder: Path, shard: Shard, kind: np.dtype[np.uint16] | np.dtype[np.uint32]) -> Stored:
    path = folder / f"{shard.name}.tokens"
    try:
        # As a plain array: slices of a memmap object take several times as long to make.
        mapped: Stored = np.asarray(np.memmap(path, dtype=kind, mode="r"))
    except (OSError, ValueError) as error:
        what = f"cannot be read: {cause_of(error)}"
        raise InputError(what, fix="prepare the data again", where=str(path)) from error
    if len(mapped) != shard.tokens:
        what = f"this holds {len(mapped):,} tokens instead of {shard.tokens:,}"
        raise InputError(what, fix="prepare the data again", where=str(path))
    return mapped


def _header(fields: dict[str, Any]) -> Header:
    shards = {split: tuple(Shard(**each) for each in fields["shards"][split]) for split in SPLITS}
    special = _special(fields["special"]) if fields.get("special") else None
    header = Header(**{**fields, "shards": shards, "special": special})
    if header.token_bytes not in (2, 4):
        raise ValueError(f"tokens of {header.token_bytes} bytes")
    for shard in (each for split in SPLITS for each in shards[split]):
        if "/" in shard.name or shard.name.startswith("."):
            raise ValueError(f"'{shard.name}' is no name of a shard")
    return header


def _special(fields: dict[str, Any]) -> Special:
    several = {name: tuple(fields[name]) for name in ("sentinels", "all")}
    return Special(**{**fields, **several})


def _no_data(folder: Path) -> InputError:
    where = str(folder)
    if not folder.exists():
        return InputError("no such folder", fix="check the path", where=where)
    if (folder / "unfinished").is_dir():
        what = "the preparation of this data set did not finish"
        return InputError(what, fix="run the same `yard data prepare` again", where=where)
    fix = f"make one: yard data prepare TEXT --out {where}"
    return InputError(f"this is no data set: it has no {HEADER}", fix=fix, where=where)


def _more_data(split: str) -> str:
    more = "prepare more text, or use a shorter --sequence"
    return more if split == "train" else f"{more}, or hold out more with --validation"
