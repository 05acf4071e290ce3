"""What a worker that is behind gets from one that is not: parameters, buffers, optimizer states.

Names, shapes and numbers travel as JSON, tensors as they lie in memory. Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from modelyard.train.group import Group

#: Longer descriptions do not exist; the length comes from a peer and is not trusted blindly.
LONGEST_DESCRIPTION = 1 << 30


class TensorAt(msgspec.Struct, frozen=True):
    """Stands in a description for a tensor that follows it."""

    tensor: int
    dtype: str
    shape: tuple[int, ...]


def pack(value: object) -> tuple[bytes, list[torch.Tensor]]:
    """A tree of dicts, lists, numbers, texts and tensors as a description and the tensors."""
    tensors: list[torch.Tensor] = []

    def described(node: object) -> object:
        if isinstance(node, torch.Tensor):
            tensors.append(node.detach().contiguous())
            name = str(node.dtype).removeprefix("torch.")
            return {"tensor": len(tensors) - 1, "dtype": name, "shape": list(node.shape)}
        if isinstance(node, Mapping):
            return {"items": [[key, described(item)] for key, item in node.items()]}
        if isinstance(node, (list, tuple)):
            return {"list": [described(item) for item in node]}
        if node is None or isinstance(node, (bool, int, float, str)):
            return {"plain": node}
        raise TypeError(f"a state may not hold a {type(node).__name__}")

    return msgspec.json.encode(described(value)), tensors


def skeleton(description: bytes) -> tuple[Any, list[torch.Tensor]]:
    """The tree of a description with empty tensors, and those in the order in which they come."""
    tensors: dict[int, torch.Tensor] = {}

    def built(node: Any) -> Any:
        if "tensor" in node:
            at = msgspec.convert(node, TensorAt)
            dtype = getattr(torch, at.dtype, None)
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"'{at.dtype}' is not a type of tensors")
            tensors[at.tensor] = torch.empty(at.shape, dtype=dtype)
            return tensors[at.tensor]
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


def receive_state(group: Group, source: int) -> Any:
    """The state that a peer hands over."""
    length = torch.zeros(1, dtype=torch.int64)
    group.receive(length, source)
    if not 0 < int(length) <= LONGEST_DESCRIPTION:
        raise ValueError(f"a state's description cannot be {int(length)} bytes long")
    description = torch.empty(int(length), dtype=torch.uint8)
    group.receive(description, source)
    tree, tensors = skeleton(description.numpy().tobytes())
    for tensor in tensors:
        if tensor.numel():
            group.receive(tensor, source)
    return tree
