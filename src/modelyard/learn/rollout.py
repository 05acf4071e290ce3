"""Runs of the simulator that are remembered: what was seen, done and gained, action by action.

An episode is one workload under a policy that keeps a record. The simulator calls that policy as it
calls any other, so training sees the world of `yard simulate` and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from modelyard.schedule.dl2 import (
    ACTIONS_PER_JOB,
    WINDOW_FACTS,
    Board,
    Choose,
    Encoding,
    Weights,
    allot,
)
from modelyard.schedule.jobs import BoolArray, FloatArray
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import decisions_for_sizes
from modelyard.schedule.view import NEVER, Decision, Policy, Traits, View
from modelyard.simulate.engine import simulate
from modelyard.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Look:
    """A board as it was seen."""

    features_JF: FloatArray  # noqa: N815 (shape suffixes)
    context: FloatArray
    legal: BoolArray
    #: what the job of each action would look like after it; see `Board.moving_after`
    after: FloatArray


@dataclass(frozen=True, slots=True)
class Lesson:
    """A look, and all actions that a teacher would have approved of."""

    look: Look
    right: BoolArray


@dataclass(frozen=True, slots=True)
class Window:
    """One window of jobs in one slot: every look at it, and what each job gained until the next.

    The last look is at the board as it was left, with nothing more to give away.
    """

    jobs: tuple[str, ...]
    looks: tuple[Look, ...]
    rewards_J: FloatArray  # noqa: N815


@dataclass(frozen=True, slots=True)
class Episode:
    """One workload from its first decision to its last job, slot by slot."""

    slots: tuple[tuple[Window, ...], ...]
    jct_mean_seconds: float

    @property
    def looks(self) -> list[Look]:
        return [look for slot in self.slots for window in slot for look in window.looks]

    @property
    def slot_reward(self) -> float:
        """Mean reward of a slot."""
        sums = [sum(float(window.rewards_J.sum()) for window in slot) for slot in self.slots]
        return float(np.mean(sums))


@dataclass(frozen=True, slots=True)
class Reward:
    """What a slot is worth: the published sum of job fractions done, and jobs brought to an end.

    `finish_share` 0 is the published reward. It does not care whether two half jobs are done or
    one whole one, which average completion time does; the share moves that much of the reward of a
    job to its end.
    """

    finish_share: float = 0.0

    def of(self, before: float, after: float) -> float:
        """A job's part: its fraction done before and after the slot."""
        finished = float(after >= 1.0 > before)
        return (1.0 - self.finish_share) * (after - before) + self.finish_share * finished


class _Opened:
    """A window whose slot is still going on."""

    def __init__(self, board: Board, view: View) -> None:
        self.board = board
        self.looks: list[Look] = []
        self._jobs = tuple(view.jobs.card(at).id for at in board.jobs)
        self._knowledge = [view.jobs.knowledge(at) for at in board.jobs]
        self._before = [job.fraction for job in self._knowledge]

    def closed(self, reward: Reward) -> Window:
        gained = [
            reward.of(before, job.fraction)
            for before, job in zip(self._before, self._knowledge, strict=True)
        ]
        return Window(self._jobs, (*self.looks, settled(seen(self.board))), np.array(gained))


class _Ledger:
    """Slots as they happen; a slot is closed when the next decision shows what it brought."""

    def __init__(self, reward: Reward) -> None:
        self._reward = reward
        self._open: list[_Opened] = []
        self._view: View | None = None
        self.slots: list[tuple[Window, ...]] = []

    def begin(self, view: View) -> None:
        self.close()
        self._view = view

    def note(self, board: Board, look: Look) -> None:
        if not self._open or self._open[-1].board is not board:
            assert self._view is not None
            self._open.append(_Opened(board, self._view))
        self._open[-1].looks.append(look)

    def close(self) -> None:
        if self._open:
            self.slots.append(tuple(window.closed(self._reward) for window in self._open))
        self._open = []


def seen(board: Board) -> Look:
    """What a board looks like now."""
    return Look(board.features().copy(), board.context(), board.legal(), board.moving_after())


def settled(look: Look) -> Look:
    """The same board at the end of the slot: nothing is left to give away."""
    context = look.context.copy()
    context[-WINDOW_FACTS] = 0.0
    return replace(look, context=context)


@dataclass(slots=True)
class _Recording:
    """A policy that decides as a function does and lets the ledger know of each slot."""

    decide_with: Callable[[View], list[Decision]]
    ledger: _Ledger
    name: str = "recording"
    traits: Traits = field(default=Traits("records a run", oracle=True, elastic=True))

    def decide(self, view: View) -> list[Decision]:
        self.ledger.begin(view)
        return self.decide_with(view)

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def explore(
    scenario: Scenario,
    weights: Weights,
    *,
    draw: np.random.Generator,
    curiosity: float = 0.0,
    reward: Reward | None = None,
) -> Episode:
    """Play a workload, drawing actions as the network weighs them.

    With chance `curiosity` an action is drawn from those that the job-aware exploration of the
    paper would try: a start for a job that has nothing, any legal action when everybody runs.
    """
    ledger = _Ledger(reward or Reward())

    def choose(board: Board) -> int:
        look = seen(board)
        ledger.note(board, look)
        if draw.random() < curiosity:
            return _curious(board, look.legal, draw)
        chances = _chances(weights.scores(look.features_JF, look.context), look.legal)
        drawn = np.cumsum(chances)
        return int(drawn.searchsorted(draw.random() * drawn[-1], side="right"))

    def decide(view: View) -> list[Decision]:
        sizes = allot(view, weights.encoding, choose)
        return decisions_for_sizes(view, sizes, strategy=Strategy.ROOMIEST)

    return _episode(scenario, decide, ledger)


@runtime_checkable
class Player(Protocol):
    """A teacher that plays the game itself, action by action."""

    def player(self, view: View) -> Choose: ...


def demonstrate(
    scenario: Scenario,
    teacher: Policy,
    encoding: Encoding,
    *,
    draw: np.random.Generator,
    student: Weights | None = None,
) -> tuple[Lesson, ...]:
    """What another policy would do on a workload, as actions.

    A teacher that plays the game shows its own actions. Of any other only the outcome is known:
    every order of actions leads there, so all that give no job more than it should have are right,
    and one of them is drawn to go on. With a student it is the student who acts, mistakes and all,
    and the teacher says what would have been right (Ross et al., DAgger, AISTATS'11).
    """
    lessons: list[Lesson] = []

    def decide(view: View) -> list[Decision]:
        advise = _adviser(view, teacher)

        def choose(board: Board) -> int:
            look, right = seen(board), advise(board)
            lessons.append(Lesson(look, right))
            if student is None:
                return int(draw.choice(np.flatnonzero(right)))
            scores = student.scores(look.features_JF, look.context)
            return int(np.argmax(np.where(look.legal, scores, -np.inf)))

        return decisions_for_sizes(view, allot(view, encoding, choose), strategy=Strategy.ROOMIEST)

    simulate(scenario, _Recording(decide, _Ledger(Reward())))
    return tuple(lessons)


def _adviser(view: View, teacher: Policy) -> Callable[[Board], BoolArray]:
    """The marks of right actions on any board of a view."""
    if isinstance(teacher, Player):
        play = teacher.player(view)

        def one(board: Board) -> BoolArray:
            marks = np.zeros(board.end + 1, dtype=bool)
            marks[play(board)] = True
            return marks

        return one
    wanted = sizes_after(view, teacher.decide(view))
    return lambda board: right_actions(board, board.legal(), wanted)


def right_actions(board: Board, legal: BoolArray, wanted: Mapping[int, int]) -> BoolArray:
    """The legal actions after which no job has more than it should; the end when there are none."""
    right = legal.copy()
    for action in np.flatnonzero(legal[:-1]).tolist():
        job, size = board.after(action)
        right[action] = size <= wanted.get(board.jobs[job], 0)
    # Where the end is not legal either, because somebody has to run, anything is right.
    right[-1] = legal[-1] and not right[:-1].any()
    return right if right.any() else legal


def sizes_after(view: View, decisions: Sequence[Decision]) -> dict[int, int]:
    """Devices of each job by position once decisions are carried out."""
    sizes = {at: int(held) for at, held in enumerate(view.jobs.held.tolist()) if held}
    for decision in decisions:
        at = view.jobs.find(decision.job)
        if at is not None:
            sizes[at] = decision.allocation.devices if decision.allocation else 0
    return sizes


def _episode(
    scenario: Scenario, decide: Callable[[View], list[Decision]], ledger: _Ledger
) -> Episode:
    result = simulate(scenario, _Recording(decide, ledger))
    ledger.close()
    return Episode(tuple(ledger.slots), result.metrics.jct_mean)


def _chances(scores: FloatArray, legal: BoolArray) -> FloatArray:
    weighed = np.where(legal, scores, -np.inf)
    weighed -= weighed.max()
    chances: FloatArray = np.exp(weighed, out=weighed)
    chances /= chances.sum()
    return chances


def _curious(board: Board, legal: BoolArray, draw: np.random.Generator) -> int:
    """A start of a job that has nothing, or whatever there is to do when all run."""
    starts = legal.copy()
    starts[:-1] &= np.repeat(board.given == 0, ACTIONS_PER_JOB)
    starts[-1] = False
    return int(draw.choice(np.flatnonzero(starts if starts.any() else legal)))
