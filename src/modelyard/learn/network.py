"""The two networks of DL² in torch: one weighs actions, the other judges boards.

Both read each job of the window with the same two dense layers, its context beside it. Tensor
shapes: N looks, J jobs of the window, F inputs, H hidden, A actions, R jobs that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn

from modelyard.learn.rollout import Look
from modelyard.schedule.dl2 import ACTIONS_PER_JOB, MOVING_FACTS, Encoding, Weights
from modelyard.schedule.jobs import BoolArray, FloatArray

#: In place of minus infinity, which turns gradients of impossible actions into NaN.
IMPOSSIBLE = -1e9


@dataclass(frozen=True, slots=True)
class Looks:
    """Many boards of different sizes in one block, the missing jobs filled with zeros."""

    inputs_NJF: Tensor  # noqa: N815
    present_NJ: Tensor  # noqa: N815
    #: actions of all J jobs, then the end
    legal_NA: Tensor  # noqa: N815
    #: moving facts of the job of each action after it; the end has none
    after_NAM: Tensor  # noqa: N815

    def __getitem__(self, rows: Tensor) -> Looks:
        return Looks(*(getattr(self, item.name)[rows] for item in fields(self)))

    def __len__(self) -> int:
        return len(self.inputs_NJF)

    def joined(self, other: Looks) -> Looks:
        pairs = ((getattr(self, item.name), getattr(other, item.name)) for item in fields(self))
        return Looks(*(torch.cat(pair) for pair in pairs))


def stack(looks: Sequence[Look], encoding: Encoding) -> Looks:
    count, jobs, job_features = len(looks), encoding.window, encoding.job_features
    inputs = np.zeros((count, jobs, encoding.inputs), dtype=np.float32)
    present = np.zeros((count, jobs), dtype=bool)
    legal = np.zeros((count, ACTIONS_PER_JOB * jobs + 1), dtype=bool)
    after = np.zeros((count, ACTIONS_PER_JOB * jobs, MOVING_FACTS), dtype=np.float32)
    for row, look in enumerate(looks):
        size = len(look.features_JF)
        inputs[row, :size, :job_features] = look.features_JF
        inputs[row, :size, job_features:] = look.context
        present[row, :size] = True
        legal[row] = widened(look.legal, jobs)
        after[row, : len(look.after)] = look.after
    return Looks(*(torch.from_numpy(array) for array in (inputs, present, legal, after)))


def widened(of_actions: BoolArray, jobs: int) -> BoolArray:
    """Marks for the actions of a board, as marks for those of a full window."""
    wide = np.zeros(ACTIONS_PER_JOB * jobs + 1, dtype=bool)
    wide[: len(of_actions) - 1] = of_actions[:-1]
    wide[-1] = of_actions[-1]
    return wide


class Trunk(nn.Module):
    """Two dense layers over each job that is there."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, inputs_RF: Tensor) -> Tensor:  # noqa: N803
        return torch.relu(self.second(torch.relu(self.first(inputs_RF))))


class Actor(nn.Module):
    """Log-chances of all actions of a window."""

    def __init__(self, encoding: Encoding, hidden: int) -> None:
        super().__init__()
        self.encoding = encoding
        self.trunk = Trunk(encoding.inputs, hidden)
        self.job = nn.Linear(hidden, ACTIONS_PER_JOB)
        self.end = nn.Linear(hidden, 1)

    def forward(self, looks: Looks) -> Tensor:
        present = looks.present_NJ
        hidden_RH = self.trunk(looks.inputs_NJF[present])  # noqa: N806
        scores_NJA = hidden_RH.new_zeros((*present.shape, ACTIONS_PER_JOB))  # noqa: N806
        scores_NJA[present] = self.job(hidden_RH)
        # The mean over a look's jobs; scored first, which is one number a job instead of H.
        look_R = present.nonzero()[:, 0]  # noqa: N806
        end = hidden_RH.new_zeros(len(looks)).index_add(0, look_R, self.end(hidden_RH).squeeze(1))
        end = end / present.sum(dim=1).clamp(min=1)
        scores = torch.cat((scores_NJA.flatten(1), end.unsqueeze(1)), dim=1)
        return torch.log_softmax(scores.masked_fill(~looks.legal_NA, IMPOSSIBLE), dim=1)

    def weights(self) -> Weights:
        """The same network in numpy, for a policy."""

        def array(tensor: Tensor) -> FloatArray:
            return tensor.detach().numpy().astype(np.float64)

        return Weights(
            encoding=self.encoding,
            first_FH=array(self.trunk.first.weight).T,
            first_H=array(self.trunk.first.bias),
            second_HH=array(self.trunk.second.weight).T,
            second_H=array(self.trunk.second.bias),
            job_HA=array(self.job.weight).T,
            job_A=array(self.job.bias),
            end_H=array(self.end.weight)[0],
            end_bias=float(self.end.bias.item()),
        )


class Critic(nn.Module):
    """The reward to expect from each job of a window from here on."""

    def __init__(self, encoding: Encoding, hidden: int) -> None:
        super().__init__()
        self.encoding = encoding
        self.trunk = Trunk(encoding.inputs, hidden)
        self.worth = nn.Linear(hidden, 1)

    def forward(self, inputs_NJF: Tensor, present_NJ: Tensor) -> Tensor:  # noqa: N803
        hidden_RH = self.trunk(inputs_NJF[present_NJ])  # noqa: N806
        worth_NJ = hidden_RH.new_zeros(present_NJ.shape)  # noqa: N806
        worth_NJ[present_NJ] = self.worth(hidden_RH).squeeze(1)
        return worth_NJ

    def of_actions(self, looks: Looks) -> Tensor:
        """Looks × actions: the worth of the board that each action leads to; 0 where illegal.

        An action's board is known exactly: one job has its facts changed, the mean job with it, and
        less is left. After the end nothing is left at all.
        """
        features, size = self.encoding.job_features, looks.present_NJ.shape[1]
        look_P, action_P = looks.legal_NA.nonzero(as_tuple=True)  # noqa: N806
        inputs = looks.inputs_NJF[look_P].clone()
        present = looks.present_NJ[look_P]
        grows = (action_P < ACTIONS_PER_JOB * size).nonzero()[:, 0]
        job = action_P[grows] // ACTIONS_PER_JOB
        moving = slice(features - MOVING_FACTS, features)
        change = looks.after_NAM[look_P[grows], action_P[grows]] - inputs[grows, job, moving]
        inputs[grows, job, moving] += change
        mean_change = change / present[grows].sum(dim=1, keepdim=True)
        mean = slice(2 * features - MOVING_FACTS, 2 * features)
        inputs[grows, :, mean] += mean_change.unsqueeze(1)
        # The first of the moving facts is the share of all devices.
        inputs[grows, :, 2 * features] -= change[:, :1]
        inputs[action_P == ACTIONS_PER_JOB * size, :, 2 * features] = 0.0
        worth_NA = inputs.new_zeros(looks.legal_NA.shape)  # noqa: N806
        worth_NA[look_P, action_P] = self(inputs, present).sum(dim=1)
        return worth_NA
