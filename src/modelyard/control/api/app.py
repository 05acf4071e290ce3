"""All calls in one table.

To add a call, write its answer as a method with a one-line docstring ("GET: what it gives"),
describe what it takes and gives as TypedDicts in `answers.py`, and add an `Operation` below with
every word that its query knows. `/v1/openapi.json`, `/docs` and docs/reference/api.md are made of
that. It is also enforced: other words of a query are refused, and `admin=True` lets only admins in.
tests/control/test_openapi.py makes every call of the table and holds answers to their types: add
yours to its `CALLS`. Then run scripts/reference.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from modelyard.control.api import answers, time_answers
from modelyard.control.api.calls import guarded
from modelyard.control.api.future import Future
from modelyard.control.api.inside import Inside
from modelyard.control.api.jobs import Jobs
from modelyard.control.api.openapi import description
from modelyard.control.api.operation import Kind, Media, Operation, Query
from modelyard.control.api.page import page
from modelyard.control.api.past import Past
from modelyard.control.api.tenants import Tenants
from modelyard.control.api.yard import Yard
from modelyard.control.leading import Clock
from modelyard.control.lifecycle.events import Wish
from modelyard.control.listing import Order

AFTER = Query("after", Kind.NUMBER, "only events with larger numbers")
YAML = Media("application/yaml", "A job file; see `yard schema job`")
LOG = Media("text/plain", "At most 1 MiB; the header `X-Next` says where the next piece begins")
STREAM = Media("text/event-stream", "One event of the log after another", answers.EventShape)
FIGURES = Media("text/plain", "In the format of Prometheus")

WISHES = {
    Wish.PAUSE: "Stop a job for now; it keeps what it has done and holds no devices.",
    Wish.RESUME: "Let a paused job run again when there is room.",
    Wish.CANCEL: "End a job for good.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Everything that answers."""

    jobs: Jobs
    yard: Yard
    tenants: Tenants
    inside: Inside
    past: Past
    future: Future


def operations(calls: Calls) -> list[Operation]:
    """Every call, in the order of the documentation."""
    return [
        *_of_jobs(calls.jobs),
        *_of_tenants(calls.tenants),
        *_of_yard(calls.yard),
        Operation(
            method="GET",
            path="/v1/doctor",
            answer=calls.inside.look,
            gives=answers.InsideShape,
            admin=True,
        ),
        *_of_time(calls.past, calls.future),
    ]


def _of_jobs(jobs: Jobs) -> list[Operation]:
    return [
        Operation(
            method="POST",
            path="/v1/jobs",
            answer=jobs.submit,
            takes=YAML,
            gives=answers.JobShape,
            status=201,
            also=(200,),
            query=(
                Query("id", Kind.TEXT, "8 to 16 hex digits: asked twice, it is submitted once"),
                Query("folder", Kind.TEXT, "where the job runs, an absolute path"),
                Query("file", Kind.TEXT, "what mistakes are said to be in"),
            ),
        ),
        Operation(
            method="GET",
            path="/v1/jobs",
            answer=jobs.page,
            gives=answers.JobsShape,
            query=(
                Query("all", Kind.FLAG, "also those that are over"),
                Query("most", Kind.NUMBER, "how many, 100 by default and 1,000 at most"),
                Query("skip", Kind.NUMBER, "how many of the first to leave out"),
                Query("state", Kind.TEXT, "only jobs in this state, or in one of `a,b`"),
                Query("tenant", Kind.TEXT, "only jobs of this tenant"),
                Query("owner", Kind.TEXT, "only jobs that this user submitted"),
                Query("search", Kind.TEXT, "words in their name, owner or tenant, or of their id"),
                Query("order", Kind.TEXT, f"by {', '.join(f'`{one}`' for one in Order)}"),
                Query("reverse", Kind.FLAG, "the other way round, such as the oldest first"),
            ),
        ),
        Operation(
            method="GET",
            path="/v1/jobs/{job}",
            answer=jobs.show,
            gives=answers.FullJobShape,
            query=(Query("forecast", Kind.FLAG, "look ahead now, if nobody has lately"),),
        ),
        Operation(
            method="PATCH",
            path="/v1/jobs/{job}",
            answer=jobs.rescope,
            takes=answers.RescopeShape,
            gives=answers.FullJobShape,
        ),
        Operation(method="GET", path="/v1/jobs/{job}/why", answer=jobs.why, gives=answers.WhyShape),
        Operation(
            method="GET",
            path="/v1/jobs/{job}/events",
            answer=jobs.events,
            gives=answers.EventsShape,
            query=(AFTER,),
        ),
        Operation(
            method="GET",
            path="/v1/jobs/{job}/log",
            answer=jobs.log,
            gives=LOG,
            query=(
                Query("role", Kind.TEXT, "such as worker-1; the conductor, or else the first task"),
                Query("attempt", Kind.NUMBER, "of an earlier start"),
                Query("incarnation", Kind.NUMBER, "of a task that was replaced"),
                Query("start", Kind.NUMBER, "the first byte"),
            ),
        ),
        *(
            Operation(
                method="POST",
                path=f"/v1/jobs/{{job}}/{wish}",
                answer=jobs.wish(wish),
                gives=answers.JobShape,
                says=WISHES[wish],
            )
            for wish in Wish
        ),
    ]


def _of_tenants(tenants: Tenants) -> list[Operation]:
    window = Query("window", Kind.NUMBER, "seconds in which usage is counted, a day by default")
    return [
        Operation(
            method="GET",
            path="/v1/tenants",
            answer=tenants.show,
            gives=answers.TenantsShape,
            query=(window,),
        ),
        Operation(
            method="PUT",
            path="/v1/tenants/{tenant}",
            answer=tenants.set,
            takes=answers.RightsShape,
            gives=answers.TenantsShape,
            admin=True,
        ),
        Operation(
            method="DELETE",
            path="/v1/tenants/{tenant}",
            answer=tenants.remove,
            gives=answers.TenantsShape,
            admin=True,
        ),
    ]


def _of_yard(yard: Yard) -> list[Operation]:
    return [
        Operation(method="GET", path="/v1/status", answer=yard.status, gives=answers.StatusShape),
        Operation(
            method="POST",
            path="/v1/halt",
            answer=yard.halt,
            gives=answers.StatusShape,
            admin=True,
        ),
        Operation(method="GET", path="/v1/nodes", answer=yard.nodes, gives=answers.NodesShape),
        Operation(
            method="POST",
            path="/v1/nodes/{node}/drain",
            answer=yard.drain,
            takes=answers.DrainShape,
            gives=answers.NodesShape,
            admin=True,
        ),
        Operation(
            method="POST",
            path="/v1/nodes/{node}/return",
            answer=yard.give_back,
            gives=answers.NodesShape,
            admin=True,
        ),
        Operation(
            method="GET",
            path="/v1/events",
            answer=yard.events,
            gives=answers.EventsShape,
            query=(AFTER, Query("last", Kind.NUMBER, "only of the so many newest of everybody")),
        ),
        Operation(
            method="GET", path="/v1/stream", answer=yard.stream, gives=STREAM, query=(AFTER,)
        ),
        Operation(
            method="GET",
            path="/v1/audit",
            answer=yard.audit,
            gives=answers.AuditShape,
            query=(
                Query("after", Kind.NUMBER, "only calls with larger numbers"),
                Query("most", Kind.NUMBER, "how many of the newest, 100 by default"),
            ),
            admin=True,
        ),
        Operation(
            method="GET",
            path="/v1/tokens",
            answer=yard.tokens,
            gives=answers.TokensShape,
            admin=True,
        ),
        Operation(
            method="POST",
            path="/v1/tokens",
            answer=yard.issue,
            takes=answers.IssueShape,
            gives=answers.IssuedShape,
            status=201,
            admin=True,
        ),
        Operation(
            method="DELETE",
            path="/v1/tokens/{hint}",
            answer=yard.revoke,
            gives=answers.RevokedShape,
            admin=True,
        ),
        Operation(method="GET", path="/metrics", answer=yard.metrics, gives=FIGURES, admin=True),
        Operation(
            method="GET",
            path="/healthz",
            answer=yard.alive,
            gives=answers.AliveShape,
            public=True,
        ),
    ]


def _of_time(past: Past, future: Future) -> list[Operation]:
    return [
        Operation(
            method="GET",
            path="/v1/history",
            answer=past.history,
            gives=time_answers.HistoryShape,
            query=(
                Query("from", Kind.REAL, "seconds since 1970; an hour before `to` when left out"),
                Query("to", Kind.REAL, "seconds since 1970; now when left out"),
                Query("most", Kind.NUMBER, "spans, the latest; 2,000 by default, 20,000 at most"),
                Query("points", Kind.NUMBER, "of the curves; 240 by default, 2,000 at most"),
            ),
        ),
        Operation(
            method="GET",
            path="/v1/workload",
            answer=past.workload,
            gives=time_answers.WorkloadShape,
            query=(
                Query("from", Kind.REAL, "seconds since 1970; a day before `to` when left out"),
                Query("to", Kind.REAL, "seconds since 1970; now when left out"),
            ),
        ),
        Operation(
            method="GET",
            path="/v1/forecast",
            answer=future.forecast,
            gives=time_answers.ForecastShape,
            query=(Query("wait", Kind.NUMBER, "milliseconds at most; 20,000 when left out"),),
        ),
        Operation(
            method="POST",
            path="/v1/forecast",
            answer=future.outlook,
            takes=YAML,
            gives=time_answers.OutlookShape,
            query=(
                Query("folder", Kind.TEXT, "where the job would run, an absolute path"),
                Query("file", Kind.TEXT, "what mistakes are said to be in"),
            ),
        ),
    ]


def described() -> dict[str, Any]:
    """The description of all calls, without a yard behind them."""
    nobody = cast("Any", None)
    calls = Calls(
        jobs=Jobs(*[nobody] * 7),
        yard=Yard(*[nobody] * 4),
        tenants=Tenants(*[nobody] * 3),
        inside=Inside(*[nobody] * 3),
        past=Past(*[nobody] * 4),
        future=Future(*[nobody] * 3),
    )
    return description(operations(calls))


def application(calls: Calls, more: Sequence[BaseRoute] = ()) -> Starlette:
    """The yard as a web application, with more routes than those for programs."""
    table = operations(calls)
    clock = Clock()
    routes = [
        Route(
            one.path,
            cast("Any", one.answer)
            if one.public
            else guarded(
                calls.yard.store.database,
                clock,
                one.checked,
                callers=calls.yard.store.callers,
            ),
            methods=[one.method],
        )
        for one in table
    ]
    return Starlette(routes=[*routes, *_documentation(table), *more])


def _documentation(table: list[Operation]) -> list[Route]:
    """What the table says, for programs and for people; it is no secret."""
    written = description(table)

    async def for_programs(_: Request) -> Response:
        return JSONResponse(written)

    async def for_people(_: Request) -> Response:
        return HTMLResponse(page(written))

    return [Route("/v1/openapi.json", for_programs), Route("/docs", for_people)]
