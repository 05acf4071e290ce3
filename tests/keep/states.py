"""States to keep, made of numpy arrays, and a process that writes them until it is killed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelyard.keep.checkpoint import Checkpoint, Wanted, array_of, write_checkpoint
from modelyard.keep.manifest import About, Manifest
from modelyard.keep.parts import Piece
from modelyard.keep.slices import Box, Words, whole
from modelyard.keep.store import Store, open_store
from modelyard.keep.tree import describe, rebuild

Array = npt.NDArray[np.generic]

DTYPES = {"float32": "F32", "int64": "I64", "uint8": "U8", "float16": "F16", "bool": "BOOL"}


def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def piece(name: str, array: Array, box: Box | None = None) -> Piece:
    """A box of an array, or all of it."""
    box = box or whole(array.shape)
    inside = tuple(slice(a, a + b) for a, b in zip(box.start, box.shape, strict=True))
    data = np.ascontiguousarray(array[inside])
    return Piece(
        tensor=name,
        dtype=DTYPES[str(array.dtype)],
        shape=array.shape,
        box=box,
        data=memoryview(data.tobytes()),
    )


def about(step: int = 1, generation: int = 1) -> About:
    return About(job="test", step=step, generation=generation, position=step * 8)


def write(store: Store, tree: object, step: int = 1, generation: int = 1) -> Manifest | None:
    """Write a tree of arrays as one writer."""
    node, arrays = describe(tree, is_array)
    pieces = [piece(name, array) for name, array in arrays if isinstance(array, np.ndarray)]
    return write_checkpoint(store, about(step, generation), node, pieces)


def write_slices(
    store: Store, arrays: dict[str, Array], shares: Sequence[Sequence[tuple[str, Box]]]
) -> Manifest | None:
    """Write some boxes of arrays by several writers, one after the other."""
    node, _ = describe(arrays, is_array)
    done = None
    for writer, boxes in enumerate(shares):
        pieces = [piece(name, arrays[name], box) for name, box in boxes]
        done = write_checkpoint(store, about(), node, pieces, writer=writer, writers=len(shares))
    return done


def read_box(checkpoint: Checkpoint, name: str, box: Box | None = None) -> Words:
    tensor = checkpoint.manifest.tensors[name]
    box = box or whole(tensor.shape)
    out = array_of(tensor.dtype, box.shape)
    checkpoint.fill([Wanted(name, box, out)])
    return out


def read(checkpoint: Checkpoint) -> object:
    """The tree, with words for arrays."""
    return rebuild(checkpoint.manifest.tree, lambda name: read_box(checkpoint, name))


def numbered_state(step: int, size: int = 300_000) -> dict[str, object]:
    """A state that can be told from that of every other step."""
    generator = np.random.default_rng(step)
    return {
        "step": step,
        "weight": generator.integers(0, 2**32, (size // 100, 100), dtype=np.uint32).view("f4"),
        "moment": np.full(size, step, dtype=np.float32),
    }


def holds_step(checkpoint: Checkpoint) -> int:
    """The step that all of a numbered state agrees on; fails when it does not."""
    state = read(checkpoint)
    assert isinstance(state, dict)
    step = state["step"]
    expected = numbered_state(step, state["moment"].size)
    for name in ("weight", "moment"):
        array = expected[name]
        assert isinstance(array, np.ndarray)
        assert np.array_equal(state[name], array.view("u4"))
    return int(step)


def write_until_killed(place: str, first: int, generation: int) -> None:
    """Checkpoint after checkpoint, pruning as a run does; says so after each."""
    from modelyard.keep.retention import Retention, prune

    store = open_store(place)
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    for step in range(first, first + 1_000_000):
        write(store, numbered_state(step), step=step, generation=generation)
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        prune(store, Retention(last=2), warn=sys.stderr.write)


if __name__ == "__main__":
    write_until_killed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
