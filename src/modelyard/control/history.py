"""What happened on a yard: a fold over its log into spans of jobs, uses of devices and curves.

    history = fold(opening, entries, since=…, until=…)
    history.spans                      # who was in which state with which devices, and when
    uses(history)                      # the same by device
    curves(history, points=240)        # how many waited, ran and were held, as means over time

The log is the truth: an entry has the job's state, reason and devices from then on. A time window
cuts the first and the last span of a job; nothing outside of it is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from modelyard.control.lifecycle.job import Held
from modelyard.control.lifecycle.outcomes import Entry
from modelyard.control.lifecycle.states import Reason, State

#: What belongs to somebody whose jobs the caller may not see is called that everywhere.
SOMEBODY_ELSE = "another tenant's"

_FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in which nothing changed for a job."""

    job: str
    tenant: str
    attempt: int
    start: float
    end: float
    state: State
    reason: Reason
    held: Held
    #: whether it was so before the window, and after it
    began_before: bool = False
    goes_on: bool = False

    @property
    def devices(self) -> int:
        return sum(len(numbers) for _, numbers in self.held)


@dataclass(frozen=True, slots=True)
class Started:
    """A job got its first devices."""

    at: float
    tenant: str
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A job was over."""

    at: float
    job: str
    tenant: str
    state: State


@dataclass(frozen=True, slots=True)
class Turned:
    """Something happened to a node."""

    at: float
    node: str
    what: str


@dataclass(frozen=True, slots=True)
class History:
    """What happened between two moments; spans in the order in which they ended."""

    since: float
    until: float
    spans: tuple[Span, ...]
    started: tuple[Started, ...] = ()
    ended: tuple[Ended, ...] = ()
    turned: tuple[Turned, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """Who had a device, from when to when."""

    node: str
    device: int
    start: float
    end: float
    job: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Curves:
    """Means over stretches of equal length; none where nothing started in a stretch."""

    #: when each stretch begins
    at: tuple[float, ...]
    seconds: float
    waiting: tuple[float, ...]
    #: jobs that hold devices, whether their tasks are up already or are ending
    running: tuple[float, ...]
    devices: tuple[float, ...]
    devices_by_tenant: Mapping[str, tuple[float, ...]]
    started: tuple[int, ...]
    ended: tuple[int, ...]
    #: how long those who got their first devices in a stretch had waited for them
    waited_seconds: tuple[float | None, ...]


def fold(
    opening: Iterable[Entry],
    entries: Iterable[Entry],
    *,
    since: float,
    until: float,
    submitted: Mapping[str, float] | None = None,
) -> History:
    """Play the log of a window; `opening` has the last entry of each job before it.

    `submitted` says when jobs came that were there before the window.
    """
    folding = _Folding(since, until, dict(submitted or {}))
    for entry in opening:
        if entry.state is not None and not entry.state.over:
            folding.standing[entry.job] = _Standing(entry, since, began_before=True)
    for entry in entries:
        folding.take(entry)
    return folding.close()


@dataclass(slots=True)
class _Standing:
    """How things stand for a job: since when, and by which entry."""

    entry: Entry
    since: float
    began_before: bool = False


@dataclass(slots=True)
class _Folding:
    since: float
    until: float
    submitted: dict[str, float]
    standing: dict[str, _Standing] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    turned: list[Turned] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        if entry.state is None:
            if entry.node:
                self.turned.append(Turned(entry.at, entry.node, entry.what))
            return
        before = self.standing.get(entry.job)
        if before is not None and _same(before.entry, entry):
            return
        # Clocks of two servers may differ a little: nothing ends before it began.
        at = max(entry.at, before.since) if before else entry.at
        if before is None:
            self.submitted.setdefault(entry.job, entry.at)
        else:
            self._add(before, at, goes_on=False)
        if entry.state is State.STARTING and entry.attempt == 1 and _waited(before):
            came = self.submitted.get(entry.job, at)
            self.started.append(Started(at, entry.tenant, max(at - came, 0.0)))
        if entry.state.over:
            self.standing.pop(entry.job, None)
            self.ended.append(Ended(at, entry.job, entry.tenant, entry.state))
        else:
            self.standing[entry.job] = _Standing(entry, at)

    def close(self) -> History:
        for standing in self.standing.values():
            self._add(standing, max(self.until, standing.since), goes_on=True)
        return History(
            self.since,
            self.until,
            tuple(self.spans),
            tuple(self.started),
            tuple(self.ended),
            tuple(self.turned),
        )

    def _add(self, standing: _Standing, end: float, *, goes_on: bool) -> None:
        entry = standing.entry
        # A state that was left in the moment in which it was entered was nobody's state.
        if end <= standing.since or entry.state is None or entry.reason is None:
            return
        self.spans.append(
            Span(
                job=entry.job,
                tenant=entry.tenant,
                attempt=entry.attempt,
                start=standing.since,
                end=end,
                state=entry.state,
                reason=entry.reason,
                held=entry.held,
                began_before=standing.began_before,
                goes_on=goes_on,
            )
        )


def _same(before: Entry, after: Entry) -> bool:
    return (
        before.state is after.state
        and before.reason is after.reason
        and before.held == after.held
        and before.attempt == after.attempt
    )


def _waited(before: _Standing | None) -> bool:
    return before is None or before.entry.state is State.WAITING


def as_seen(history: History, may_see: Callable[[str], bool]) -> History:
    """The history for somebody who may see some tenants' jobs only.

    Of the others there is left that devices were in use: no job, no reason, no one's queue.
    """
    spans = []
    for span in history.spans:
        if may_see(span.tenant):
            spans.append(span)
        elif span.held:
            hidden = replace(
                span,
                job=SOMEBODY_ELSE,
                tenant=SOMEBODY_ELSE,
                attempt=0,
                state=State.RUNNING,
                reason=Reason.UP,
            )
            spans.append(hidden)
    return replace(
        history,
        spans=tuple(spans),
        started=tuple(one for one in history.started if may_see(one.tenant)),
        ended=tuple(one for one in history.ended if may_see(one.tenant)),
    )


def uses(history: History) -> list[Use]:
    """Who had which device when, by node, device and time; a job's stretches that touch are one."""
    found: dict[tuple[str, int], list[Use]] = {}
    for span in sorted(history.spans, key=lambda one: one.start):
        for node, numbers in span.held:
            for device in numbers:
                line = found.setdefault((node, device), [])
                if line and line[-1].job == span.job and span.start <= line[-1].end:
                    line[-1] = replace(line[-1], end=max(line[-1].end, span.end))
                else:
                    use = Use(node, device, span.start, span.end, span.job, span.tenant)
                    line.append(use)
    return [use for place in sorted(found) for use in found[place]]


def curves(history: History, *, points: int) -> Curves:
    """How many there were of everything, as means over `points` stretches of equal length."""
    edges = np.linspace(history.since, history.until, points + 1)
    spans = history.spans
    start = np.array([span.start for span in spans])
    end = np.array([span.end for span in spans])
    devices = np.array([span.devices for span in spans], dtype=np.float64)
    own = np.array([span.job != SOMEBODY_ELSE for span in spans], dtype=np.float64)
    waits = np.array([span.state is State.WAITING for span in spans], dtype=np.float64)
    whose = np.array([span.tenant for span in spans], dtype=np.str_)

    def means(weights: _FloatArray) -> tuple[float, ...]:
        return tuple(_means(start, end, weights, edges).tolist())

    started = _stretches([one.at for one in history.started], edges)
    waited = np.array([one.waited_seconds for one in history.started])
    counts = np.bincount(started, minlength=points)
    sums = np.bincount(started, weights=waited, minlength=points) if len(waited) else counts
    return Curves(
        at=tuple(edges[:-1].tolist()),
        seconds=(history.until - history.since) / points,
        waiting=means(waits),
        running=means(own * (devices > 0)),
        devices=means(devices),
        devices_by_tenant={
            tenant: means(devices * (whose == tenant)) for tenant in sorted({*whose.tolist()})
        },
        started=tuple(counts.tolist()),
        ended=tuple(
            np.bincount(
                _stretches([one.at for one in history.ended], edges), minlength=points
            ).tolist()
        ),
        waited_seconds=tuple(
            float(total) / count if count else None
            for total, count in zip(sums.tolist(), counts.tolist(), strict=True)
        ),
    )


def _stretches(times: list[float], edges: _FloatArray) -> npt.NDArray[np.int64]:
    """In which stretch each moment lies."""
    found = np.searchsorted(edges, np.array(times), side="right") - 1
    return np.asarray(np.clip(found, 0, len(edges) - 2), dtype=np.int64)


def _means(
    start: _FloatArray, end: _FloatArray, weights: _FloatArray, edges: _FloatArray
) -> _FloatArray:
    """The mean of a sum of steps over each stretch: its integral there over its length."""
    used = weights > 0.0
    if not used.any():
        return np.zeros(len(edges) - 1)
    times = np.concatenate((start[used], end[used]))
    change = np.concatenate((weights[used], -weights[used]))
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(times))))
    return np.asarray(np.diff(np.interp(edges, times, area)) / np.diff(edges))
