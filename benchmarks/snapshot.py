"""How long training stands still for a snapshot, beside torch's own ways, in one run.

    python benchmarks/snapshot.py [--quick] [--write]

A model of 200 million parameters with Adam, 2.4 GB in all, is saved several times by each way, in a
process of its own. The stall is the time of the call; the next save begins when the last one is
done. Needs 8 GB of memory and of disk. Ends with 1 when our median stall is above half a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TARGET_SECONDS = 0.5
SAVES = 5
CONCEPTS = Path(__file__).resolve().parents[1] / "docs" / "concepts"

#: The name of each way in the table.
WAYS = {
    "snapshots": "Modelyard, `Snapshots.take`",
    "torch": "`torch.save`",
    "dcp": "`dcp.save`",
    "async": "`dcp.async_save`",
    "async-stager": "`dcp.async_save`, stager reused",
}

#: A way to save: the call that is timed, and what waits until the save is done.
Save = Callable[[int], Callable[[], object]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a model of 2 million parameters")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, Path(options.folder), quick=options.quick)))
        return 0
    return compare(quick=options.quick, write=options.write)


def compare(*, quick: bool, write: bool) -> int:
    """Every way in turn, each in a process of its own."""
    from modelyard.simulate.compare import cores
    from table import Table, write_section

    widths = {"way": 34, "stall, median": 12, "slowest": 8, "first": 8, "until kept": 10, "GB": 5}
    table = Table("How long training stands still for a snapshot", widths, words=["way"])
    table.begin()
    ours = 0.0
    loads = [os.getloadavg()[0]]
    for way, name in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="snapshot-", dir=".") as folder:
            command = [sys.executable, "-W", "ignore", __file__, "--way", way, "--folder", folder]
            done = subprocess.run(
                [*command, *(["--quick"] if quick else [])],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
        loads.append(os.getloadavg()[0])
        found = json.loads(done.stdout.splitlines()[-1])
        stalls = found["stalls"][1:]
        median = statistics.median(stalls)
        ours = median if way == "snapshots" else ours
        cells = [median, max(stalls), found["stalls"][0], statistics.median(found["kept"])]
        table.add(name, *(f"{seconds:.2f} s" for seconds in cells), f"{found['bytes'] / 1e9:.2f}")
    if write:
        note = (
            f"Median of {SAVES - 1} saves after the first; `until kept` is when the save was on its"
            " way to the disk (ours also forces it there), the stall included. Other work on the"
            f" machine counts: its load, this included, was {max(loads):.0f} on {cores()} cores."
        )
        write_section("snapshot", [table.markdown(), note], CONCEPTS / "checkpoints.md")
    return int(not quick and ours > TARGET_SECONDS)


def measure(way: str, folder: Path, *, quick: bool) -> dict[str, object]:
    """The stalls of one way, and how long until each save was kept."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tree = state(quick=quick)
    save, finish = WAY_OF[way](tree, folder)
    stalls: list[float] = []
    kept: list[float] = []
    for number in range(SAVES):
        began = time.perf_counter()
        wait = save(number)
        stalls.append(time.perf_counter() - began)
        wait()
        kept.append(time.perf_counter() - began)
        # Once everything is done, so that nothing goes on beside the next save.
        for old in folder.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    finish()
    return {"stalls": stalls, "kept": kept, "bytes": size_bytes(tree)}


def state(*, quick: bool) -> dict[str, object]:
    """The shapes of a GPT-2 medium with half of its layers: 202 million parameters."""
    import torch

    width, layers, words = (128, 6, 8_192) if quick else (1024, 12, 50_257)
    blocks = [
        torch.nn.ModuleDict(
            {
                "attention": torch.nn.Linear(width, 3 * width),
                "projection": torch.nn.Linear(width, width),
                "up": torch.nn.Linear(width, 4 * width),
                "down": torch.nn.Linear(4 * width, width),
                "norm": torch.nn.LayerNorm(width),
            }
        )
        for _ in range(layers)
    ]
    model = torch.nn.ModuleList([torch.nn.Embedding(words, width), *blocks])
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def size_bytes(tree: object) -> int:
    import torch

    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(map(size_bytes, tree.values()))
    return 0


def by_snapshots(tree: object, folder: Path) -> tuple[Save, Callable[[], object]]:
    from modelyard.train.snapshots import Snapshots

    def failed(text: str) -> None:
        raise SystemExit(text)

    snapshots = Snapshots(folder / "snapshots-all", job="benchmark", warn=failed)
    snapshots.prepare(tree)
    # As in training: by the time of the first snapshot, the memory has been touched.
    assert snapshots._preparing is not None
    snapshots._preparing.join()

    def save(number: int) -> Callable[[], object]:
        assert snapshots.take(number, tree, generation=1, position=0)
        return snapshots.wait

    return save, snapshots.finish


def by_torch(tree: object, folder: Path) -> tuple[Save, Callable[[], object]]:
    import torch

    def save(number: int) -> Callable[[], object]:
        torch.save(tree, folder / f"torch-{number}")
        return lambda: None

    return save, lambda: None


def by_dcp(tree: dict[str, object], folder: Path) -> tuple[Save, Callable[[], object]]:
    import torch.distributed.checkpoint as dcp

    def save(number: int) -> Callable[[], object]:
        dcp.save(tree, checkpoint_id=folder / f"dcp-{number}", no_dist=True)
        return lambda: None

    return save, lambda: None


def by_async(tree: dict[str, object], folder: Path) -> tuple[Save, Callable[[], object]]:
    import torch.distributed.checkpoint as dcp

    def save(number: int) -> Callable[[], object]:
        future = dcp.async_save(tree, checkpoint_id=folder / f"async-{number}", no_dist=True)
        return future.result

    return save, lambda: None


def by_async_with_stager(
    tree: dict[str, object], folder: Path
) -> tuple[Save, Callable[[], object]]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    # Without a GPU there is no memory to pin and no stream to copy on.
    options = StagingOptions(
        use_pinned_memory=False,
        use_shared_memory=False,
        use_async_staging=False,
        use_non_blocking_copy=False,
    )
    stager = DefaultStager(options)

    def save(number: int) -> Callable[[], object]:
        place = folder / f"async-stager-{number}"
        saved = dcp.async_save(tree, checkpoint_id=place, no_dist=True, async_stager=stager)
        return getattr(saved, "upload_completion", saved).result

    return save, stager.close


WAY_OF = {
    "snapshots": by_snapshots,
    "torch": by_torch,
    "dcp": by_dcp,
    "async": by_async,
    "async-stager": by_async_with_stager,
}


if __name__ == "__main__":
    sys.exit(main())
