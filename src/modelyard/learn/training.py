"""Training of DL²: imitate another policy first, then actor and critic on the simulator.

Departures from the paper. What an action does to the board is known, so the critic is asked about
the outcome of every legal action and the actor learns from all of them, not only from the one that
was drawn (Allen et al., Mean Actor-Critic, 2017). Chances may move only so far in one round (the
clipped objective of PPO, Schulman et al., 2017).
"""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from modelyard.errors import InputError
from modelyard.learn.curve import Point
from modelyard.learn.experience import favour, returns
from modelyard.learn.network import IMPOSSIBLE, Actor, Critic, Looks, stack, widened
from modelyard.learn.plan import CHOOSING_SEED, WORKLOADS_PER_SEED, Plan, mean_seconds, plan_of
from modelyard.learn.rollout import Lesson, Reward, demonstrate, explore
from modelyard.learn.stored import pack_weights, parse_weights
from modelyard.schedule.dl2 import Dl2, Weights
from modelyard.schedule.view import Policy

#: Longer gradients are cut to this length, so that one strange episode does not undo a training.
LONGEST_GRADIENT = 1.0


class Trainer:
    """One training under way; the same plan gives the same weights on one thread."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.encoding = plan.setting.encoding()
        torch.manual_seed(plan.seed)
        self._draw = np.random.default_rng(plan.seed)
        self.actor = Actor(self.encoding, plan.hidden)
        self.critic = Critic(self.encoding, plan.hidden)
        self._actor_steps = torch.optim.Adam(self.actor.parameters(), plan.actor_rate)
        self._critic_steps = torch.optim.Adam(self.critic.parameters(), plan.critic_rate)
        #: boards of the last round that are learnt from again in the next
        self._memory: Looks | None = None
        self._workloads = 0
        self.round = 0
        self.curve: list[Point] = []
        self.best: Weights = self.actor.weights()
        self.best_seconds = math.inf

    # -- imitation ------------------------------------------------------------------------

    def warm_up(self, teacher: Policy, tell: Callable[[float], None]) -> None:
        """Watch the teacher and learn to do the same, then act and be corrected.

        `tell` hears the share that is done.
        """
        plan = self.plan
        lessons: list[Lesson] = []
        steps = torch.optim.Adam(self.actor.parameters(), plan.lesson_rate)
        for part in range(plan.lesson_parts):
            student = self.actor.weights() if part else None
            for index in range(plan.lessons):
                scenario = plan.setting.scenario(self._next_workload())
                lessons += demonstrate(
                    scenario, teacher, self.encoding, draw=self._draw, student=student
                )
                tell((part + (index + 1) / plan.lessons) / plan.lesson_parts)
            self._imitate(lessons, steps)
        self._note(Point(round=0))

    def _imitate(self, lessons: Sequence[Lesson], steps: torch.optim.Optimizer) -> None:
        looks = stack([lesson.look for lesson in lessons], self.encoding)
        window = self.encoding.window
        right = torch.from_numpy(np.array([widened(item.right, window) for item in lessons]))
        for _ in range(self.plan.lesson_passes):
            for rows in torch.randperm(len(looks)).split(self.plan.batch):
                approved = self.actor(looks[rows]).masked_fill(~right[rows], IMPOSSIBLE)
                _step(steps, -torch.logsumexp(approved, dim=1).mean(), self.actor)

    # -- actor and critic -----------------------------------------------------------------

    def learn(self) -> Point:
        """One round: play, judge, improve."""
        plan, weights = self.plan, self.actor.weights()
        episodes = [
            explore(
                plan.setting.scenario(self._next_workload()),
                weights,
                draw=self._draw,
                curiosity=plan.curiosity,
                reward=Reward(plan.finish_share),
            )
            for _ in range(plan.episodes)
        ]
        looks = stack([look for episode in episodes for look in episode.looks], self.encoding)
        error = self._improve_critic(looks, returns(episodes, looks, self.critic, plan))
        boards = self._boards(looks, favour(episodes))
        entropy = math.nan if self.round < plan.critic_rounds else self._improve_actor(boards)
        self.round += 1
        return self._note(
            Point(
                round=self.round,
                explored_seconds=float(np.mean([item.jct_mean_seconds for item in episodes])),
                reward=float(np.mean([item.slot_reward for item in episodes])),
                entropy=entropy,
                value_error=error,
            )
        )

    def _improve_critic(self, looks: Looks, targets_NJ: Tensor) -> float:  # noqa: N803
        """Go through the round; the mean squared error of the last pass."""
        errors: list[float] = []
        for _ in range(self.plan.critic_passes):
            errors = []
            for rows in torch.randperm(len(looks)).split(self.plan.batch):
                inputs, there = looks.inputs_NJF[rows], looks.present_NJ[rows]
                worth = self.critic(inputs, there)[there]
                loss = mse_loss(worth, targets_NJ[rows][there])
                _step(self._critic_steps, loss, self.critic)
                errors.append(float(loss.detach()))
        return float(np.mean(errors))

    def _boards(self, looks: Looks, wishes: Tensor) -> Looks:
        """Boards of this round and of the one before, those of rewarding slots more often."""
        plan = self.plan
        count = min(plan.boards, int((wishes > 0.0).sum()))
        drawn = looks[torch.multinomial(wishes, count)]
        memory, self._memory = self._memory, drawn[torch.arange(int(plan.replay * count))]
        return drawn if memory is None else drawn.joined(memory)

    def _improve_actor(self, boards: Looks) -> float:
        """Move chances to actions that the critic likes; how undecided the actor is."""
        plan = self.plan
        with torch.no_grad():
            parts = torch.arange(len(boards)).split(plan.batch)
            worth = torch.cat([self.critic.of_actions(boards[rows]) for rows in parts])
            before = torch.cat([self.actor(boards[rows]) for rows in parts])
        chances = before.exp()
        better = (worth - (chances * worth).sum(dim=1, keepdim=True)) * boards.legal_NA
        better = better / (chances * better.square()).sum(dim=1).mean().sqrt().clamp(min=1e-8)
        entropies: list[float] = []
        for _ in range(plan.actor_passes):
            entropies = []
            for rows in torch.randperm(len(boards)).split(plan.batch):
                log_chances = self.actor(boards[rows])
                ratio = torch.exp(log_chances - before[rows])
                held = ratio.clamp(1.0 - plan.clip, 1.0 + plan.clip)
                gain = torch.minimum(ratio * better[rows], held * better[rows])
                undecided = -(log_chances.exp() * log_chances).sum(dim=1).mean()
                objective = (chances[rows] * gain).sum(dim=1).mean() + plan.entropy * undecided
                _step(self._actor_steps, -objective, self.actor)
                entropies.append(float(undecided.detach()))
        return float(np.mean(entropies))

    # -- judging and keeping --------------------------------------------------------------

    @property
    def checked(self) -> bool:
        """Whether the greedy policy was looked at after the last round."""
        return bool(self.curve) and not math.isnan(self.curve[-1].checked_seconds)

    def _note(self, point: Point) -> Point:
        """Add a point to the curve; now and then, see how good the greedy policy is."""
        if self.round % self.plan.check_every == 0 or self.round == self.plan.rounds:
            weights = self.actor.weights()
            seconds = mean_seconds(self.plan, Dl2(weights), CHOOSING_SEED)
            point = replace(point, checked_seconds=seconds)
            if seconds < self.best_seconds:
                self.best, self.best_seconds = weights, seconds
        self.curve.append(point)
        return point

    def _next_workload(self) -> int:
        self._workloads += 1
        return self.plan.seed * WORKLOADS_PER_SEED + self._workloads - 1

    def checkpoint(self) -> bytes:
        """Everything to go on from, as if nothing had happened."""
        kept = {
            "plan": json.dumps(asdict(self.plan)),
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "actor_steps": self._actor_steps.state_dict(),
            "critic_steps": self._critic_steps.state_dict(),
            "memory": _tensors(self._memory) if self._memory is not None else [],
            "workloads": self._workloads,
            "round": self.round,
            "curve": [list(asdict(point).values()) for point in self.curve],
            "best": pack_weights(self.best),
            "best_seconds": self.best_seconds,
            "draw": json.dumps(self._draw.bit_generator.state),
            "torch_draw": torch.get_rng_state(),
        }
        stream = io.BytesIO()
        torch.save(kept, stream)
        return stream.getvalue()


def restore(content: bytes, where: str) -> Trainer:
    """The trainer that wrote a checkpoint; `InputError` when none did."""
    try:
        # Tensors and plain data only: a file from a stranger must not run anything.
        kept: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        trainer = Trainer(plan_of(json.loads(kept["plan"])))
        trainer.actor.load_state_dict(kept["actor"])
        trainer.critic.load_state_dict(kept["critic"])
        trainer._actor_steps.load_state_dict(kept["actor_steps"])
        trainer._critic_steps.load_state_dict(kept["critic_steps"])
        trainer._memory = Looks(*kept["memory"]) if kept["memory"] else None
        trainer._workloads, trainer.round = int(kept["workloads"]), int(kept["round"])
        trainer.curve = [Point(*row) for row in kept["curve"]]
        trainer.best = parse_weights(kept["best"], where)
        trainer.best_seconds = float(kept["best_seconds"])
        trainer._draw.bit_generator.state = json.loads(kept["draw"])
        torch.set_rng_state(kept["torch_draw"])
    # Another program's file, half a file or another version's: one mistake to people.
    except (
        *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
        *(RuntimeError, EOFError, pickle.PickleError),
    ) as error:
        raise InputError(
            f"the checkpoint cannot be used ({type(error).__name__})",
            fix="begin a training of its own in another folder",
            where=where,
        ) from None
    return trainer


def _tensors(looks: Looks) -> list[Tensor]:
    return [getattr(looks, item.name) for item in fields(looks)]


def _step(steps: torch.optim.Optimizer, loss: Tensor, network: torch.nn.Module) -> None:
    steps.zero_grad()
    loss.backward()
    clip_grad_norm_(network.parameters(), LONGEST_GRADIENT)
    steps.step()
