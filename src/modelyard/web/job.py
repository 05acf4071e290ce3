"""One job: where it is and why, how it went, what it says, and what can be done with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.control.api.jobs import roles
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.control.store.callers import Caller
from modelyard.errors import YardError
from modelyard.keep.listing import RUN_CHECKPOINTS, Listed, listed
from modelyard.keep.store import open_store
from modelyard.web.curves import Courses, Points
from modelyard.web.job_actions import ACTIONS, action_routes, open_to
from modelyard.web.jobs import row_of
from modelyard.web.live import Message
from modelyard.web.picture import Picture
from modelyard.web.site import Site
from modelyard.web.stills import Still, stills
from modelyard.web.task_log import Chosen
from modelyard.web.timeline import timeline
from modelyard.web.waiting import Explanations, named

#: lines of the log in the list of events, and behind the timeline
MOST_LINES, MOST_SPANS = 200, 1_000
MOST_CHECKPOINTS = 20
#: workers that have gone and whose logs are offered still, the last first to be kept
MOST_GONE = 6
LIVE = ("head", "why", "timeline", "tasks", "checkpoints", "lines")


class JobPage:
    """The page and what it is told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.jobs = site.parts.jobs
        self.explanations = Explanations(self.jobs)
        self.courses = Courses()

    async def context(self, call: Call) -> dict[str, object]:
        kept = await self.jobs.found(call)
        picture = await self.site.camera.picture()
        job = kept.job
        waits = job.state is State.WAITING
        chosen = Chosen.of(call, job)
        store = self.site.parts.yard.store
        lines = await run_in_threadpool(lambda: store.latest(job=job.id, most=MOST_SPANS))
        may_change = call.caller.may_change(job.facts.tenant)
        return {
            "kept": kept,
            "job": job.accounted(picture.at) if job.state.placed else job,
            "row": row_of(kept, picture),
            "waits": waits,
            "why": await self.explanations.of(kept) if waits else None,
            "named": partial(named, names=_names(picture, call.caller) if waits else {}),
            "lines": lines[:MOST_LINES],
            "timeline": timeline(lines[::-1], kept.ended or picture.at),
            "tasks": list(job.tasks()),
            "checkpoints": await run_in_threadpool(self._checkpoints, job),
            "written": json.loads(kept.spec) if kept.spec else {},
            # Only a page that is loaded needs them: it asks by itself.
            "stills": lambda: self._stills(job),
            "roles": _roles(job, chosen),
            "chosen": chosen,
            "log": await run_in_threadpool(chosen.tail, self.jobs.engine),
            "actions": {name: ACTIONS[name] for name in open_to(job)} if may_change else {},
            "done": ACTIONS.get(call.request.query_params.get("done", "")),
        }

    async def messages(self, call: Call, cursor: str) -> Sequence[Message]:
        """What has grown since: points of the curves, and the log."""
        job = (await self.jobs.found(call)).job
        curve, _, place = cursor.rpartition("@")
        chosen = Chosen.of(call, job)
        start = chosen.position(place)
        piece = await run_in_threadpool(chosen.more, self.jobs.engine, start or 0)
        told = []
        if job.elastic:
            points = await run_in_threadpool(self.courses.points, self._journal(job), curve)
            if points.cursor != curve:
                told.append(Message("curve", _shape(points), f"{points.cursor}@{place}"))
                curve = points.cursor
        if piece.after != start:
            data = {"task": chosen.role, "anew": start is None, "text": piece.text}
            told.append(Message("log", data, f"{curve}@{chosen.place(piece.after)}"))
        return told

    def _stills(self, job: Job) -> list[Still]:
        return stills(self.courses.points(self._journal(job)))

    def _journal(self, job: Job) -> Path:
        return self.site.parts.run(job.id) / "journal.jsonl"

    def _checkpoints(self, job: Job) -> list[Listed]:
        """The newest that are in the job's own folder."""
        folder = self.site.parts.run(job.id) / RUN_CHECKPOINTS
        if not job.elastic or not folder.is_dir():
            return []
        try:
            return listed(open_store(folder))[:MOST_CHECKPOINTS]
        except (YardError, OSError):
            # They are being written and removed at this very moment.
            return []


def _names(picture: Picture, caller: Caller) -> dict[str, str]:
    seen = (job.facts for job in picture.jobs if caller.may_see(job.facts.tenant))
    return {facts.id: facts.name for facts in seen}


def _roles(job: Job, chosen: Chosen) -> list[str]:
    """Tasks whose logs are offered: all that there are, and of those that went the last ones."""
    every = roles(job)
    offered = {"conductor", chosen.role, *every[-MOST_GONE:]}
    offered.update(slot.role for _, slot in job.tasks())
    return [role for role in every if role in offered]


def _shape(points: Points) -> dict[str, object]:
    return {
        "whole": points.whole,
        "width": points.width,
        "reached": points.reached,
        "rows": points.rows,
        "validation": points.validation,
    }


def routes(site: Site) -> list[BaseRoute]:
    page = JobPage(site)
    return [
        *site.page("/jobs/{job}", "job", page.context, live=LIVE, messages=page.messages),
        *action_routes(site, page.context),
    ]
