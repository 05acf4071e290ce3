"""How much longer jobs of unknown length will run, learnt from their relatives.

Nobody says how long a job will take, but others like it have ended, or have not ended yet. A job
belongs to ever closer groups: everyone, its family, its branch, its sweep, its burst
(`JobTable.branch`). For each group there is a hazard: the chance that a job which got as far as a
stage of its life ends in it. Stages are steps of equal ratio in seconds run, so that minutes and
weeks are told apart alike.

A group's hazard is what was seen in it, shrunk towards that of the group around it by
`PRIOR_JOBS` imaginary jobs: the posterior mean of a beta process (Hjort, Annals of Statistics 18,
1990) whose prior is the wider group. Around everyone there is what may be said of any job: that no
stage is likelier to be its last than another (Jeffreys' prior of a scale). It counts unfinished
jobs as well, for the stages that they have passed: that a whole sweep has run for ten hours without
an end says much about those of it that still wait.

The index of a job is Gittins': the most ends per second that can be expected of it, over all times
at which one might give up on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.schedule.finished import NONE_FINISHED, FinishedJobs
from modelyard.schedule.jobs import FloatArray, IntArray, JobTable
from modelyard.schedule.view import View

#: Where the second stage begins: what ends before it is short, whatever else is known.
FIRST_STAGE_SECONDS = 30.0
#: Each stage ends at this multiple of its beginning. Finer ones gain little and cost more.
STAGE_RATIO = 1.5
#: The last stage begins at some 44 days.
STAGES = 31
#: Of a job that ended in a stage, its relatives learn that they may end a stage sooner or later.
#: Powers of two: sums of them are exact, so that the order of summing does not matter.
SPREAD = (0.25, 0.5, 0.25)
#: How many jobs of a group weigh as much as the group around it: of everyone, a family, a branch, a
#: sweep, a burst. What a team does with one size of job differs from day to day, so few of its ends
#: tell little, and to rank a rare size by them does harm; jobs of one minute are nearly alike.
PRIOR_JOBS = (1.0, 2.0, 4.0, 1.0, 0.5)
#: The hazard at each stage where nothing is ever learnt: higher than what is true of young jobs, so
#: that a newcomer, who may be short, is not kept waiting on the mere chance that it is long.
AGE_HAZARD = 0.15
#: How finely the uncertainty of a length is told: eighths are enough to compare two jobs.
AMOUNTS = 8
_CHANCES = (np.arange(AMOUNTS) + 0.5) / AMOUNTS
#: Seconds run this close to the end of a stage have reached it: sums of floats differ by less.
AT_STAGE_SECONDS = 1e-3

STAGE_STARTS: FloatArray = np.concatenate(
    ([0.0], FIRST_STAGE_SECONDS * STAGE_RATIO ** np.arange(STAGES - 1))
)
#: The last stage has no end.
STAGE_ENDS: FloatArray = np.append(STAGE_STARTS[1:], np.inf)
#: For what is expected of it, it is as long as its ratio says.
TURN_ENDS: FloatArray = np.append(STAGE_STARTS[1:], STAGE_STARTS[-1] * STAGE_RATIO)
_STAGE_SECONDS = TURN_ENDS - STAGE_STARTS
#: The hazard before anything was seen: every stage is equally likely to be the last. Stages grow
#: faster than it does, so newcomers come first, as under least attained service.
FIRST_HAZARD: FloatArray = np.append(1.0 / np.arange(STAGES, 1.0, -1.0), 0.5)


def _spread() -> FloatArray:
    """Row s: how the end of one job in stage s counts at each stage."""
    ends = np.zeros((STAGES, STAGES))
    for shift, share in zip((-1, 0, 1), SPREAD, strict=True):
        np.add.at(
            ends, (np.arange(STAGES), np.clip(np.arange(STAGES) + shift, 0, STAGES - 1)), share
        )
    return ends


_ENDS = _spread()
#: Row s: how much of a job that ended in stage s was there to end at each stage.
_AT_RISK = 1.0 - np.cumsum(_ENDS, axis=1) + _ENDS
#: Row s: the same of a job that is in stage s now: it has passed those before.
_PASSED = np.tri(STAGES, k=-1)


def stage_of(worked: FloatArray) -> IntArray:
    """The stage of life that jobs are in."""
    return STAGE_STARTS.searchsorted(worked + AT_STAGE_SECONDS, side="right") - 1


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be said about the unfinished jobs of one view, by position in its table."""

    #: the stage that each job is in
    stage: IntArray
    #: groups of jobs × stages
    _hazard: FloatArray
    #: the group of each job
    _group: IntArray

    def index(self, at: IntArray, stage: IntArray, idle_seconds: FloatArray) -> FloatArray:
        """Ends per second expected of the jobs at these positions, each from a stage on.

        `idle_seconds` go by before a job does any work. Holds until the job's next stage.
        """
        past = np.arange(STAGES) < stage[:, None]
        hazard = np.where(past, 0.0, self._hazard[self._group[at]])
        left = np.cumprod(1.0 - hazard, axis=1)
        before = np.concatenate((np.ones((len(left), 1)), left[:, :-1]), axis=1)
        # Whoever ends in a stage does so halfway through it.
        seconds = np.where(past, 0.0, _STAGE_SECONDS) * 0.5 * (left + before)
        spent = np.cumsum(seconds, axis=1) + idle_seconds[:, None]
        spent[past] = np.inf
        return np.asarray(((1.0 - left) / spent).max(axis=1))

    def left(self, worked: FloatArray) -> FloatArray:
        """Equally likely amounts of seconds left, jobs × `AMOUNTS`."""
        past = np.arange(STAGES) < self.stage[:, None]
        ended = 1.0 - np.cumprod(np.where(past, 1.0, 1.0 - self._hazard[self._group]), axis=1)
        # Whoever ends beyond the last stage counts as ending in it.
        ended[:, -1] = 1.0
        at = np.stack([(ended >= chance).argmax(axis=1) for chance in _CHANCES], axis=1)
        end = 0.5 * (STAGE_STARTS[at] + TURN_ENDS[at])
        # In the present stage a job has half of what is left of it to go.
        here = 0.5 * np.maximum(TURN_ENDS[self.stage] - worked, 0.0)
        return np.where(at == self.stage[:, None], here[:, None], end - worked[:, None])


class _Group:
    """How many jobs ended at each stage, by a label that they share."""

    def __init__(self) -> None:
        self._slot: dict[int, int] = {}
        self._ended = np.zeros((64, STAGES))

    def add(self, labels: IntArray, stages: IntArray) -> None:
        slots = [self._slot.setdefault(label, len(self._slot)) for label in labels.tolist()]
        while len(self._slot) >= len(self._ended):
            self._ended = np.concatenate((self._ended, np.zeros_like(self._ended)))
        np.add.at(self._ended, (np.array(slots, dtype=np.int64), stages), 1.0)

    def ended(self, labels: IntArray) -> FloatArray:
        """Labels × stages; the last row of the table is never used and stays empty."""
        return self._ended[[self._slot.get(label, -1) for label in labels.tolist()]]


class Lengths:
    """Learns lengths from finished jobs, and keeps what it learnt.

    The answer depends on the view alone: what was kept is used only for a history that begins
    with the one it was learnt from, and forgotten otherwise.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._known = NONE_FINISHED
        self._groups = tuple(_Group() for _ in _labels(NONE_FINISHED))
        self._latest: tuple[IntArray, Outlook] | None = None

    def outlook(self, view: View, worked: FloatArray, *, learn: bool = True) -> Outlook:
        """What the finished and unfinished jobs of a view say about the unfinished ones.

        `worked` are the seconds that each has done of its work (`reference.py`). Without `learn`
        nothing is known of anyone but that.
        """
        if not learn:
            everyone = np.zeros(len(worked), dtype=np.int64)
            return Outlook(stage_of(worked), np.full((1, STAGES), AGE_HAZARD), everyone)
        self._learn(view.finished)
        stage = stage_of(worked)
        asked = np.stack((*_labels(view.jobs), stage))
        # A policy asks twice: for its order, and for when that changes.
        if self._latest is None or not np.array_equal(asked, self._latest[0]):
            self._latest = asked, self._outlook(asked[:-1], stage)
        return self._latest[1]

    def _outlook(self, labels: IntArray, stage: IntArray) -> Outlook:
        hazard, size_around = FIRST_HAZARD[None], np.zeros(1)
        around = np.zeros(len(stage), dtype=np.int64)
        for group, label, weight in zip(self._groups, labels, PRIOR_JOBS, strict=True):
            distinct, first, member = np.unique(label, return_index=True, return_inverse=True)
            ended = group.ended(distinct)
            unfinished = np.zeros_like(ended)
            np.add.at(unfinished, (member, stage), 1.0)
            seen = ended @ _AT_RISK + unfinished @ _PASSED
            prior = hazard[around[first]]
            size = (ended + unfinished).sum(axis=1)
            # A group that holds all of the one around it says nothing new.
            news = (size < size_around[around[first]]) | (group is self._groups[0])
            learnt = (ended @ _ENDS + weight * prior) / (seen + weight)
            hazard = np.where(news[:, None], learnt, prior)
            around, size_around = member, size
        return Outlook(stage, hazard, around)

    def _learn(self, finished: FinishedJobs) -> None:
        if not _begins_with(finished, self._known):
            self._forget()
        new = slice(len(self._known), len(finished))
        if new.start == new.stop:
            return
        stage = stage_of(finished.seconds[new])
        for group, label in zip(self._groups, _labels(finished), strict=True):
            group.add(label[new], stage)
        self._known, self._latest = finished, None


def _labels(jobs: FinishedJobs | JobTable) -> tuple[IntArray, ...]:
    """What groups jobs, from everyone to their closest relatives."""
    return np.zeros_like(jobs.family), jobs.family, jobs.branch, jobs.sweep, jobs.burst


def _begins_with(longer: FinishedJobs, shorter: FinishedJobs) -> bool:
    size = len(shorter)
    if size > len(longer):
        return False
    pairs = list(zip(_facts(longer), _facts(shorter), strict=True))
    if all(more.ctypes.data == less.ctypes.data for more, less in pairs):
        # The same record, which only grows: `shorter` keeps it alive, so nothing else is there.
        return True
    return all(np.array_equal(more[:size], less) for more, less in pairs)


def _facts(finished: FinishedJobs) -> tuple[FloatArray | IntArray, ...]:
    return finished.seconds, *_labels(finished)[1:]
