"""Tables of embeddings that live on the server: a worker has their rows only while it needs them.

A model whose parameters are such tables says with `rows_used(batch)` which rows a batch reads. All
other models are fetched and pushed whole.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from modelyard.train.models.context_mlp import LocalTable


def made_sparse(model: torch.nn.Module) -> tuple[str, ...]:
    """The names of the parameters of which only rows travel; their gradients become sparse."""
    if not callable(getattr(model, "rows_used", None)):
        return ()
    names = []
    for name, part in model.named_modules():
        if isinstance(part, LocalTable):
            part.sparse = True
            names.append(f"{name}.weight")
    return tuple(names)


def rows_used(model: torch.nn.Module, batch: object) -> Mapping[str, torch.Tensor]:
    """The rows of each table that a batch reads."""
    found: Mapping[str, torch.Tensor] = model.rows_used(batch)
    return found
