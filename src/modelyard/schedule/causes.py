"""The reasons for which a job waits, one class each: its numbers, its check and its words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from modelyard.schedule.facts import Facts
from modelyard.schedule.jobs import JobCard
from modelyard.schedule.placement import Strategy
from modelyard.schedule.reasons import Reason, Served
from modelyard.units import format_duration

#: More names than this hide the sentence they stand in.
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class KindAbsent:
    reason: ClassVar[Reason] = Reason.KIND_ABSENT
    job: str
    wanted: tuple[str, ...]
    present: tuple[str, ...]

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            card.kinds == self.wanted
            and facts.view.cluster.kinds == self.present
            and not facts.kinds_for(card)
        )

    def __str__(self) -> str:
        return f"it asks for {_either(self.wanted)}, and the cluster has {_all(self.present)}"

    def remedy(self) -> str:
        return f"allow {_either(self.present)}, or add nodes with {_either(self.wanted)}"


@dataclass(frozen=True, slots=True)
class LargerThanCluster:
    reason: ClassVar[Reason] = Reason.LARGER_THAN_CLUSTER
    job: str
    needs: int
    largest: int

    def holds(self, facts: Facts, card: JobCard) -> bool:
        largest = facts.most(card, facts.capacity_of)
        return _is_size(card, self.needs) and largest == self.largest < self.needs

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)} of one kind, and the whole cluster has {self.largest}"
        )

    def remedy(self) -> str:
        return f"ask for at most {self.largest}, or add {_devices(self.needs - self.largest)}"


@dataclass(frozen=True, slots=True)
class LargerThanLimit:
    reason: ClassVar[Reason] = Reason.LARGER_THAN_LIMIT
    job: str
    tenant: str
    needs: int
    limit: int

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            card.tenant == self.tenant
            and facts.view.tenant(self.tenant).maximum == self.limit
            and _is_size(card, self.needs)
            and self.limit < self.needs
        )

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)}, and tenant {self.tenant} may hold {self.limit} "
            "at most"
        )

    def remedy(self) -> str:
        return f"ask for at most {self.limit}, or raise the tenant's limit to {self.needs}"


@dataclass(frozen=True, slots=True)
class Unplaceable:
    reason: ClassVar[Reason] = Reason.UNPLACEABLE
    job: str
    needs: int
    strategy: Strategy

    def holds(self, facts: Facts, card: JobCard) -> bool:
        empty = facts.view.cluster.capacity
        return (
            _is_size(card, self.needs)
            and self.needs <= facts.most(card, facts.capacity_of)
            and not facts.placeable(card, self.needs, self.strategy, empty)
        )

    def __str__(self) -> str:
        return (
            f"the {self.strategy.value} placement has no layout for {_devices(self.needs)} "
            "even on the empty cluster"
        )

    def remedy(self) -> str:
        return "ask for whole nodes or for less than one, or use another placement"


@dataclass(frozen=True, slots=True)
class TenantAtLimit:
    reason: ClassVar[Reason] = Reason.TENANT_AT_LIMIT
    job: str
    tenant: str
    needs: int
    used: int
    limit: int

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            card.tenant == self.tenant
            and facts.used_by.get(self.tenant, 0) == self.used
            and facts.view.tenant(self.tenant).maximum == self.limit
            and _is_size(card, self.needs)
            and self.used + self.needs > self.limit >= self.needs
        )

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)}, and tenant {self.tenant} uses {self.used} "
            f"of the {self.limit} it may hold"
        )

    def remedy(self) -> str:
        short = self.used + self.needs - self.limit
        return f"{_devices(short)} of tenant {self.tenant} must be given back"


@dataclass(frozen=True, slots=True)
class NotEnoughFree:
    """`free` counts the kind with most room: a gang stays on one kind."""

    reason: ClassVar[Reason] = Reason.NOT_ENOUGH_FREE
    job: str
    needs: int
    free: int
    #: devices in all that must become free, with what those served before it take of them;
    #: None where a number cannot tell
    more: int | None = None

    def holds(self, facts: Facts, card: JobCard) -> bool:
        free = facts.most(card, facts.free_of)
        return _is_size(card, self.needs) and free == self.free < self.needs

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)} of one kind, and {self.free or 'none'} "
            f"{_are(self.free)} free"
        )

    def remedy(self) -> str:
        if self.more is None:
            return f"{_devices(self.needs)} of one kind must be free for it"
        return f"{_devices(self.more, 'more device')} must become free"


@dataclass(frozen=True, slots=True)
class KindBusy:
    reason: ClassVar[Reason] = Reason.KIND_BUSY
    job: str
    needs: int
    kinds: tuple[str, ...]
    free: int
    #: a kind that the job does not allow, with enough free devices
    idle_kind: str
    idle: int
    #: devices in all that must become free, with what those served before it take of them;
    #: None where a number cannot tell
    more: int | None = None

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            _is_size(card, self.needs)
            and facts.kinds_for(card) == self.kinds
            and facts.most(card, facts.free_of) == self.free < self.needs
            and self.idle_kind not in self.kinds
            and facts.free_of.get(self.idle_kind) == self.idle >= self.needs
        )

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)} of kind {_either(self.kinds)}, of which "
            f"{self.free or 'none'} {_are(self.free)} free"
        )

    def remedy(self) -> str:
        kinds = _either(self.kinds)
        if self.more is None:
            text = f"{_devices(self.needs)} of kind {kinds} must be free for it"
        else:
            text = f"{_devices(self.more, 'more device')} of kind {kinds} must become free"
        return f"{text}, or allow {self.idle_kind}, of which {self.idle} {_are(self.idle)} free"


@dataclass(frozen=True, slots=True)
class Fragmented:
    reason: ClassVar[Reason] = Reason.FRAGMENTED
    job: str
    needs: int
    free: int
    strategy: Strategy

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            _is_size(card, self.needs)
            and facts.most(card, facts.free_of) == self.free >= self.needs
            and not facts.placeable(card, self.needs, self.strategy, facts.view.free)
        )

    def __str__(self) -> str:
        return (
            f"it needs {_devices(self.needs)} and {self.free} {_are(self.free)} free, but too "
            f"scattered for the {self.strategy.value} placement"
        )

    def remedy(self) -> str:
        return f"{_devices(self.needs)} must become free closer together"


@dataclass(frozen=True, slots=True)
class NodesOut:
    reason: ClassVar[Reason] = Reason.NODES_OUT
    job: str
    needs: int
    #: devices of the job's kinds that are out of service
    out: int
    #: the most devices of one of its kinds that are in service, free or not
    in_service: int

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            _is_size(card, self.needs)
            and facts.out_of_service(card) == self.out > 0
            and facts.most(card, facts.in_service_of) == self.in_service
            and facts.most(card, facts.free_of) < self.needs
        )

    @property
    def decisive(self) -> bool:
        """Whether the job cannot start before a node returns."""
        return self.in_service < self.needs

    def __str__(self) -> str:
        text = f"{_devices(self.out)} that it could use {_are(self.out)} out of service"
        if not self.decisive:
            return text
        return f"{text}, and {self.in_service} in service {_are(self.in_service)} too few"

    def remedy(self) -> str:
        return "nodes must return to service" if self.decisive else ""


@dataclass(frozen=True, slots=True)
class Preempted:
    reason: ClassVar[Reason] = Reason.PREEMPTED
    job: str
    at: float
    #: the jobs that got devices in the same decision
    gainers: tuple[str, ...]

    def holds(self, facts: Facts, card: JobCard) -> bool:
        jobs = facts.view.jobs
        gainers = [jobs.find(gainer) for gainer in self.gainers]
        own = jobs.find(card.id)
        return (
            own is not None
            and bool(self.at == facts.view.now == jobs.since[own])
            and bool(jobs.first_start[own] <= self.at)
            and all(
                at is not None and jobs.running[at] and jobs.since[at] == self.at for at in gainers
            )
        )

    def __str__(self) -> str:
        if not self.gainers:
            return "it was stopped now, although nobody else got devices"
        return f"it was stopped now, as {_names(self.gainers)} got devices"

    def remedy(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    reason: ClassVar[Reason] = Reason.INTERRUPTED
    job: str
    at: float
    run_seconds: float

    def holds(self, facts: Facts, card: JobCard) -> bool:
        jobs = facts.view.jobs
        own = jobs.find(card.id)
        return bool(
            own is not None
            and jobs.first_start[own] <= self.at < facts.view.now
            and jobs.since[own] == self.at
            and jobs.run_seconds[own] == self.run_seconds
        )

    def __str__(self) -> str:
        return f"it ran for {format_duration(self.run_seconds)} before it was stopped"

    def remedy(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class HeldInOrder:
    reason: ClassVar[Reason] = Reason.HELD_IN_ORDER
    job: str
    needs: int
    blocker: str
    strategy: Strategy
    #: devices in all that must become free, with what those served before it take of them;
    #: None where a number cannot tell
    more: int | None = None

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            _is_size(card, self.needs)
            and self.blocker != self.job
            and facts.waiting_card(self.blocker) is not None
            and facts.fits(card, self.needs, self.strategy)
        )

    def __str__(self) -> str:
        return (
            f"{_devices(self.needs)} {_are(self.needs)} free for it, but this policy lets nobody "
            f"pass job {self.blocker}, which waits"
        )

    def remedy(self) -> str:
        if self.more is None:
            return f"job {self.blocker} must start first"
        return f"{_devices(self.more, 'more device')} must become free"


@dataclass(frozen=True, slots=True)
class BehindOthers:
    reason: ClassVar[Reason] = Reason.BEHIND_OTHERS
    job: str
    jobs: int
    held: int
    asked: int
    #: all jobs in the order in which they are served; shared by the causes of one explanation
    queue: tuple[str, ...] = field(repr=False)
    #: how many of those ahead have a higher priority
    outranking: int = 0
    #: those ahead who wait and get what falls free before it does
    first: Served | None = None

    @property
    def ahead(self) -> tuple[str, ...]:
        return self.queue[: self.jobs]

    def holds(self, facts: Facts, card: JobCard) -> bool:
        table = facts.view.jobs
        if not 0 < self.jobs < len(self.queue) or self.queue[self.jobs] != card.id:
            return False
        found = [at for job in self.ahead if (at := table.find(job)) is not None]
        if len(found) < self.jobs:
            return False
        ahead = np.array(found, dtype=np.int64)
        waiting = ahead[~table.running[ahead]]
        return (
            int(facts.owned[ahead].sum()) == self.held
            and int(table.devices[waiting].sum()) == self.asked
            and int((table.priority[ahead] > card.priority).sum()) == self.outranking
            and all(
                facts.waiting_card(job) is not None
                for job in (self.first.names if self.first else ())
            )
        )

    def __str__(self) -> str:
        parts = [f"holding {_devices(self.held)}"] if self.held else []
        parts += [f"waiting for {_devices(self.asked)}"] if self.asked else []
        rank = _rank(self.outranking, self.jobs)
        return f"{_names(self.ahead)} ahead of it{rank}, {' and '.join(parts)}"

    def remedy(self) -> str:
        if self.first is None:
            return ""
        jobs, devices = self.first.jobs, self.first.devices
        who = f"job {self.first.names[0]}" if jobs == 1 else _names(self.first.names, jobs)
        take = "may take" if not self.first.certain else "takes" if jobs == 1 else "take"
        return f"{who}{_rank(self.first.outranking, jobs)} ahead of it {take} {devices} first"


@dataclass(frozen=True, slots=True)
class NotChosen:
    reason: ClassVar[Reason] = Reason.NOT_CHOSEN
    job: str
    needs: int
    #: free devices of the kind that it could use most of
    free: int
    #: devices that running jobs hold beyond the fewest that each could do with
    above_minimum: int
    #: jobs that run
    running: int
    #: devices by which what is free falls short of every waiting job's smallest size; 0 where it
    #: does not, or where kinds and limits make one number meaningless
    short: int = 0

    def holds(self, facts: Facts, card: JobCard) -> bool:
        return (
            _is_size(card, self.needs)
            and facts.most(card, facts.free_of) == self.free
            and facts.above_minimum == self.above_minimum
            and int(facts.view.jobs.running.sum()) == self.running
        )

    def __str__(self) -> str:
        if not self.running:
            return "the policy weighed all jobs together and left it waiting"
        if not self.above_minimum:
            return "the policy weighed all jobs together and chose others"
        return (
            "the policy weighed all jobs together and chose others, which hold "
            f"{_devices(self.above_minimum)} beyond their minimum"
        )

    def remedy(self) -> str:
        text = "the policy must value its start above " + (
            "what others do with the devices" if self.running else "keeping devices free"
        )
        if not self.short:
            return text
        return f"{text} ({_devices(self.short, 'more device')} would be enough for all who wait)"


def _is_size(card: JobCard, needs: int) -> bool:
    """A policy starts a job at the size it asked for, or at its smallest one."""
    return needs in (card.devices, card.min_devices)


def _devices(count: int, noun: str = "device") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def _all(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _names(jobs: tuple[str, ...], count: int | None = None) -> str:
    """How many jobs, and who; `count` where `jobs` has only the first of them."""
    count = len(jobs) if count is None else count
    shown = ", ".join(jobs[:NAMES_SHOWN])
    return f"{_devices(count, 'job')} ({shown}{', …' if count > NAMES_SHOWN else ''})"


def _rank(outranking: int, jobs: int) -> str:
    """Why jobs are ahead, where their priority is why."""
    if not outranking:
        return ""
    return " (higher priority)" if outranking == jobs else f" ({outranking} of higher priority)"
