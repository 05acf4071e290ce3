"""Retention keeps what the rule says, and never risks the newest checkpoint that is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelyard.errors import InputError
from modelyard.keep.checkpoint import MANIFEST, Version, complete, versions, write_checkpoint
from modelyard.keep.folder import Folder
from modelyard.keep.retention import Retention, prune
from modelyard.keep.slices import Box
from modelyard.keep.store import Store

from .states import about, numbered_state, piece, write
from .test_checkpoint import no_warning


def kept(store: Store) -> list[int]:
    return [found.version.step for found in complete(store, no_warning)]


def left(store: Store) -> list[Version]:
    """What still has objects: SeaweedFS goes on listing folders that are empty."""
    present = {entry.name.partition("/")[0] for entry in store.entries()}
    return [version for version in versions(store) if version.folder in present]


def test_the_last_and_every_so_many_steps(store: Store) -> None:
    for step in range(1, 10):
        write(store, numbered_state(step, 100), step=step)
    gone = prune(store, Retention(last=2, every_steps=3), warn=no_warning)
    assert kept(store) == [9, 8, 6, 3]
    assert sorted(version.step for version in gone) == [1, 2, 4, 5, 7]
    assert prune(store, Retention(last=2, every_steps=3), warn=no_warning) == []


def test_generations_count_before_steps(store: Store) -> None:
    write(store, numbered_state(400, 100), step=400, generation=1)
    write(store, numbered_state(300, 100), step=300, generation=2)
    prune(store, Retention(last=1), warn=no_warning)
    assert left(store) == [Version(2, 300)]


def test_unfinished_writing_is_cleared_away_once_it_is_old(store: Store) -> None:
    array = np.zeros(4, dtype=np.float32)
    half = [piece("w", array, Box((0,), (2,)))]
    write(store, numbered_state(1, 100), step=1)
    for step in (2, 4):
        write_checkpoint(store, about(step), {"tensor": "w"}, half, writer=0, writers=2)
    write(store, numbered_state(3, 100), step=3)
    prune(store, Retention(last=5), warn=no_warning)
    assert left(store) == [Version(1, 4), Version(1, 3), Version(1, 1)]


def test_the_newest_whole_one_stays_when_newer_ones_are_damaged(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    for step in range(1, 6):
        write(store, numbered_state(step, 100), step=step)
    for step in (4, 5):
        [part] = (tmp_path / Version(1, step).folder).glob("*.safetensors")
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)
    warnings: list[str] = []
    prune(store, Retention(last=2), warn=warnings.append)
    # 3 is beyond the last two, and all that is left; what is older than it may go.
    assert [version.step for version in left(store)] == [5, 4, 3]
    assert len(warnings) == 2


def test_nothing_goes_when_nothing_is_whole(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    for step in (1, 2, 3):
        write(store, numbered_state(step, 100), step=step)
        [part] = (tmp_path / Version(1, step).folder).glob("*.safetensors")
        part.write_bytes(part.read_bytes()[:-1] + b"!")
    prune(store, Retention(last=1), warn=lambda _: None)
    assert len(left(store)) == 3


def test_the_manifest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is interrupted, no checkpoint with holes is ever seen."""
    store = Folder(tmp_path)
    for step in (1, 2):
        write(store, numbered_state(step, 100), step=step)

    def interrupted(prefix: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "clear", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune(store, Retention(last=1), warn=no_warning)
    assert not (tmp_path / Version(1, 1).folder / MANIFEST).exists()
    monkeypatch.undo()
    assert kept(store) == [2]
    prune(store, Retention(last=1), warn=no_warning)
    assert left(store) == [Version(1, 2)]


@pytest.mark.parametrize("rule", [{"last": 0}, {"every_steps": -1}])
def test_rules_that_keep_nothing_are_refused(rule: dict[str, int]) -> None:
    with pytest.raises(InputError, match="cannot keep"):
        Retention(**rule)
