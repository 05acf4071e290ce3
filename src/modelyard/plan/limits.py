"""Which candidates keep the limits of a request, one limit at a time."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import numpy as np

from modelyard.plan.answer import Binding
from modelyard.plan.candidates import Candidates, Mask
from modelyard.plan.request import Limits


def kept_by_limit(candidates: Candidates, limits: Limits) -> Mapping[Binding, Mask]:
    """For each limit that was set, the candidates that keep it; an infinite one is none."""
    found: dict[Binding, Mask] = {}
    if limits.deadline_seconds is not None and isfinite(limits.deadline_seconds):
        found[Binding.DEADLINE] = candidates.run_seconds <= limits.deadline_seconds
    if limits.budget_usd is not None and isfinite(limits.budget_usd):
        found[Binding.BUDGET] = candidates.usd <= limits.budget_usd
    if limits.most_loss is not None and isfinite(limits.most_loss):
        found[Binding.LOSS] = candidates.loss <= limits.most_loss
    return found


def kept(candidates: Candidates, limits: Limits) -> Mask:
    """The candidates that keep every limit and finish at all."""
    keeps: Mask = np.isfinite(candidates.run_seconds)
    for mask in kept_by_limit(candidates, limits).values():
        keeps = keeps & mask
    return keeps
