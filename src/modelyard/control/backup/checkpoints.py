"""Copies of checkpoints: the newest whole one of every run, each sent once.

Only runs that keep their checkpoints in the yard's folder need this; others have them in a bucket
of their own already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from modelyard.control.backup.manifest import CheckpointCopy
from modelyard.control.backup.place import Place
from modelyard.errors import YardError
from modelyard.keep.checkpoint import MANIFEST, Checkpoint, complete, open_checkpoint, versions
from modelyard.keep.listing import RUN_CHECKPOINTS
from modelyard.keep.manifest import sealed
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.store import Store, open_store
from modelyard.keep.verify import problems

#: Runs delete old checkpoints while they write new ones: so often the newest is looked for.
TRIES = 3
#: What is read, checked and sent at once.
PIECE_BYTES = 16 << 20


def copied_checkpoints(
    folder: Path, place: Place, *, warn: Callable[[str], None]
) -> list[CheckpointCopy]:
    """Have the newest checkpoint of every run in a place; a run that has none is left out."""
    found = []
    for path in sorted((folder / "runs").glob(f"*/{RUN_CHECKPOINTS}")):
        job = path.parent.name
        source, target = open_store(path), place.checkpoints(job)
        copy = _newest_copied(source, target, job, warn)
        if copy is not None:
            found.append(copy)
    return found


def copy_problems(place: Place, copy: CheckpointCopy) -> list[str]:
    """What is wrong with a copy, from reading all of it."""
    try:
        return problems(checkpoint_of(place, copy))
    except (Damaged, NoSuchObject) as error:
        return [error.message]


def checkpoint_of(place: Place, copy: CheckpointCopy) -> Checkpoint:
    store = place.checkpoints(copy.job)
    for version in versions(store):
        if version.folder == copy.folder:
            return open_checkpoint(store, version)
    what = f"checkpoint {copy.folder} of job {copy.job} is not in '{store.place}'"
    raise NoSuchObject(what, fix="restore another backup")


def send(checkpoint: Checkpoint, target: Store) -> None:
    """Copy a checkpoint, unless it is there; its manifest goes last."""
    folder = checkpoint.version.folder
    manifest = sealed(checkpoint.manifest)
    try:
        if target.get(f"{folder}/{MANIFEST}") == manifest:
            return
    except NoSuchObject:
        pass
    for number, part in enumerate(checkpoint.manifest.parts):
        chunks = _checked_pieces(checkpoint, number)
        target.write(f"{folder}/{part.name}", chunks, size_bytes=part.size_bytes)
    target.put(f"{folder}/{MANIFEST}", manifest)


def _newest_copied(
    source: Store, target: Store, job: str, warn: Callable[[str], None]
) -> CheckpointCopy | None:
    for _ in range(TRIES):
        checkpoint = next(complete(source, warn), None)
        if checkpoint is None:
            return None
        try:
            send(checkpoint, target)
        except NoSuchObject:
            continue
        except Damaged as error:
            # It is passed over by whoever trains, too, and the run's next one replaces it.
            warn(f"job {job}: {error.message}")
            return None
        size = checkpoint.manifest.size_bytes
        return CheckpointCopy(job=job, folder=checkpoint.version.folder, size_bytes=size)
    raise YardError(f"the checkpoints of job {job} change too fast to be copied", fix="try again")


def _checked_pieces(checkpoint: Checkpoint, number: int) -> Iterator[memoryview]:
    reader, size = checkpoint.reader(number), checkpoint.manifest.parts[number].size_bytes
    for start in range(0, size, PIECE_BYTES):
        yield reader.read(start, min(start + PIECE_BYTES, size))
