"""What there is in a place of checkpoints, complete or not, and whether it is what was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from modelyard.errors import InputError
from modelyard.keep.checkpoint import MANIFEST, Checkpoint, Version, open_checkpoint, versions
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.store import Store, open_store
from modelyard.keep.verify import problems

#: where a run keeps checkpoints when its job does not say
RUN_CHECKPOINTS = "checkpoints"


class Condition(StrEnum):
    """What a checkpoint can be used for."""

    #: its manifest and all of its parts are there, in their lengths
    COMPLETE = "complete"
    #: every byte is what was written
    VERIFIED = "verified"
    #: it is being written, or its writing was cut short: never restored
    UNFINISHED = "unfinished"
    #: something is missing or has changed: passed over by whoever restores
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A checkpoint in a listing."""

    version: Version
    condition: Condition
    size_bytes: int
    #: when its manifest was written, in seconds since 1970; 0 where there is none
    written_at: float = 0.0
    job: str = ""
    #: samples used, over all epochs
    position: int = 0
    tensors: int = 0
    problems: tuple[str, ...] = field(default=())


def run_checkpoints(place: str) -> str:
    """Where the checkpoints of a run are: below its folder, unless the folder is theirs."""
    if "://" in place:
        return place
    path = Path(place)
    if not path.is_dir():
        raise InputError("no such folder", fix="check the path", where=place)
    below = path / RUN_CHECKPOINTS
    return str(below) if below.is_dir() and not versions(open_store(path)) else place


def listed(store: Store, *, verify: bool = False) -> list[Listed]:
    """All checkpoints of a place, the newest first; with `verify` every byte is read."""
    entries = list(store.entries())
    sizes = {entry.name: entry.size_bytes for entry in entries}
    times = {entry.name: entry.written_at for entry in entries}
    return [_listed(store, version, sizes, times, verify=verify) for version in versions(store)]


def _listed(
    store: Store,
    version: Version,
    sizes: dict[str, int],
    times: dict[str, float],
    *,
    verify: bool,
) -> Listed:
    folder = f"{version.folder}/"
    taken = sum(size for name, size in sizes.items() if name.startswith(folder))
    at = times.get(f"{folder}{MANIFEST}", 0.0)
    try:
        checkpoint = open_checkpoint(store, version)
    except NoSuchObject:
        return Listed(version=version, condition=Condition.UNFINISHED, size_bytes=taken)
    except Damaged as error:
        return Listed(
            version=version,
            condition=Condition.DAMAGED,
            size_bytes=taken,
            written_at=at,
            problems=(error.message,),
        )
    found = _wrong_parts(checkpoint, sizes) or (problems(checkpoint) if verify else [])
    sound = Condition.VERIFIED if verify else Condition.COMPLETE
    return Listed(
        version=version,
        condition=Condition.DAMAGED if found else sound,
        size_bytes=taken,
        written_at=at,
        job=checkpoint.about.job,
        position=checkpoint.about.position,
        tensors=len(checkpoint.manifest.tensors),
        problems=tuple(found),
    )


def _wrong_parts(checkpoint: Checkpoint, sizes: dict[str, int]) -> list[str]:
    """Parts that are missing or of another length, which a listing shows without reading them."""
    found = []
    for part in checkpoint.manifest.parts:
        name = f"{checkpoint.version.folder}/{part.name}"
        if name not in sizes:
            found.append(f"'{part.name}' is missing")
        elif sizes[name] != part.size_bytes:
            found.append(f"'{part.name}' has {sizes[name]:,} bytes instead of {part.size_bytes:,}")
    return found
