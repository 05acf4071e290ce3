"""What happened on the yard, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from modelyard.control.api.calls import Call
from modelyard.control.api.time_answers import (
    ClusterNodeShape,
    RecordedShape,
    TenantRightsShape,
    WorkloadShape,
)
from modelyard.control.deciding import Scheduler
from modelyard.control.history import History, Span, as_seen, curves, fold, uses
from modelyard.control.leading import Leading, NotNow
from modelyard.control.store import past
from modelyard.control.store.callers import Caller
from modelyard.control.store.past import Known
from modelyard.control.store.store import Store
from modelyard.control.workload import recorded
from modelyard.errors import InputError

#: what is shown when nobody says since when
USUAL_SECONDS = 3600.0
USUAL_DAY = 86_400.0
#: Jobs that are played again at most.
MOST_JOBS = 20_000
#: Spans in one answer, and points of a curve: more than a screen can show.
MOST_SPANS, MOST_POINTS = 20_000, 2_000
USUAL_SPANS, USUAL_POINTS = 2_000, 240
#: A longer log than this is no longer folded while somebody waits.
MOST_ENTRIES = 1_000_000


@dataclass(frozen=True, slots=True)
class Past:
    """The calls about what happened."""

    store: Store
    leading: Leading
    scheduler: Callable[[], Scheduler | None]
    run: Callable[[str], Path]

    async def workload(self, call: Call) -> Response:
        """GET: the jobs that came `from` a moment `to` another, for the simulator to play again.

        With what they really took where they are over, and the yard's own cluster, tenants and
        policy. Who is no admin gets the jobs of their tenant.
        """
        until = call.moment("to", self.leading.now)
        since = call.moment("from", until - USUAL_DAY)
        return JSONResponse(await run_in_threadpool(self.played, call.caller, since, until))

    def played(self, caller: Caller, since: float, until: float) -> WorkloadShape:
        """The same for whoever asks in another way."""
        scheduler = self.scheduler()
        if scheduler is None:
            raise NotNow("this server does not lead at the moment", fix="try again in a moment")
        scope = caller.scope
        kept = past.submitted_between(
            self.store.database, since, until, tenant=scope, most=MOST_JOBS + 1
        )
        if len(kept) > MOST_JOBS:
            what = f"more than {MOST_JOBS:,} jobs came in that time"
            raise InputError(what, fix="ask for less time with 'from' and 'to'")
        jobs, notes = recorded(kept, self.run, self.leading.now)
        if scope is not None:
            notes.append("only jobs of your tenant: what others did is not in it")
        cluster, tenants = scheduler.cluster, scheduler.tenants
        return {
            "since": since,
            "until": until,
            "jobs": [cast("RecordedShape", asdict(job)) for job in jobs],
            "notes": notes,
            "cluster": cluster.name,
            "nodes": [cast("ClusterNodeShape", asdict(node)) for node in cluster.nodes],
            "level_bandwidth": list(cluster.level_bandwidth),
            "tenants": [
                cast("TenantRightsShape", asdict(one))
                for one in tenants.values()
                if caller.may_see(one.name)
            ],
            "policy": scheduler.policy.name,
            "restart_seconds": scheduler.restart_seconds,
            "round_seconds": self.leading.pace.decide,
            "reaction_seconds": self.leading.pace.decide_after_news,
        }

    async def history(self, call: Call) -> Response:
        """GET: spans of jobs, uses of devices and curves `from` a moment `to` another.

        Both are seconds since 1970; the last hour when they are left out. `most` bounds the spans,
        of which the latest are kept, and `points` the curves. Other tenants' jobs have no names.
        """
        until = call.moment("to", self.leading.now)
        since = call.moment("from", until - USUAL_SECONDS)
        if since >= until:
            what = f"the time from {since:.0f} to {until:.0f} is empty"
            raise InputError(what, fix="write 'from' before 'to', in seconds since 1970")
        most = call.number("most", USUAL_SPANS, most=MOST_SPANS)
        points = max(call.number("points", USUAL_POINTS, most=MOST_POINTS), 1)
        shape = await run_in_threadpool(lambda: self._history(call, since, until, most, points))
        return JSONResponse(shape)

    def _history(
        self, call: Call, since: float, until: float, most: int, points: int
    ) -> dict[str, object]:
        history, known = read_history(self.store, since, until)
        seen = as_seen(history, call.caller.may_see)
        return history_shape(seen, known, most=most, points=points)


def read_history(store: Store, since: float, until: float) -> tuple[History, dict[str, Known]]:
    """What happened to everybody between two moments, and who they are."""
    database = store.database
    count = past.count_between(database, since, until)
    if count > MOST_ENTRIES:
        what = f"{count:,} things happened in that time, and {MOST_ENTRIES:,} can be told at once"
        raise InputError(what, fix="ask for less time with 'from' and 'to'")
    known = past.jobs_between(database, since, until)
    history = fold(
        past.opening(database, since),
        past.entries_between(database, since, until),
        since=since,
        until=until,
        submitted={job.id: job.submitted for job in known.values()},
    )
    return history, known


def history_shape(
    history: History, known: dict[str, Known], *, most: int, points: int
) -> dict[str, object]:
    """A history as JSON; the latest spans where there are too many."""
    named = [span for span in history.spans if span.job in known]
    latest = sorted(named, key=lambda span: span.end)[-most:] if most else []
    latest.sort(key=lambda span: (span.start, span.job))
    shown = {span.job: known[span.job] for span in latest}
    devices: dict[tuple[str, int], list[dict[str, object]]] = {}
    for use in uses(history):
        held = {"start": use.start, "end": use.end, "job": use.job, "tenant": use.tenant}
        devices.setdefault((use.node, use.device), []).append(held)
    return {
        "since": history.since,
        "until": history.until,
        "jobs": {job.id: asdict(job) for job in shown.values()},
        "spans": [_span_shape(span) for span in latest],
        "left_out": len(named) - len(latest),
        "devices": [
            {"node": node, "device": device, "uses": held}
            for (node, device), held in devices.items()
        ],
        "nodes": [asdict(one) for one in history.turned],
        "curves": asdict(curves(history, points=points)),
    }


def _span_shape(span: Span) -> dict[str, object]:
    return {
        "job": span.job,
        "start": span.start,
        "end": span.end,
        "state": span.state,
        "reason": span.reason,
        "attempt": span.attempt,
        "held": span.held,
        "began_before": span.began_before,
        "goes_on": span.goes_on,
    }
