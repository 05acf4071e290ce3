"""Lists of jobs: from memory on the server that leads, from the database on the others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from modelyard.control.api.calls import Call
from modelyard.control.api.shapes import job_shape
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.control.listing import Listing, Order
from modelyard.control.store.store import Store
from modelyard.errors import InputError

#: of one call
MOST_LISTED = 1_000
#: Texts of jobs that are kept; twice the queue that a yard is made for.
MOST_TEXTS = 20_000


@dataclass(slots=True)
class Lists:
    """What is listed, and how many there are. All of it belongs to the server's event loop."""

    store: Store
    leading: Leading
    #: of jobs that hold nothing, each with the record that it was made of: records never change
    _texts: dict[str, tuple[Job, str]] = field(default_factory=dict)

    async def jobs(self, asked: Listing) -> list[tuple[Job, float | None]]:
        """Jobs, each with the time when it was over."""
        board = self.leading.board
        if board is not None and not asked.reaches_over:
            return [(job, None) for job in board.page(asked)]
        found = await run_in_threadpool(self.store.page, asked)
        return [(kept.job, kept.ended) for kept in found]

    async def texts(self, asked: Listing) -> list[str]:
        """The same as JSON."""
        now = self.leading.now
        return [self._text(job, now, ended) for job, ended in await self.jobs(asked)]

    async def counts(self, tenant: str | None) -> dict[State, int]:
        """How many jobs are in each state."""
        board = self.leading.board
        if board is not None:
            return board.counts(tenant)
        return await run_in_threadpool(lambda: self.store.counts(tenant=tenant))

    def _text(self, job: Job, now: float, ended: float | None) -> str:
        if ended is not None or job.state.placed:
            return json.dumps(job_shape(job, now, ended=ended))
        known = self._texts.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        text = json.dumps(job_shape(job, now))
        self._texts[job.id] = job, text
        return text


def listing(call: Call) -> Listing | None:
    """Which jobs a call asks for; None where it asks for those of a tenant that it may not see."""
    query, scope = call.request.query_params, call.caller.scope
    words = [word for text in query.getlist("state") for word in text.split(",") if word]
    order = query.get("order") or Order.SUBMITTED
    unknown = [word for word in words if word not in set(State)]
    if unknown:
        raise InputError(f"'{unknown[0][:40]}' is no state", fix=f"write {', '.join(State)}")
    if order not in set(Order):
        raise InputError(f"'{order[:40]}' is no order", fix=f"write {', '.join(Order)}")
    tenant = query.get("tenant") or None
    if scope is not None and tenant not in (None, scope):
        return None
    return Listing(
        tenant=tenant or scope,
        states=frozenset(map(State, words)),
        owner=query.get("owner", ""),
        search=query.get("search", ""),
        over=call.flag("all"),
        order=Order(order),
        reverse=call.flag("reverse"),
        most=call.number("most", 100, most=MOST_LISTED),
        skip=call.number("skip", 0, most=10**9),
    )
