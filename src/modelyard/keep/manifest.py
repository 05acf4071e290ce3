"""The manifest of a checkpoint: what it holds and where, sealed with its own hash.

It is written when all else is there, so a checkpoint without one does not exist. Workers that write
together each leave a share, which is a manifest of what they wrote; whoever finds all the shares
merges them into the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from modelyard.keep.problems import Damaged
from modelyard.keep.sealing import seal, unseal
from modelyard.keep.slices import ITEM_BYTES, Box, Shape, fills
from modelyard.keep.tree import merge

#: Pieces of a part that have a hash of their own: whoever reads a little need not read it all.
CHUNK_BYTES = 4 << 20

Count = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which state of which job a checkpoint holds; a higher generation fences off a lower."""

    job: str
    step: Count
    generation: Count
    #: samples consumed, over all epochs
    position: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A box of a tensor, and the byte of the part at which it begins."""

    start: tuple[Count, ...]
    shape: tuple[Count, ...]
    part: Count
    offset_bytes: Count

    @property
    def box(self) -> Box:
        return Box(self.start, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor as the whole job knows it, and the boxes in which it lies."""

    dtype: str
    shape: tuple[Count, ...]
    slices: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object with tensors, and a hash for each of its chunks."""

    name: str
    size_bytes: Count
    sha256: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a checkpoint, or one writer's share of it, consists of."""

    about: About
    writer: Count
    writers: Annotated[int, Field(ge=1)]
    tree: object
    tensors: dict[str, Tensor]
    parts: tuple[Part, ...]
    chunk_bytes: Annotated[int, Field(ge=1)]
    #: counts changes after which older programs cannot read it any more
    format: Literal[1] = 1

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def sealed(manifest: Manifest) -> bytes:
    """A manifest as JSON, with the hash of it in front."""
    body = json.dumps(asdict(manifest), separators=(",", ":"), allow_nan=False).encode()
    return seal(body)


def opened(data: bytes, *, where: str) -> Manifest:
    """The manifest that was sealed; `Damaged` when a single byte of it has changed."""
    body = unseal(data)
    if body is None:
        raise _damaged(where, "its hash does not fit")
    try:
        manifest = _adapter().validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        place = ".".join(map(str, found[0]["loc"]))
        what = f"{place}: {found[0]['msg']}"
        if place == "format":
            fix = "update modelyard, or restore another checkpoint"
            raise Damaged(f"'{where}' has a format that is not known here", fix=fix) from error
        raise _damaged(where, what) from error
    _check(manifest, where)
    return manifest


def merged(shares: Sequence[Manifest], *, where: str) -> Manifest:
    """The manifest of a checkpoint from the shares of all its writers, in their order."""
    parts: list[Part] = []
    tensors: dict[str, Tensor] = {}
    tree = shares[0].tree
    for share in shares:
        if share.about != shares[0].about or share.chunk_bytes != shares[0].chunk_bytes:
            raise _damaged(where, "its writers do not agree on what they wrote")
        tree = merge(tree, share.tree)
        for name, tensor in share.tensors.items():
            moved = tuple(replace(at, part=at.part + len(parts)) for at in tensor.slices)
            known = tensors.get(name, replace(tensor, slices=()))
            if (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
                raise _damaged(where, f"its writers do not agree on '{name}'")
            # Replicas hold the same boxes: the first of them is enough.
            boxes = {at.box for at in known.slices}
            new = tuple(at for at in moved if at.box not in boxes)
            tensors[name] = replace(known, slices=known.slices + new)
        parts.extend(share.parts)
    manifest = replace(shares[0], tree=tree, tensors=tensors, parts=tuple(parts))
    check_whole(manifest, where=where)
    return manifest


def check_whole(manifest: Manifest, *, where: str) -> None:
    """That the stored boxes of each tensor make up all of it."""
    for name, tensor in manifest.tensors.items():
        boxes = [at.box for at in tensor.slices]
        if not fills(boxes, tensor.shape):
            raise _damaged(where, f"the slices of '{name}' do not make up a tensor {tensor.shape}")


def _check(manifest: Manifest, where: str) -> None:
    for part in manifest.parts:
        if len(part.sha256) != -(-part.size_bytes // manifest.chunk_bytes):
            raise _damaged(where, f"'{part.name}' has not one hash for each chunk")
    for name, tensor in manifest.tensors.items():
        if tensor.dtype not in ITEM_BYTES:
            raise _damaged(where, f"'{name}' is of an unknown type")
        for at in tensor.slices:
            size = at.box.count * ITEM_BYTES[tensor.dtype]
            fits = at.part < len(manifest.parts) and at.box.within(tensor.shape)
            if not fits or at.offset_bytes + size > manifest.parts[at.part].size_bytes:
                raise _damaged(where, f"a slice of '{name}' lies outside")


def size_of(dtype: str, shape: Shape) -> int:
    """The bytes of a box."""
    return Box(shape, shape).count * ITEM_BYTES[dtype]


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _damaged(where: str, what: str) -> Damaged:
    return Damaged(f"'{where}' is damaged: {what}", fix="restore an older checkpoint")
