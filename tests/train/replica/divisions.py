"""One replica in real processes, without a conductor: trained, kept and restored as it is divided.

    python -m tests.train.replica.divisions FOLDER < plays.json

A play is a division, a model, how many steps, and whether the state before them is restored and the
state after them kept. Each play leaves its losses in FOLDER/NAME.json. Plays are forks of one
process: importing torch takes longer than most of them.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modelyard.spec.training import TrainSpec
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.models.registry import build
from modelyard.train.named_state import by_name, by_number, parameter_names
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.optimise.update import update
from modelyard.train.replica import divide
from modelyard.train.replica.keeping import owned_paths, restored
from modelyard.train.replica.ownership import local
from modelyard.train.replica.places import Place, division_of, spread
from modelyard.train.replica.sums import ShardSums
from modelyard.train.replica.together import Together
from modelyard.train.snapshots import Snapshots, restore_latest
from modelyard.train.tensor_parts import local_part

#: 7 samples: places have unequal shares of them
BATCH, VOCAB, LENGTH = 7, 61, 12
HOST = "127.0.0.1"
MODEL = {"layers": 4, "hidden": 16, "heads": 4, "vocab": VOCAB, "longest": 32}


class Alone:
    """A group of one member: what is tested is what happens within it."""

    rank, size = 0, 1


@dataclass
class Passes:
    """What a step tells those who learn."""

    passes: int
    counts: bool
    weight: float = 1.0 / BATCH
    idle: bool = False
    loss: float = 0.0

    def backward(self, loss: torch.Tensor, *, samples: int, tokens: int) -> None:
        (loss * (0.0 if self.idle else samples * self.weight)).backward()
        self.count(loss.item() * samples, samples=samples, tokens=tokens)

    def count(self, loss: float, *, samples: int, tokens: int) -> None:
        if self.counts and not self.idle:
            self.loss += loss


@dataclass
class Play:
    """One replica that is trained for some steps."""

    name: str
    parallel: dict[str, Any] = field(default_factory=dict)
    kind: str = "gpt"
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "adamw"
    precision: str = "fp32"
    steps: int = 3
    first: int = 0
    restore: str = ""
    keep: str = ""


def rows_of(step: int) -> torch.Tensor:
    luck = torch.Generator().manual_seed(step)
    return torch.randint(0, VOCAB - 2, (BATCH, LENGTH + 1), generator=luck)


def play(wanted: Play, folder: Path) -> None:
    torch.set_num_threads(1)
    given = {"data": "-", "sequence": LENGTH, "micro_batch": 2, "precision": wanted.precision}
    train = TrainSpec.model_validate({**given, "parallel": wanted.parallel})
    place, meeting, family = spread(division_of(train.parallel), HOST)
    inside = Together(place, meeting)
    rows = [rows_of(wanted.first)]
    divide.batch_for = lambda model, _, chosen: model.prepare(rows[0][chosen], chosen.tolist())
    torch.manual_seed(0)
    # The data are looked at by `batch_for` alone.
    part = divide.divided(build(wanted.kind, {**MODEL, **wanted.model}), train, None, inside)
    settings = OptimiserSettings(name=wanted.optimizer, learning_rate=0.01)
    optimizer = optimizer_for(part.model, settings)
    if wanted.restore:
        restore(folder / wanted.restore, part.model, optimizer, inside)
    way = ShardSums(inside, owned=part.owned, complete=part.complete)

    def applied(_: int) -> None:
        update(optimizer, rate=0.01, clip_norm=0.5, whole_norm=way.gradient_norm)

    way.attach(Trained(model=part.model, optimizer=optimizer, update=applied))
    losses = []
    for step in range(wanted.first, wanted.first + wanted.steps):
        rows[0] = rows_of(step)
        way.begin(Alone(), Share(step=step, samples=BATCH, batch=BATCH))
        losses.append(one_step(part.learn, inside))
        way.finish()
        way.apply()
    if wanted.keep:
        keep(folder / wanted.keep, part, optimizer, place, wanted.first + wanted.steps)
    dist.barrier()
    if not place.index:
        family.wait()
        (folder / f"{wanted.name}.json").write_text(json.dumps(losses))


def one_step(learn: divide.Learn, inside: Together) -> float:
    """The passes of a step, as `train/step.py` divides them; the mean loss."""
    passes = -(-BATCH // (inside.parts * 2))
    own = np.array_split(np.arange(BATCH), inside.parts)[inside.part]
    step = Passes(passes, inside.counts)
    for chosen in [own] if inside.at_once else np.array_split(own, passes):
        step.idle = not len(chosen)
        learn(step, np.arange(1) if step.idle else chosen)
    return inside.summed([step.loss])[0] / BATCH


def keep(
    folder: Path,
    part: divide.Divided,
    optimizer: torch.optim.Optimizer,
    place: Place,
    step: int,
) -> None:
    names = parameter_names(part.model, optimizer)
    moments = by_name(optimizer.state_dict(), names)
    tree = {"model": part.model.state_dict(), "optimizer": moments}
    with Snapshots(folder, job="divided", warn=fail) as snapshots:
        assert snapshots.take(
            step,
            tree,
            generation=1,
            position=0,
            writer=place.index,
            writers=place.division.places,
            owned=owned_paths(part.owned),
        )
    dist.barrier()
    whole = restore_latest(folder, warn=fail)
    assert whole is not None
    the_same(tree, whole.tree)


def restore(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, inside: Together
) -> None:
    found = restored(str(folder), model, optimizer, inside)
    assert found is not None
    assert isinstance(found.tree, dict)
    model.load_state_dict(found.tree["model"])
    names = parameter_names(model, optimizer)
    optimizer.load_state_dict(by_number(found.tree["optimizer"], optimizer, names))
    whole = restore_latest(folder, warn=fail)
    assert whole is not None
    moments = by_name(optimizer.state_dict(), names)
    the_same({"model": model.state_dict(), "optimizer": moments}, whole.tree)


def the_same(own: Any, whole: Any) -> None:
    """Bit for bit, what a place holds is its part of the whole."""
    if isinstance(own, torch.Tensor):
        part = local_part("", own)
        box = part.box if part is not None else None
        if box is not None:
            inside = tuple(slice(a, a + b) for a, b in zip(box.start, box.shape, strict=True))
            assert torch.equal(local(own), whole[inside])
        elif not isinstance(own, DTensor):
            assert torch.equal(own, whole)
    elif isinstance(own, dict):
        assert own.keys() <= whole.keys()
        for key, value in own.items():
            the_same(value, whole[key])
    else:
        assert own == whole or isinstance(own, (list, tuple))


def fail(text: str) -> None:
    raise AssertionError(text)


def reference(wanted: Play) -> list[float]:
    """The same without any division, by torch alone."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build(wanted.kind, {**MODEL, **wanted.model})
    settings = OptimiserSettings(name=wanted.optimizer, learning_rate=0.01)
    optimizer = optimizer_for(model, settings)
    losses = []
    for step in range(wanted.first, wanted.first + wanted.steps):
        optimizer.zero_grad()
        mean = 0.0
        for number in range(BATCH):
            row = rows_of(step)[number : number + 1]
            loss = model.loss(model.prepare(row, [number])) / BATCH
            loss.backward()
            mean += loss.item()
        update(optimizer, rate=0.01, clip_norm=0.5)
        losses.append(mean)
    return losses


def main() -> None:
    folder, failed = Path(sys.argv[1]), []
    for given in json.loads(sys.stdin.read()):
        wanted = Play(**given)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                if wanted.parallel:
                    play(wanted, folder)
                else:
                    (folder / f"{wanted.name}.json").write_text(json.dumps(reference(wanted)))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status:
            failed.append(wanted.name)
    sys.exit(f"failed: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
