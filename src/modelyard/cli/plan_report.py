"""An answer as one HTML page that needs nothing but itself: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelyard import __version__
from modelyard.cli.plan_what_if import bound_by, world_columns
from modelyard.planner import words as say
from modelyard.planner.charts import memory_stacks, pareto, speed_plot, step_stacks
from modelyard.planner.columns import facts, ranked_columns

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer

TEMPLATE = "plan.html.j2"
#: Plans in the table of the page, however many are asked for.
MOST_ROWS = 50


def render_plan(
    answer: Answer,
    *,
    top: int,
    command: str = "",
    remedies: Sequence[str] = (),
    what_if: Mapping[str, Answer] | None = None,
) -> str:
    """The page of an answer, with the command that makes it, commands that would help, and the
    answers to changes.
    """
    import jinja2

    environment = jinja2.Environment(
        # The axes and the colours are those of the simulator's report.
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader("modelyard.cli", "templates"),
                jinja2.PackageLoader("modelyard.simulate", "templates"),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    worlds = what_if or {}
    return environment.get_template(TEMPLATE).render(
        **_content(answer, top, command, remedies),
        worlds=world_columns(answer, worlds) if worlds else [],
        worlds_bound=bound_by(worlds),
    )


def _content(answer: Answer, top: int, command: str, remedies: Sequence[str]) -> dict[str, Any]:
    best = answer.plans[0] if answer.plans else None
    return {
        "title": f"{answer.request.model.name}: a plan",
        "question": say.question(answer.request),
        "refusal": answer.refusal,
        "remedies": _remedies(answer, remedies),
        "headline": say.headline(best) if best else "",
        "best": best,
        "facts": facts(answer, best) if best else [],
        "runner_up": answer.runner_up,
        "runner_up_layout": (say.divided(answer.runner_up.plan) if answer.runner_up else ""),
        "pareto": pareto(answer.plans, answer.front) if best else None,
        "steps": step_stacks(answer.plans) if best else None,
        "memory": memory_stacks(answer.plans) if best else None,
        "speed": speed_plot(answer.curve),
        "ranked": ranked_columns(answer.plans[: min(top, MOST_ROWS)]) if best else [],
        "front": ranked_columns(answer.front[:MOST_ROWS]) if answer.front else [],
        "searched": answer.searched,
        "notes": answer.notes,
        "command": command,
        "version": __version__,
    }


def _remedies(answer: Answer, commands: Sequence[str]) -> list[tuple[str, str]]:
    """What would help, as (command, effect)."""
    if answer.refusal is None:
        return []
    relaxations = answer.refusal.relaxations
    shown = commands or [item.change for item in relaxations]
    return [(command, item.effect) for command, item in zip(shown, relaxations, strict=True)]
