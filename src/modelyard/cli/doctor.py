"""`yard doctor`: what is wrong with this machine or its yard, and how to mend it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from modelyard.cli.main import EXIT_UNWELL
from modelyard.cli.output import output_option, print_json, print_table
from modelyard.units import counted

MARKS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}
#: with --strict, where there are warnings and nothing worse
EXIT_WARNINGS = 1


@click.command()
@click.option("--strict", is_flag=True, help="End with 1 where there are warnings only.")
@click.option("--all", "-a", "every", is_flag=True, help="Show also what is well.")
@output_option
@click.pass_context
def doctor(context: click.Context, strict: bool, every: bool, output: str) -> None:
    """Check this machine and its yard, and say how to mend what is wrong.

    Ends with 5 when there is a problem.

    \b
    Examples:
      yard doctor
      yard doctor --all
      yard doctor --strict -o json
    """
    from modelyard.control.client import Client, yard_folder
    from modelyard.control.doctor.findings import Grade
    from modelyard.control.doctor.machine import machine_findings
    from modelyard.control.doctor.yard import yard_findings

    found = [*machine_findings(yard_folder()), *yard_findings(Client(patience_seconds=2.0))]
    counts = Counter(one.grade for one in found)
    if output == "json":
        print_json([asdict(one) for one in found])
    else:
        shown = [one for one in found if every or one.grade is not Grade.OK]
        rows = [(MARKS[one.grade], one.check, one.says, one.fix) for one in shown]
        if rows:
            print_table(("", "check", "found", "fix"), rows)
        said = f"{counts[Grade.OK]} ok · {counted(counts[Grade.WARNING], 'warning')}"
        click.echo(f"{said} · {counted(counts[Grade.PROBLEM], 'problem')}")
        if counts[Grade.PROBLEM]:
            click.echo("Next: mend them, or 'yard bundle' for a report")
    if counts[Grade.PROBLEM]:
        context.exit(EXIT_UNWELL)
    context.exit(EXIT_WARNINGS if strict and counts[Grade.WARNING] else 0)
