"""The world to simulate, as options of a command: read, checked and cut to what fits.

A job that this cluster could never run is left out by name, never in silence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modelyard.cli.notes import FORMAT_OF_OPTION, tenant_notes, unused_files
from modelyard.errors import InputError, UnknownName
from modelyard.simulate.misfits import Misfit, left_out_note, misfits
from modelyard.units import format_duration, parse_duration

if TYPE_CHECKING:
    from modelyard.schedule.view import TenantView
    from modelyard.simulate.scenario import Faults, Scenario
    from modelyard.simulate.workload import Workload
    from modelyard.spec.cluster import Cluster

_Callback = TypeVar("_Callback", bound=Callable[..., Any])

FAULT_KEYS = ("mtbf", "repair", "checkpoint", "seed")


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """The options as they were written; `load_world` makes a world of them."""

    trace: Path
    cluster: str
    format: str | None = None
    profiles: Path | None = None
    tables: Path | None = None
    tenants: Path | None = None
    round: str = "0s"
    restart: str = "30s"
    interference: float = 0.0
    faults: str | None = None
    seed: int = 0
    jobs: int | None = None
    load: float = 1.0
    strict: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """A scenario with what people should know about how it came about."""

    scenario: Scenario
    notes: tuple[str, ...]
    #: jobs of the trace that can never run here, each with its reason
    left_out: Mapping[str, Misfit]
    #: rules of the world as (name, words), for the report
    rules: tuple[tuple[str, str], ...]
    #: everything that decides the outcome of a run but its policy, as text
    inputs: Mapping[str, str]


def world_options(command: _Callback, *, without: Collection[str] = ()) -> _Callback:
    """The options of `WorldOptions`, each a parameter of the command, but for those named."""
    for name, add in reversed(_world_options().items()):
        command = command if name in without else add(command)
    return command


def _world_options() -> dict[str, Callable[[_Callback], _Callback]]:
    file = click.Path(path_type=Path)
    return {
        "trace": click.argument("trace", type=file),
        "cluster": click.option(
            "--cluster",
            required=True,
            metavar="C",
            help="Nodes x devices x kind, such as 16x4xT4, or a YAML file.",
        ),
        "format": click.option(
            "--format", metavar="F", help="Format of the trace; guessed without it."
        ),
        "profiles": click.option(
            "--profiles", type=file, help="Folder of profiles, for Pollux workloads."
        ),
        "tables": click.option(
            "--tables", type=file, help="File of throughputs, for Gavel traces."
        ),
        "tenants": click.option(
            "--tenants", type=file, help="YAML file of the teams and their quotas."
        ),
        "round": click.option(
            "--round",
            default="0s",
            metavar="TIME",
            help="Decide every so often, such as 60s; at each event without it.",
        ),
        "restart": click.option(
            "--restart",
            default="30s",
            show_default=True,
            metavar="TIME",
            help="What each start costs a job.",
        ),
        "interference": click.option(
            "--interference",
            type=click.FloatRange(0, 1),
            default=0.0,
            help="Share of speed that distributed jobs lose on a shared node.",
        ),
        "faults": click.option(
            "--faults",
            metavar="mtbf=30d,…",
            help="Nodes fail so often; without more it is repair=30m,checkpoint=10m and the "
            "seed of --seed.",
        ),
        "seed": click.option(
            "--seed", type=int, default=0, help="Seed of everything that is drawn."
        ),
        "jobs": click.option("--jobs", type=click.IntRange(1), help="Only the first so many jobs."),
        "load": click.option(
            "--load",
            type=click.FloatRange(0, min_open=True),
            default=1.0,
            help="Let jobs arrive so many times as fast.",
        ),
        "strict": click.option(
            "--strict", is_flag=True, help="Refuse a trace with jobs that never fit."
        ),
    }


def load_world(options: WorldOptions) -> World:
    """Read everything and put it together; `InputError` or `CapacityError` when it cannot be."""
    from modelyard.simulate.readers import read_workload
    from modelyard.simulate.scenario import Scenario
    from modelyard.spec.shorthand import load_cluster

    cluster = load_cluster(options.cluster)
    tenants = tenant_views(options.tenants, cluster)
    faults = parse_faults(options.faults, seed=options.seed) if options.faults else None
    round_seconds = _seconds(options.round, "--round")
    restart_seconds = _seconds(options.restart, "--restart")
    options, unused = _without_unused(options)
    read = read_workload(
        options.trace,
        format=options.format,
        profiles=options.profiles,
        tables=options.tables,
        devices_per_node=int(cluster.capacity.max()),
    )
    asked = _cut(read, options)
    left_out = misfits(asked, cluster, tenants)
    notes = (
        *unused,
        *read.notes,
        *tenant_notes(tenants, {job.tenant for job in read.jobs}, cluster),
        *left_out_note(left_out, len(asked.jobs), cluster, strict=options.strict),
    )
    kept = tuple(job for job in asked.jobs if job.id not in left_out)
    workload = replace(asked, jobs=kept)
    scenario = Scenario(
        workload=workload,
        cluster=cluster,
        tenants=tenants,
        round_seconds=round_seconds,
        restart_seconds=restart_seconds,
        interference=options.interference,
        faults=faults,
    )
    return World(
        scenario=scenario,
        notes=notes,
        left_out=left_out,
        rules=describe_rules(scenario, load=options.load),
        inputs=_inputs(options, scenario),
    )


def _without_unused(options: WorldOptions) -> tuple[WorldOptions, tuple[str, ...]]:
    """The options without files that this trace has no use for, and notes that say so."""
    given = [name for name in FORMAT_OF_OPTION if getattr(options, name) is not None]
    unused = unused_files(options.trace, options.format, given)
    used = replace(
        options,
        profiles=None if "profiles" in unused else options.profiles,
        tables=None if "tables" in unused else options.tables,
    )
    return used, tuple(unused.values())


def parse_faults(text: str, *, seed: int = 0) -> Faults:
    """`mtbf=30d,repair=1h,checkpoint=10m,seed=1`; only mtbf must be there."""
    from modelyard.simulate.scenario import Faults

    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in FAULT_KEYS:
            raise UnknownName("option of --faults", key, FAULT_KEYS)
        if not equals or key in given:
            raise InputError(f"--faults needs one value for '{key}'", fix=f"write {key}=…")
        given[key] = value
    if _seconds(given.get("mtbf", "0s"), "mtbf in --faults") <= 0:
        fix = "write the mean time between failures of a node, such as mtbf=30d"
        raise InputError("--faults does not say how often nodes fail", fix=fix)
    drawn = given.pop("seed", str(seed))
    if not drawn.isdecimal():
        raise InputError(f"seed '{drawn}' in --faults is not a number", fix="write seed=1")
    bare = Faults(_seconds(given["mtbf"], "mtbf"), seed=int(drawn))
    return replace(
        bare,
        mean_repair_seconds=_seconds(given.get("repair", bare.mean_repair_seconds), "repair"),
        checkpoint_seconds=_seconds(given.get("checkpoint", bare.checkpoint_seconds), "checkpoint"),
    )


def describe_rules(scenario: Scenario, *, load: float = 1.0) -> tuple[tuple[str, str], ...]:
    """The rules of the world that differ from the plainest one, for people."""
    rounds = scenario.round_seconds
    often = f"every {format_duration(rounds)}" if rounds else "at each event"
    if rounds and scenario.reaction_seconds is not None:
        often += " and at each event"
    rules = [
        ("decisions", often),
        ("restart", format_duration(scenario.restart_seconds)),
    ]
    if scenario.interference:
        rules.append(("interference", f"{100 * scenario.interference:.0f}%"))
    if scenario.faults:
        rules.append(("node fails every", format_duration(scenario.faults.mean_seconds_between)))
    if load != 1.0:
        rules.append(("load", f"{load:g}×"))
    return tuple(rules)


def _cut(workload: Workload, options: WorldOptions) -> Workload:
    """The first jobs only, and arrivals closer together, as asked."""
    from modelyard.simulate.what_if import denser

    return denser(replace(workload, jobs=workload.jobs[: options.jobs]), options.load)


def tenant_views(path: Path | None, cluster: Cluster) -> dict[str, TenantView]:
    """The tenants of a file, their shares in devices of this cluster."""
    if path is None:
        return {}
    from modelyard.simulate.tenants import tenant_view
    from modelyard.spec.tenant import read_tenants

    return {tenant.name: tenant_view(tenant, cluster.devices) for tenant in read_tenants(path)}


def _inputs(options: WorldOptions, scenario: Scenario) -> dict[str, str]:
    """Files by their content, so that a trace that changed under its name is another one."""
    return {
        "trace": digest(options.trace),
        "format": options.format or "",
        "profiles": digest(options.profiles) if options.profiles else "",
        "tables": digest(options.tables) if options.tables else "",
        "jobs": str(options.jobs),
        "load": repr(options.load),
        **rule_inputs(scenario),
    }


def rule_inputs(scenario: Scenario) -> dict[str, str]:
    """Everything but the jobs that decides what comes of a scenario."""
    reaction = scenario.reaction_seconds
    return {
        **({} if reaction is None else {"reaction": repr(reaction)}),
        "tenants": repr(sorted(scenario.tenants.items())),
        "cluster": hashlib.sha256(repr(scenario.cluster).encode()).hexdigest(),
        "round": repr(scenario.round_seconds),
        "restart": repr(scenario.restart_seconds),
        "interference": repr(scenario.interference),
        "faults": repr(scenario.faults),
    }


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files below a folder with their names."""
    content = hashlib.sha256()
    files = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
    for item in files:
        content.update(f"{item.relative_to(path)}\0".encode())
        content.update(item.read_bytes())
    return content.hexdigest()


def _seconds(text: str | float, where: str) -> float:
    try:
        return parse_duration(text)
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=where) from None
