"""What episodes teach the critic: the return of every job after every look.

The reward is a sum over jobs, so the critic judges each job by itself, on half-filled boards too.
Jobs that arrive later are nobody's merit and do not count; counted, their luck would drown
everything else. Time passes, and rewards are discounted, only between slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from modelyard.learn.network import Critic, Looks
from modelyard.learn.plan import Plan
from modelyard.learn.rollout import Episode
from modelyard.schedule.jobs import FloatArray

#: Added to rewards where they are chances, so that no slot is impossible.
LEAST_FAVOUR = 1e-2


def returns(episodes: Sequence[Episode], looks: Looks, critic: Critic, plan: Plan) -> Tensor:
    """Looks × jobs: what the critic should have said of the looks of these episodes, in order."""
    with torch.no_grad():
        worth_NJ = critic(looks.inputs_NJF, looks.present_NJ).numpy()  # noqa: N806
    found_NJ = np.zeros_like(worth_NJ)  # noqa: N806
    begin = 0
    for episode in episodes:
        end = begin + len(episode.looks)
        found_NJ[begin:end] = job_returns(episode, worth_NJ[begin:end], plan)
        begin = end
    return torch.from_numpy(found_NJ)


def job_returns(episode: Episode, worth_NJ: FloatArray, plan: Plan) -> FloatArray:  # noqa: N803
    """λ-returns, job by job, from the last look to the first.

    A job's reward of a slot comes with the last look at its window. `ahead` holds what each job's
    next slot begins with: its worth there and its return; a job that has no next slot has ended.
    """
    found_NJ = np.zeros_like(worth_NJ)  # noqa: N806
    ahead: dict[str, tuple[float, float]] = {}
    at = len(worth_NJ)
    for slot in reversed(episode.slots):
        for window in reversed(slot):
            jobs = len(window.jobs)
            following = np.array([ahead.get(job, (0.0, 0.0)) for job in window.jobs])
            worth, later = following[:, 0], following[:, 1]
            reward, factor = window.rewards_J, plan.discount
            for _ in window.looks:
                at -= 1
                mixed = (1.0 - plan.trace_decay) * worth + plan.trace_decay * later
                found_NJ[at, :jobs] = later = reward + factor * mixed
                worth, reward, factor = worth_NJ[at, :jobs], np.zeros(jobs), 1.0
            ahead.update(
                (job, (float(worth[place]), float(later[place])))
                for place, job in enumerate(window.jobs)
            )
    return found_NJ


def favour(episodes: Sequence[Episode]) -> Tensor:
    """How gladly each look is learnt from: the reward of its slot; 0 where nothing was to decide.

    The last look at a window is not followed by an action.
    """
    wishes: list[float] = []
    for window in (window for episode in episodes for slot in episode.slots for window in slot):
        gained = max(float(window.rewards_J.sum()), 0.0) + LEAST_FAVOUR
        wishes += [gained] * (len(window.looks) - 1) + [0.0]
    return torch.tensor(wishes)
