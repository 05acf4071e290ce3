"""What is always so of the records, whatever happens. Checked in tests, and on request live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from modelyard.control.lifecycle.job import Form, Job
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import State


def violations(jobs: Mapping[str, Job], nodes: Mapping[str, NodeRecord]) -> Iterator[str]:
    """Every invariant that does not hold, in words."""
    for job in jobs.values():
        for what in _of_job(job):
            yield f"job {job.id} ({job.state}, {job.reason}): {what}"
    given = Counter(
        (slot.node, device)
        for job in jobs.values()
        if job.state.placed
        for slot in job.slots
        for device in slot.devices
    )
    for (node, device), count in given.items():
        if count > 1:
            yield f"device {device} of {node} is given to {count} slots"
        if node not in nodes or not 0 <= device < nodes[node].devices:
            yield f"device {device} of {node} is given away and does not exist"


def _of_job(job: Job) -> Iterator[str]:
    tasks = list(job.tasks())
    if (job.state is State.STOPPING) != (job.then is not None):
        yield "exactly a stopping job knows where it goes"
    if job.state is State.STOPPING and not tasks:
        yield "it stops although it has no tasks"
    if not job.state.placed and job.state is not State.STOPPING and (tasks or job.slots):
        yield "it holds tasks or devices and should hold none"
    if job.state.placed:
        if not job.slots:
            yield "it is placed and has no devices"
        if (job.facts.form is Form.ELASTIC) != (job.conductor is not None):
            yield "exactly an elastic job has a conductor"
    numbers = [slot.number for slot in (*job.slots, *job.leaving)]
    if len(set(numbers)) < len(numbers) or any(number >= job.slots_made for number in numbers):
        yield f"its slots are numbered {numbers}, of {job.slots_made}"
    if job.elastic and any(len(slot.devices) != job.facts.worker_devices for slot in job.slots):
        yield f"its workers do not have {job.facts.worker_devices} devices each"
    if job.leaving and job.facts.form is Form.COMMAND:
        yield "a command cannot lose some of its devices"
