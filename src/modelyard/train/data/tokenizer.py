"""Text as numbers: bytes, which need nothing, or pairs of them merged (BPE, Sennrich et al., 2016).

The `tokenizers` library trains and runs BPE. A `tokenizer.json` is data, not code: loading one that
somebody else made runs nothing of theirs. Words for special tokens that stand in the text itself
are read as text, so no document can pretend to end.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError, UnknownName
from modelyard.files import write_atomically
from modelyard.train.data.words import Words, splits_as_gpt2

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

Ids = npt.NDArray[np.int64]

FILE, GGUF = "tokenizer.json", ".gguf"
CHOICES = ("bytes", "bpe:8192")
BYTES = 256
#: With the other four, 64: the vocabulary of bytes is a multiple of 64, which accelerators like.
SPANS = 60
SPECIAL_NAMES = (
    "<|end|>",
    "<|pad|>",
    "<|mask|>",
    "<|begin|>",
    *(f"<|span-{number}|>" for number in range(SPANS)),
)
#: Every byte and every special token has to have a place.
SMALLEST_BPE = BYTES + len(SPECIAL_NAMES)
LARGEST_BPE = 1_000_000

#: What other people's tokenizers call the same things, in the order in which they are looked for.
END_NAMES = ("<|end|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
PAD_NAMES = ("<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>")
MASK_NAMES = ("<|mask|>", "<mask>", "[MASK]")
SPAN_NAMES = ("<|span-{}|>", "<extra_id_{}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """Tokens that are no text."""

    #: stands after every document
    end: int
    #: fills what is left of a sample; the end where a tokenizer has none
    pad: int
    #: stands for a hidden token, in BERT's objective
    mask: int | None
    #: stand for spans, in T5's
    sentinels: tuple[int, ...]
    #: all of them, and those with other uses
    all: tuple[int, ...]


class Tokenizer(Protocol):
    """What every tokenizer can do; ids are [0, vocab)."""

    @property
    def name(self) -> str: ...

    @property
    def vocab(self) -> int: ...

    @property
    def special(self) -> Special: ...

    @property
    def fingerprint(self) -> str:
        """The same for two tokenizers only if they give the same tokens."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Each text's tokens, without any special one."""

    def decode(self, ids: Ids) -> str:
        """The text; special tokens show as their names."""

    def save(self, folder: Path) -> None:
        """Leave in a folder what `tokenizer_of` needs."""


# -- bytes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """UTF-8 bytes, then the special tokens."""

    name: str = "bytes"
    vocab: int = BYTES + len(SPECIAL_NAMES)
    fingerprint: str = f"bytes-{BYTES}-{len(SPECIAL_NAMES)}"

    @property
    def special(self) -> Special:
        numbers = tuple(range(BYTES, self.vocab))
        return Special(
            end=numbers[0],
            pad=numbers[1],
            mask=numbers[2],
            sentinels=numbers[4:],
            all=numbers,
        )

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [
            np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64) for text in texts
        ]

    def decode(self, ids: Ids) -> str:
        parts = [
            bytes([number]) if number < BYTES else SPECIAL_NAMES[number - BYTES].encode()
            for number in ids.tolist()
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def save(self, folder: Path) -> None:
        """Nothing: a name is enough."""


# -- BPE ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BpeTokenizer:
    """A tokenizer of the `tokenizers` library, whichever model it holds."""

    name: str
    library: Library
    vocab: int
    special: Special
    fingerprint: str
    #: where the tokenizer is of the usual sort, a faster way to the same tokens
    words: Words | None

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        if self.words is not None:
            return self.words.encode(texts)
        return [np.array(each, dtype=np.int64) for each in _encoded(self.library, list(texts))]

    def decode(self, ids: Ids) -> str:
        text: str = self.library.decode(ids.tolist(), skip_special_tokens=False)
        return text

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.library.to_str())


def train_bpe(texts: Iterable[str], vocab: int) -> BpeTokenizer:
    """A byte-level BPE tokenizer with so many tokens, or fewer where the text has no more pairs."""
    check_bpe_size(vocab)
    _need_library()
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, trainers

    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIAL_NAMES),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    # Added afterwards, so that they come last and ordinary tokens are those before them.
    library.add_special_tokens(list(SPECIAL_NAMES))
    return _wrapped(library, f"bpe:{vocab}", end="")


def load_bpe(path: Path, *, end: str = "") -> BpeTokenizer:
    """The tokenizer of a `tokenizer.json`; `end` names its end-of-document token if unusual."""
    _need_library()
    from tokenizers import Tokenizer as Library

    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        what = "there is no tokenizer here"
        raise InputError(what, fix=f"name a {FILE} or the folder that has it", where=str(path))
    try:
        library = Library.from_file(os.fspath(file))
    except Exception as error:  # the library raises nothing more exact
        what = f"this is not a {FILE}: {_first_line(error)}"
        fix = "name a file that the `tokenizers` library wrote"
        raise InputError(what, fix=fix, where=str(file)) from error
    return _wrapped(library, str(path), end=end)


def check_bpe_size(vocab: int) -> None:
    if not SMALLEST_BPE <= vocab <= LARGEST_BPE:
        what = f"a BPE tokenizer of {vocab:,} tokens"
        fix = f"choose between {SMALLEST_BPE} (every byte, and special tokens) and {LARGEST_BPE:,}"
        raise InputError(what, fix=fix)


def bpe_size(text: str) -> int | None:
    """The size that `bpe:8192` asks for; None for any other tokenizer."""
    kind, colon, size = text.partition(":")
    if kind != "bpe":
        return None
    if not (colon and size.isascii() and size.isdigit() and len(size) < 10):
        what = f"'{text}' does not say how many tokens the tokenizer is to have"
        raise InputError(what, fix="write bpe:8192 or another number")
    check_bpe_size(int(size))
    return int(size)


def find_tokenizer(text: str, *, end: str = "") -> Tokenizer:
    """`bytes`, or the path of a `tokenizer.json`, its folder, or a GGUF file that holds one."""
    if text == "bytes":
        return ByteTokenizer()
    if text.endswith(GGUF) and os.path.isfile(text):
        # torch takes longer to import than most data sets to prepare.
        from modelyard.train.pretrained_gguf import tokenizer_of_gguf

        return _wrapped(tokenizer_of_gguf(text), text, end=end)
    if os.path.exists(text):
        return load_bpe(Path(text), end=end)
    if "/" in text or text.endswith(".json"):
        raise InputError("no such tokenizer", fix=f"check the path, or {_choices()}", where=text)
    error = UnknownName("tokenizer", text, CHOICES)
    raise InputError(error.message, fix=f"{_near(error)}{_choices()}") from None


def _near(error: UnknownName) -> str:
    return f"did you mean '{error.suggestion}'? Or " if error.suggestion else ""


def _choices() -> str:
    return f"use 'bytes', 'bpe:SIZE' (such as 'bpe:8192') or the path of a {FILE} or .gguf"


def _wrapped(library: Library, name: str, *, end: str) -> BpeTokenizer:
    library.encode_special_tokens = True
    library.no_truncation()
    library.no_padding()
    special = _special(library, name, end)
    vocab = library.get_vocab_size(with_added_tokens=True)
    # Ids need not be dense: a model needs a place for the largest.
    largest = max(library.get_vocab(with_added_tokens=True).values(), default=-1)
    description = library.to_str()
    fingerprint = hashlib.sha256(description.encode()).hexdigest()
    words = Words(partial(_encoded, library)) if splits_as_gpt2(description) else None
    return BpeTokenizer(name, library, max(vocab, largest + 1), special, fingerprint, words)


def _encoded(library: Library, texts: list[str]) -> list[list[int]]:
    return [each.ids for each in library.encode_batch_fast(texts, add_special_tokens=False)]


def _special(library: Library, name: str, end: str) -> Special:
    added = {each.content: number for number, each in library.get_added_tokens_decoder().items()}
    wanted = (end,) if end else END_NAMES
    found = [added[each] for each in wanted if each in added]
    if not found and end:
        raise UnknownName("end token", end, added, where=name)
    if not found:
        what = "this tokenizer has no token for the end of a document that is known here"
        named = ", ".join(f"'{each}'" for each in list(added)[:8])
        fix = f"name it with --end-token; it has {named}" if named else "choose another tokenizer"
        raise InputError(what, fix=fix, where=name)
    pads = [added[each] for each in PAD_NAMES if each in added]
    masks = [added[each] for each in MASK_NAMES if each in added]
    sentinels: tuple[int, ...] = ()
    for pattern in SPAN_NAMES:
        names = (pattern.format(number) for number in range(len(added)))
        sentinels = sentinels or tuple(added[each] for each in names if each in added)
    return Special(
        end=found[0],
        pad=pads[0] if pads else found[0],
        mask=masks[0] if masks else None,
        sentinels=sentinels,
        all=tuple(sorted(added.values())),
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _need_library() -> None:
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        what = "BPE tokenizers need the package 'tokenizers', which is not installed"
        fix = "pip install 'modelyard[train]', or use --tokenizer bytes"
        raise InputError(what, fix=fix) from error
