"""Changed worlds made of one that was loaded, all with the same jobs, so that they compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modelyard.cli.choice import named_files
from modelyard.cli.notes import tenant_notes
from modelyard.cli.output import some_of
from modelyard.cli.scenario import (
    World,
    WorldOptions,
    describe_rules,
    digest,
    rule_inputs,
    tenant_views,
)
from modelyard.simulate.export import fingerprint
from modelyard.simulate.misfits import Misfit, left_out_note, misfits
from modelyard.simulate.node_change import changed_cluster
from modelyard.simulate.what_if import Change, changed

if TYPE_CHECKING:
    from modelyard.simulate.scenario import Scenario
    from modelyard.simulate.workload import Workload
    from modelyard.spec.cluster import Cluster


def changed_worlds(
    world: World, changes: Sequence[Change], options: WorldOptions
) -> tuple[World, ...]:
    """The world, with the notes of all, and each changed one.

    A job that one of them could never run is left out of every one, or the means of two worlds
    would be means over different jobs. `CapacityError` when none is left, or when strict.
    """
    left_out: dict[str, Misfit] = {}
    notes: list[str] = list(world.notes)
    asked = world.scenario.workload
    scenarios = [_changed(world.scenario, change, options) for change in changes]
    for scenario in scenarios:
        found = misfits(asked, scenario.cluster, scenario.tenants)
        notes += left_out_note(found, len(asked.jobs), scenario.cluster, strict=options.strict)
        notes += tenant_notes(
            scenario.tenants, {job.tenant for job in asked.jobs}, scenario.cluster
        )
        notes += _kind_notes(asked, world.scenario.cluster, scenario.cluster)
        notes += _node_size_notes(world.scenario.cluster, scenario.cluster, options)
        left_out |= found
    kept = tuple(job for job in asked.jobs if job.id not in left_out)
    base = world.scenario
    if left_out:
        base = replace(base, workload=replace(asked, jobs=kept))
    unchanged = replace(
        world,
        scenario=base,
        notes=tuple(dict.fromkeys(notes)),
        left_out={**world.left_out, **left_out},
        inputs={**world.inputs, **({"left_out": ",".join(left_out)} if left_out else {})},
    )
    return (
        unchanged,
        *(
            _world(unchanged, _without(scenario, left_out), change, options)
            for scenario, change in zip(scenarios, changes, strict=True)
        ),
    )


def _without(scenario: Scenario, left_out: Mapping[str, Misfit]) -> Scenario:
    workload = scenario.workload
    kept = tuple(job for job in workload.jobs if job.id not in left_out)
    return replace(scenario, workload=replace(workload, jobs=kept)) if left_out else scenario


def run_key(world: World, policy: str) -> str:
    """Equal for two runs exactly when everything that decides their outcome is equal."""
    files = {str(path): digest(path) for path in named_files(policy)}
    return fingerprint({**world.inputs, **files}, policy)


def _world(unchanged: World, scenario: Scenario, change: Change, options: WorldOptions) -> World:
    load = change.load or 1.0
    read_for = unchanged.scenario.cluster.capacity.max()
    inputs = {
        **unchanged.inputs,
        **rule_inputs(scenario),
        # What the trace was read for is another cluster than the one it is played on.
        "devices_per_node": str(read_for),
        "left_out": ",".join(unchanged.left_out),
    }
    if load != 1.0:
        inputs["load"] += f" × {load!r}"
    return replace(
        unchanged,
        scenario=scenario,
        rules=describe_rules(scenario, load=options.load * load),
        inputs=inputs,
    )


def _changed(scenario: Scenario, change: Change, options: WorldOptions) -> Scenario:
    if options.tenants is not None and change.nodes:
        # Half of the cluster is half of the new one.
        cluster = changed_cluster(scenario.cluster, change.nodes)
        scenario = replace(scenario, tenants=tenant_views(options.tenants, cluster))
    return changed(scenario, change)


def _node_size_notes(before: Cluster, after: Cluster, options: WorldOptions) -> Iterator[str]:
    """Speeds from a table depend on whether a job fits one node, of the size it was read for."""
    size = int(before.capacity.max())
    if options.tables is not None and size != int(after.capacity.max()):
        yield (
            f"speeds on {after.name} are those of nodes with {size} devices, for which the table "
            "was read: name that cluster first to have its own"
        )


def _kind_notes(workload: Workload, before: Cluster, after: Cluster) -> Iterator[str]:
    """What nobody has said of devices that were not there before."""
    for kind in (kind for kind in after.kinds if kind not in before.kinds):
        bound = [job for job in workload.jobs if job.kinds]
        usable = [job for job in bound if kind in job.kinds]
        if len(bound) == len(workload.jobs) and not usable:
            known = some_of(
                dict.fromkeys(name for job in bound for name in job.kinds), last=" and "
            )
            yield f"no job can run on {kind}, so it stays idle: the trace has speeds for {known}"
        elif len(bound) < len(workload.jobs):
            yield (
                f"jobs are as fast on {kind} as on {some_of(before.kinds, last=' or ')}: the "
                "trace does not say how fast they are elsewhere"
            )
