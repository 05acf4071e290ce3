"""What a worker that is behind gets from one that is not: parameters, buffers, optimizer states.

Names, shapes and numbers travel as JSON, tensors as they lie in memory. Nothing is unpickled. Of
a tensor that is divided over a replica each process sends its part to the one that has the same
part of another replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from modelyard.train.group import Group

#: Longer descriptions do not exist; the length comes from a peer and is not trusted blindly.
LONGEST_DESCRIPTION = 1 << 30


class Cut(msgspec.Struct, frozen=True):
    """How a dimension of the mesh divides a tensor: not at all, or along one of its dimensions."""

    along: int | None = None
    #: by how many it was divided before, along the same dimension, by a later one of the mesh
    after: int = 1


class Divided(msgspec.Struct, frozen=True):
    """What the process that receives a part has to know of the whole."""

    mesh: tuple[str, ...]
    cuts: tuple[Cut, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class TensorAt(msgspec.Struct, frozen=True):
    """Stands in a description for a tensor, or for a part of one, that follows it."""

    tensor: int
    dtype: str
    shape: tuple[int, ...]
    divided: Divided | None = None


def pack(value: object) -> tuple[bytes, list[torch.Tensor]]:
    """A tree of dicts, lists, numbers, texts and tensors as a description and the tensors."""
    tensors: list[torch.Tensor] = []

    def described(node: object) -> object:
        if isinstance(node, torch.Tensor):
            part = node.to_local() if isinstance(node, DTensor) else node
            tensors.append(part.detach().contiguous())
            name = str(node.dtype).removeprefix("torch.")
            return TensorAt(len(tensors) - 1, name, tuple(part.shape), _divided(node))
        if isinstance(node, Mapping):
            return {"items": [[key, described(item)] for key, item in node.items()]}
        if isinstance(node, (list, tuple)):
            return {"list": [described(item) for item in node]}
        if node is None or isinstance(node, (bool, int, float, str)):
            return {"plain": node}
        raise TypeError(f"a state may not hold a {type(node).__name__}")

    return msgspec.json.encode(described(value)), tensors


def skeleton(description: bytes, mesh: DeviceMesh | None = None) -> tuple[Any, list[torch.Tensor]]:
    """The tree of a description with empty tensors, and those in the order in which they come."""
    tensors: dict[int, torch.Tensor] = {}

    def built(node: Any) -> Any:
        if "tensor" in node:
            at = msgspec.convert(node, TensorAt)
            dtype = getattr(torch, at.dtype, None)
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"'{at.dtype}' is not a type of tensors")
            tensors[at.tensor] = torch.empty(at.shape, dtype=dtype)
            return _placed(tensors[at.tensor], at.divided, mesh)
        if "items" in node:
            return {key: built(item) for key, item in node["items"]}
        if "list" in node:
            return [built(item) for item in node["list"]]
        return node["plain"]

    tree = built(msgspec.json.decode(description))
    return tree, [tensors[index] for index in range(len(tensors))]


def send_state(group: Group, to: int, value: object) -> None:
    """Hand a state to a peer."""
    description, tensors = pack(value)
    group.send(torch.tensor([len(description)], dtype=torch.int64), to)
    group.send(torch.frombuffer(bytearray(description), dtype=torch.uint8), to)
    for tensor in tensors:
        if tensor.numel():
            group.send(tensor, to)


def receive_state(group: Group, source: int, mesh: DeviceMesh | None = None) -> Any:
    """The state that a peer hands over; parts of tensors are parts of those on `mesh`."""
    length = torch.zeros(1, dtype=torch.int64)
    group.receive(length, source)
    if not 0 < int(length) <= LONGEST_DESCRIPTION:
        raise ValueError(f"a state's description cannot be {int(length)} bytes long")
    description = torch.empty(int(length), dtype=torch.uint8)
    group.receive(description, source)
    tree, tensors = skeleton(description.numpy().tobytes(), mesh)
    for tensor in tensors:
        if tensor.numel():
            group.receive(tensor, source)
    return tree


def _divided(tensor: torch.Tensor) -> Divided | None:
    if not isinstance(tensor, DTensor):
        return None
    return Divided(
        mesh=tuple(tensor.device_mesh.mesh_dim_names or ()),
        cuts=tuple(map(_cut, tensor.placements)),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
    )


def _cut(placement: Placement) -> Cut:
    if isinstance(placement, Replicate):
        return Cut()
    if isinstance(placement, _StridedShard):
        return Cut(placement.dim, placement.split_factor)
    if isinstance(placement, Shard):
        return Cut(placement.dim)
    raise TypeError(f"a state may not hold tensors that are divided as {placement}")


def _placement(cut: Cut) -> Placement:
    if cut.along is None:
        return Replicate()
    return Shard(cut.along) if cut.after == 1 else _StridedShard(cut.along, split_factor=cut.after)


def _placed(part: torch.Tensor, divided: Divided | None, mesh: DeviceMesh | None) -> torch.Tensor:
    """The tensor that a part belongs to."""
    if divided is None:
        return part
    if mesh is None:
        raise ValueError("a part of a tensor came to a process that holds whole ones")
    return DTensor.from_local(
        part,
        mesh[divided.mesh],
        [_placement(cut) for cut in divided.cuts],
        run_check=False,
        shape=torch.Size(divided.shape),
        stride=divided.stride,
    )
