"""Checkpoints in a store: written by any number of workers, read by any other number.

    00000007-000000000400/              generation 7, step 400
        0-of-2-91f0c3aa-0.safetensors   parts of writer 0 of 2
        1-of-2-5be81d02-0.safetensors
        share-0-of-2.json               what each of them wrote
        share-1-of-2.json
        manifest.json                   written last: without it there is no checkpoint

Names sort by generation, then step: what an attempt that is over still writes is never newer than
what its successor wrote, and never in its place.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from modelyard.errors import YardError
from modelyard.keep.manifest import (
    CHUNK_BYTES,
    About,
    Manifest,
    Part,
    Stored,
    Tensor,
    check_whole,
    merged,
    opened,
    sealed,
)
from modelyard.keep.parts import PartReader, Piece, Planned, planned, write_part
from modelyard.keep.problems import AlreadyThere, Damaged, NoSuchObject
from modelyard.keep.slices import ITEM_BYTES, Box, Words, copy_box, overlap
from modelyard.keep.store import Store

MANIFEST = "manifest.json"
#: One read: large enough for a disk or a link, small enough that the memory is used again: beyond
#: 32 MiB the C library takes fresh pages from the system each time, which costs more than the copy.
READ_BYTES = 16 << 20
#: Hashing leaves Python's lock alone, and a service answers slowly: parts are read side by side.
READERS = 4

_FOLDER = re.compile(r"(\d{8})-(\d{12})")


class Superseded(YardError):
    """A later generation has written a checkpoint: this attempt is over and must not write."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A place for a checkpoint. The order is that of time as the job sees it."""

    generation: int
    step: int

    @property
    def folder(self) -> str:
        return f"{self.generation:08d}-{self.step:012d}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A box of a tensor that is to be read into an array of the same shape and width."""

    tensor: str
    box: Box
    out: Words


class Checkpoint:
    """A complete checkpoint: its manifest, and any box of any of its tensors."""

    def __init__(self, store: Store, version: Version, manifest: Manifest) -> None:
        self.store = store
        self.version = version
        self.manifest = manifest

    @property
    def about(self) -> About:
        return self.manifest.about

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.store.place}/{self.version.folder}"

    def fill(self, wanted: Iterable[Wanted]) -> None:
        """Read boxes; only the chunks that hold them are read, and each is checked."""
        jobs: dict[int, list[tuple[Stored, Wanted, Box]]] = {}
        for each in wanted:
            for at, shared in self._sources(each):
                jobs.setdefault(at.part, []).append((at, each, shared))
        with ThreadPoolExecutor(max_workers=READERS) as pool:
            for done in pool.map(self._fill_from_part, jobs, jobs.values()):
                assert done is None

    def reader(self, part: int) -> PartReader:
        """The bytes of a part, checked."""
        entry = self.manifest.parts[part]
        name = f"{self.version.folder}/{entry.name}"
        return PartReader(self.store, name, entry, self.manifest.chunk_bytes)

    def _sources(self, wanted: Wanted) -> Iterator[tuple[Stored, Box]]:
        tensor = self.manifest.tensors.get(wanted.tensor)
        if tensor is None:
            what = f"'{self.where}' holds no tensor '{wanted.tensor}'"
            raise YardError(what, fix="restore it into the model that it was made with")
        box, item = wanted.box, wanted.out.dtype.itemsize
        if not box.within(tensor.shape) or item != ITEM_BYTES[tensor.dtype]:
            shape = "×".join(map(str, tensor.shape)) or "a single number"
            what = f"'{wanted.tensor}' in '{self.where}' is {shape} of {tensor.dtype}"
            raise YardError(what, fix="restore it into the model that it was made with")
        left = box.count
        for at in tensor.slices if left else ():
            shared = overlap(at.box, box)
            if shared is not None:
                left -= shared.count
                yield at, shared
        if left:
            raise Damaged(
                f"'{self.where}' does not hold all of '{wanted.tensor}'",
                fix="restore an older checkpoint",
            )

    def _fill_from_part(self, part: int, jobs: list[tuple[Stored, Wanted, Box]]) -> None:
        reader = self.reader(part)
        for at, wanted, shared in sorted(jobs, key=lambda job: job[0].offset_bytes):
            begin = tuple(a - b for a, b in zip(shared.start, wanted.box.start, strict=True))
            # The dots keep a single number an array.
            inside: tuple[slice | EllipsisType, ...] = (
                *(slice(a, a + b) for a, b in zip(begin, shared.shape, strict=True)),
                ...,
            )
            words: Words = wanted.out.view(f"u{wanted.out.dtype.itemsize}")
            target: Words = words[inside]
            copy_box(
                reader.read,
                stored=at.box,
                offset_bytes=at.offset_bytes,
                wanted=shared,
                out=target,
                most_bytes=READ_BYTES,
            )


def write_checkpoint(
    store: Store,
    about: About,
    tree: object,
    pieces: Sequence[Piece],
    *,
    writer: int = 0,
    writers: int = 1,
) -> Manifest | None:
    """Write a checkpoint, or one writer's share of it.

    Returns the manifest when that is written: by the writer that finds itself the last.
    `Superseded` when a later generation has written here.
    """
    version = Version(about.generation, about.step)
    _refuse_when_superseded(store, version)
    plans = planned(pieces, metadata={"format": "pt", "job": about.job, "step": str(about.step)})
    # Names are never used twice, so nobody's parts are ever replaced by another's.
    stem = f"{writer}-of-{writers}-{secrets.token_hex(4)}"
    names = [f"{stem}-{index}.safetensors" for index in range(len(plans))]
    try:
        parts = [
            Part(
                name=name,
                size_bytes=plan.size_bytes,
                sha256=write_part(store, f"{version.folder}/{name}", plan),
            )
            for name, plan in zip(names, plans, strict=True)
        ]
    except BaseException:
        _discard(store, [f"{version.folder}/{name}" for name in names])
        raise
    share = Manifest(
        about=about,
        writer=writer,
        writers=writers,
        tree=tree,
        tensors=_tensors(plans),
        parts=tuple(parts),
        chunk_bytes=CHUNK_BYTES,
    )
    # From here on nothing is taken back: a service may fail to say that it has done its work.
    return _finish(store, version, share)


def versions(store: Store) -> list[Version]:
    """What may be a checkpoint, complete or not; the newest first."""
    found = (_FOLDER.fullmatch(name) for name in store.folders())
    return sorted((Version(int(match[1]), int(match[2])) for match in found if match), reverse=True)


def open_checkpoint(store: Store, version: Version) -> Checkpoint:
    """A checkpoint; `NoSuchObject` when it is not complete, `Damaged` when its manifest is."""
    name = f"{version.folder}/{MANIFEST}"
    where = f"{store.place}/{name}"
    manifest = opened(store.get(name), where=where)
    check_whole(manifest, where=where)
    if Version(manifest.about.generation, manifest.about.step) != version:
        raise Damaged(f"'{where}' belongs to another checkpoint", fix="restore an older checkpoint")
    return Checkpoint(store, version, manifest)


def complete(store: Store, warn: Callable[[str], None]) -> Iterator[Checkpoint]:
    """The complete checkpoints, newest first; damaged manifests are passed over with a warning."""
    for version in versions(store):
        try:
            yield open_checkpoint(store, version)
        except NoSuchObject:
            # Its writing was cut short, or goes on right now.
            continue
        except Damaged as error:
            warn(f"{error.message}; an older checkpoint is used")


def array_of(dtype: str, shape: tuple[int, ...]) -> Words:
    """An empty array for a box of this type."""
    return np.empty(shape, dtype=f"u{ITEM_BYTES[dtype]}")


def _refuse_when_superseded(store: Store, version: Version) -> None:
    newest = max(versions(store), default=version)
    if newest.generation > version.generation:
        raise Superseded(
            f"step {version.step} of generation {version.generation} is not written to"
            f" '{store.place}': generation {newest.generation} has taken over",
            fix="nothing needs to be done; to start anew, choose another place",
        )


def _tensors(plans: Sequence[Planned]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for part, plan in enumerate(plans):
        for piece, offset in zip(plan.pieces, plan.offsets, strict=True):
            at = Stored(
                start=piece.box.start, shape=piece.box.shape, part=part, offset_bytes=offset
            )
            known = tensors.get(piece.tensor)
            slices = (*known.slices, at) if known else (at,)
            tensors[piece.tensor] = Tensor(dtype=piece.dtype, shape=piece.shape, slices=slices)
    return tensors


def _finish(store: Store, version: Version, share: Manifest) -> Manifest | None:
    """Leave the share, and the manifest when no other share is missing."""
    folder = version.folder
    if share.writers == 1:
        check_whole(share, where=f"{store.place}/{folder}")
        _put_once(store, f"{folder}/{MANIFEST}", sealed(share))
        return share
    _put_once(store, f"{folder}/{_share(share.writer, share.writers)}", sealed(share))
    present = {entry.name for entry in store.entries(folder)}
    names = [f"{folder}/{_share(index, share.writers)}" for index in range(share.writers)]
    if not present.issuperset(names):
        return None
    shares = [opened(store.get(name), where=f"{store.place}/{name}") for name in names]
    manifest = merged(shares, where=f"{store.place}/{folder}")
    # Two writers may each find that nobody is missing: both then write the same.
    _put_once(store, f"{folder}/{MANIFEST}", sealed(manifest))
    return manifest


def _put_once(store: Store, name: str, data: bytes) -> None:
    """Write what nobody may replace; finding the same there already is as good."""
    try:
        store.put(name, data, only_if_new=True)
    except AlreadyThere:
        # A request that was repeated because its answer got lost finds its own work.
        if store.get(name) != data:
            raise


def _share(writer: int, writers: int) -> str:
    return f"share-{writer}-of-{writers}.json"


def _discard(store: Store, names: Sequence[str]) -> None:
    """Give space back after a failure; what cannot be removed now is cleared away later."""
    try:
        store.delete(names)
    except YardError:
        return
