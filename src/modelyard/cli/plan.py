"""`yard plan`: will it fit, on how many of which devices, how long, for how much, at what loss?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from modelyard.cli.main import EXIT_NO_PLAN, Verb
from modelyard.cli.plan_options import ANSWERING, SECTIONS, parameters

#: Words that are commands when they come first, and not names of models.
SUBCOMMANDS: Mapping[str, Verb] = {
    "score": Verb("modelyard.cli.plan_score:score", "Predict measured runs and show the errors."),
    "fit": Verb("modelyard.cli.plan_fit:fit", "Compare ways to make a run fit its limits."),
    "sweep": Verb("modelyard.cli.plan_sweep:sweep", "Plan a whole file of requests."),
}

HELP = """Plan a training run before anyone waits in a queue.

MODEL is a name of `yard models`, a Hugging Face config.json or its folder; or give --layers,
--hidden, --heads and --vocab. The answer is a ranked list of plans with 80% ranges, or the limit
that no plan keeps and what would help (exit code 3).

\b
Examples:
  yard plan llama2-7b --devices 64xH100 --tokens 300B
  yard plan llama2-7b --devices 64xH100 --tokens 2T --deadline 30d --cheapest
  yard plan gpt3-175b --devices 1024xA100 --tokens 300B --batch '3.2M tokens' --tensor 8
  yard plan llama2-70b --devices 8xH100 --tokens 100M --qlora 16
  yard plan ./my-model/config.json --devices 16xA100+64xV100 --tokens 20B --budget 5k
  yard plan --layers 24 --hidden 2048 --heads 16 --vocab 50257 --devices 8xA100
  yard plan llama2-7b --devices 64xH100 --tokens 300B --what-if devices=+8xH100
  yard plan llama2-7b --devices 64xH100 --tokens 300B --launch fsdp --out run
"""


class PlanCommand(click.Command):
    """A command that hands over to another when its first word is the name of one.

    A model with such a name is reached by its path, as in `./score/config.json`.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        verb = SUBCOMMANDS.get(args[0]) if args else None
        if verb is None:
            return super().make_context(info_name, args, parent=parent, **extra)
        return verb.load().make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[MODEL] [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND …", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in SECTIONS.items():
            rows = [row for row in (option.get_help_record(ctx) for option in options) if row]
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Commands (a model of such a name is given by its path)"):
            formatter.write_dl([(name, verb.summary) for name, verb in SUBCOMMANDS.items()])


def _plan(**given: Any) -> None:
    from modelyard.cli.plan_answer import Answering, carry_out

    context = click.get_current_context()
    answering = Answering(**{name: given.pop(name) for name in ANSWERING})
    model: str = given.pop("model") or ""
    found = carry_out(model, given, answering, context)
    context.exit(0 if found else EXIT_NO_PLAN)


plan = PlanCommand("plan", params=parameters(), callback=_plan, help=HELP, no_args_is_help=True)
