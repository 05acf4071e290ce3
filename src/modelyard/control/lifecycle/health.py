"""When a device is suspected, how it is probed, and when it returns.

    deaths → suspects → out of service → probe → in service again, or a longer pause and a probe

A device is taken out when a task says that it has failed, or when tasks of several jobs died on it.
One job's tasks may die of its own mistakes; those of different jobs have the device in common.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from modelyard.control.lifecycle.events import DeviceTurned
from modelyard.control.lifecycle.node import Death, NodeRecord, Probe
from modelyard.engines.interface import Exit, TaskName
from modelyard.units import format_duration

_Kept = TypeVar("_Kept")

#: A program that finds its device broken ends with this code; `YARD_DEVICE_FAULT` tells it.
DEVICE_FAULT_CODE = 86
#: Tasks of so many jobs die on a device within that time before it is suspected. A probe takes a
#: second or two, so a wrong suspicion costs little, and a right one saves the jobs to come.
SUSPECT_JOBS, SUSPECT_SECONDS = 3, 600.0
#: Signals with which programs end that compute on broken devices; others come from people.
CRASHES = frozenset((4, 6, 7, 8, 11))
#: After a failed probe: the first pause, and the longest. Each is twice the one before. What was
#: unplugged is back in minutes; what is broken is not probed to death.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 1800.0
#: A probe that takes longer has failed: drivers of broken devices hang.
PROBE_SECONDS = 60.0


def is_suspicious(exit: Exit | None) -> bool:
    """Whether such an end may be a device's doing."""
    if exit is None or exit.out_of_memory or exit.asked:
        return False
    return exit.signal in CRASHES if exit.signal is not None else bool(exit.code)


def with_death(
    node: NodeRecord, devices: Iterable[int], job: str, at: float, exit: Exit
) -> NodeRecord:
    """The node with a note of what happened there; old notes are dropped."""
    recent = tuple(death for death in node.deaths if death.at > at - SUSPECT_SECONDS)
    fault = exit.code == DEVICE_FAULT_CODE
    return replace(node, deaths=(*recent, *(Death(device, job, at, fault) for device in devices)))


def suspects(nodes: Iterable[NodeRecord], now: float) -> Iterator[DeviceTurned]:
    """Devices to be taken out of service because of what happened on them."""
    for node in nodes:
        for device in sorted({death.device for death in node.deaths} - node.out.keys()):
            deaths = [
                one
                for one in node.deaths
                if one.device == device and one.at > now - SUSPECT_SECONDS
            ]
            told = [death.job for death in deaths if death.fault]
            jobs = {death.job for death in deaths}
            if told:
                yield DeviceTurned(now, node.name, device, f"failed, says job {told[0]}", True)
            elif len(jobs) >= SUSPECT_JOBS:
                within = format_duration(SUSPECT_SECONDS)
                why = f"tasks of {len(jobs)} jobs died on it within {within}"
                yield DeviceTurned(now, node.name, device, why, True)


def taken_out(node: NodeRecord, device: int, why: str, *, probe: bool) -> NodeRecord:
    """The node without a device; what happened on it is judged by that."""
    changed = replace(
        node,
        out={**node.out, device: why},
        deaths=tuple(death for death in node.deaths if death.device != device),
    )
    return _probed(changed, device, Probe(node.probes_made + 1)) if probe else changed


def given_back(node: NodeRecord, device: int) -> NodeRecord:
    return replace(node, out=_without(node.out, device), probes=_without(node.probes, device))


def failed_again(node: NodeRecord, device: int, at: float, what: str) -> NodeRecord:
    """The node after a probe that was not passed, with the next one to come."""
    failed = node.probes[device].failed + 1
    pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (failed - 1), LONGEST_PAUSE_SECONDS)
    why = f"{node.out[device].partition(';')[0]}; its probe {what}, {failed} in a row"
    changed = replace(node, out={**node.out, device: why})
    return _probed(changed, device, Probe(node.probes_made + 1, failed, at + pause))


def within(node: NodeRecord, devices: int) -> NodeRecord:
    """The node without what is known of devices that it has no more."""
    return replace(
        node,
        devices=devices,
        out={device: why for device, why in node.out.items() if device < devices},
        probes={device: probe for device, probe in node.probes.items() if device < devices},
    )


def probe_tasks(nodes: Iterable[NodeRecord]) -> Iterator[tuple[TaskName, NodeRecord, int]]:
    """The task that each probe is, with its node and device."""
    for node in nodes:
        # Names of nodes may have letters that names of tasks may not.
        short = hashlib.sha256(node.name.encode()).hexdigest()[:12]
        for device, probe in node.probes.items():
            yield TaskName(f"probe-{short}-{device}", probe.number, "probe"), node, device


def _probed(node: NodeRecord, device: int, probe: Probe) -> NodeRecord:
    return replace(node, probes={**node.probes, device: probe}, probes_made=probe.number)


def _without(found: Mapping[int, _Kept], device: int) -> dict[int, _Kept]:
    return {number: one for number, one in found.items() if number != device}
