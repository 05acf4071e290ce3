"""Which devices of which node: from the policy's numbers to slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelyard.control.lifecycle.job import Facts, Form, Job, Slot
from modelyard.control.lifecycle.node import NodeRecord


class NoSuchPlace(Exception):
    """The nodes have not as many devices free as were given away."""


def given(jobs: Iterable[Job]) -> set[tuple[str, int]]:
    """Devices that placed jobs were given."""
    return {
        (slot.node, device)
        for job in jobs
        if job.state.placed
        for slot in job.slots
        for device in slot.devices
    }


def held(jobs: Iterable[Job]) -> set[tuple[str, int]]:
    """Devices on which a task may live still, given away or not."""
    return {place for job in jobs for place in job.occupied()}


def choose(
    parts: tuple[tuple[str, int], ...],
    nodes: Mapping[str, NodeRecord],
    taken: set[tuple[str, int]],
    busy: set[tuple[str, int]],
) -> dict[str, tuple[int, ...]]:
    """Devices for each part: in service, not taken, and if possible not busy any more."""
    chosen: dict[str, tuple[int, ...]] = {}
    for name, count in parts:
        node = nodes.get(name)
        usable = [
            device
            for device in (node.in_service() if node and node.takes_work else ())
            if (name, device) not in taken
        ]
        if len(usable) < count:
            raise NoSuchPlace(f"{name} has {len(usable)} devices to give, not {count}")
        usable.sort(key=lambda device: ((name, device) in busy, device))
        chosen[name] = tuple(sorted(usable[:count]))
    return chosen


def whole(facts: Facts, parts: tuple[tuple[str, int], ...]) -> bool:
    """Whether no worker would have to lie across nodes."""
    return facts.form is Form.COMMAND or not any(count % facts.worker_devices for _, count in parts)


def slots_for(
    facts: Facts, devices: Mapping[str, tuple[int, ...]], first: int = 0
) -> tuple[Slot, ...]:
    """A slot for each worker, or for each node where one command has all devices of a node."""
    each = facts.worker_devices
    groups = [
        (node, numbers[start : start + size])
        for node, numbers in devices.items()
        for size in ([len(numbers)] if facts.form is Form.COMMAND else [each])
        for start in range(0, len(numbers), size)
    ]
    return tuple(
        Slot(number=first + at, node=node, devices=group) for at, (node, group) in enumerate(groups)
    )


def resized(
    job: Job,
    parts: tuple[tuple[str, int], ...],
    nodes: Mapping[str, NodeRecord],
    taken: set[tuple[str, int]],
    busy: set[tuple[str, int]],
) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Slots that an elastic job keeps or gets, and those that are taken away from it.

    On every node the oldest ones stay: whoever has just come knows nothing yet.
    """
    wanted = dict(parts)
    kept: list[Slot] = []
    lost: list[Slot] = []
    for slot in sorted(job.slots, key=lambda one: one.number):
        node = nodes.get(slot.node)
        stays = node is not None and set(slot.devices) <= set(node.in_service())
        if stays and wanted.get(slot.node, 0) >= len(slot.devices):
            wanted[slot.node] -= len(slot.devices)
            kept.append(slot)
        else:
            lost.append(slot)
    more = tuple((node, count) for node, count in wanted.items() if count > 0)
    devices = choose(more, nodes, taken, busy)
    fresh = slots_for(job.facts, devices, first=job.slots_made)
    return (*kept, *fresh), tuple(lost)
