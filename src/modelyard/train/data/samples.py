"""Data of scripts: whatever has a length and gives samples by number, or a folder of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.data import default_collate

from modelyard.errors import InputError
from modelyard.train.data.tokens import TokenSamples
from modelyard.train.order import Positions


class Samples(Protocol):
    """Whatever has a length and gives samples by number: a list, a torch `Dataset`, an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where samples come from."""

    size: int
    read: Callable[[Positions], Any]
    #: of one sample; 0 where nobody knows
    sample_tokens: int = 0


def source_of(
    data: Samples | str | Path, sequence: int, collate: Callable[[Sequence[Any]], Any] | None
) -> Source:
    """Whatever somebody gives as data; `InputError` when it cannot be read by number."""
    if isinstance(data, str | Path):
        tokens = TokenSamples(data, sequence)
        return Source(tokens.size, lambda ids: torch.from_numpy(tokens.read(ids)), sequence)
    kind = type(data).__name__
    fix = "give a list, an array, a torch Dataset with __len__, or a folder of 'yard data prepare'"
    try:
        size = len(data)
    except TypeError:
        raise InputError(f"a {kind} does not say how many samples it has", fix=fix) from None
    if not hasattr(data, "__getitem__"):
        raise InputError(f"a {kind} does not give samples by number", fix=fix)
    if size < 1:
        raise InputError("there are no samples", fix="give at least one")
    together = collate or default_collate
    return Source(size, lambda ids: together([data[number] for number in ids.tolist()]))
