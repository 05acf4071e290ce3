"""How much of a run's time is useful when devices fail and checkpoints cost time.

Checkpoints are written every `√(2·C·M)` seconds (Young, 1974), C being the cost of one and M the
mean time between failures of the whole run. With exponential failures, a stretch of τ useful
seconds then takes `M·e^(R/M)·(e^((τ+C)/M) − 1)` on average, R being the cost of a restart (Daly,
2006, equation 13), and goodput is τ over that.
"""

from __future__ import annotations

import numpy as np

from modelyard.plan.request import Reliability
from modelyard.speed.physical.columns import Column

#: e to twice this is still a number
_LARGEST_EXPONENT = 300.0
#: a run that is useful less often than this makes no progress
_LEAST_SHARE = 1e-6


def failure_seconds(
    devices: Column, reliability: Reliability, *, devices_per_node: int, spot: bool
) -> Column | None:
    """Mean time between interruptions of runs on so many devices; None when there are none."""
    rate = np.zeros_like(devices)
    if reliability.device_mtbf_seconds is not None:
        rate = rate + devices / reliability.device_mtbf_seconds
    if spot:
        # A spot instance is taken back as a whole.
        rate = rate + np.ceil(devices / devices_per_node) / reliability.spot_mtbf_seconds
    return None if not rate.any() else 1.0 / rate


def checkpoint_interval(mtbf_seconds: Column, reliability: Reliability) -> Column:
    """Seconds of work between checkpoints; never more than the time between two failures."""
    cost = max(reliability.checkpoint_seconds, 1.0)
    return np.minimum(np.sqrt(2.0 * cost * mtbf_seconds), mtbf_seconds)


def goodput(mtbf_seconds: Column, reliability: Reliability) -> Column:
    """The useful share of the time, between 0 and 1."""
    interval = checkpoint_interval(mtbf_seconds, reliability)
    cycle = (interval + reliability.checkpoint_seconds) / mtbf_seconds
    restart = reliability.restart_seconds / mtbf_seconds
    grown = np.expm1(np.minimum(cycle, _LARGEST_EXPONENT))
    spent = mtbf_seconds * np.exp(np.minimum(restart, _LARGEST_EXPONENT)) * grown
    share = interval / spent
    return np.where(share < _LEAST_SHARE, 0.0, share)
