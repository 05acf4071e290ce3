"""Parameters divided over places by FSDP2: gathered for each block when it computes, and no longer.

Gradients are summed, not averaged, within the replica: a loss counts by its samples' share of the
step, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

from modelyard.train.models.t5 import Stack


def shard(root: nn.Module, mesh: DeviceMesh, *, narrow: torch.dtype | None = None) -> None:
    """Divide a model, or a stage of one; `narrow` is what passes compute with."""
    policy = MixedPrecisionPolicy()
    if narrow is not None:
        policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32)
    for unit in (*units(root), root):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # gloo has no weighted sum.
            module.set_force_sum_reduction_for_comms(True)
    if callable(getattr(root, "loss", None)):
        # Some losses call parts of the model instead of the whole.
        register_fsdp_forward_method(root, "loss")


def units(root: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at a time: blocks, the innermost units first."""
    for module in root.modules():
        if isinstance(module, Stack):
            # Asked by the stack, between two blocks.
            yield from (block.relative for block in module.blocks if block.relative is not None)
    yield from _blocks(root)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The members of the outermost lists of modules."""
    for child in module.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from child.children()
        else:
            yield from _blocks(child)
