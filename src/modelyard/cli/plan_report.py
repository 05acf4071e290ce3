"""An answer as one HTML page that needs nothing but itself: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelyard import __version__
from modelyard.cli import plan_words as say
from modelyard.cli.plan_charts import memory_stacks, pareto, speed_plot, step_stacks
from modelyard.cli.plan_table import ranked_columns
from modelyard.cli.plan_what_if import bound_by, world_columns

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, Plan

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
        "facts": _facts(answer, best) if best else [],
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


def _facts(answer: Answer, best: Plan) -> list[tuple[str, str]]:
    """What the headline does not say."""
    capacity = best.pool.platform.device.memory_bytes
    of = f" of {say.memory(capacity)}" if capacity else ""
    return [
        *(("layout", line) for line in say.division(best)),
        ("batch", say.batch(best, answer.request)),
        ("memory", f"{say.memory_interval(best.memory_bytes)}{of}"),
        ("step", say.time_interval(best.step_seconds)),
        ("of the peak rate", say.percent(best.model_flops_share)),
        ("useful time", say.percent(best.goodput)),
        *([("price", price)] if (price := say.price(best, spot=answer.request.spot)) else []),
    ]


def _remedies(answer: Answer, commands: Sequence[str]) -> list[tuple[str, str]]:
    """What would help, as (command, effect)."""
    if answer.refusal is None:
        return []
    relaxations = answer.refusal.relaxations
    shown = commands or [item.change for item in relaxations]
    return [(command, item.effect) for command, item in zip(shown, relaxations, strict=True)]
