"""The yard as a whole over HTTP: nodes, the log, tokens, health, figures for Prometheus."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from modelyard.control.api.answers import NodeShape
from modelyard.control.api.calls import Call, Refused
from modelyard.control.api.lists import Lists
from modelyard.control.api.shapes import line_shape, node_shape
from modelyard.control.backup.schedule import Schedule
from modelyard.control.feed import Feed
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.events import Halted, NodeTurned
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import Health
from modelyard.control.lifecycle.states import State
from modelyard.control.store.callers import HINT_LETTERS, Caller, Role, audited, issue, issued
from modelyard.control.store.lease import leader
from modelyard.control.store.store import Line, Store
from modelyard.errors import InputError

#: how often a stream shows that it lives
SIGN_OF_LIFE_SECONDS = 10.0
MOST_LETTERS = 100
MOST_CALLS = 10_000
#: For so long nothing starts after a halt: longer than tasks may take to end, and not for ever,
#: because whoever takes the yard down may be interrupted before the server is.
HALT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Yard:
    """The calls about everything but single jobs."""

    store: Store
    leading: Leading
    feed: Feed
    lists: Lists
    #: of this server, where it makes backups
    backups: Schedule | None = None

    async def status(self, call: Call) -> Response:
        """GET: who leads, how many jobs are where, and from the leader how backups are doing."""
        found = await run_in_threadpool(leader, self.store.database)
        counts = await self.lists.counts(call.caller.scope)
        tells = self.leading.leads and call.caller.role is Role.ADMIN
        seen = self.backups.condition if self.backups and tells else None
        return JSONResponse(
            {
                "leads": self.leading.leads,
                "leader": found.address if found else None,
                "term": found.term if found else None,
                "user": call.caller.user,
                "tenant": call.caller.tenant,
                "role": call.caller.role,
                "jobs": counts,
                "backup": asdict(seen) if seen else None,
            }
        )

    async def nodes(self, call: Call) -> Response:
        """GET: nodes, their devices and who has them; other tenants' jobs have no names."""
        shapes = await asyncio.wrap_future(
            self.leading.consult(lambda lifecycle, _: _node_shapes(lifecycle, call.caller))
        )
        return JSONResponse({"nodes": shapes})

    async def turn(self, call: Call, health: Health) -> Response:
        """POST: take a node out of service, or back into it."""
        only_admin(call)
        why = _text(await call.fields(), "why", otherwise="")
        node = str(call.request.path_params["node"])
        event = NodeTurned(self.leading.now, node, health, call.caller.user, why)
        await asyncio.wrap_future(self.leading.ask(event))
        return await self.nodes(call)

    async def drain(self, call: Call) -> Response:
        """POST: take a node out of service; its jobs are stopped and go elsewhere."""
        return await self.turn(call, Health.DRAINED)

    async def give_back(self, call: Call) -> Response:
        """POST: take a node back into service."""
        return await self.turn(call, Health.IN_SERVICE)

    async def halt(self, call: Call) -> Response:
        """POST: stop what runs, for whoever takes the yard down; it goes on with the next server
        that leads, or on this one after a minute.
        """
        only_admin(call)
        self.leading.hold(HALT_SECONDS)
        event = Halted(self.leading.now, call.caller.user)
        await asyncio.wrap_future(self.leading.ask(event))
        return await self.status(call)

    async def events(self, call: Call) -> Response:
        """GET: the log of all jobs that are to be seen, the oldest first."""
        after = call.number("after", 0, most=10**15)
        last = call.number("last", 0, most=10**15)
        if last:
            after = max(after, await run_in_threadpool(self.store.newest) - last)
        lines = await run_in_threadpool(lambda: self._visible(call.caller, after))
        return JSONResponse({"events": [line_shape(line) for line in lines]})

    async def stream(self, call: Call) -> Response:
        """GET: the log as server-sent events, for as long as somebody listens; `Last-Event-ID` says
        where to go on.
        """
        last = call.request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 18 else None
        if after is None:
            after = call.number("after", 0, most=10**15)
        return StreamingResponse(
            self._news(call, after),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def audit(self, call: Call) -> Response:
        """GET: who changed what, and who was refused; the oldest first."""
        only_admin(call)
        after = call.number("after", 0, most=10**15)
        most = call.number("most", 100, most=MOST_CALLS)
        found = await run_in_threadpool(
            lambda: audited(self.store.database, after=after, most=most)
        )
        return JSONResponse({"calls": [asdict(one) for one in found]})

    async def tokens(self, call: Call) -> Response:
        """GET: who may call."""
        only_admin(call)
        found = await run_in_threadpool(issued, self.store.database)
        shapes = [
            {
                "hint": one.hint,
                "user": one.caller.user,
                "tenant": one.caller.tenant,
                "role": one.caller.role,
                "made": one.made,
            }
            for one in found
        ]
        return JSONResponse({"tokens": shapes})

    async def issue(self, call: Call) -> Response:
        """POST: a new token; this answer is the only place where it can ever be read."""
        only_admin(call)
        fields = await call.fields()
        role = _text(fields, "role", otherwise=Role.MEMBER)
        if role not in set(Role):
            raise InputError(f"'{role}' is no role", fix=f"write {', '.join(Role)}")
        caller = Caller(_text(fields, "user"), _text(fields, "tenant"), Role(role))
        token = await run_in_threadpool(
            lambda: issue(self.store.database, caller, at=self.leading.now)
        )
        return JSONResponse({"token": token}, status_code=201)

    async def revoke(self, call: Call) -> Response:
        """DELETE: make a token invalid at once."""
        only_admin(call)
        hint = str(call.request.path_params["hint"])
        if len(hint) < HINT_LETTERS:
            what = f"'{hint}' is too little of a token to tell which one is meant"
            fix = f"write {HINT_LETTERS} letters, as 'yard tokens' shows them"
            raise Refused(422, what, fix=fix)
        gone = await run_in_threadpool(self.store.callers.revoke, hint)
        if not gone:
            raise Refused(404, f"no token begins with '{hint[:40]}'", fix="see 'yard tokens'")
        return JSONResponse({"revoked": gone})

    async def metrics(self, call: Call) -> Response:
        """GET: figures of the whole yard in the format of Prometheus."""
        only_admin(call)
        figures = await asyncio.wrap_future(self.leading.consult(_figures))
        counts = await self.lists.counts(None)
        states = {state: counts.get(state, 0) for state in State}
        lines = ["# TYPE yard_jobs gauge"]
        lines += [f'yard_jobs{{state="{state}"}} {count}' for state, count in states.items()]
        figures["yard_decision_seconds"] = self.leading.decision_seconds
        for name, value in figures.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return PlainTextResponse(
            "\n".join([*lines, ""]), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def alive(self, _: Request) -> Response:
        """GET: whether this server answers, and whether it leads."""
        return JSONResponse({"alive": True, "leads": self.leading.leads})

    def _visible(self, caller: Caller, after: int) -> list[Line]:
        return self.store.log(after=after, tenant=caller.scope)

    async def _news(self, call: Call, after: int) -> AsyncIterator[str]:
        heard = self.feed.listen(after, call.caller.scope, patience_seconds=SIGN_OF_LIFE_SECONDS)
        async with aclosing(heard):
            async for events in heard:
                yield "".join(events) or ": still here\n\n"


def _node_shapes(lifecycle: Lifecycle, caller: Caller) -> list[NodeShape]:
    given: dict[str, dict[int, str]] = {}
    for job in lifecycle.active.values():
        shown = job.id if caller.may_see(job.facts.tenant) else "another tenant's"
        for node, device in job.occupied():
            given.setdefault(node, {})[device] = shown
    return [node_shape(node, given.get(node.name, {})) for node in lifecycle.nodes.values()]


def _figures(lifecycle: Lifecycle, _: float) -> dict[str, float]:
    in_service = sum(len(node.in_service()) for node in lifecycle.nodes.values())
    every = sum(node.devices for node in lifecycle.nodes.values())
    health = Counter(node.health for node in lifecycle.nodes.values())
    used = sum(job.devices for job in lifecycle.active.values() if job.state.placed)
    return {
        "yard_devices": every,
        "yard_devices_in_service": in_service,
        "yard_devices_given": used,
        "yard_nodes_in_service": health[Health.IN_SERVICE],
    }


def only_admin(call: Call) -> None:
    """For answers that pages give as well, past the table of calls."""
    if call.caller.role is not Role.ADMIN:
        raise Refused(403, "only an admin may do this", fix="ask one")


def _text(fields: dict[str, object], name: str, *, otherwise: str | None = None) -> str:
    value = fields.get(name, otherwise)
    if not isinstance(value, str) or len(value) > MOST_LETTERS or not value.isprintable():
        raise InputError(f"'{name}' is not a text", fix=f'send {{"{name}": "…"}}')
    if not value and otherwise is None:
        raise InputError(f"'{name}' is empty", fix=f'send {{"{name}": "…"}}')
    return value
