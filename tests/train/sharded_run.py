"""Workers with a divided model: `save` trains and keeps it, `load` reads it in its own division."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from modelyard.train.snapshots import Snapshots, restore_latest

#: Rows that two and three workers cannot divide evenly.
SIZES = (6, 7, 5)


def divided_model(mesh_shape: tuple[int, ...]) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*map(torch.nn.Linear, SIZES, SIZES[1:]))
    names = ("replicate", "shard")[-len(mesh_shape) :]
    fully_shard(model, mesh=init_device_mesh("cpu", mesh_shape, mesh_dim_names=names))
    return model


def main(action: str, folder: Path, rank: int, mesh_shape: tuple[int, ...]) -> None:
    torch.set_num_threads(1)
    size = 1
    for each in mesh_shape:
        size *= each
    store = f"file://{folder / f'rendezvous-{action}-{size}'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    model = divided_model(mesh_shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(3, SIZES[0])).sum().backward()
    optimizer.step()
    tree = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if action == "save":
        with Snapshots(folder / "kept", job="divided", warn=fail) as snapshots:
            assert snapshots.take(1, tree, generation=1, position=3, writer=rank, writers=size)
        dist.barrier()
        # The same tensors gathered by torch itself, to compare with.
        whole = {
            name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            for name, tensor in model.state_dict().items()
        }
        if rank == 0:
            torch.save(whole, folder / "whole.pt")
    else:
        restored = restore_latest(folder / "kept", like=tree, warn=fail)
        assert restored is not None
        assert isinstance(restored.tree, dict)
        expected = torch.load(folder / "whole.pt")
        for name, tensor in restored.tree["model"].items():
            assert isinstance(tensor, DTensor)
            assert tensor.placements == model.state_dict()[name].placements
            assert torch.equal(tensor.full_tensor(), expected[name])
        model.load_state_dict(restored.tree["model"])
        optimizer.load_state_dict(restored.tree["optimizer"])
        optimizer.step()
    dist.barrier()
    del model, optimizer, tree
    dist.destroy_process_group()


def fail(text: str) -> None:
    raise AssertionError(text)


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        int(sys.argv[3]),
        tuple(int(size) for size in sys.argv[4].split("x")),
    )
