"""Boxes within tensors: where two overlap, whether some fill a tensor, how to copy out of one.

A slice is a box of a global tensor: where it starts along each dimension, and its shape. Workers
store whichever boxes they have; others read whichever they need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
#: Tensors travel as whole numbers of the same width: nothing here looks at their values.
Words = npt.NDArray[np.unsignedinteger]

#: The widths of the types that safetensors files name.
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor."""

    start: Shape
    shape: Shape

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def within(self, shape: Shape) -> bool:
        """Whether a tensor of this shape has such a part."""
        return len(self.start) == len(self.shape) == len(shape) and all(
            start >= 0 and size >= 0 and start + size <= whole
            for start, size, whole in zip(self.start, self.shape, shape, strict=True)
        )


def whole(shape: Shape) -> Box:
    """All of a tensor."""
    return Box((0,) * len(shape), shape)


def overlap(one: Box, other: Box) -> Box | None:
    """What two boxes share."""
    start = tuple(map(max, one.start, other.start))
    stop = tuple(
        min(a + b, c + d)
        for a, b, c, d in zip(one.start, one.shape, other.start, other.shape, strict=True)
    )
    shape = tuple(b - a for a, b in zip(start, stop, strict=True))
    return Box(start, shape) if all(size > 0 for size in shape) else None


def fills(boxes: Sequence[Box], shape: Shape) -> bool:
    """Whether boxes lie within a tensor, share nothing and leave nothing out."""
    if not all(box.within(shape) for box in boxes):
        return False
    if sum(box.count for box in boxes) != math.prod(shape):
        return False
    starts = np.array([box.start for box in boxes], dtype=np.int64).reshape(len(boxes), len(shape))
    sizes = np.array([box.shape for box in boxes], dtype=np.int64).reshape(starts.shape)
    stops = starts + sizes
    for index in range(len(boxes) - 1):
        low = np.maximum(starts[index], starts[index + 1 :])
        high = np.minimum(stops[index], stops[index + 1 :])
        if len(shape) == 0 or bool((high > low).all(axis=1).any()):
            return False
    return True


def copy_box(
    read: Callable[[int, int], memoryview],
    *,
    stored: Box,
    offset_bytes: int,
    wanted: Box,
    out: Words,
    most_bytes: int,
) -> None:
    """Copy a part of a stored box, which lies row by row from an offset on, in few large reads."""
    item = out.dtype.itemsize
    strides = _strides(stored.shape, item)
    start = tuple(a - b for a, b in zip(wanted.start, stored.start, strict=True))

    def copy(start: Shape, shape: Shape, target: Words) -> None:
        first = offset_bytes + sum(a * b for a, b in zip(start, strides, strict=True))
        span = sum((a - 1) * b for a, b in zip(shape, strides, strict=True)) + item
        axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
        if span <= most_bytes or axis is None:
            data = read(first, first + span)
            target[...] = np.ndarray(shape, target.dtype, data, strides=strides)
            return
        step = max(1, most_bytes // strides[axis])
        for begin in range(0, shape[axis], step):
            size = min(step, shape[axis] - begin)
            copy(
                (*start[:axis], start[axis] + begin, *start[axis + 1 :]),
                (*shape[:axis], size, *shape[axis + 1 :]),
                target[(slice(None),) * axis + (slice(begin, begin + size),)],
            )

    copy(start, wanted.shape, out)


def _strides(shape: Shape, item: int) -> Shape:
    strides = [item]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()
