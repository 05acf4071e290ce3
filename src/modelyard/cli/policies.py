"""`yard policies`: what the scheduler can be told to do, and with which options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import output_option, print_json, print_table
from modelyard.errors import UnknownName

if TYPE_CHECKING:
    from modelyard.schedule.registry import PolicyEntry

LEGEND = (
    "oracle: knows how long jobs will run, so a simulator's yardstick only · "
    "elastic: resizes jobs · preempts: stops jobs for others\n"
    "Options of one policy: yard policies NAME"
)


@click.command()
@click.argument("name", required=False)
@output_option
def policies(name: str | None, output: str) -> None:
    """List the scheduling policies, or show the options of the one called NAME.

    \b
    Examples:
      yard policies
      yard policies tiresias-las
      yard policies -o json
    """
    # Reading the entry points of installed packages is slow, and `--help` does without.
    from modelyard.schedule import registry

    known = registry.policies()
    if name is None:
        if output == "json":
            print_json([as_json(entry) for entry in known.values()])
        else:
            _print_all(list(known.values()))
        return
    if name not in known:
        raise UnknownName("policy", name, known)
    if output == "json":
        print_json(as_json(known[name]))
    else:
        _print_one(known[name])


def as_json(entry: PolicyEntry) -> dict[str, Any]:
    """A policy for programs; `error` says why one cannot be used, and is null otherwise."""
    described: dict[str, Any] = {
        "name": entry.name,
        "package": entry.package,
        "error": entry.error,
    }
    if entry.error is not None:
        return described
    from dataclasses import asdict

    from modelyard.schedule.registry import REQUIRED

    options = entry.options()
    return {
        **described,
        # A policy with a required option has no traits until somebody sets that option.
        **(asdict(_made(entry)) if REQUIRED not in options.values() else {}),
        "description": _doc(entry),
        "options": {
            option: None if default is REQUIRED else default for option, default in options.items()
        },
        "required": [option for option, default in options.items() if default is REQUIRED],
        "file_options": list(entry.file_options),
    }


def _made(entry: PolicyEntry) -> Any:
    from modelyard.schedule.registry import policy

    return policy(entry.name).traits


def _print_all(entries: list[PolicyEntry]) -> None:
    rows = []
    for entry in entries:
        facts = as_json(entry)
        flags = ["yes" if facts.get(trait) else "" for trait in ("oracle", "elastic", "preempts")]
        summary = facts["error"] or facts.get("summary") or facts["description"]
        rows.append((entry.name, summary, *flags))
    print_table(("policy", "what it does", "oracle", "elastic", "preempts"), rows)
    click.echo(LEGEND)


def _print_one(entry: PolicyEntry) -> None:
    facts = as_json(entry)
    if facts["error"]:
        click.echo(f"{entry.name}: {facts['error']}")
        return
    click.echo(f"{entry.name}: {facts.get('summary', '')}\n")
    click.echo(f"{facts['description']}\n")
    options: dict[str, Any] = facts["options"]
    if not options:
        click.echo("It has no options.")
        return
    print_table(
        ("option", "default"),
        [(option, _written(entry, option, default)) for option, default in options.items()],
    )
    option, default = next(iter(options.items()))
    example = _as_value(default) or "…"
    click.echo(f"Set options like this: --policy {entry.name}:{option}={example}")


def _written(entry: PolicyEntry, option: str, default: object) -> str:
    if default is None:
        return "(required)"
    text = _as_value(default) or "(none)"
    return f"{text}, or a file with one number per line" if option in entry.file_options else text


def _as_value(default: object) -> str:
    """A default as it would be written on the command line."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (tuple, list)):
        return "/".join(f"{item:g}" for item in default)
    return str(default) if default is not None else ""


def _doc(entry: PolicyEntry) -> str:
    return inspect.getdoc(entry.factory()) or ""
