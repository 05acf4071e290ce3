"""`yard sweep`: a workload over a grid of policies, clusters and loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from modelyard.cli.choice import DEFAULT_POLICY
from modelyard.cli.scenario import WorldOptions, world_options
from modelyard.errors import InputError, Problem
from modelyard.units import parse_duration

#: Options that change where results go and how they look, but not what they are.
BESIDE_THE_POINT = frozenset({"out", "workers", "fresh", "output"})

_Read = TypeVar("_Read")


@click.command()
@partial(world_options, without=("cluster", "load"))
@click.option(
    "--policy",
    "--policies",
    "policy_texts",
    multiple=True,
    default=(DEFAULT_POLICY,),
    show_default=True,
    metavar="A,B,C",
    help="Policies with their options, such as fifo,las:limits=3600; 'all' for every one.",
)
@click.option(
    "--cluster",
    "--clusters",
    "clusters",
    multiple=True,
    required=True,
    metavar="C,D",
    help="Clusters, such as 8x8xV100,16x8xV100, or YAML files.",
)
@click.option(
    "--load",
    "--loads",
    "loads",
    multiple=True,
    default=("1",),
    metavar="0.5,1,2",
    help="Let jobs arrive so many times as fast. [default: 1]",
)
@click.option(
    "--target",
    metavar="TIME",
    help="Say which cluster is the smallest whose mean JCT is at most that, such as 2h.",
)
@click.option("--strategy", metavar="NAME", help="Placement for policies that let one choose.")
@click.option("--workers", type=click.IntRange(1), help="Processes; all cores by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the results; finished points in it are reused. [default: out/TRACE-TIME]",
)
@click.option("--fresh", is_flag=True, help="Play points again that --out already holds.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="A table for people, JSON or CSV for programs.",
)
@click.pass_context
def sweep(
    context: click.Context,
    /,
    policy_texts: tuple[str, ...],
    clusters: tuple[str, ...],
    loads: tuple[str, ...],
    target: str | None,
    strategy: str | None,
    workers: int | None,
    out: Path | None,
    fresh: bool,
    output: str,
    **world: Any,
) -> None:
    """Play TRACE under every policy, on every cluster, at every load, and plot what comes of it.

    All points have the same jobs: one that a cluster of the grid could never run is left out of
    all of them, by name. Ctrl-C keeps the points that have ended; the same command with the same
    --out plays the rest.

    \b
    Examples:
      yard sweep jobs.csv --policy fifo,tiresias-las --cluster 4x8 --load 0.5,1,1.5,2
      yard sweep jobs.csv --policy srtf,las --cluster 3x8,4x8,6x8,8x8 --target 2h
      yard sweep jobs.csv --policy all --cluster 4x8xA100,8x8xA100 --load 1,2 -o csv
    """
    # Reading traces brings numpy along, which `--help` has no use for.
    from modelyard.cli.choice import chosen_policies, without_option
    from modelyard.cli.grid import SweepOrder, carry_out_sweep
    from modelyard.cli.notes import strategy_note
    from modelyard.cli.runs import command_line
    from modelyard.cli.scenario import load_world
    from modelyard.cli.simulate import new_folder
    from modelyard.cli.worlds import changed_worlds
    from modelyard.simulate.compare import check_policies
    from modelyard.simulate.what_if import Change
    from modelyard.spec.shorthand import load_cluster

    steps = _each(_pieces(loads), _load)
    target_seconds = parse_duration(target) if target else None
    names = _pieces(clusters)
    _each(names, load_cluster)
    options = WorldOptions(**world, cluster=names[0])
    policies = chosen_policies(policy_texts, strategy=strategy, seed=options.seed)
    check_policies(policies)
    loaded = load_world(options)
    unmoved = strategy_note(strategy, without_option(policies, "strategy"))
    loaded = replace(loaded, notes=(*loaded.notes, *unmoved))
    _, *worlds = changed_worlds(loaded, [Change(nodes=name) for name in names], options)
    order = SweepOrder(
        worlds=tuple(worlds),
        policies=policies,
        loads=tuple(steps),
        out=out or new_folder(loaded.scenario.workload.name),
        workers=workers,
        fresh=fresh,
        target_seconds=target_seconds,
        output=output,
        command=command_line(context, without=BESIDE_THE_POINT),
    )
    context.exit(carry_out_sweep(order))


def _pieces(written: Sequence[str]) -> list[str]:
    return [piece.strip() for text in written for piece in text.split(",")]


def _load(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(f"'{text}' is not a load", fix="write numbers above 0, such as 0.5,1,1.5")
    return number


def _each(pieces: Sequence[str], read: Callable[[str], _Read]) -> list[_Read]:
    """Every piece as it reads; all problems of all pieces at once."""
    found: list[_Read] = []
    problems: list[Problem] = []
    for piece in pieces:
        try:
            found.append(read(piece))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return found
