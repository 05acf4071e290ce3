"""Jobs over HTTP: submit, list, ask why, pause, resume, resize, cancel, read logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from modelyard.control.api.answers import FullJobShape
from modelyard.control.api.calls import Answer, Call, Refused, not_found
from modelyard.control.api.lists import Lists, listing
from modelyard.control.api.sentences import when_it_ends, where_it_is
from modelyard.control.api.shapes import job_shape, kept_shape, line_shape, prediction_shape
from modelyard.control.deciding import Scheduler
from modelyard.control.forecast.forecasts import Forecasts
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.events import Event, Rescoped, Submitted, Wish, Wished
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.states import State
from modelyard.control.store.store import Kept, Store
from modelyard.control.submission import checked_id, new_id, submission
from modelyard.engines.interface import Engine, TaskName, parse_task_name
from modelyard.errors import InputError, YardError
from modelyard.schedule.explain import explain
from modelyard.spec.cluster import Cluster

Fields = Mapping[str, object]

#: of a file's name in what is said of it
MOST_LETTERS = 100
MOST_LOG_BYTES = 1 << 20
#: what is shown of the log of a task that failed: an error and where it came from
LAST_LINES, LAST_BYTES = 20, 8192


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that was submitted, now or by an earlier try."""

    job: Job
    ended: float | None
    new: bool


@dataclass(frozen=True, slots=True)
class Jobs:
    """The calls about jobs."""

    store: Store
    leading: Leading
    engine: Engine
    cluster: Cluster
    scheduler: Callable[[], Scheduler | None]
    forecasts: Forecasts
    lists: Lists

    async def submit(self, call: Call) -> Response:
        """POST: submit a job; 201: it can no longer be lost, 200: it was there before."""
        text = (await call.body()).decode("utf-8", errors="replace")
        query = call.request.query_params
        taken = await self.take(
            call,
            text,
            id=checked_id(query["id"]) if "id" in query else new_id(),
            folder=query.get("folder", ""),
            file=query.get("file", "job"),
        )
        shape = job_shape(taken.job, self.leading.now, ended=taken.ended)
        return JSONResponse(shape, status_code=201 if taken.new else 200)

    async def take(
        self, call: Call, text: str, *, id: str, folder: str = "", file: str = "job"
    ) -> Taken:
        """The job of a text that somebody wrote, once: whoever asks twice is told of the first."""

        def made() -> Kept | tuple[Job, str]:
            """What was submitted under this id before, or the job of the text."""
            return self.store.job(id) or submission(
                text,
                id=id,
                caller=call.caller,
                folder=folder,
                cluster=self.cluster,
                at=self.leading.now,
                file=file[:MOST_LETTERS],
            )

        found = await run_in_threadpool(made)
        if isinstance(found, Kept):
            if not call.caller.may_see(found.job.facts.tenant):
                raise Refused(409, f"the id '{id}' is taken", fix="choose another one")
            return Taken(found.job, found.ended, new=False)
        job, kept = found
        event = Submitted(self.leading.now, job)
        await self._happen(call, event, specs={id: kept}, status=201)
        return Taken(job, None, new=True)

    async def page(self, call: Call) -> Response:
        """GET: unfinished jobs, or all of them with `all=1`; the newest first."""
        asked = listing(call)
        texts = await self.lists.texts(asked) if asked else []
        counts = await self.lists.counts(asked.tenant if asked else call.caller.scope)
        body = f'{{"jobs": [{", ".join(texts)}], "counts": {json.dumps(counts)}}}'
        return Response(body, media_type="application/json")

    async def show(self, call: Call) -> Response:
        """GET: one job in full, with what was last foreseen of it; `forecast=1` looks ahead now."""
        kept = await self.found(call)
        if call.flag("forecast"):
            await run_in_threadpool(self.forecasts.current)
        return JSONResponse(await self._in_full(kept))

    async def why(self, call: Call) -> Response:
        """GET: why a job is where it is, and what is foreseen; for a waiting one what the policy
        says.
        """
        return JSONResponse(await self.explained(await self.found(call)))

    async def explained(self, kept: Kept) -> dict[str, object]:
        """Why this job is where it is."""
        now = self.leading.now
        found: dict[str, object] = {
            "job": job_shape(kept.job, now, ended=kept.ended),
            "sentence": where_it_is(kept.job, now),
            "last_lines": await run_in_threadpool(last_lines, self.engine, kept.job),
        }
        if kept.job.state.over or kept.job.state is State.PAUSED:
            return found
        forecast = await run_in_threadpool(self.forecasts.current)
        foreseen = forecast.predictions.get(kept.job.id)
        if kept.job.state is State.WAITING:
            start = foreseen.start.at if foreseen and foreseen.start else None
            asked = self.leading.consult(
                lambda *then: self._explained(kept.job.id, start, *then), at_length=True
            )
            explained: dict[str, object] = await asyncio.wrap_future(asked)
            found.update(explained)
        if foreseen is not None:
            end = when_it_ends(foreseen, now)
            found["sentence"] = f"{found['sentence']} {end}".rstrip()
            found["forecast"] = prediction_shape(foreseen)
        return found

    async def events(self, call: Call) -> Response:
        """GET: the log of one job, the oldest first."""
        kept = await self.found(call)
        after = call.number("after", 0, most=10**15)
        lines = await run_in_threadpool(lambda: self.store.log(job=kept.job.id, after=after))
        return JSONResponse({"events": [line_shape(line) for line in lines]})

    async def log(self, call: Call) -> Response:
        """GET: a piece of a task's output; `X-Next` says where the next one begins."""
        kept = await self.found(call)
        query = call.request.query_params
        attempt = call.number("attempt", kept.job.attempt, most=10**6)
        incarnation = call.number("incarnation", 0, most=10**6)
        role = query.get("role") or ("conductor" if kept.job.elastic else "worker-0")
        if role not in roles(kept.job):
            raise Refused(
                404, f"there is no task '{role[:40]}'", fix=f"it has {', '.join(roles(kept.job))}"
            )
        name = TaskName(kept.job.id, attempt, role, incarnation)
        start = call.number("start", 0, most=10**15)
        piece, after = await run_in_threadpool(
            lambda: self.engine.log(name, start=start, most_bytes=MOST_LOG_BYTES)
        )
        headers = {"X-Next": str(after)}
        return Response(piece, media_type="text/plain; charset=utf-8", headers=headers)

    def wish(self, wish: Wish) -> Answer:
        """POST: pause, resume or cancel."""

        async def answer(call: Call) -> Response:
            kept = await self.changeable(call)
            if kept.job.state.over:
                what = f"job {kept.job.id} is {kept.job.state} already"
                raise Refused(409, what, fix="it is over: whoever wants it once more submits it")
            event = Wished(self.leading.now, kept.job.id, wish, call.caller.user)
            jobs = (await self._happen(call, event)).jobs
            return JSONResponse(job_shape(jobs[-1] if jobs else kept.job, self.leading.now))

        return answer

    async def rescope(self, call: Call) -> Response:
        """PATCH: other numbers of devices, or another priority."""
        return await self.change(call, call.fields)

    async def change(self, call: Call, sent: Callable[[], Awaitable[Fields]]) -> Response:
        """The same for whoever sends it in another way; nothing is read for who may not."""
        job = (await self.changeable(call)).job
        fields = await sent()
        unknown = sorted(set(fields) - {"min_devices", "max_devices", "priority"})
        if unknown:
            fix = "send 'min_devices', 'max_devices' or 'priority'"
            raise InputError(f"'{unknown[0][:40]}' cannot be changed", fix=fix)
        numbers = {name: _whole(name, value) for name, value in fields.items()}
        event = Rescoped(
            self.leading.now,
            job.id,
            call.caller.user,
            numbers.get("min_devices", job.min_devices),
            numbers.get("max_devices", job.max_devices),
            numbers.get("priority", job.priority),
        )
        await self._happen(call, event)
        return JSONResponse(await self._in_full(await self.found(call)))

    async def _in_full(self, kept: Kept) -> FullJobShape:
        lines = await run_in_threadpool(last_lines, self.engine, kept.job)
        latest = self.forecasts.latest()
        foreseen = latest.predictions.get(kept.job.id) if latest else None
        return kept_shape(kept, self.leading.now, lines, foreseen)

    async def _happen(
        self, call: Call, event: Event, *, specs: dict[str, str] | None = None, status: int = 200
    ) -> Outcome:
        """Let an event happen, and be in the audit in the same instant."""
        note = call.note(event.at, status)
        outcome = await asyncio.wrap_future(self.leading.ask(event, specs, note=note))
        call.request.state.noted = True
        return outcome

    async def found(self, call: Call) -> Kept:
        """The job that a prefix of its id, or its name, means; only among those to be seen.

        A name means the one job that is not over, or the newest that is.
        """
        asked = call.job
        found = await run_in_threadpool(
            lambda: self.store.find(asked, tenant=call.caller.scope, most=3)
        )
        if not found:
            raise not_found(asked[:40])
        exact = [kept for kept in found if kept.job.id == asked]
        ids = [kept for kept in found if kept.job.id.startswith(asked)]
        goes_on = [kept for kept in found if kept.ended is None]
        meant = exact or ids or goes_on or found[:1]
        if len(meant) == 1:
            return meant[0]
        several = [kept.job.id for kept in meant[:2]]
        several += ["another one"] if len(meant) > 2 else []
        fix = "write more of the id" if ids else "write the id of one of them: see 'yard ps'"
        raise Refused(409, f"'{asked[:40]}' could be {' or '.join(several)}", fix=fix)

    async def changeable(self, call: Call) -> Kept:
        kept = await self.found(call)
        if not call.caller.may_change(kept.job.facts.tenant):
            raise Refused(403, f"{call.caller.user} may look at jobs, not change them")
        return kept

    def _explained(
        self, name: str, start: float | None, lifecycle: Lifecycle, now: float
    ) -> dict[str, object]:
        scheduler = self.scheduler()
        if scheduler is None:
            return {}
        found = explain(scheduler.view(lifecycle, now), scheduler.policy).get(name)
        if found is None:
            return {}
        if start is not None:
            found = replace(found, predicted_start=max(start, now))
        return {
            "sentence": found.sentence(),
            "reasons": [reason.value for reason in found.reasons],
            "unblocked_by": list(found.unblocked_by),
            "predicted_start": found.predicted_start,
        }


def roles(job: Job) -> list[str]:
    """Tasks that a job has or had."""
    workers = [f"worker-{number}" for number in range(max(job.slots_made, 1))]
    return [*(["conductor"] if job.elastic else []), *workers]


def last_lines(engine: Engine, job: Job) -> list[str]:
    """What the task wrote last whose death mattered; nothing of a job that is well."""
    if not job.culprit or job.state in (State.RUNNING, State.SUCCEEDED):
        return []
    try:
        piece, _ = engine.log(parse_task_name(job.culprit), start=-LAST_BYTES)
    except YardError:
        # The reason is worth telling without them.
        return []
    lines = piece.decode("utf-8", errors="replace").splitlines()
    if len(piece) == LAST_BYTES:
        # The first one may have lost its beginning.
        lines = lines[1:] or lines
    return lines[-LAST_LINES:]


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10**6:
        raise InputError(f"'{name}' is not a whole number", fix="write a number such as 4")
    return value
