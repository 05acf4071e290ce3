"""Checkpoints are whole or absent, and any box of any tensor comes out as it went in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import YardError
from modelyard.keep import checkpoint as checkpoints
from modelyard.keep import manifest as manifests
from modelyard.keep import parts
from modelyard.keep.checkpoint import (
    Superseded,
    Version,
    Wanted,
    complete,
    open_checkpoint,
    versions,
    write_checkpoint,
)
from modelyard.keep.folder import Folder
from modelyard.keep.problems import AlreadyThere, Damaged, NoSuchObject
from modelyard.keep.slices import Box, fills, overlap, whole
from modelyard.keep.store import Store
from modelyard.keep.tree import describe
from modelyard.keep.verify import newest_whole, problems

from .states import (
    about,
    holds_step,
    is_array,
    numbered_state,
    piece,
    read,
    read_box,
    write,
    write_slices,
)


def no_warning(text: str) -> None:
    raise AssertionError(text)


@st.composite
def tilings(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """Some way to cut a tensor into boxes, not only a grid."""
    boxes = [whole(shape)]
    for _ in range(draw(st.integers(0, 5))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axes = [axis for axis, size in enumerate(box.shape) if size > 1]
        if not axes:
            boxes.append(box)
            continue
        axis = draw(st.sampled_from(axes))
        cut = draw(st.integers(1, box.shape[axis] - 1))
        rest = box.shape[axis] - cut
        start = list(box.start)
        start[axis] += cut
        boxes.append(Box(box.start, (*box.shape[:axis], cut, *box.shape[axis + 1 :])))
        boxes.append(Box(tuple(start), (*box.shape[:axis], rest, *box.shape[axis + 1 :])))
    return boxes


SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
TYPES = st.sampled_from(["float32", "int64", "uint8", "float16"])


@settings(max_examples=60)
@given(data=st.data(), shapes=st.lists(SHAPES, min_size=1, max_size=4), readers=st.integers(1, 4))
def test_any_division_is_read_in_any_other(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    shapes: list[tuple[int, ...]],
    readers: int,
) -> None:
    """Small chunks and reads, so that boxes begin and end anywhere in them."""
    writers = data.draw(st.integers(1, 4))
    arrays = {}
    shares: list[list[tuple[str, Box]]] = [[] for _ in range(writers)]
    for index, shape in enumerate(shapes):
        size = int(np.prod(shape, dtype=np.int64))
        arrays[f"t{index}"] = np.arange(size).astype(data.draw(TYPES)).reshape(shape)
        for box in data.draw(tilings(shape)):
            shares[data.draw(st.integers(0, writers - 1))].append((f"t{index}", box))
    store = Folder(tmp_path_factory.mktemp("kept"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CHUNK_BYTES", data.draw(st.sampled_from([7, 64, 4096])))
        patch.setattr(parts, "PART_BYTES", data.draw(st.sampled_from([1, 100, 1 << 20])))
        patch.setattr(checkpoints, "READ_BYTES", data.draw(st.sampled_from([1, 16, 1 << 20])))
        patch.setattr(checkpoints, "CHUNK_BYTES", parts.CHUNK_BYTES)
        assert write_slices(store, arrays, shares) is not None
        checkpoint = open_checkpoint(store, Version(1, 1))
        assert problems(checkpoint) == []
        for name, array in arrays.items():
            for box in data.draw(tilings(array.shape))[:readers]:
                inside = tuple(slice(a, a + b) for a, b in zip(box.start, box.shape, strict=True))
                got = read_box(checkpoint, name, box)
                assert got.tobytes() == array[inside].tobytes()


@given(data=st.data(), shape=SHAPES)
def test_tilings_fill_and_nothing_else_does(data: st.DataObject, shape: tuple[int, ...]) -> None:
    boxes = data.draw(tilings(shape))
    assert fills(boxes, shape)
    if 0 not in shape:
        assert not fills(boxes[1:], shape)
        assert not fills([*boxes, boxes[0]], shape)
        assert not fills([boxes[0]] * len(boxes), shape) or len(boxes) == 1


@given(data=st.data(), shape=SHAPES.filter(lambda shape: 0 not in shape))
def test_overlaps_are_where_both_are(data: st.DataObject, shape: tuple[int, ...]) -> None:
    one, other = (data.draw(st.sampled_from(data.draw(tilings(shape)))) for _ in range(2))
    marks = np.zeros(shape, dtype=np.int8)
    for box in (one, other):
        marks[tuple(slice(a, a + b) for a, b in zip(box.start, box.shape, strict=True))] += 1
    shared = overlap(one, other)
    assert (shared.count if shared else 0) == int((marks == 2).sum())


def test_a_state_comes_back(store: Store) -> None:
    state = {"model": {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}, "rate": float("inf")}
    write(store, state, step=4, generation=2)
    [found] = complete(store, no_warning)
    assert (found.about.step, found.about.generation, found.about.position) == (4, 2, 32)
    back = read(found)
    assert isinstance(back, dict)
    assert back["rate"] == float("inf")
    assert np.array_equal(back["model"]["w"].view("f4"), state["model"]["w"])


def test_only_what_is_needed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 90 to 92 of a tensor with 100 rows of 1 MB each: three chunks at most."""
    store = Folder(tmp_path)
    array = np.zeros((100, 250_000), dtype=np.float32)
    write(store, {"w": array})
    asked: list[int] = []
    reading = store.read

    def counted(name: str, start: int, stop: int) -> memoryview:
        asked.append(stop - start)
        return reading(name, start, stop)

    monkeypatch.setattr(store, "read", counted)
    read_box(open_checkpoint(store, Version(1, 1)), "w", Box((90, 0), (2, 250_000)))
    assert sum(asked) <= 3 * manifests.CHUNK_BYTES


def test_parts_are_safetensors(tmp_path: Path) -> None:
    """The format's own reader agrees."""
    reader = pytest.importorskip("safetensors.numpy", reason="the safetensors package")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_slices(
        Folder(tmp_path),
        {"w": array, "b": np.ones(3, dtype=np.int64)},
        [[("w", Box((0, 0), (3, 2))), ("b", whole((3,)))], [("w", Box((0, 2), (3, 2)))]],
    )
    found: dict[str, object] = {}
    for file in sorted(tmp_path.rglob("*.safetensors")):
        found |= reader.load_file(file)
    assert sorted(found) == ["b", "w[0:3,0:2]", "w[0:3,2:4]"]
    assert np.array_equal(found["w[0:3,2:4]"], array[:, 2:])


def test_no_manifest_no_checkpoint(store: Store) -> None:
    write(store, numbered_state(1, 1000), step=1)
    arrays = {"w": np.arange(4, dtype=np.float32)}
    node, _ = describe(arrays, is_array)
    half = [piece("w", arrays["w"], Box((0,), (2,)))]
    assert write_checkpoint(store, about(2), node, half, writer=0, writers=2) is None
    assert versions(store) == [Version(1, 2), Version(1, 1)]
    assert [found.version for found in complete(store, no_warning)] == [Version(1, 1)]
    with pytest.raises(NoSuchObject):
        open_checkpoint(store, Version(1, 2))


def test_replicas_that_write_the_same_are_stored_once(store: Store) -> None:
    arrays = {"w": np.arange(8, dtype=np.float32)}
    manifest = write_slices(store, arrays, [[("w", whole((8,)))], [("w", whole((8,)))]])
    assert manifest is not None
    assert len(manifest.tensors["w"].slices) == 1
    assert np.array_equal(
        read_box(open_checkpoint(store, Version(1, 1)), "w").view("f4"), arrays["w"]
    )


def test_slices_with_a_hole_never_become_a_checkpoint(tmp_path: Path) -> None:
    arrays = {"w": np.arange(8, dtype=np.float32)}
    with pytest.raises(Damaged, match="do not make up"):
        write_slices(Folder(tmp_path), arrays, [[("w", Box((0,), (3,)))]])
    assert list(complete(Folder(tmp_path), no_warning)) == []


def test_an_attempt_that_is_over_harms_nothing(store: Store) -> None:
    write(store, numbered_state(400, 1000), step=400, generation=1)
    write(store, numbered_state(200, 1000), step=200, generation=2)
    with pytest.raises(Superseded, match="generation 2 has taken over"):
        write(store, numbered_state(410, 1000), step=410, generation=1)
    newest = newest_whole(store, warn=no_warning)
    assert newest is not None
    assert newest.version == Version(2, 200)


def test_nothing_is_written_twice(store: Store) -> None:
    write(store, numbered_state(1, 1000))
    with pytest.raises(AlreadyThere):
        write(store, numbered_state(2, 1000), step=1)
    assert holds_step(next(complete(store, no_warning))) == 1


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    write(store, {"w": np.zeros((2, 3), dtype=np.float32)})
    checkpoint = open_checkpoint(store, Version(1, 1))
    for name, shape, dtype, complaint in (
        ("v", (2, 3), "u4", "no tensor 'v'"),
        ("w", (3, 3), "u4", "is 2×3 of F32"),
        ("w", (2, 3), "u2", "is 2×3 of F32"),
    ):
        with pytest.raises(YardError, match=complaint):
            checkpoint.fill([Wanted(name, whole(shape), np.empty(shape, dtype=dtype))])


def test_a_hundred_corruptions_are_all_noticed(tmp_path: Path) -> None:
    """Any byte of any file, or its end, of the newest checkpoint: the one before it is used."""
    luck = random.Random(5)
    store = Folder(tmp_path)
    write(store, numbered_state(1, 60_000), step=1)
    noticed = 0
    for attempt in range(100):
        step = attempt + 2
        write(store, numbered_state(step, 60_000), step=step)
        files = sorted((tmp_path / Version(1, step).folder).iterdir())
        # Small files as often as large ones: a manifest is as precious as a part.
        _harm(luck.choice(files), luck)
        warnings: list[str] = []
        newest = newest_whole(store, warn=warnings.append)
        assert newest is not None
        noticed += newest.version == Version(1, 1) and len(warnings) == 1
        # Whoever reads without verifying first gets an error, or what was written.
        with contextlib.suppress(Damaged):
            assert holds_step(open_checkpoint(store, Version(1, step))) == step
        store.clear(Version(1, step).folder)
    assert noticed == 100


def _harm(file: Path, luck: random.Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as handle:
        match luck.choice(["flip", "flip", "zero", "cut", "swap"]):
            case "flip":
                place = luck.randrange(size)
                handle.seek(place)
                byte = handle.read(1)[0]
                handle.seek(place)
                handle.write(bytes([byte ^ (1 << luck.randrange(8))]))
            case "zero":
                place = luck.randrange(size)
                handle.seek(place)
                old = handle.read(512)
                handle.seek(place)
                handle.write(bytes(len(old)) if any(old) else b"\1" * len(old))
            case "cut":
                handle.truncate(luck.randrange(size))
            case "swap":
                half = size // 2
                handle.seek(half)
                tail = handle.read()
                handle.seek(0)
                head = handle.read(half)
                handle.seek(0)
                handle.write(tail + head)
                os.truncate(file, size)


def test_a_missing_part_is_noticed(store: Store) -> None:
    write(store, numbered_state(1, 1000), step=1)
    write(store, numbered_state(2, 1000), step=2)
    lost = [entry.name for entry in store.entries(Version(1, 2).folder) if "safe" in entry.name]
    store.delete(lost)
    warnings: list[str] = []
    newest = newest_whole(store, warn=warnings.append)
    assert newest is not None
    assert newest.version == Version(1, 1)
    assert "is missing" in warnings[0]


def test_a_manifest_of_the_future_is_refused(tmp_path: Path) -> None:
    """With a valid seal: a newer program wrote it."""
    store = Folder(tmp_path)
    write(store, numbered_state(1, 1000))
    name = f"{Version(1, 1).folder}/manifest.json"
    content = json.loads(store.get(name))["manifest"] | {"format": 2}
    body = json.dumps(content, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest()
    store.put(name, b'{"sha256":"' + digest.encode() + b'","manifest":' + body + b"}\n")
    with pytest.raises(Damaged, match="format that is not known here"):
        open_checkpoint(store, Version(1, 1))
