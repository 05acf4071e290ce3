"""The order of jobs that have one size and one speed: who comes first is all there is to choose.

Whoever costs the fewest device-seconds per expected end comes first. So that nobody starves, a job
that has waited for `PATIENCE_SECONDS`, and for `STRETCH` times as long as it will have run by the
end of its stage, comes before everyone until that stage has passed: however long the queue, it gets
on, in turns that grow with its length.
"""

from __future__ import annotations

import numpy as np

from modelyard.schedule.jobs import FloatArray, IntArray
from modelyard.schedule.view import NEVER, View
from modelyard.schedule.yard.lengths import STAGE_ENDS, TURN_ENDS, Outlook, stage_of

#: Four weeks, and ten times what it ran. Large gangs wait for weeks in the busiest public trace
#: under any good order, oracles included, and each that is let in stops many others: there a week
#: costs 6 % of the mean completion time, four weeks 0.3 %.
PATIENCE_SECONDS = 28 * 86_400.0
STRETCH = 10.0
#: The shortest turn of a job that is let in out of its order: shorter ones are mostly restarts.
TURN_SECONDS = 3600.0
#: How many stages ahead a running job is compared with those that wait. After so many it is
#: looked at again in any case: hazards will have moved by then.
STAGES_AHEAD = 3


def order(view: View, cost: FloatArray, patience_seconds: float) -> IntArray:
    """Positions in `view.jobs`, first to last."""
    jobs = view.jobs
    overdue = due(view, patience_seconds) <= view.now
    turn = np.where(overdue, jobs.submitted, np.inf)
    # Of equals the one that runs goes on; then the order of submission, which lexsort keeps.
    return np.lexsort((~jobs.running, cost, turn, -jobs.priority))


def due(view: View, patience_seconds: float) -> FloatArray:
    """When each job will have waited for too long if it goes on waiting."""
    jobs = view.jobs
    turn = np.maximum(TURN_ENDS[stage_of(jobs.run_seconds)], TURN_SECONDS)
    return jobs.submitted + jobs.run_seconds + patience_seconds + STRETCH * turn


def expected_cost(view: View, outlook: Outlook) -> FloatArray:
    """Device-seconds per end, as they are expected of each job."""
    jobs = view.jobs
    # A start costs time in which nothing is done: whoever runs has that behind it.
    idle = np.where(jobs.running, 0.0, view.restart_seconds)
    return jobs.devices / outlook.index(np.arange(len(jobs)), outlook.stage, idle)


def falls_behind(view: View, outlook: Outlook, worked: FloatArray) -> float:
    """When the first running job reaches a stage in which it costs more than the best that waits.

    Found stage by stage; whoever cannot be the first any more is left out.
    """
    jobs = view.jobs
    waiting = ~jobs.running
    if not waiting.any() or waiting.all():
        return NEVER
    best_waiting = float(expected_cost(view, outlook)[waiting].min())
    at = np.flatnonzero(jobs.running)
    stage = outlook.stage[at]
    soonest = NEVER
    for ahead in range(1, STAGES_AHEAD + 1):
        reached = view.now + STAGE_ENDS[stage] - worked[at]
        possible = reached < soonest
        at, stage, reached = at[possible], stage[possible] + 1, reached[possible]
        if not len(at):
            break
        cost = jobs.devices[at] / outlook.index(at, stage, np.zeros(len(at)))
        behind = (cost > best_waiting) | (ahead == STAGES_AHEAD)
        soonest = min(soonest, float(reached[behind].min(initial=NEVER)))
        at, stage = at[~behind], stage[~behind]
    return soonest
