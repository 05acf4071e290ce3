"""Norms of tensors that may be cut over several devices."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed.tensor

#: numbers whose squares are added in float32
ROW = 1024


def whole_number(scalar: torch.Tensor) -> float:
    """A scalar tensor as a number; one that is cut over devices (FSDP2) is put together first."""
    if isinstance(scalar, torch.distributed.tensor.DTensor):
        scalar = scalar.full_tensor()
    return float(scalar)


def norm_of(tensor: torch.Tensor) -> float:
    """Euclidean norm."""
    return whole_number(tensor.norm())


def square_of(tensor: torch.Tensor) -> float:
    """The sum of a plain tensor's squares.

    torch adds millions of float32 numbers in a few sums, which then hardly grow any more (2e-4 is
    missing of the norm of 8 million), and takes ten times as long with float64. Rows are short
    enough to be exact, and few enough to be added in float64.
    """
    flat = tensor.detach().reshape(-1)
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    whole = flat.numel() // ROW * ROW
    found = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1, dtype=wide).double()
    rest = torch.linalg.vector_norm(flat[whole:], dtype=wide).double()
    return float(found.dot(found) + rest * rest)


def squares_of(tensors: Iterable[torch.Tensor]) -> float:
    """That of several, all of them plain."""
    return sum(map(square_of, tensors))


def here(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory as plain tensors: what this process has of those that are cut."""
    cut = torch.distributed.tensor.DTensor
    return [one.to_local() if isinstance(one, cut) else one for one in tensors]
