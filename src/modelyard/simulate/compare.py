"""Several policies on the same scenario, side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from modelyard.errors import InputError, Problem
from modelyard.schedule.registry import policy
from modelyard.schedule.view import Policy
from modelyard.simulate.numbers import read_numbers
from modelyard.simulate.play import Failure, OnDone, OnProgress, Outcome, Run, play
from modelyard.simulate.pool import play_in_processes
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario

__all__ = ["Comparison", "Failure", "Outcome", "check_policies", "compare", "cores", "gather"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of each policy, in the order in which they were asked for."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...] = ()
    #: policies that were not played to the end because somebody interrupted
    unfinished: tuple[str, ...] = ()

    @property
    def ranked(self) -> tuple[Result, ...]:
        """Results by mean completion time, the best first."""
        return tuple(sorted(self.results, key=lambda result: result.metrics.jct_mean))


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone | None = None,
) -> Comparison:
    """Play every policy once, several at a time; a policy named twice is played once.

    The results do not depend on `workers` (all cores by default; 1 stays in this process) except
    for the time that decisions took. A failing policy does not stop the others. KeyboardInterrupt
    ends the comparison early: the runs that were still going are named in `unfinished`.
    """
    texts = tuple(dict.fromkeys(policies))
    outcomes: dict[str, Outcome] = {}

    def done(text: str, outcome: Outcome) -> None:
        outcomes[text] = outcome
        if on_done:
            on_done(text, outcome)

    runs = {text: Run(scenario, text) for text in texts}
    play_runs(runs, workers=workers, on_progress=on_progress, on_done=done)
    return gather(texts, outcomes)


def play_runs(
    runs: Mapping[str, Run],
    *,
    on_done: OnDone,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Play each run and report it under its name, several at a time.

    KeyboardInterrupt ends it early; the outcomes reported until then are good.
    """
    check_policies(tuple(dict.fromkeys(run.policy for run in runs.values())))
    tell = on_progress or _ignore
    count = min(workers or cores(), len(runs))
    try:
        if count <= 1:
            for name, run in runs.items():
                on_done(name, play(run.scenario, run.policy, partial(tell, name)))
        else:
            play_in_processes(runs, workers=count, on_progress=tell, on_done=on_done)
    except KeyboardInterrupt:
        pass  # Whoever called misses the outcomes of the others.


def gather(texts: Sequence[str], outcomes: dict[str, Outcome]) -> Comparison:
    """What is known of each policy; one without an outcome is unfinished."""
    known = [outcomes[text] for text in texts if text in outcomes]
    return Comparison(
        results=tuple(outcome for outcome in known if isinstance(outcome, Result)),
        failures=tuple(outcome for outcome in known if isinstance(outcome, Failure)),
        unfinished=tuple(text for text in texts if text not in outcomes),
    )


def check_policies(texts: Sequence[str]) -> tuple[Policy, ...]:
    """Make every policy once; all problems of all of them are told at once."""
    made: list[Policy] = []
    problems: list[Problem] = []
    for text in texts:
        try:
            made.append(policy(text, read_numbers=read_numbers))
        except InputError as error:
            problems.extend(error.problems)
    if not texts:
        problems.append(Problem("no policy to play", "name at least one; see 'yard policies'"))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return tuple(made)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ignore(name: str, share: float) -> None:
    """Nobody wants to know."""
