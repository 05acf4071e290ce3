"""One job: where it is and why, what it did, what it says, and what can be done with it."""

from __future__ import annotations

import json

from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.api.jobs import roles
from modelyard.control.lifecycle.states import State
from modelyard.control.store.store import Kept
from modelyard.engines.interface import TaskName
from modelyard.web.job_actions import ACTIONS, action_routes, open_to
from modelyard.web.jobs import row_of
from modelyard.web.site import Site

#: of the log in the first page, and in one message
TAIL_BYTES, PIECE_BYTES = 16 * 1024, 64 * 1024
MOST_LINES = 200
LIVE = ("head", "why", "tasks", "lines")


class JobPage:
    """The page and what it is told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.jobs = site.parts.jobs

    async def context(self, call: Call) -> dict[str, object]:
        kept = await self.jobs.found(call)
        picture = await self.site.camera.picture()
        why = await self.jobs.explained(kept) if kept.job.state is State.WAITING else None
        store = self.site.parts.yard.store
        lines = await run_in_threadpool(lambda: store.latest(job=kept.job.id, most=MOST_LINES))
        written = json.loads(kept.spec) if kept.spec else {}
        may_change = call.caller.may_change(kept.job.facts.tenant)
        return {
            "kept": kept,
            "job": kept.job.accounted(picture.at) if kept.job.state.placed else kept.job,
            "row": row_of(kept, picture),
            "why": why,
            "lines": lines,
            "tasks": list(kept.job.tasks()),
            "written": written,
            "roles": roles(kept.job),
            "role": self._role(call, kept),
            "log": await run_in_threadpool(self._tail, call, kept),
            "actions": {name: ACTIONS[name] for name in open_to(kept.job)} if may_change else {},
            "may_change": may_change,
            "done": ACTIONS.get(call.request.query_params.get("done", "")),
        }

    def _role(self, call: Call, kept: Kept) -> str:
        asked = call.request.query_params.get("task", "")
        usual = "conductor" if kept.job.elastic else "worker-0"
        return asked if asked in roles(kept.job) else usual

    def _tail(self, call: Call, kept: Kept) -> str:
        name = TaskName(kept.job.id, kept.job.attempt, self._role(call, kept), 0)
        piece, _ = self.jobs.engine.log(name, start=-TAIL_BYTES, most_bytes=TAIL_BYTES)
        return piece.decode("utf-8", errors="replace")


def routes(site: Site) -> list[BaseRoute]:
    page = JobPage(site)
    return [
        *site.page("/jobs/{job}", "job", page.context, live=LIVE),
        *action_routes(site, page.context),
    ]
