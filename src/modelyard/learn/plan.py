"""How to train: every number that a training depends on, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelyard.learn.setting import Setting
from modelyard.schedule.view import Policy
from modelyard.simulate.engine import simulate

#: Workloads are numbered by their seeds. Those of training lie below, those that choose which
#: weights to keep and those that judge them above, so that none is in two of the three.
CHOOSING_SEED, JUDGING_SEED = 1_000_000, 2_000_000
#: Trainings with different seeds learn from different workloads, as long as each takes fewer.
WORKLOADS_PER_SEED = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. The defaults made the weights that come with the package."""

    setting: Setting = field(default_factory=Setting)
    seed: int = 0
    #: the policy to imitate first: `soonest`, `drf`, or any that `yard policies` lists
    teacher: str = "soonest"
    #: parts of the imitation: the teacher acts in the first, the student in the others, corrected
    lesson_parts: int = 4
    #: workloads of each part, and how often all lessons so far are gone through after it
    lessons: int = 6
    lesson_passes: int = 6
    lesson_rate: float = 1e-3
    #: rounds of actor and critic, workloads in each, and how often each of the two goes through it
    rounds: int = 24
    episodes: int = 4
    critic_passes: int = 3
    actor_passes: int = 4
    batch: int = 256
    #: rounds in which only the critic learns: it knows nothing when the imitation ends
    critic_rounds: int = 4
    hidden: int = 32
    #: of rewards from slot to slot, as published
    discount: float = 0.99
    #: of what a look has to do with later surprises; a slot has some twenty looks
    trace_decay: float = 0.98
    actor_rate: float = 3e-4
    critic_rate: float = 2e-3
    #: how far the chance of an action may move in a round, as a ratio
    clip: float = 0.1
    #: bonus for undecided choices
    entropy: float = 0.0005
    #: chance of an exploring action
    curiosity: float = 0.01
    #: part of a job's reward that comes with its end; 0 is the published reward
    finish_share: float = 0.0
    #: boards of a round that the actor learns from, drawn by the reward of their slot, and the
    #: share of them that it sees again in the next round
    boards: int = 2048
    replay: float = 0.25
    #: rounds between two looks at how good the greedy policy is, and workloads for it
    check_every: int = 4
    check_workloads: int = 6

    def __post_init__(self) -> None:
        for name in ("lesson_parts", "lessons", "lesson_passes", "episodes", "batch", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it is at least 1")
        for name in ("discount", "trace_decay", "curiosity", "finish_share", "replay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        if not 0 <= self.seed < CHOOSING_SEED // WORKLOADS_PER_SEED:
            raise ValueError(f"seed is {self.seed}: it is from 0 to 99")
        if self.lesson_parts * self.lessons + self.rounds * self.episodes > WORKLOADS_PER_SEED:
            raise ValueError(
                f"{self.rounds} rounds of {self.episodes} workloads are more than a training has "
                f"({WORKLOADS_PER_SEED:,})"
            )


def plan_of(data: Mapping[str, Any]) -> Plan:
    """The plan that `dataclasses.asdict` was given; TypeError when it was something else."""
    return Plan(**{**data, "setting": Setting(**data["setting"])})


def mean_seconds(plan: Plan, policy: Policy, first_seed: int, workloads: int = 0) -> float:
    """Mean completion time under a policy over the workloads that begin at a seed."""
    count = workloads or plan.check_workloads
    scenarios = (plan.setting.scenario(first_seed + index) for index in range(count))
    return float(np.mean([simulate(scenario, policy).metrics.jct_mean for scenario in scenarios]))
