"""Snapshots: what was taken is kept, whoever dies, and what fails does not stop the training."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train`")

from modelyard.errors import InputError  # noqa: E402
from modelyard.keep.checkpoint import versions  # noqa: E402
from modelyard.keep.folder import Folder  # noqa: E402
from modelyard.keep.retention import Retention  # noqa: E402
from modelyard.train import shared_buffer  # noqa: E402
from modelyard.train.snapshots import Snapshots, next_generation, restore_latest  # noqa: E402
from modelyard.train.tensor_parts import DTYPES, divide, local_part  # noqa: E402

from . import snapshot_run  # noqa: E402
from .snapshot_run import state  # noqa: E402

PATIENCE_SECONDS = 60.0


def no_warning(text: str) -> None:
    raise AssertionError(text)


def check(tree: object, step: int, size: int) -> None:
    expected = state(step, size)
    assert isinstance(tree, dict)
    for name in ("w", "half"):
        assert torch.equal(tree["model"][name], expected["model"][name])
    assert tree["optimizer"]["rate"] == expected["optimizer"]["rate"]
    assert tree["optimizer"]["state"][0]["step"].item() == step


def test_a_model_and_its_optimizer_come_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 5, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        tree = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        snapshots.prepare(tree)
        assert snapshots.take(3, tree, generation=2, position=24)
    assert snapshots.written is not None
    assert snapshots.written.step == 3
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    about = restored.about
    assert (about.step, about.generation, about.position, about.job) == (3, 2, 24, "one")
    assert isinstance(restored.tree, dict)
    for name, tensor in model.state_dict().items():
        assert torch.equal(restored.tree["model"][name], tensor)
        assert restored.tree["model"][name].dtype == tensor.dtype
    other = torch.optim.AdamW(model.parameters())
    other.load_state_dict(restored.tree["optimizer"])
    before, after = optimizer.state_dict(), other.state_dict()
    assert before["param_groups"] == after["param_groups"]
    for key, moments in before["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(tensor, after["state"][key][name])


def test_a_snapshot_is_of_the_moment_it_was_taken(tmp_path: Path) -> None:
    weight = torch.zeros(100_000)
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        assert snapshots.take(1, {"w": weight}, generation=1, position=0)
        weight.fill_(7.0)
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    assert isinstance(restored.tree, dict)
    assert restored.tree["w"].sum().item() == 0


def test_every_type_and_layout(tmp_path: Path) -> None:
    plain = torch.arange(24).reshape(4, 6).to(torch.float32)
    tree = {}
    for name, dtype in DTYPES.items():
        tensor = plain.to(dtype)
        tree[name] = {
            "across": tensor.t(),
            "every other": tensor[:, ::2],
            "none": tensor[:0],
            "one": tensor[1, 1],
        }
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        assert snapshots.take(1, tree, generation=1, position=0)
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    assert isinstance(restored.tree, dict)
    for name in DTYPES:
        for layout, expected in tree[name].items():
            got = restored.tree[name][layout]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            # Not all types can be compared, but their bytes can.
            pair = [each.contiguous().reshape(-1).view(torch.uint8) for each in (got, expected)]
            assert torch.equal(*pair)


def test_two_workers_write_one_checkpoint(tmp_path: Path) -> None:
    tree = state(9, 1000) | {"more": [torch.full((10,), float(index)) for index in range(7)]}
    with (
        Snapshots(tmp_path, job="one", warn=no_warning) as one,
        Snapshots(tmp_path, job="one", warn=no_warning) as two,
    ):
        assert one.take(9, tree, generation=1, position=0, writer=0, writers=2)
        assert one.wait(PATIENCE_SECONDS)
        assert restore_latest(tmp_path, warn=no_warning) is None
        assert two.take(9, tree, generation=1, position=0, writer=1, writers=2)
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    check(restored.tree, 9, 1000)
    assert isinstance(restored.tree, dict)
    assert [tensor[0].item() for tensor in restored.tree["more"]] == [0, 1, 2, 3, 4, 5, 6]


def test_writers_share_the_work_evenly() -> None:
    parts = [local_part(f"t{size}", torch.zeros(size)) for size in range(1, 40)]
    known = [part for part in parts if part is not None]
    shares = [divide(known, writer, 3) for writer in range(3)]
    assert sorted(part.name for share in shares for part in share) == sorted(
        part.name for part in known
    )
    loads = [sum(part.size_bytes for part in share) for share in shares]
    assert max(loads) - min(loads) <= 40 * 4


def test_old_checkpoints_go_as_new_ones_come(tmp_path: Path) -> None:
    kept = Retention(last=2, every_steps=4)
    with Snapshots(tmp_path, job="one", retention=kept, warn=no_warning) as snapshots:
        for step in range(1, 8):
            assert snapshots.take(step, state(step, 10), generation=1, position=0)
            assert snapshots.wait(PATIENCE_SECONDS)
    assert [version.step for version in versions(Folder(tmp_path))] == [7, 6, 4]


def test_a_growing_state_gets_more_memory(tmp_path: Path) -> None:
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        for step, size in enumerate((10, 3_000_000, 20, 5_000_000)):
            assert snapshots.take(step, state(step, size), generation=1, position=0)
            assert snapshots.wait(PATIENCE_SECONDS)
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    check(restored.tree, 3, 5_000_000)


def test_a_store_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    warnings: list[str] = []
    with Snapshots(tmp_path / "file" / "kept", job="one", warn=warnings.append) as snapshots:
        for step in range(3):
            assert snapshots.take(step, state(step, 10), generation=1, position=0)
            assert snapshots.wait(PATIENCE_SECONDS)
    assert len(warnings) == 3
    assert "the snapshot of step 0 is not kept" in warnings[0]
    assert "name a folder" in warnings[0]


def test_a_full_disk_is_a_warning_and_the_last_snapshot_stays(small_disk: Path) -> None:
    warnings: list[str] = []
    kept = Retention(last=1)
    with Snapshots(small_disk, job="one", retention=kept, warn=warnings.append) as snapshots:
        for step, size in ((1, 400_000), (2, 2_000_000), (3, 400_000)):
            assert snapshots.take(step, state(step, size), generation=1, position=0)
            assert snapshots.wait(PATIENCE_SECONDS)
            restored = restore_latest(small_disk, warn=no_warning)
            assert restored is not None
            # The one that does not fit leaves the one before it, and room for the next.
            check(restored.tree, 1 if step < 3 else 3, 400_000)
    assert len(warnings) == 1
    assert "no space is left" in warnings[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no small file system: there is no mount command")
    if done.returncode != 0:
        pytest.skip("no small file system: mounting one needs to be root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_what_cannot_be_kept_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    with Snapshots(tmp_path, job="one", warn=warnings.append) as snapshots:
        for tree in ({"x": object()}, {"x": torch.zeros(2, dtype=torch.complex128)}):
            assert not snapshots.take(1, tree, generation=1, position=0)
    assert "may not hold a object" in warnings[0]
    assert "complex128" in warnings[1]


def test_too_little_memory_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_buffer, "SPARE_BYTES", 1 << 60)
    warnings: list[str] = []
    with Snapshots(tmp_path, job="one", warn=warnings.append) as snapshots:
        assert not snapshots.take(1, state(1, 10), generation=1, position=0)
    assert "too little memory" in warnings[0]


def test_a_slow_writer_costs_snapshots_not_training(tmp_path: Path) -> None:
    warnings: list[str] = []
    with Snapshots(tmp_path, job="one", warn=warnings.append) as snapshots:
        os.kill(snapshots._started().process.pid, signal.SIGSTOP)
        taken = [snapshots.take(n, state(n, 10), generation=1, position=0) for n in range(4)]
        os.kill(snapshots._started().process.pid, signal.SIGCONT)
    assert taken == [True, True, False, False]
    assert "still being written" in warnings[0]
    restored = restore_latest(tmp_path, warn=no_warning)
    assert restored is not None
    check(restored.tree, 1, 10)


def test_a_writer_that_dies_is_replaced(tmp_path: Path) -> None:
    warnings: list[str] = []
    with Snapshots(tmp_path, job="one", warn=warnings.append) as snapshots:
        os.kill(snapshots._started().process.pid, signal.SIGSTOP)
        assert snapshots.take(1, state(1, 10), generation=1, position=0)
        snapshots._started().process.kill()
        snapshots._started().process.wait()
        assert snapshots.wait(PATIENCE_SECONDS)
        assert snapshots.take(2, state(2, 10), generation=1, position=0)
    assert warnings == ["the writer of snapshots died (signal 9): starting anew"]
    assert [version.step for version in versions(Folder(tmp_path))] == [2, 1]


def test_wrong_addresses_and_numbers_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no kind of store"):
        Snapshots("ftp://somewhere", job="one")
    with (
        Snapshots(tmp_path, job="one") as snapshots,
        pytest.raises(InputError, match="no writer 2"),
    ):
        snapshots.prepare({}, writer=2, writers=2)


def test_runs_without_a_conductor_number_their_generations(tmp_path: Path) -> None:
    assert next_generation(tmp_path) == 1
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        assert snapshots.take(1, state(1, 10), generation=1, position=0)
    assert next_generation(tmp_path) == 2


def test_nothing_kept_is_nothing(tmp_path: Path) -> None:
    assert restore_latest(tmp_path / "nowhere", warn=no_warning) is None


def test_a_damaged_checkpoint_gives_way_to_an_older_one(tmp_path: Path) -> None:
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        for step in (1, 2):
            assert snapshots.take(step, state(step, 10), generation=1, position=0)
    [part] = (tmp_path / versions(Folder(tmp_path))[0].folder).glob("*.safetensors")
    part.write_bytes(part.read_bytes()[:-2] + b"!!")
    warnings: list[str] = []
    restored = restore_latest(tmp_path, warn=warnings.append)
    assert restored is not None
    check(restored.tree, 1, 10)
    assert "has changed" in warnings[0]


def kill_many(place: Path, kills: int, size: int) -> None:
    """Kill workers that take snapshots; the writer they leave behind finishes what was taken."""
    luck = random.Random(3)
    first = 1
    for generation in range(1, kills + 1):
        taken = run_and_kill(place, first, generation, size, luck.uniform(0.0, 0.5))
        last = max(taken, default=0)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            restored = restore_latest(place, warn=no_warning)
            if restored is not None and restored.about.step >= last:
                break
            assert last == 0 or time.monotonic() < deadline, f"step {last} was taken and is lost"
            if last == 0:
                break
            time.sleep(0.02)
        if restored is not None:
            check(restored.tree, restored.about.step, size)
            # It may have been killed after handing over and before saying so.
            assert restored.about.step <= max(last, first - 1) + 1
            first = restored.about.step + 2


def run_and_kill(place: Path, first: int, generation: int, size: int, seconds: float) -> list[int]:
    command = [sys.executable, snapshot_run.__file__, str(place)]
    process = subprocess.Popen(
        [*command, str(first), str(generation), str(size)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    try:
        assert process.stdout.readline() == b"begin\n"
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    reader.join()
    process.stdout.close()
    return [int(line) for line in lines if line.endswith(b"\n")]


def test_a_killed_worker_loses_no_snapshot_and_leaves_no_memory(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    kill_many(tmp_path, 1, 2_000_000)
    # The memory has no name: when the processes are gone, so is the memory.
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "modelyard" in name]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_killed_workers_lose_no_snapshot(tmp_path: Path) -> None:
    kill_many(tmp_path, 20, 5_000_000)


def test_nothing_starts_for_who_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker of a job may come to write, and one of them does."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a writer was started")

    monkeypatch.setattr("modelyard.train.snapshots.subprocess.Popen", started)
    with Snapshots(tmp_path, job="one", warn=no_warning) as snapshots:
        assert snapshots.wait()
