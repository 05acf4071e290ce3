"""A job that is there already when a run begins: what it holds, and what it has had and done."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelyard.simulate.workload import TraceJob
from modelyard.spec.allocation import Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One job at the beginning of a run; its `Work` begins where it stands."""

    job: TraceJob
    held: Allocation | None = None
    #: when it last started, stopped or was resized
    since: float = 0.0
    service: float = 0.0
    run_seconds: float = 0.0
    first_start: float = math.inf
    restarts: int = 0
    #: how long its start still takes, where it has devices and does not work yet
    busy_seconds: float = 0.0
    #: family, branch, sweep and burst, where jobs that ended before the run are its relatives
    relatives: tuple[int, int, int, int] | None = None
