"""Which part of a global tensor a worker holds, and what its type is called in kept files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from modelyard.errors import YardError
from modelyard.keep.slices import ITEM_BYTES, Box, Shape, Words, whole

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16",
    "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, torch_name)
    for torch_name, name in _NAMES.items()
    if hasattr(torch, torch_name)
}
_KEPT_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class LocalPart:
    """What a worker holds of a tensor."""

    name: str
    dtype: str
    #: of the whole tensor
    shape: Shape
    box: Box
    tensor: torch.Tensor
    #: whether every worker holds the same, so that any one of them can write it
    everywhere: bool

    @property
    def size_bytes(self) -> int:
        return self.box.count * ITEM_BYTES[self.dtype]


def local_part(name: str, tensor: torch.Tensor) -> LocalPart | None:
    """This worker's part of a tensor; None when another worker is to write the same part."""
    dtype = _KEPT_NAMES.get(tensor.dtype)
    if dtype is None or tensor.layout is not torch.strided:
        what = (
            f"'{name}' is a tensor of a kind that cannot be kept: {tensor.dtype}, {tensor.layout}"
        )
        raise YardError(what, fix="leave it out, or turn it into an ordinary tensor")
    shape = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        return LocalPart(name, dtype, shape, whole(shape), tensor.detach(), True)
    box = _box(name, tensor)
    coordinate = tensor.device_mesh.get_coordinate()
    first = coordinate is not None and all(
        place == 0
        for place, placement in zip(coordinate, tensor.placements, strict=True)
        if isinstance(placement, Replicate)
    )
    if not first or box.count == 0:
        return None
    return LocalPart(name, dtype, shape, box, tensor.to_local().detach(), False)


def divide(parts: Iterable[LocalPart], writer: int, writers: int) -> list[LocalPart]:
    """What one of several writers writes: its own boxes, and its share of what all hold.

    Every writer computes the same division: the largest first, each to whoever has least.
    """
    listed = list(parts)
    if writers == 1:
        return listed
    loads = [0] * writers
    mine: set[str] = set()
    shared = [part for part in listed if part.everywhere]
    for part in sorted(shared, key=lambda part: (-part.size_bytes, part.name)):
        least = loads.index(min(loads))
        # Even an empty tensor is some work: without this the first writer would get all of them.
        loads[least] += part.size_bytes + 1
        if least == writer:
            mine.add(part.name)
    return [part for part in listed if not part.everywhere or part.name in mine]


def empty_like_stored(
    name: str, dtype: str, shape: Sequence[int], like: torch.Tensor | None
) -> tuple[torch.Tensor, Box, Words]:
    """A tensor for what is stored, divided as `like` is; its box and its memory as plain words."""
    kind = DTYPES[dtype]
    box = whole(tuple(shape))
    if isinstance(like, DTensor):
        if tuple(like.shape) != tuple(shape):
            what = f"'{name}' was kept as {tuple(shape)} and is {tuple(like.shape)} here"
            raise YardError(what, fix="restore it into the model that it was made with")
        box = _box(name, like)
        local = torch.empty(box.shape, dtype=kind)
        tensor: torch.Tensor = DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape,
            stride=like.stride(),
        )  # fmt: skip
    else:
        local = tensor = torch.empty(box.shape, dtype=kind)
    return tensor, box, _words(local)


def _words(tensor: torch.Tensor) -> Words:
    words: Words = tensor.view(_WORDS[tensor.element_size()]).numpy()
    return words.view(np.dtype(f"u{tensor.element_size()}"))


def _box(name: str, tensor: DTensor) -> Box:
    for placement in tensor.placements:
        # Strided is what FSDP makes of a matrix that tensor parallelism has cut already: a part of
        # a part, and so a box as well.
        if not isinstance(placement, (Replicate, Shard, _StridedShard)):
            what = f"'{name}' is divided in a way that cannot be kept: {placement}"
            raise YardError(what, fix="redistribute it to shards or replicas first")
    shape, start = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return Box(tuple(map(int, start)), tuple(map(int, shape)))
