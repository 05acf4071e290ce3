"""Members of a group as threads of one process, without a conductor: for what needs no deaths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from modelyard.train.aggregate.interface import Aggregation, Share, Trained
from modelyard.train.group import Group
from modelyard.train.optimise.update import update

_Result = TypeVar("_Result")

WIDTH, CLASSES, POINTS = 8, 4, 512


def groups(size: int) -> list[Callable[[], Group]]:
    """For each member, what connects it; all have to be called at once."""
    store = dist.HashStore()

    def connect(rank: int) -> Group:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=60)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        backend = dist.ProcessGroupGloo(store, rank, size, options)
        return Group(backend, rank, size, threading.Event())

    return [lambda rank=rank: connect(rank) for rank in range(size)]


def all_at_once(calls: list[Callable[[], _Result]]) -> list[_Result]:
    """The results of calls that wait for each other."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result(timeout=120) for one in [threads.submit(call) for call in calls]]


@dataclass
class Member:
    """A worker's model and loop, as in train/run.py without a conductor."""

    aggregation: Aggregation
    batch: int = 24
    rate: float = 0.02
    clip: float = 0.0
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        luck = torch.Generator().manual_seed(1)
        self.points = torch.randn(POINTS, WIDTH, generator=luck)
        self.labels = (self.points @ torch.randn(WIDTH, CLASSES, generator=luck)).argmax(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 32), torch.nn.GELU(), torch.nn.Linear(32, CLASSES)
        )
        with torch.no_grad():
            for one in self.model.parameters():
                one.copy_(0.3 * torch.randn(one.shape, generator=luck))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate)
        self.aggregation.attach(
            Trained(model=self.model, optimizer=self.optimizer, update=self._update)
        )

    def _update(self, step: int) -> None:
        update(
            self.optimizer,
            rate=self.rate,
            clip_norm=self.clip,
            whole_norm=self.aggregation.gradient_norm,
        )

    def attempt(self, group: Group, step: int, *, kept: bool = False) -> None:
        """Everything of a step up to the vote."""
        first = self.batch * group.rank // group.size
        last = self.batch * (group.rank + 1) // group.size
        own = (torch.arange(first, last) + step * self.batch) % POINTS
        way = self.aggregation
        way.begin(group, Share(step=step, samples=len(own), batch=self.batch, kept=kept))
        total = 0.0
        for piece in own.tensor_split(way.updates):
            if len(piece):
                loss = torch.nn.functional.cross_entropy(
                    self.model(self.points[piece]), self.labels[piece], reduction="sum"
                )
                way.last_pass()
                (loss / (len(piece) if way.local else self.batch)).backward()
                way.piece_end()
                total += loss.item()
        way.finish()
        summed = torch.tensor(total, dtype=torch.float64)
        group.finish([group.sum_begin(summed)])
        self.losses.append(float(summed if group.size > 1 else total) / self.batch)

    def train(self, group: Group, steps: int, first: int = 0) -> None:
        for step in range(first, first + steps):
            self.attempt(group, step)
            self.aggregation.apply()

    def parameters(self) -> torch.Tensor:
        return torch.cat([one.detach().reshape(-1) for one in self.model.parameters()])


def trained_together(members: list[Member], steps: int) -> None:
    """Train all members together for some steps."""

    def work(member: Member, connect: Callable[[], Group]) -> None:
        group = connect()
        member.aggregation.meet(group, [])
        member.train(group, steps)

    all_at_once(
        [
            lambda member=member, connect=connect: work(member, connect)
            for member, connect in zip(members, groups(len(members)), strict=True)
        ]
    )
