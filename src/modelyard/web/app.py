"""All pages in one table."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Route

from modelyard.control.parts import Parts
from modelyard.web import cluster, compare, gantt, job, jobs, login, plan
from modelyard.web.site import Site, Tab

#: the navigation, from left to right
TABS = (
    Tab("/", "Cluster"),
    Tab("/jobs", "Jobs"),
    Tab("/time", "Time"),
    Tab("/plan", "Plan"),
    Tab("/compare", "Compare"),
)
#: each has `routes(site)`
PAGES = (login, cluster, jobs, job, gantt, plan, compare)


def pages(parts: Parts) -> Sequence[BaseRoute]:
    """The routes of all pages, for a server to serve."""
    site = Site(parts, TABS)
    static = Route("/static/{mark}/{name}", site.static.serve, methods=["GET"])
    return [static, site.presence(), *(route for page in PAGES for route in page.routes(site))]
