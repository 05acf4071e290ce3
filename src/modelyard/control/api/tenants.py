"""Tenants over HTTP: what they are promised, what they hold, and what they have used."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from modelyard.control.api.answers import TenantShape
from modelyard.control.api.calls import Call, Refused
from modelyard.control.api.yard import only_admin
from modelyard.control.history import curves, fold
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.events import Noted
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.states import State
from modelyard.control.store import past
from modelyard.control.store.store import Store
from modelyard.control.tenancy import SetRights, Tenancy
from modelyard.schedule.view import TenantView

DAY_SECONDS = 86_400
#: nobody asks for more than that at once
LONGEST_WINDOW_SECONDS = 366 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Held:
    """What tenants' jobs hold and want now."""

    running: Counter[str]
    waiting: Counter[str]
    devices: Counter[str]
    in_service: int


@dataclass(frozen=True, slots=True)
class Tenants:
    """The calls about tenants."""

    store: Store
    leading: Leading
    tenancy: Tenancy

    async def show(self, call: Call) -> Response:
        """GET: tenants with their rights, what they hold now, and what they used lately."""
        window = max(call.number("window", DAY_SECONDS, most=LONGEST_WINDOW_SECONDS), 1)
        shapes = await self.shapes(call, window)
        return JSONResponse({"tenants": shapes, "window_seconds": window})

    async def shapes(self, call: Call, window: int) -> list[TenantShape]:
        """Every tenant that has rights or jobs; only their own to those who are no admins."""
        now, only = self.leading.now, call.caller.scope
        held = await asyncio.wrap_future(self.leading.consult(lambda found, _: _held(found)))
        used, views, changed = await run_in_threadpool(
            lambda: (
                _used(self.store.database, now - window, now),
                self.tenancy.views(),
                self.tenancy.set_rights(),
            )
        )
        names = {*views, *used, *held.running, *held.waiting, *([only] if only else [])}
        return [
            _shape(name, views.get(name), changed.get(name), held, used.get(name, 0.0))
            for name in sorted(names)
            if only in (None, name)
        ]

    async def set(self, call: Call) -> Response:
        """PUT: give a tenant other rights; what is left out stays. The next decision follows."""
        only_admin(call)
        name, words = _named(call), await call.fields()
        by = call.caller.user
        view = await run_in_threadpool(
            lambda: self.tenancy.set(name, words, by=by, at=self.leading.now)
        )
        most = "any number of" if view.maximum is None else f"at most {view.maximum}"
        said = f"guaranteed {view.guaranteed} and {most} devices, weight {view.weight:g}"
        await self._note(f"tenant '{name}' has {said} from now on, says {by}")
        return await self.show(call)

    async def remove(self, call: Call) -> Response:
        """DELETE: forget what was set; what the yard's file says, or nothing, counts again."""
        only_admin(call)
        name = _named(call)
        if not await run_in_threadpool(self.tenancy.remove, name):
            fix = "it is in the file of 'yard up --tenants'; change it there, or set other rights"
            known = name in self.tenancy.written
            raise Refused(
                404,
                f"nobody set rights of tenant '{name[:40]}'",
                fix=fix if known else "see 'yard tenants'",
            )
        await self._note(f"what was set for tenant '{name}' was removed by {call.caller.user}")
        return await self.show(call)

    async def _note(self, what: str) -> None:
        await asyncio.wrap_future(self.leading.ask(Noted(self.leading.now, what)))


def _named(call: Call) -> str:
    return str(call.request.path_params["tenant"])


def _used(database: Database, since: float, until: float) -> dict[str, float]:
    """Device-seconds of each tenant between two moments, by the log."""
    opening, entries = past.opening(database, since), past.entries_between(database, since, until)
    found = curves(fold(opening, entries, since=since, until=until), points=1)
    return {name: mean * found.seconds for name, (mean,) in found.devices_by_tenant.items()}


def _held(lifecycle: Lifecycle) -> Held:
    in_service = sum(len(node.in_service()) for node in lifecycle.nodes.values())
    held = Held(Counter(), Counter(), Counter(), in_service)
    for job in lifecycle.jobs.values():
        if job.state is State.WAITING:
            held.waiting[job.facts.tenant] += 1
        elif job.state.placed:
            held.running[job.facts.tenant] += 1
            held.devices[job.facts.tenant] += job.devices
    return held


def _shape(
    name: str, known: TenantView | None, changed: SetRights | None, held: Held, used: float
) -> TenantShape:
    view = known or TenantView(name)
    return {
        "name": name,
        "guaranteed": view.guaranteed,
        "maximum": view.maximum,
        "weight": view.weight,
        "band": "production" if view.band else "batch",
        "source": "set" if changed else "file" if known else "none",
        "set_by": changed.by if changed else None,
        "set_at": changed.at if changed else None,
        "running": held.running[name],
        "waiting": held.waiting[name],
        "devices": held.devices[name],
        "share": held.devices[name] / held.in_service if held.in_service else 0.0,
        "device_seconds": used,
    }
