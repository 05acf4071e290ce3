"""Why the second plan came second."""

from __future__ import annotations

from collections.abc import Mapping

from modelyard.plan.answer import Loser, Plan
from modelyard.plan.figures import memory, money, time_words
from modelyard.plan.request import Objective

#: parts of a step that differ by less than this share of it explain nothing
_NOTICEABLE = 0.003


def runner_up(best: Plan, second: Plan, objective: Objective) -> Loser:
    """The second plan and what it would cost to take it."""
    sentences = [_difference(best, second, objective), _where(best, second)]
    return Loser(second, "; ".join(part for part in sentences if part))


def _difference(best: Plan, second: Plan, objective: Objective) -> str:
    longer = second.run_seconds.value / best.run_seconds.value - 1.0
    time = f"takes {time_words(second.run_seconds.value)}, {_signed(longer)}"
    if best.usd is None or second.usd is None:
        return time
    dearer = second.usd.value / best.usd.value - 1.0 if best.usd.value else 0.0
    cost = f"costs {money(second.usd.value)}, {_signed(dearer)}"
    return f"{cost}, and {time}" if objective is Objective.COST else f"{time}, and {cost}"


def _where(best: Plan, second: Plan) -> str:
    """The part of the time that makes most of the difference.

    Steps are compared where they do the same work, whole runs otherwise.
    """
    same = best.global_batch == second.global_batch
    first, other = (_seconds(plan, steps=1.0 if same else plan.steps) for plan in (best, second))
    more = {name: other.get(name, 0.0) - first.get(name, 0.0) for name in {*first, *other}}
    name = max(sorted(more), key=lambda part: more[part])
    if more[name] <= _NOTICEABLE * sum(first.values()):
        left = second.memory_bytes.value - best.memory_bytes.value
        if left > 0.0 and best.devices == second.devices:
            return f"it needs {memory(left)} more memory on each device"
        return ""
    here, there = time_words(first.get(name, 0.0)), time_words(other.get(name, 0.0))
    of = "a step" if same else "its run"
    on = ""
    if best.devices != second.devices:
        on = f" on {second.devices:,} devices instead of {best.devices:,}"
    return f"'{name}' takes {there} of {of}{on} where the best plan needs {here}"


def _seconds(plan: Plan, steps: float) -> Mapping[str, float]:
    return {name: seconds * steps for name, seconds in plan.step_parts.items()}


def _signed(share: float) -> str:
    if abs(share) < 0.0005:
        return "the same"
    return f"{abs(share):.1%} {'more' if share > 0 else 'less'}"
