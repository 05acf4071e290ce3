"""Settings that start the best plan: printed, or written to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer
    from modelyard.plan.launch.settings import LaunchSettings
    from modelyard.planner.asking import Asked

COMMAND_FILE = "launch.sh"


def for_tool(asked: Asked, tool: str, *, calibrated: bool = False) -> Asked:
    """The question, kept to what the tool can express and as fast as it is; what was said stays."""
    from modelyard.plan.check import check
    from modelyard.plan.launch.launchers import PINS, STYLES
    from modelyard.speed.physical.families import Style

    # A calibration has measured the software along with the machine.
    if asked.request.software is Style.UNKNOWN and not calibrated:
        asked = replace(asked, request=replace(asked.request, software=STYLES[tool]))
    pins = asked.request.pins
    added = {
        field.name: value
        for field in fields(pins)
        if getattr(pins, field.name) is None
        and (value := getattr(PINS[tool], field.name)) is not None
    }
    if not added:
        return asked
    request = replace(asked.request, pins=replace(pins, **added))
    check(request)
    words = ", ".join(
        f"{name.replace('_', '-')} {_written(value)}" for name, value in added.items()
    )
    note = f"kept to what {tool} can run: {words}"
    return replace(asked, request=request, notes=(*asked.notes, note))


def settings_of(answer: Answer, tool: str) -> LaunchSettings:
    """The settings of the best plan; `InputError` where the tool cannot express it."""
    from modelyard.plan.launch.launchers import launch

    return launch(answer.plans[0], answer.request, tool, answer.curve)


def write_settings(settings: LaunchSettings, folder: Path) -> list[Path]:
    """All files of the settings, and the command as one more."""
    from modelyard.cli.runs import make_folder
    from modelyard.files import write_atomically

    make_folder(folder)
    texts = _texts(settings)
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]


def print_settings(settings: LaunchSettings, folder: Path | None) -> None:
    """Where the files are, or what is in them; then what to know about them."""
    click.echo()
    if folder is not None:
        click.echo(f"To start it with {settings.tool}:")
        for name in _texts(settings):
            click.echo(f"  {folder / name}")
    else:
        for name, text in settings.files.items():
            click.echo(f"# {name}")
            click.echo(text)
        if settings.command:
            click.echo(f"# {COMMAND_FILE}")
            click.echo(settings.command)
    for note in settings.notes:
        click.echo(f"note: {note}")


def launch_json(settings: LaunchSettings) -> dict[str, Any]:
    return {
        "tool": settings.tool,
        "files": dict(settings.files),
        "command": settings.command or None,
        "notes": list(settings.notes),
    }


def _texts(settings: LaunchSettings) -> Mapping[str, str]:
    if not settings.command:
        return settings.files
    return {**settings.files, COMMAND_FILE: f"#!/bin/sh\n{settings.command}\n"}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
