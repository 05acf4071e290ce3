"""`yard nodes`: what the yard has, and who uses it."""

from __future__ import annotations

import click

from modelyard.cli.output import output_option, print_json, print_table


@click.command()
@click.option(
    "--drain",
    metavar="NODE",
    help="Take a node out of service: its jobs are stopped and go elsewhere.",
)
@click.option("--return", "give_back", metavar="NODE", help="Take it back into service.")
@click.option("--why", default="", help="For others to read, with --drain.")
@output_option
def nodes(drain: str | None, give_back: str | None, why: str, output: str) -> None:
    """List nodes and their devices, or take a node out of service and back.

    \b
    Examples:
      yard nodes
      yard nodes --drain node1 --why "new fan"
      yard nodes --return node1
    """
    from modelyard.control.client import Client

    client = Client()
    if drain is not None:
        client.drain(drain, why=why)
    if give_back is not None:
        client.give_back(give_back)
    found = client.nodes()
    if output == "json":
        print_json(found)
        return
    rows = []
    for node in found:
        used = [one["job"] for one in node["devices"] if one["job"]]
        out = [f"{one['number']}: {one['out']}" for one in node["devices"] if one["out"]]
        rows.append(
            (
                node["name"],
                node["kind"],
                f"{len(used)} of {len(node['devices'])}",
                "draining" if used and node["health"] == "drained" else node["health"],
                ", ".join(dict.fromkeys(used)),
                "; ".join(filter(None, [node["detail"], *out])),
            )
        )
    print_table(("node", "kind", "in use", "health", "jobs", "note"), rows, numbers=("in use",))
