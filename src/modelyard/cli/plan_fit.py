"""`yard plan fit`: the ways to make a run fit its deadline, budget and loss, in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from modelyard.cli.main import EXIT_NO_PLAN
from modelyard.cli.output import called_as, print_json, print_table
from modelyard.cli.plan_options import SECTIONS

if TYPE_CHECKING:
    from modelyard.plan.answer import Interval
    from modelyard.plan.ways.compare import Fit
    from modelyard.plan.ways.way import Way
    from modelyard.planner.options import Options

#: Sections of `yard plan` that mean the same here; the layout is what is searched for.
SHARED = (
    "The run",
    "Limits and aims",
    "The model in numbers, instead of MODEL",
    "What is known",
)
#: Raised when a key changes its meaning or goes away; never by a new key.
SCHEMA_VERSION = 1

HELP = """Compare ways to make a run fit.

Shrinking the model, staged training, another configuration, and compression of trained weights,
each with its time, cost and loss. Ends with 3 when none of them keeps the limits.

\b
Examples:
  yard plan fit llama2-7b --devices 64xH100 --tokens 300B --deadline 4d
  yard plan fit gpt3-175b --devices 1024xA100 --tokens 300B --budget 2M --max-loss 2.0
  yard plan fit bert-large --devices 8xV100 --tokens 30B -o json
"""


class FitCommand(click.Command):
    """Options by what they are about."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[MODEL] [OPTIONS]")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in {**_sections(), "Answers": _answers()}.items():
            rows = [row for row in (option.get_help_record(ctx) for option in options) if row]
            with formatter.section(title):
                formatter.write_dl(rows)


def _sections() -> Mapping[str, Sequence[click.Option]]:
    return {title: SECTIONS[title] for title in SHARED}


def _answers() -> Sequence[click.Option]:
    wanted = {"output"}
    return [option for option in SECTIONS["Answers"] if option.name in wanted]


def _fit(**given: Any) -> None:
    context = click.get_current_context()
    output = given.pop("output")
    model: str = given.pop("model") or ""
    if not model and all(value is None for value in given.values()):
        click.echo(context.get_help())
        return
    found = _asked(model, given)
    if output == "json":
        print_json(fit_json(found))
    else:
        print_fit(found)
    if not found.keeping:
        context.exit(EXIT_NO_PLAN)


def _asked(model: str, given: Mapping[str, Any]) -> Fit:
    from dataclasses import replace

    from modelyard.planner.asking import asked_of
    from modelyard.planner.knowledge import known_of

    words = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    asked = asked_of(model, cast("Options", words))
    # The search brings numpy and scipy along, which a mistake in the options has no use for.
    from modelyard.plan.ways.compare import ways

    known = known_of(words.get("pilots"), words.get("calibration"))
    found = ways(asked.request, known.knowledge)
    return replace(found, notes=(*asked.notes, *known.notes, *found.notes))


def print_fit(found: Fit) -> None:
    """The table, what each way changes and why, and what to do next."""
    from modelyard.planner.words import loss_interval, money_interval, question, time_interval

    click.echo(question(found.request))
    click.echo()
    print_table(
        ("way", "parameters", "devices", "time", "cost", "loss", "keeps the limits"),
        [
            (
                str(way.name),
                _count(way.model.parameters.total),
                f"{way.devices:,} × {way.kind}" if way.devices else "none",
                time_interval(way.seconds) if way.seconds else "does not fit",
                money_interval(way.usd) if way.usd else "unknown",
                loss_interval(way.loss) if way.loss else "unknown",
                "yes" if way.keeps else "no",
            )
            for way in found.ways
        ],
        numbers=("parameters",),
    )
    click.echo()
    for way in found.ways:
        click.echo(f"{way.name}: {way.changes}.")
        click.echo(f"  {_sentence(way.why)}")
        if way.needs:
            click.echo(f"  Needs {way.needs}.")
        if way.source:
            click.echo(f"  Range from {way.source}.")
    if found.notes:
        click.echo()
    for note in found.notes:
        click.echo(f"Note: {note}.")
    click.echo()
    click.echo(_next(found))


def fit_json(found: Fit) -> Mapping[str, object]:
    """What `-o json` prints: times in seconds, money in US dollars, unknown figures null."""
    return {
        "schema": SCHEMA_VERSION,
        "outcome": "ways" if found.keeping else "no_way",
        "model": found.request.model.name,
        "tokens": found.request.tokens,
        "limits": {
            "deadline_seconds": found.request.limits.deadline_seconds,
            "budget_usd": found.request.limits.budget_usd,
            "max_loss": found.request.limits.most_loss,
        },
        "ways": [_way_json(way) for way in found.ways],
        "notes": list(found.notes),
    }


def _way_json(way: Way) -> Mapping[str, object]:
    return {
        "name": str(way.name),
        "model": way.model.name,
        "parameters": way.model.parameters.total,
        "layers": way.model.all_layers,
        "hidden": way.model.hidden,
        "tokens": way.tokens,
        "kind": way.kind or None,
        "devices": way.devices,
        "seconds": _interval_json(way.seconds),
        "usd": _interval_json(way.usd),
        "loss": _interval_json(way.loss),
        "keeps": way.keeps,
        "changes": way.changes,
        "why": way.why,
        "source": way.source or None,
        "needs": way.needs or None,
    }


def _interval_json(interval: Interval | None) -> Mapping[str, float] | None:
    if interval is None:
        return None
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _count(number: int) -> str:
    from modelyard.planner.words import count

    return count(number)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _next(found: Fit) -> str:
    """What a reader does next."""
    from modelyard.plan.ways.way import WayName

    keeping = found.keeping
    if not keeping:
        return "No way keeps the limits: relax one of them, or add devices."
    free = [way for way in keeping if not way.needs]
    if not free:
        return f"Only ways from trained weights keep the limits; the fastest is: {keeping[0].name}."
    first = free[0]
    text = f"The fastest way that needs no trained weights: {first.name}."
    if first.name in (WayName.AS_ASKED, WayName.TUNE, WayName.FP8):
        more = ", and --precision fp8" if first.name is WayName.FP8 else ""
        text += f" For its plans, use the same options with '{called_as()} plan'{more}."
    return text


fit = FitCommand(
    "fit",
    params=[
        click.Argument(["model"], required=False, default=""),
        *(option for options in _sections().values() for option in options),
        *_answers(),
    ],
    callback=_fit,
    help=HELP,
    no_args_is_help=True,
)
