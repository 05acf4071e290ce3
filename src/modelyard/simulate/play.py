"""One policy on one scenario, and what may come of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from modelyard.errors import YardError
from modelyard.schedule.registry import policy
from modelyard.simulate.engine import simulate
from modelyard.simulate.numbers import read_numbers
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario

#: Where it was raised and who called that; what lies further out is ours and tells nobody more.
FRAMES_SHOWN = 2
#: A display shows no finer steps than this share of a run.
SMALLEST_STEP = 0.01


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that ended without a result."""

    policy: str
    message: str
    fix: str = ""
    #: where it happened, when it was no error that Modelyard raises on purpose
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.message}. Fix: {self.fix}" if self.fix else self.message


@dataclass(frozen=True, slots=True)
class Run:
    """One policy in one world, to be played."""

    scenario: Scenario
    policy: str


Outcome = Result | Failure
#: The name of the run, which is its policy where there is one world, and the share of its jobs
#: that have finished.
OnProgress = Callable[[str, float], None]
OnDone = Callable[[str, Outcome], None]


def play(scenario: Scenario, text: str, on_progress: Callable[[float], None]) -> Outcome:
    """The result of the policy that `text` describes; a failure when it fails."""
    shown = 0.0

    def step(share: float) -> None:
        nonlocal shown
        if share - shown >= SMALLEST_STEP:
            shown = share
            on_progress(share)

    try:
        made = policy(text, read_numbers=read_numbers)
        # Under the text that was asked for, even where a policy insists on a name of its own.
        return replace(simulate(scenario, made, on_progress=step), policy=text)
    # A policy may be anybody's code: whatever it raises must not cost the other runs.
    except Exception as error:
        return failure(text, error)


def failure(text: str, error: Exception) -> Failure:
    """What a policy raised, for people."""
    if isinstance(error, YardError):
        return Failure(text, error.message, error.fix)
    return Failure(
        text,
        f"policy '{text}' failed with {type(error).__name__}: {error}",
        fix="report it to whoever wrote the policy, with the lines below",
        traceback="".join(traceback.format_exception(error, limit=-FRAMES_SHOWN)),
    )
