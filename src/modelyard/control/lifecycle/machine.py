"""The one table of what follows from what: `Lifecycle.handle(event) -> Outcome`.

`handle` changes nothing. Whoever drives it makes an outcome durable first and then `apply`s it, so
that nothing is ever done of which the log knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import singledispatchmethod

from modelyard.control.lifecycle import health, places
from modelyard.control.lifecycle.endings import OWN_FAULT, Ending, after_death, ending
from modelyard.control.lifecycle.events import (
    Decided,
    DeviceTurned,
    Event,
    Halted,
    NodeSeen,
    NodeTurned,
    Noted,
    ProbeOver,
    Progressed,
    Relieved,
    Rescoped,
    Submitted,
    TaskOver,
    TaskRefused,
    TaskUp,
    Wish,
    Wished,
)
from modelyard.control.lifecycle.job import CONDUCTOR_SLOT, Form, Job, Slot
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.outcomes import NOTHING, Entry, Outcome, joined, of_node, told
from modelyard.control.lifecycle.states import Reason, State
from modelyard.engines.interface import TaskName
from modelyard.errors import InputError


class NotPossible(InputError):
    """What was asked cannot be done to the job as it is."""


_WITH_TASKS = frozenset((State.STARTING, State.RUNNING, State.STOPPING))


class Lifecycle:
    """All jobs that are not over and all nodes, as the last applied outcome left them."""

    def __init__(self, jobs: Iterable[Job] = (), nodes: Iterable[NodeRecord] = ()) -> None:
        self.jobs: dict[str, Job] = {job.id: job for job in jobs if not job.state.over}
        #: those of them that may have tasks: few, where thousands may wait
        self.active: dict[str, Job] = {
            job.id: job for job in self.jobs.values() if job.state in _WITH_TASKS
        }
        self.nodes: dict[str, NodeRecord] = {node.name: node for node in nodes}

    def apply(self, outcome: Outcome) -> None:
        """Let an outcome be so."""
        for node in outcome.nodes:
            self.nodes[node.name] = node
        for job in outcome.jobs:
            if job.state.over:
                self.jobs.pop(job.id, None)
            else:
                self.jobs[job.id] = job
            if job.state in _WITH_TASKS:
                self.active[job.id] = job
            else:
                self.active.pop(job.id, None)

    def copy(self) -> Lifecycle:
        """The same records, which stay as they are now: for whoever thinks about them for long."""
        found = Lifecycle()
        found.jobs, found.active = dict(self.jobs), dict(self.active)
        found.nodes = dict(self.nodes)
        return found

    @singledispatchmethod
    def handle(self, event: Event) -> Outcome:
        """What follows from an event; nothing when it is old news."""
        raise TypeError(f"{type(event).__name__} is no event")

    # People.

    @handle.register
    def _(self, event: Submitted) -> Outcome:
        job = event.job
        if job.id in self.jobs:
            return NOTHING
        return told(job, event.at, "submitted", who=job.facts.owner)

    @handle.register
    def _(self, event: Wished) -> Outcome:
        job = self._known(event.job)
        wanted = _WISHES[event.wish]
        if event.wish is Wish.RESUME:
            return _resumed(job, event)
        what = f"{wanted.reason} by {event.who}"
        if job.then is not None and job.then[0].over:
            raise NotPossible(f"job {job.id} is ending already", fix="wait until it has ended")
        if job.state.placed or job.state is State.STOPPING:
            stopping = _stopping(job, event.at, replace(wanted, detail=what))
            return told(stopping, event.at, what, who=event.who)
        return told(
            job.moved(wanted.state, wanted.reason, event.at, what), event.at, what, who=event.who
        )

    @handle.register
    def _(self, event: Rescoped) -> Outcome:
        job = self._known(event.job)
        low, high = event.min_devices, event.max_devices
        if not 1 <= low <= high:
            raise NotPossible(
                f"at least {low} and at most {high} devices is no range",
                fix="write 1 or more at least, and as many or more at most: --min 1 --max 4",
            )
        each = job.facts.worker_devices
        if low % each or high % each:
            what = f"workers of job {job.id} have {each} devices each"
            raise NotPossible(what, fix=f"write multiples of {each}")
        changed = replace(job, min_devices=low, max_devices=high, priority=event.priority)
        if changed == job:
            return NOTHING
        what = f"{low} to {high} devices, priority {event.priority}, as {event.who} asked"
        rescoped = told(changed, event.at, what, who=event.who)
        if not job.state.placed or job.devices <= high:
            return rescoped
        # Policies keep a running job's size or grow it; that it has too much is known here.
        if not job.elastic:
            what = f"stopped to run on {high} devices or fewer"
            return joined((rescoped, _stopped(changed, event.at, _LATER[Reason.MOVED], what)))
        oldest = tuple(sorted(job.slots, key=lambda slot: slot.number)[: high // each])
        return joined(
            (rescoped, self._resized(changed, event.at, replace(job, slots=tuple(oldest)).parts))
        )

    # The policy.

    @handle.register
    def _(self, event: Decided) -> Outcome:
        job = self.jobs.get(event.job)
        if job is None or job.state in (State.STOPPING, State.PAUSED):
            return NOTHING
        if job.state is State.WAITING:
            return self._placed(job, event) if event.parts else NOTHING
        if event.parts == job.parts:
            return NOTHING
        if not event.parts:
            return _stopped(job, event.at, _LATER[Reason.PREEMPTED], "stopped by the policy")
        if job.elastic:
            return self._resized(job, event.at, event.parts)
        what = f"stopped to run on {_in_words(event.parts)}"
        return _stopped(job, event.at, _LATER[Reason.MOVED], what)

    def _placed(self, job: Job, event: Decided) -> Outcome:
        """Start an attempt; nothing where the devices were taken meanwhile."""
        if event.at < job.not_before or not places.whole(job.facts, event.parts):
            return NOTHING
        try:
            devices = self._devices_for(event.parts)
        except places.NoSuchPlace:
            return NOTHING
        slots = places.slots_for(job.facts, devices)
        conductor = None
        if job.facts.form is Form.ELASTIC:
            conductor = Slot(number=CONDUCTOR_SLOT, node=slots[0].node, devices=())
        started = replace(
            job.accounted(event.at),
            attempt=job.attempt + 1,
            slots=slots,
            slots_made=len(slots),
            conductor=conductor,
            first_start=job.first_start if job.first_start is not None else event.at,
        ).moved(State.STARTING, Reason.PLACED, event.at)
        return told(started, event.at, f"placed on {_in_words(event.parts)}")

    def _resized(self, job: Job, at: float, parts: tuple[tuple[str, int], ...]) -> Outcome:
        if not places.whole(job.facts, parts):
            return NOTHING
        others = [one for one in self.active.values() if one.id != job.id]
        own = {(slot.node, device) for slot in job.slots for device in slot.devices}
        taken, busy = places.given(others) | own, places.held(others)
        try:
            slots, lost = places.resized(job, parts, self.nodes, taken, busy)
        except places.NoSuchPlace:
            return NOTHING
        if {slot.number for slot in slots} == {slot.number for slot in job.slots}:
            return NOTHING
        made = job.slots_made + sum(slot.number >= job.slots_made for slot in slots)
        changed = replace(
            job.accounted(at), slots=slots, leaving=(*job.leaving, *lost), slots_made=made
        )
        reason = Reason.RESIZED if job.state is State.RUNNING else job.reason
        changed = changed.moved(job.state, reason, at)
        return told(changed, at, f"resized to {_in_words(changed.parts)}")

    def _devices_for(self, parts: tuple[tuple[str, int], ...]) -> dict[str, tuple[int, ...]]:
        jobs = self.active.values()
        return places.choose(parts, self.nodes, places.given(jobs), places.held(jobs))

    # The engine.

    @handle.register
    def _(self, event: TaskUp) -> Outcome:
        job, slot = self._slot(event.task)
        if job is None or slot is None or slot.up:
            return NOTHING
        changed = _with_slot(job, slot, replace(slot, up=True))
        whole = all(one.up or one.done for _, one in changed.tasks())
        if not whole or not job.state.placed:
            return Outcome(jobs=(changed,))
        return told(changed.moved(State.RUNNING, Reason.UP, event.at), event.at, "all tasks are up")

    @handle.register
    def _(self, event: TaskRefused) -> Outcome:
        job, slot = self._slot(event.task)
        if job is None or slot is None or not job.state.placed:
            return NOTHING
        end = Ending(State.FAILED, Reason.CANNOT_START, event.why)
        return _stopped(_without(job.accounted(event.at), slot), event.at, end, event.why)

    @handle.register
    def _(self, event: TaskOver) -> Outcome:
        job, slot = self._slot(event.task)
        if job is None or slot is None:
            return NOTHING
        if job.state is State.STOPPING or slot in job.leaving:
            return _ended(_without(job.accounted(event.at), slot), event.at)
        if event.exit is not None and event.exit.code == 0 and not job.elastic:
            return _finished_part(job, slot, event.at)
        if slot.number == CONDUCTOR_SLOT and event.exit is not None and event.exit.code == 0:
            end = Ending(State.SUCCEEDED, Reason.COMPLETED, "")
            return _stopped(
                _without(job.accounted(event.at), slot), event.at, end, "all steps are done"
            )
        return joined((self._died(job, slot, event), self._noted_on_node(job, slot, event)))

    def _died(self, job: Job, slot: Slot, event: TaskOver) -> Outcome:
        """What follows for the job from the end of a task that was to go on."""
        found = ending(event.exit, slot)
        died = replace(
            job,
            deaths=job.deaths + 1,
            failures=job.failures + (found.reason in OWN_FAULT),
            culprit=str(event.task),
        )
        follows = after_death(died, found, event.at)
        what = f"{slot.role} {found.detail}"
        if follows.state is not State.RUNNING:
            return _stopped(_without(died.accounted(event.at), slot), event.at, follows, what)
        # Another task takes the slot, while the others go on.
        changed = _with_slot(died, slot, slot.again(not_before=follows.not_before))
        if job.state is State.RUNNING:
            changed = changed.moved(State.RUNNING, Reason.HEALING, event.at, what)
        return told(changed, event.at, f"{what}; it is started again")

    def _noted_on_node(self, job: Job, slot: Slot, event: TaskOver) -> Outcome:
        node = self.nodes.get(slot.node)
        if node is None or event.exit is None or not health.is_suspicious(event.exit):
            return NOTHING
        noted = health.with_death(node, slot.devices, job.id, event.at, event.exit)
        return Outcome(nodes=(noted,)) if noted != node else NOTHING

    @handle.register
    def _(self, event: Progressed) -> Outcome:
        job = self.jobs.get(event.job)
        if job is None or event.steps == job.steps:
            return NOTHING
        # Fewer than before: what was lost is done again.
        deaths = 0 if event.steps > job.steps else job.deaths
        seconds = event.step_seconds
        job = replace(job, steps=event.steps, step_seconds=seconds, deaths=deaths)
        return Outcome(jobs=(job,))

    # Nodes.

    @handle.register
    def _(self, event: NodeSeen) -> Outcome:
        known = self.nodes.get(event.node.name)
        if known is not None:
            node = health.within(replace(known, kind=event.node.kind), event.node.devices)
            return NOTHING if node == known else Outcome(nodes=(node,))
        entry = Entry(at=event.at, node=event.node.name, what="a node of the yard now")
        return Outcome(nodes=(replace(event.node, since=event.at),), entries=(entry,))

    @handle.register
    def _(self, event: NodeTurned) -> Outcome:
        node = self.nodes.get(event.node)
        if node is None:
            raise NotPossible(f"there is no node '{event.node}'", fix="see 'yard nodes'")
        if node.health is event.health:
            return NOTHING
        changed = replace(node, health=event.health, detail=event.why, since=event.at)
        entry = Entry(
            at=event.at,
            node=node.name,
            what=f"{event.health}{f': {event.why}' if event.why else ''}",
            who=event.who,
        )
        outcome = Outcome(nodes=(changed,), entries=(entry,))
        if event.health in (Health.IN_SERVICE, Health.OVERLOADED):
            return outcome
        lost = event.health is Health.SILENT
        reason = Reason.NODE_LOST if lost else Reason.NODE_DRAINED
        return self._evacuated(outcome, changed, range(node.devices), event.at, reason)

    @handle.register
    def _(self, event: DeviceTurned) -> Outcome:
        node = self.nodes.get(event.node)
        if node is None or not 0 <= event.device < node.devices:
            what = f"there is no device {event.device} on '{event.node}'"
            raise NotPossible(what, fix="see 'yard nodes'")
        if event.device in node.probes:
            if event.why:
                return NOTHING
            what = f"device {event.device} of {node.name} is being probed"
            raise NotPossible(what, fix="it returns by itself when it passes")
        if node.out.get(event.device, "") == event.why:
            return NOTHING
        if not event.why:
            changed = health.given_back(node, event.device)
            return of_node(changed, event.at, f"device {event.device} is in service again")
        changed = health.taken_out(node, event.device, event.why, probe=event.probe)
        what = f"device {event.device} is out of service: {event.why}"
        reason = Reason.DEVICE_FAILED if event.probe else Reason.NODE_DRAINED
        noted = of_node(changed, event.at, what)
        return self._evacuated(noted, changed, (event.device,), event.at, reason)

    @handle.register
    def _(self, event: ProbeOver) -> Outcome:
        node = self.nodes.get(event.node)
        probe = node.probes.get(event.device) if node is not None else None
        if node is None or probe is None or probe.number != event.number:
            return NOTHING
        device = f"device {event.device}"
        if event.exit is not None and event.exit.code == 0:
            changed = health.given_back(node, event.device)
            return of_node(changed, event.at, f"{device} has passed its probe: in service again")
        slot = Slot(number=0, node=node.name, devices=(event.device,))
        how = event.why or ending(event.exit, slot).detail
        changed = health.failed_again(node, event.device, event.at, how)
        pause = changed.probes[event.device].not_before - event.at
        what = f"{device} has not passed its probe, which {how}; the next is in {pause:.0f} s"
        return of_node(changed, event.at, what)

    @handle.register
    def _(self, event: Relieved) -> Outcome:
        """Take the newest worker that its job can do without away from a node."""
        found = [
            (job.first_start or 0.0, slot.number, job, slot)
            for job in self.active.values()
            if job.elastic and job.state is State.RUNNING
            if job.devices - job.facts.worker_devices >= job.min_devices
            for slot in job.slots
            if slot.node == event.node
        ]
        if not found:
            return NOTHING
        _, _, job, slot = max(found, key=lambda one: one[:2])
        left = tuple(one for one in job.slots if one is not slot)
        fewer = replace(job.accounted(event.at), slots=left, leaving=(*job.leaving, slot))
        fewer = fewer.moved(job.state, Reason.RESIZED, event.at, f"{event.node} is overloaded")
        return told(fewer, event.at, f"gives {slot.role} up: {event.node} is overloaded")

    def _evacuated(
        self, so_far: Outcome, node: NodeRecord, devices: Iterable[int], at: float, reason: Reason
    ) -> Outcome:
        """Take every job away from some devices of a node."""
        gone = {(node.name, device) for device in devices}
        results = [so_far]
        for job in self.active.values():
            if not job.state.placed:
                continue
            lost = tuple(
                slot for slot in job.slots if any((slot.node, one) in gone for one in slot.devices)
            )
            if not lost:
                continue
            left = tuple(slot for slot in job.slots if slot not in lost)
            conducted = job.conductor is not None and (
                node.in_service() != () or job.conductor.node != node.name
            )
            if conducted and sum(len(slot.devices) for slot in left) >= job.min_devices:
                fewer = replace(job.accounted(at), slots=left, leaving=(*job.leaving, *lost))
                fewer = fewer.moved(job.state, Reason.RESIZED, at, f"{reason}: {node.name}")
                results.append(told(fewer, at, f"goes on without {node.name}"))
            else:
                what = f"stopped: {reason} ({node.name})"
                results.append(_stopped(job, at, _LATER[reason], what))
        return joined(results)

    # The yard itself.

    @handle.register
    def _(self, event: Halted) -> Outcome:
        what = f"stopped: {event.who} takes the yard down"
        placed = [job for job in self.active.values() if job.state.placed]
        return joined(_stopped(job, event.at, _LATER[Reason.YARD_DOWN], what) for job in placed)

    @handle.register
    def _(self, event: Noted) -> Outcome:
        return Outcome(entries=(Entry(at=event.at, what=event.what),))

    # Looking things up.

    def _known(self, name: str) -> Job:
        job = self.jobs.get(name)
        if job is None:
            raise NotPossible(f"job {name} is over or unknown", fix="see 'yard ps --all'")
        return job

    def _slot(self, task: TaskName) -> tuple[Job | None, Slot | None]:
        """The job and the slot whose present task this is; None for strangers."""
        job = self.jobs.get(task.job)
        if job is None or job.attempt != task.attempt:
            return None, None
        found = [slot for name, slot in job.tasks() if name == task]
        return job, found[0] if found else None


_WISHES: Mapping[Wish, Ending] = {
    Wish.PAUSE: Ending(State.PAUSED, Reason.PAUSED, ""),
    Wish.CANCEL: Ending(State.CANCELLED, Reason.CANCELLED, ""),
    Wish.RESUME: Ending(State.WAITING, Reason.RESUMED, ""),
}

#: what a job is that was stopped by no fault of its own
_LATER: Mapping[Reason, Ending] = {
    reason: Ending(State.WAITING, reason, "")
    for reason in (
        Reason.PREEMPTED,
        Reason.MOVED,
        Reason.NODE_LOST,
        Reason.NODE_DRAINED,
        Reason.YARD_DOWN,
        Reason.DEVICE_FAILED,
    )
}


def _resumed(job: Job, event: Wished) -> Outcome:
    what = f"resumed by {event.who}"
    if job.state is State.PAUSED:
        moved = job.moved(State.WAITING, Reason.RESUMED, event.at)
        return told(replace(moved, not_before=0.0), event.at, what, who=event.who)
    if job.state is State.STOPPING and job.then == (State.PAUSED, Reason.PAUSED):
        soon = replace(
            job, then=(State.WAITING, Reason.RESUMED), detail="resumed as soon as it has stopped"
        )
        return told(soon, event.at, what, who=event.who)
    raise NotPossible(f"job {job.id} is {job.state}, not paused", fix="see 'yard ps'")


def _stopped(job: Job, at: float, end: Ending, what: str) -> Outcome:
    """Ask a placed job's tasks to end; what it is afterwards is known already."""
    stopping = replace(_stopping(job, at, end), not_before=end.not_before)
    return joined((told(stopping, at, what), _ended(stopping, at)))


def _stopping(job: Job, at: float, end: Ending) -> Job:
    then = (end.state, end.reason)
    return replace(job.accounted(at), then=then).moved(State.STOPPING, end.reason, at, end.detail)


def _ended(job: Job, at: float) -> Outcome:
    """The job when it has no tasks any more: where it was to go."""
    if job.state is not State.STOPPING or any(True for _ in job.tasks()):
        return Outcome(jobs=(job,))
    assert job.then is not None
    state, reason = job.then
    moved = replace(job, then=None, slots=()).moved(state, reason, at, job.detail)
    return told(moved, at, "its last task has ended")


def _finished_part(job: Job, slot: Slot, at: float) -> Outcome:
    """One node's command has ended well; the job is done when all have."""
    changed = _with_slot(job, slot, replace(slot, up=True, done=True))
    if not all(one.done for one in changed.slots):
        return Outcome(jobs=(changed,))
    end = Ending(State.SUCCEEDED, Reason.COMPLETED, "")
    return _stopped(changed, at, end, "the command has ended well everywhere")


def _with_slot(job: Job, old: Slot, new: Slot) -> Job:
    if old.number == CONDUCTOR_SLOT:
        return replace(job, conductor=new)
    return replace(
        job,
        slots=tuple(new if slot is old else slot for slot in job.slots),
        leaving=tuple(new if slot is old else slot for slot in job.leaving),
    )


def _without(job: Job, gone: Slot) -> Job:
    if gone.number == CONDUCTOR_SLOT:
        return replace(job, conductor=None)
    return replace(
        job,
        slots=tuple(slot for slot in job.slots if slot is not gone),
        leaving=tuple(slot for slot in job.leaving if slot is not gone),
    )


def _in_words(parts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(
        f"{count} device{'' if count == 1 else 's'} of {node}" for node, count in parts
    )
