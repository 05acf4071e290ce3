"""How the devices of a plan become nodes and processes."""

from __future__ import annotations

from dataclasses import dataclass

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import HEAD, RANK


@dataclass(frozen=True, slots=True)
class Machines:
    """`nodes` machines with `per_node` processes each, one per device."""

    nodes: int
    per_node: int


def machines(plan: Plan) -> Machines:
    """The fewest equal nodes that have the plan's devices."""
    devices, most = plan.devices, plan.pool.platform.devices_per_node
    fewest = -(-devices // most)
    # A launcher wants as many processes on every node; one per node always works.
    nodes = next(count for count in range(fewest, devices + 1) if devices % count == 0)
    return Machines(nodes, devices // nodes)


def torchrun(plan: Plan) -> list[str]:
    """The beginning of a command, up to the script."""
    found = machines(plan)
    if found.nodes == 1:
        return ["torchrun", "--standalone", "--nproc-per-node", str(found.per_node)]
    return [
        "torchrun",
        "--nnodes",
        str(found.nodes),
        "--nproc-per-node",
        str(found.per_node),
        "--node-rank",
        RANK,
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        HEAD,
    ]


def node_notes(plan: Plan) -> list[str]:
    """What to do on which node."""
    found = machines(plan)
    if found.nodes == 1:
        return []
    notes = [
        f"run the command on each of {found.nodes:,} nodes, with HEAD_NODE set to the first of "
        "them and NODE_RANK to 0, 1, …"
    ]
    if found.nodes > plan.pool.platform.nodes:
        notes.append(
            f"{plan.devices:,} devices divide into equal nodes only as {found.nodes:,} × "
            f"{found.per_node}, and the pool has {plan.pool.platform.nodes:,} nodes"
        )
    return notes
