"""Which of the places that hold the same numbers answers for them.

A place owns its shard of a tensor. Where a tensor is not divided along a dimension of the mesh, all
places along that dimension hold the same, and the first of them owns it. What is owned is counted
in norms and written to checkpoints; all owned parts of a replica make up every tensor once.
"""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor, Replicate

from modelyard.train.replica.places import FSDP, TENSOR, Place


def owns(place: Place, tensor: torch.Tensor) -> bool:
    """Whether a place answers for its part of a tensor of its stage."""
    divided: set[str] = set()
    if isinstance(tensor, DTensor):
        names = tensor.device_mesh.mesh_dim_names or ()
        divided = {
            name
            for name, placement in zip(names, tensor.placements, strict=True)
            if not isinstance(placement, Replicate)
        }
    at = {FSDP: place.fsdp, TENSOR: place.tensor}
    return all(name in divided or not coordinate for name, coordinate in at.items())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
