"""Time: who had which devices and when, what is foreseen, and how the queue has been doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.forecast.replay import Moment, Prediction
from modelyard.control.history import SOMEBODY_ELSE, Curves, History, Span, as_seen, curves, uses
from modelyard.control.lifecycle.states import State
from modelyard.schedule.view import TenantView
from modelyard.spec.cluster import Cluster
from modelyard.web.charts import Chart, area_chart, bar_chart, line_chart
from modelyard.web.colours import colour
from modelyard.web.site import Site
from modelyard.web.words import duration

#: how far back people look, and how far ahead as a share of it
WINDOWS = {"15m": 900.0, "1h": 3_600.0, "6h": 21_600.0, "1d": 86_400.0, "7d": 604_800.0}
USUAL = "1h"
AHEAD = 0.35
WAYS = ("job", "device")
#: More rows than these are no picture any more.
MOST_ROWS = 80
POINTS = 120
#: marks of the axis
TICKS = 6
#: What is narrower, in percent of the picture, would not be seen.
NARROWEST = 0.15


@dataclass(frozen=True, slots=True)
class Frame:
    """The stretch of time that is drawn, from `since` to `until`; the past ends at `now`."""

    since: float
    now: float
    until: float

    def x(self, at: float) -> float:
        """A moment's place, in percent."""
        share = (at - self.since) / (self.until - self.since)
        return round(100.0 * min(max(share, 0.0), 1.0), 3)

    def ticks(self) -> list[tuple[float, float]]:
        """Places and times of the marks on the axis, at even times."""
        step = _even((self.until - self.since) / TICKS)
        first = step * -(-self.since // step)
        marks = (first + step * number for number in range(2 * TICKS))
        return [(self.x(at), at) for at in marks if self.since < at < self.until]


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of one row."""

    #: `held`, `waiting`, `paused` or `foreseen`
    sort: str
    x: float
    width: float
    label: str
    job: str = ""
    fill: str = ""
    #: the doubt about its end, as places
    low: float | None = None
    high: float | None = None


@dataclass(slots=True)
class Row:
    """One job, or one device."""

    name: str
    job: str = ""
    tenant: str = ""
    #: by what rows are sorted
    begins: float = 0.0
    over: bool = True
    bars: list[Bar] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's part of the devices against what it was promised; places in percent."""

    tenant: str
    now: int
    mean: float
    guaranteed: int
    maximum: int | None
    weight: float
    now_x: float
    mean_x: float
    guaranteed_x: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address says; whatever is not understood is left out."""

    window: str
    way: str

    @classmethod
    def of(cls, query: QueryParams) -> Asked:
        window, way = query.get("window", ""), query.get("by", "")
        return cls(window if window in WINDOWS else USUAL, way if way in WAYS else WAYS[0])

    def address(self, *, window: str = "", way: str = "") -> str:
        return f"/time?window={window or self.window}&by={way or self.way}"


def routes(site: Site) -> list[BaseRoute]:
    async def context(call: Call) -> dict[str, object]:
        asked = Asked.of(call.request.query_params)
        picture = await site.camera.picture()
        whole, known = await site.pasts.read(WINDOWS[asked.window], picture.at)
        history = as_seen(whole, call.caller.may_see)
        seen = {
            name: one for name, one in picture.foreseen.items() if call.caller.may_see(one.tenant)
        }
        # Which devices jobs will have is not foreseen: rows of devices end now.
        ahead = seen.values() if asked.way == "job" else ()
        frame = _frame(history, WINDOWS[asked.window], ahead)
        cluster = site.parts.jobs.cluster
        names = {name: one.name for name, one in known.items() if call.caller.may_see(one.tenant)}
        rows = (
            job_rows(frame, history, names, seen)
            if asked.way == "job"
            else device_rows(frame, history, names, cluster)
        )
        means = curves(history, points=POINTS)
        rights = await run_in_threadpool(site.parts.calls.tenants.tenancy.views)
        held: dict[str, int] = {}
        for job in picture.active:
            tenant = job.facts.tenant if call.caller.may_see(job.facts.tenant) else SOMEBODY_ELSE
            held[tenant] = held.get(tenant, 0) + job.devices
        return {
            "asked": asked,
            "windows": WINDOWS,
            "frame": frame,
            "rows": rows[:MOST_ROWS],
            "left_out": max(len(rows) - MOST_ROWS, 0),
            "charts": charts(means, cluster.devices),
            "shares": shares(means, held, _visible(rights, call), cluster.devices),
            "capacity": cluster.devices,
        }

    return [*site.page("/time", "gantt", context, live=("rows", "charts", "shares"))]


def _frame(history: History, window: float, foreseen: Iterable[Prediction]) -> Frame:
    """What was, and ahead of it as far as anything is foreseen, but not too far."""
    ends = [one.end.at for one in foreseen if one.end is not None]
    lasted = history.until - history.since
    # A yard younger than the window looks ahead for as long as it has been there.
    most = history.until + min(AHEAD * window, lasted)
    least = history.until + 0.02 * lasted
    return Frame(history.since, history.until, min(max([*ends, least]), most))


def job_rows(
    frame: Frame,
    history: History,
    names: Mapping[str, str],
    foreseen: Mapping[str, Prediction],
) -> list[Row]:
    """A row for each job, by its first start; those that are over are the first to be left out."""
    rows: dict[str, Row] = {}
    for span in history.spans:
        if span.job == SOMEBODY_ELSE:
            continue
        row = rows.setdefault(
            span.job, Row(names.get(span.job, span.job), span.job, span.tenant, begins=span.start)
        )
        row.bars.append(_past_bar(frame, span, row.name))
        row.over &= not span.goes_on
    for job, prediction in foreseen.items():
        bar = _future_bar(frame, prediction, names.get(job, job))
        if bar is not None and job in rows:
            rows[job].bars.append(bar)
    unfinished = [row for row in rows.values() if not row.over]
    over = sorted((row for row in rows.values() if row.over), key=lambda row: row.begins)
    room = max(MOST_ROWS - len(unfinished), 0)
    first, rest = over[len(over) - room :] if room else [], over[: len(over) - room]
    return sorted([*first, *unfinished], key=lambda row: row.begins) + rest


def device_rows(
    frame: Frame, history: History, names: Mapping[str, str], cluster: Cluster
) -> list[Row]:
    """A row for each device of the cluster, with everybody who had it."""
    rows = {
        (node.name, device): Row(f"{node.name} · {device}")
        for node in cluster.nodes
        for device in range(node.devices)
    }
    for use in uses(history):
        row = rows.get((use.node, use.device))
        if row is None:
            continue
        own = use.job != SOMEBODY_ELSE
        name = names.get(use.job, use.job)
        row.bars.append(
            Bar(
                "held" if own else "another",
                *_place(frame, use.start, use.end),
                f"{name}: {duration(use.end - use.start)}",
                job=use.job if own else "",
                fill=colour(use.job) if own else "",
            )
        )
    return list(rows.values())


def _past_bar(frame: Frame, span: Span, name: str) -> Bar:
    held = span.devices
    lasted = duration(span.end - span.start)
    if held:
        many = f"{held} device{'' if held == 1 else 's'}"
        label = f"{name}, {many} on {', '.join(node for node, _ in span.held)}: {lasted}"
        place = _place(frame, span.start, span.end)
        return Bar("held", *place, label, job=span.job, fill=colour(span.job))
    sort = "paused" if span.state is State.PAUSED else "waiting"
    label = f"{name}, {span.state} ({span.reason}): {lasted}"
    return Bar(sort, *_place(frame, span.start, span.end), label, job=span.job)


def _future_bar(frame: Frame, found: Prediction, name: str) -> Bar | None:
    """What is foreseen of a job from now on, where anybody can say."""
    if found.start is None:
        return None
    start = max(found.start.at, frame.now)
    end = found.end.at if found.end is not None else frame.until
    if start >= frame.until or end <= start:
        return None
    x, width = _place(frame, start, end)
    begins = f"starts in {duration(start - frame.now)}, " if start > frame.now else ""
    ends = f"ends in {_in_words(found.end, frame.now)}" if found.end else "nobody knows until when"
    low, high = (found.end.low, found.end.high) if found.end else (None, None)
    return Bar(
        "foreseen",
        x,
        width,
        f"{name}, foreseen: {begins}{ends}",
        job=found.job,
        fill=colour(found.job),
        low=frame.x(low) if low is not None else None,
        high=frame.x(high) if high is not None else None,
    )


def _in_words(end: Moment, now: float) -> str:
    if end.low is None or end.high is None:
        return duration(end.at - now)
    doubt = f"{duration(end.low - now)}–{duration(end.high - now)}"
    return f"{duration(end.at - now)} ({doubt})"


def _place(frame: Frame, start: float, end: float) -> tuple[float, float]:
    x = frame.x(start)
    return x, max(round(frame.x(end) - x, 3), NARROWEST)


def charts(means: Curves, capacity: int) -> list[Chart]:
    """The queue, the use of devices and the waits, over the window."""
    return [
        area_chart(
            "Devices in use",
            {tenant: (colour(tenant), line) for tenant, line in means.devices_by_tenant.items()},
            top=float(capacity),
        ),
        line_chart(
            "Jobs", {"waiting": ("warm", means.waiting), "with devices": ("good", means.running)}
        ),
        bar_chart("Wait for the first devices", means.waited_seconds, told=duration),
    ]


def shares(
    means: Curves, held: Mapping[str, int], rights: Mapping[str, TenantView], capacity: int
) -> list[Share]:
    """What tenants hold now and held in the mean, against their guarantees and limits."""
    average = {
        tenant: sum(line) / len(line) for tenant, line in means.devices_by_tenant.items() if line
    }
    found = []
    for tenant in sorted({*average, *held, *rights}):
        right = rights.get(tenant) or TenantView(tenant)
        now, mean = held.get(tenant, 0), average.get(tenant, 0.0)
        found.append(
            Share(
                tenant,
                now,
                mean,
                right.guaranteed,
                right.maximum,
                right.weight,
                now_x=_percent(now, capacity),
                mean_x=_percent(mean, capacity),
                guaranteed_x=_percent(right.guaranteed, capacity),
            )
        )
    return found


def _visible(rights: Mapping[str, TenantView], call: Call) -> dict[str, TenantView]:
    return {name: right for name, right in rights.items() if call.caller.may_see(name)}


def _percent(part: float, whole: float) -> float:
    return round(min(100.0 * part / whole, 100.0), 2) if whole else 0.0


def _even(seconds: float, steps: Sequence[float] = (1, 2, 5, 10, 15, 30)) -> float:
    """The next even step of a clock or a calendar."""
    minute, hour, day = 60.0, 3_600.0, 86_400.0
    choices = [
        *steps,
        *(minute * step for step in steps),
        *(hour * step for step in (1, 2, 3, 6, 12)),
        *(day * step for step in (1, 2, 7, 14)),
    ]
    return next((choice for choice in choices if choice >= seconds), choices[-1])
