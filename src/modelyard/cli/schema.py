"""`yard schema`: the JSON Schema of a file people write, for editors and for machines."""

from __future__ import annotations

from typing import Literal

import click

from modelyard.cli.output import print_json

Kind = Literal["job", "cluster", "tenants"]


@click.command()
@click.argument("kind", type=click.Choice(["job", "cluster", "tenants"]))
def schema(kind: Kind) -> None:
    """Print the JSON Schema of a job, cluster or tenants file.

    An editor that knows YAML schemas then completes and checks what you write:

    \b
        yard schema job > job.schema.json
    """
    # pydantic is slow to import, and `yard schema --help` has no use for it.
    from modelyard.spec.schema import json_schema

    print_json(json_schema(kind))
