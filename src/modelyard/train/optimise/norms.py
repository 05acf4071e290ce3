"""Norms of tensors that may be cut over several devices."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed.tensor


def whole_number(scalar: torch.Tensor) -> float:
    """A scalar tensor as a number; one that is cut over devices (FSDP2) is put together first."""
    if isinstance(scalar, torch.distributed.tensor.DTensor):
        scalar = scalar.full_tensor()
    return float(scalar)


def norm_of(tensor: torch.Tensor) -> float:
    """Euclidean norm."""
    return whole_number(tensor.norm())


def square_of(parameters: Iterable[torch.nn.Parameter]) -> float:
    """Squared norm of all gradients together."""
    return sum(norm_of(one.grad) ** 2 for one in parameters if one.grad is not None)


def here(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory as plain tensors: what this process has of those that are cut."""
    cut = torch.distributed.tensor.DTensor
    return [one.to_local() if isinstance(one, cut) else one for one in tensors]
