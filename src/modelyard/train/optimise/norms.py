"""Norms of tensors that may be cut over several devices."""

from __future__ import annotations

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
