"""A training from its beginning to its end, in a folder: what `yard learn` does.

    weights.npz      the best weights so far: `yard simulate --policy dl2:FOLDER/weights.npz`
    curve.csv        the learning curve
    curve.svg        the same as a picture
    checkpoint.pt    everything to go on from after an interruption

Files are written in one step each, after the imitation and then every few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from modelyard.errors import InputError, cause_of
from modelyard.learn import shares, soonest
from modelyard.learn.curve import Point, curve_csv, curve_svg
from modelyard.learn.plan import CHOOSING_SEED, Plan, mean_seconds
from modelyard.learn.stored import write_weights
from modelyard.schedule.dl2 import Weights
from modelyard.schedule.registry import policy
from modelyard.schedule.view import Policy
from modelyard.simulate.export import write_atomically
from modelyard.simulate.numbers import read_numbers

if TYPE_CHECKING:
    from modelyard.learn.training import Trainer

WEIGHTS_NAME, CURVE_NAME, PICTURE_NAME = "weights.npz", "curve.csv", "curve.svg"
CHECKPOINT_NAME = "checkpoint.pt"
#: Policies whose completion times the picture shows for comparison.
YARDSTICKS = ("mesos", "optimus")

#: What is being done, and the share of it that is done.
Tell = Callable[[str, float], None]
IMITATION, ROUNDS = "imitation", "actor and critic"


@dataclass(frozen=True, slots=True)
class Training:
    """What came of a training."""

    plan: Plan
    weights: Weights
    #: mean completion time of the best weights on the workloads that chose them
    seconds: float
    #: of other policies on the same workloads
    yardsticks: Mapping[str, float]
    curve: tuple[Point, ...]


def begin(plan: Plan, folder: Path, *, tell: Tell) -> Training:
    """Train from the beginning; a folder that holds a training already is refused."""
    if (folder / CHECKPOINT_NAME).exists():
        raise InputError(
            "this folder holds a training already",
            fix="go on with it with --resume, or name another folder",
            where=str(folder),
        )
    training = _torch()
    shown = teacher(plan.teacher)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = training.Trainer(plan)
    tell(IMITATION, 0.0)
    trainer.warm_up(shown, lambda share: tell(IMITATION, share))
    return _go_on(trainer, folder, tell)


def resume(folder: Path, *, rounds: int | None = None, tell: Tell) -> Training:
    """Go on from the checkpoint of a folder, to the rounds that were planned or to others."""
    training = _torch()
    trainer = training.restore(_read_checkpoint(folder / CHECKPOINT_NAME), str(folder))
    if rounds is not None:
        if rounds < trainer.round:
            raise InputError(
                f"this training has played {trainer.round:,} rounds already",
                fix=f"ask for {trainer.round:,} or more, or begin another in another folder",
                where=str(folder),
            )
        try:
            trainer.plan = replace(trainer.plan, rounds=rounds)
        except ValueError as error:
            raise InputError(str(error), fix="ask for fewer rounds", where=str(folder)) from None
    return _go_on(trainer, folder, tell)


def teacher(text: str) -> Policy:
    """The policy that a text describes: one of the teachers here, or any of the registry."""
    own: dict[str, Callable[[], Policy]] = {
        shares.NAME: shares.EqualShares,
        soonest.NAME: soonest.Soonest,
    }
    if text in own:
        return own[text]()
    return policy(text, read_numbers=read_numbers)


def _go_on(trainer: Trainer, folder: Path, tell: Tell) -> Training:
    plan = trainer.plan
    yardsticks = {name: mean_seconds(plan, policy(name), CHOOSING_SEED) for name in YARDSTICKS}
    _keep(trainer, folder, yardsticks)
    tell(ROUNDS, trainer.round / max(plan.rounds, 1))
    while trainer.round < plan.rounds:
        trainer.learn()
        if trainer.checked:
            _keep(trainer, folder, yardsticks)
        tell(ROUNDS, trainer.round / plan.rounds)
    return Training(plan, trainer.best, trainer.best_seconds, yardsticks, tuple(trainer.curve))


def _keep(trainer: Trainer, folder: Path, yardsticks: Mapping[str, float]) -> None:
    write_weights(folder / WEIGHTS_NAME, trainer.best)
    write_atomically(folder / CURVE_NAME, curve_csv(trainer.curve).encode())
    write_atomically(folder / PICTURE_NAME, curve_svg(trainer.curve, yardsticks).encode())
    # Last: whoever finds it finds everything that belongs to it.
    write_atomically(folder / CHECKPOINT_NAME, trainer.checkpoint())


def _read_checkpoint(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"there is no training to go on with: {cause_of(error)}",
            fix="name the folder of an interrupted 'yard learn', or begin without --resume",
            where=str(path),
        ) from None


def _torch() -> ModuleType:
    """The part that needs torch, on one thread: the same plan gives the same weights."""
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError(
            "training needs torch, which is not installed",
            fix="pip install 'modelyard[train]'; using a trained policy needs none",
        ) from None
    from modelyard.learn import training

    torch.set_num_threads(1)
    return training
