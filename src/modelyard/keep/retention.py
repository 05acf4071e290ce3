"""Which checkpoints are kept, and how the others go without ever putting the newest at risk.

Nothing is deleted before a kept checkpoint has been read back whole. A manifest is deleted before
the parts that it names, so that a process killed in between leaves no checkpoint with holes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelyard.errors import InputError
from modelyard.keep.checkpoint import MANIFEST, Checkpoint, Version, open_checkpoint, versions
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.store import Store
from modelyard.keep.verify import problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The newest `last` checkpoints, and those of every `every_steps`-th step for good."""

    last: int = 3
    #: 0 keeps none for good
    every_steps: int = 0

    def __post_init__(self) -> None:
        if self.last < 1 or self.every_steps < 0:
            what = (
                f"cannot keep the last {self.last} checkpoints and every {self.every_steps} steps"
            )
            raise InputError(what, fix="keep at least the last one; 0 steps keep none for good")

    def kept(self, newest_first: Sequence[Version]) -> set[Version]:
        """Those to keep of these."""
        forever = {
            version
            for version in newest_first
            if self.every_steps and version.step % self.every_steps == 0
        }
        return set(newest_first[: self.last]) | forever


def prune(store: Store, rule: Retention, *, warn: Callable[[str], None]) -> list[Version]:
    """Delete what a rule does not keep; what was deleted.

    Also what older, unfinished writing has left. Newer unfinished checkpoints may still be written
    and stay, and so does everything when no checkpoint can be read back whole.
    """
    sizes: dict[str, int] = {entry.name: entry.size_bytes for entry in store.entries()}
    found = versions(store)
    usable: list[Checkpoint] = []
    for version in found:
        checkpoint = _usable(store, version, sizes)
        if checkpoint is not None:
            usable.append(checkpoint)
    kept = rule.kept([checkpoint.version for checkpoint in usable])
    if not set(found) - kept or not usable:
        return []
    anchor = _newest_whole(usable, warn)
    if anchor is None:
        return []
    doomed = [version for version in found if version < anchor and version not in kept]
    for version in reversed(doomed):
        store.delete([f"{version.folder}/{MANIFEST}"])
        store.clear(version.folder)
    # Some services go on listing a folder for a while after its last object is gone.
    present = {name.partition("/")[0] for name in sizes}
    return [version for version in doomed if version.folder in present]


def _usable(store: Store, version: Version, sizes: dict[str, int]) -> Checkpoint | None:
    """A checkpoint whose parts are all there in their lengths."""
    if f"{version.folder}/{MANIFEST}" not in sizes:
        return None
    try:
        checkpoint = open_checkpoint(store, version)
    except (Damaged, NoSuchObject):
        return None
    for part in checkpoint.manifest.parts:
        if sizes.get(f"{version.folder}/{part.name}") != part.size_bytes:
            return None
    return checkpoint


def _newest_whole(usable: list[Checkpoint], warn: Callable[[str], None]) -> Version | None:
    for checkpoint in usable:
        found = problems(checkpoint)
        if not found:
            return checkpoint.version
        warn(f"{found[0]}; older checkpoints are kept instead")
    return None
