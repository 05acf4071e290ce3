"""The same question about changed worlds: `yard plan … --what-if devices=+8xH100`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from modelyard.errors import InputError, Problem
from modelyard.planner import words as say

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, Interval, Plan
    from modelyard.planner.asking import Asked
    from modelyard.planner.columns import Column

NOW = "now"
EXAMPLE = "write an option of yard plan, as in devices=+8xH100 or deadline=3d"


def other_worlds(changes: Sequence[str], asked: Asked) -> dict[str, Asked]:
    """The question with each change; one `InputError` with what is wrong with all of them."""
    if not changes:
        return {}
    from modelyard.plan.check import check
    from modelyard.plan.what_if import changed

    worlds: dict[str, Asked] = {}
    problems: list[Problem] = []
    for change in changes:
        try:
            request = changed(asked.request, change, asked.prices)
            check(request)
        except InputError as error:
            problems += [
                replace(
                    problem,
                    what=f"--what-if {change[:60]}: {problem.what}",
                    fix=problem.fix or EXAMPLE,
                )
                for problem in error.problems
            ]
            continue
        worlds[change] = replace(asked, request=request, notes=())
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return worlds


def print_worlds(answer: Answer, others: Mapping[str, Answer]) -> None:
    """The best plan of each world below that of this one, and what binds it."""
    from modelyard.cli.plan_table import echo_folded, print_columns, text_width

    click.echo()
    print_columns(world_columns(answer, others))
    for change, words in bound_by(others).items():
        echo_folded(f"{change}: {words}", text_width())
    for change, world in others.items():
        for note in world.notes:
            if note not in answer.notes:
                echo_folded(f"{change}: note: {note}", text_width())


def world_columns(answer: Answer, others: Mapping[str, Answer]) -> list[Column]:
    """A table with a row for each world, this one first, and the differences from it."""
    from modelyard.planner.columns import Column

    worlds = {NOW: answer, **others}
    best = [world.plans[0] if world.plans else None for world in worlds.values()]
    now = best[0]
    columns = [
        Column("what if", tuple(worlds), 0, number=False),
        Column("devices", tuple(say.devices(one) if one else "none" for one in best), 1),
        Column("time", tuple(_time(one) for one in best), 0),
        Column("time ±", tuple(_change(now, one, "run_seconds") for one in best), 2),
        Column("cost", tuple(_cost(one) for one in best), 1),
        Column("cost ±", tuple(_change(now, one, "usd") for one in best), 3),
        Column("loss", tuple(_loss(one) for one in best), 5),
        Column("layout", tuple(say.divided(one) if one else "" for one in best), 6, False),
    ]
    return [column for column in columns if any(column.cells)]


def bound_by(others: Mapping[str, Answer]) -> dict[str, str]:
    """What keeps each world from being better, or from having a plan at all."""
    said: dict[str, str] = {}
    for change, world in others.items():
        if world.refusal is not None:
            said[change] = f"no plan. Bound by {world.refusal.binding}: {world.refusal.why}"
        elif world.plans:
            said[change] = f"bound by {world.plans[0].binding}: {world.plans[0].why}"
    return said


def _time(plan: Plan | None) -> str:
    return say.time_words(plan.run_seconds.value) if plan else "no plan"


def _cost(plan: Plan | None) -> str:
    return say.money(plan.usd.value) if plan and plan.usd else "?"


def _loss(plan: Plan | None) -> str:
    return f"{plan.loss.value:.3f}" if plan and plan.loss else ""


def _change(before: Plan | None, after: Plan | None, figure: str) -> str:
    """How much more or less, in per cent."""
    if before is None or after is None or before is after:
        return ""
    old: Interval | None = getattr(before, figure)
    new: Interval | None = getattr(after, figure)
    if old is None or new is None or old.value <= 0:
        return ""
    percent = 100 * (new.value / old.value - 1)
    return f"{percent:+.0f}%" if round(percent) else "same"
