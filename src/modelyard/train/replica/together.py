"""The places of one replica, connected: torch's own process group and mesh, and what they agree on.

An error of these collectives ends the process, and with it the replica: nothing here is repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from modelyard.train.inside import Word
from modelyard.train.replica.places import FSDP, PIPELINE, TENSOR, Meeting, Place
from modelyard.train.replica.relay import PLACE_MARK

#: Long enough for a place that was stopped to go on; hangs are found by the conductor.
PATIENCE = timedelta(minutes=30)


class Together:
    """A replica of several processes, as one of them sees it."""

    def __init__(self, place: Place, meeting: Meeting) -> None:
        division = place.division
        self.where = place
        self.place, self.places = place.index, division.places
        self.part, self.parts = place.fsdp, division.fsdp
        self.at_once = division.pipeline > 1
        last = place.pipeline == division.pipeline - 1
        self.counts = place.tensor == 0 and last
        self.store = _store(place, meeting)
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore("inside", self.store),
            rank=self.place,
            world_size=self.places,
            timeout=PATIENCE,
        )
        self.mesh: DeviceMesh = init_device_mesh(
            "cpu",
            (division.pipeline, division.fsdp, division.tensor),
            mesh_dim_names=(PIPELINE, FSDP, TENSOR),
        )
        # Of its own, so that words are never mistaken for a part of the computation.
        self._words = dist.new_group(backend="gloo", timeout=PATIENCE)

    def called(self, worker: str) -> str:
        """What this place calls itself, of the replica's name."""
        return f"{worker}{PLACE_MARK}{self.place}"

    def words(self, word: Word) -> Sequence[Word]:
        """What all places say, once all have said it."""
        own = torch.tensor([word.generation, word.point, word.fine], dtype=torch.int64)
        said = [torch.empty_like(own) for _ in range(self.places)]
        dist.all_gather(said, own, group=self._words)
        return [Word(int(one[0]), int(one[1]), bool(one[2])) for one in said]

    def summed(self, numbers: Sequence[float]) -> Sequence[float]:
        """Each number summed over all places, the same on each of them."""
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self._words)
        found: list[float] = total.tolist()
        return found


def _store(place: Place, meeting: Meeting) -> dist.TCPStore:
    if place.index:
        return dist.TCPStore(
            meeting.host, meeting.store_port, is_master=False, wait_for_workers=False
        )
    return dist.TCPStore(
        meeting.host,
        meeting.store_port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=meeting.store.detach(),
    )
