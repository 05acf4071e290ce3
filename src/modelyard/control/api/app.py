"""All calls in one table."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from modelyard.control.api.calls import Answer, guarded
from modelyard.control.api.jobs import Jobs
from modelyard.control.api.yard import Yard
from modelyard.control.leading import Clock
from modelyard.control.lifecycle.events import Wish


def application(jobs: Jobs, yard: Yard, more: Sequence[BaseRoute] = ()) -> Starlette:
    """The yard as a web application, with more routes than those for programs."""
    table: list[tuple[str, str, Answer]] = [
        ("POST", "/v1/jobs", jobs.submit),
        ("GET", "/v1/jobs", jobs.page),
        ("GET", "/v1/jobs/{job}", jobs.show),
        ("PATCH", "/v1/jobs/{job}", jobs.rescope),
        ("GET", "/v1/jobs/{job}/why", jobs.why),
        ("GET", "/v1/jobs/{job}/events", jobs.events),
        ("GET", "/v1/jobs/{job}/log", jobs.log),
        *(("POST", f"/v1/jobs/{{job}}/{wish}", jobs.wish(wish)) for wish in Wish),
        ("GET", "/v1/status", yard.status),
        ("GET", "/v1/nodes", yard.nodes),
        ("POST", "/v1/nodes/{node}/drain", yard.drain),
        ("POST", "/v1/nodes/{node}/return", yard.give_back),
        ("GET", "/v1/events", yard.events),
        ("GET", "/v1/stream", yard.stream),
        ("GET", "/v1/tokens", yard.tokens),
        ("POST", "/v1/tokens", yard.issue),
        ("DELETE", "/v1/tokens/{hint}", yard.revoke),
        ("GET", "/metrics", yard.metrics),
    ]
    clock = Clock()
    routes = [
        Route(path, guarded(yard.store.database, clock, answer), methods=[method])
        for method, path, answer in table
    ]
    return Starlette(routes=[*routes, Route("/healthz", yard.alive), *more])
