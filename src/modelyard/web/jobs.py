"""The list of jobs: searched, filtered, sorted and paged by what is in its address."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.forecast.replay import Prediction
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import OVER, State
from modelyard.control.listing import Listing, Order
from modelyard.control.store.store import Kept
from modelyard.web.picture import Picture
from modelyard.web.site import Site

PER_PAGE = 50
MOST_PAGES = 10**6
MOST_LETTERS = 100
#: groups of states that people ask for, in the order of the page
GROUPS: dict[str, frozenset[State]] = {
    "running": frozenset((State.STARTING, State.RUNNING, State.STOPPING)),
    "waiting": frozenset((State.WAITING,)),
    "paused": frozenset((State.PAUSED,)),
    "succeeded": frozenset((State.SUCCEEDED,)),
    "failed": frozenset((State.FAILED,)),
    "cancelled": frozenset((State.CANCELLED,)),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address says."""

    words: str
    group: str
    tenant: str
    order: Order
    reverse: bool
    page: int

    @classmethod
    def of(cls, query: QueryParams) -> Asked:
        """Whatever is not understood is left out: an address is typed by people."""
        order = query.get("sort", "")
        page = query.get("page", "")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1
        sort = Order(order) if order in set(Order) else Order.LIVELY
        return cls(
            words=query.get("q", "").strip()[:MOST_LETTERS],
            group=query.get("state", "") if query.get("state", "") in GROUPS else "",
            tenant=query.get("tenant", "")[:MOST_LETTERS],
            order=sort,
            reverse=query.get("reverse", "") == "1",
            page=max(1, min(number, MOST_PAGES)),
        )

    def address(self, **changes: object) -> str:
        """The address of the same list, but for some changes; back on its first page."""
        fields: dict[str, object] = {
            "q": self.words,
            "state": self.group,
            "tenant": self.tenant,
            "sort": "" if self.order is Order.LIVELY else self.order,
            "reverse": "1" if self.reverse else "",
            "page": "",
        }
        fields |= changes
        said = {name: value for name, value in fields.items() if value not in ("", None)}
        return f"/jobs?{urlencode(said)}" if said else "/jobs"

    def sorted_by(self, order: Order) -> str:
        """The address of the list sorted by a column; by the same one, the other way round."""
        turned = order is self.order and not self.reverse
        return self.address(sort=order, reverse="1" if turned else "")

    def listing(self, scope: str | None) -> Listing | None:
        """The jobs themselves; None where they are those of a tenant that is not to be seen."""
        if scope is not None and self.tenant not in ("", scope):
            return None
        return Listing(
            tenant=self.tenant or scope,
            states=GROUPS.get(self.group, frozenset()),
            search=self.words,
            over=True,
            order=self.order,
            reverse=self.reverse,
            most=PER_PAGE,
            skip=(self.page - 1) * PER_PAGE,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the list."""

    job: Job
    ended: float | None
    #: from 0 to 1; None where nobody knows how much there is to do
    fraction: float | None
    #: until it is done with the devices that it has
    left_seconds: float | None
    foreseen: Prediction | None


def routes(site: Site) -> list[BaseRoute]:
    async def context(call: Call) -> dict[str, object]:
        asked = Asked.of(call.request.query_params)
        picture = await site.camera.picture()
        store, scope = site.parts.yard.store, call.caller.scope
        listing = asked.listing(scope)
        found = await run_in_threadpool(store.page, listing) if listing else []
        total = await run_in_threadpool(store.total, listing) if listing else 0
        counts = await run_in_threadpool(lambda: store.counts(tenant=scope))
        tenants = await run_in_threadpool(store.tenants) if scope is None else []
        return {
            "asked": asked,
            "rows": [row_of(kept, picture) for kept in found],
            "total": total,
            "pages": max(-(-total // PER_PAGE), 1),
            "first": (asked.page - 1) * PER_PAGE + 1,
            "groups": {
                name: sum(counts.get(state, 0) for state in states)
                for name, states in GROUPS.items()
            },
            "all": sum(counts.values()),
            "tenants": tenants,
            "order": Order,
        }

    return [*site.page("/jobs", "jobs", context, live=("groups", "rows"))]


def row_of(kept: Kept, picture: Picture) -> Row:
    """A job with what is known of its progress, now or when it was last seen."""
    job = kept.job
    foreseen = picture.foreseen.get(job.id)
    if (known := picture.progress.get(job.id)) is not None:
        return Row(job, kept.ended, known.fraction, known.left_seconds, foreseen)
    # What runs has run for longer than when its seconds were last counted.
    counted = replace(kept, job=job.accounted(picture.at)) if job.state.placed else kept
    return Row(job, kept.ended, fraction_of(counted), None, foreseen)


def fraction_of(kept: Kept) -> float | None:
    """How much of its work a job has done, by what was foreseen at its submission."""
    if kept.job.state is State.SUCCEEDED:
        return 1.0
    foreseen = json.loads(kept.spec).get("estimate", {}) if kept.spec else {}
    if steps := foreseen.get("steps"):
        return min(kept.job.steps / float(steps), 1.0)
    seconds = foreseen.get("seconds")
    # What has run for longer than anybody said goes on for nobody knows how long.
    if not seconds or kept.job.state in OVER or kept.job.run_seconds >= float(seconds):
        return None
    return kept.job.run_seconds / float(seconds)
