"""What can be done with a job from its page: the calls of the API, asked for with forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response
from starlette.routing import Route

from modelyard.control.api.calls import Answer, Call, failure_of
from modelyard.control.api.jobs import Fields, Jobs
from modelyard.control.leading import NotNow
from modelyard.control.lifecycle.events import Wish
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.errors import InputError, YardError
from modelyard.web.answers import sent_elsewhere
from modelyard.web.site import Context, Site, form


@dataclass(frozen=True, slots=True)
class Action:
    """Something that people can do with a job."""

    name: str
    title: str
    #: what people are asked before it is done
    question: str
    #: what is said when it was done
    done: str
    grave: bool = False


ACTIONS: Mapping[str, Action] = {
    one.name: one
    for one in (
        Action(
            "pause",
            "Pause",
            "Its tasks are asked to end, and its devices go to others.",
            "It pauses.",
        ),
        Action("resume", "Resume", "It waits for devices again.", "It waits for devices again."),
        Action(
            "scale",
            "Scale",
            "The numbers of devices that it may have.",
            "It may have other numbers of devices now.",
        ),
        Action(
            "priority",
            "Priority",
            "Among jobs that could start, those with more of it go first.",
            "It has another priority now.",
        ),
        Action(
            "cancel", "Cancel", "It ends for good, and cannot be resumed.", "It ends.", grave=True
        ),
    )
}


def open_to(job: Job) -> list[str]:
    """What can be done with a job as it is."""
    if job.state.over:
        return []
    turn = "resume" if job.state is State.PAUSED else "pause"
    return [turn, "scale", "priority", "cancel"]


def action_routes(site: Site, context: Context) -> list[Route]:
    jobs = site.parts.jobs
    answers: dict[str, Answer] = {wish.value: jobs.wish(wish) for wish in Wish}
    answers["scale"] = answers["priority"] = _changed(jobs)
    return [
        site.action(f"/jobs/{{job}}/{name}", _asked(site, name, answer, context))
        for name, answer in answers.items()
    ]


def _asked(site: Site, name: str, answer: Answer, context: Context) -> Answer:
    """Do it and show the job; a refusal is shown on the job's page, with its own status."""

    async def route(call: Call) -> Response:
        try:
            await answer(call)
        except NotNow:
            raise
        except YardError as error:
            failure = failure_of(error)
            if failure.status == 404:
                raise
            given = {**await context(call), "failure": failure}
            return await site.shown(call, "job/page.html", given, status=failure.status)
        return sent_elsewhere(f"/jobs/{quote(call.job)}?done={name}")

    return route


def _changed(jobs: Jobs) -> Answer:
    async def answer(call: Call) -> Response:
        async def fields() -> Fields:
            return _numbers(await form(call))

        return await jobs.change(call, fields)

    return answer


def _numbers(fields: Mapping[str, str]) -> Fields:
    """What was typed as numbers; an empty field changes nothing."""
    found: dict[str, object] = {}
    for name in ("min_devices", "max_devices", "priority"):
        written = fields.get(name, "").strip()
        if not written:
            continue
        try:
            found[name] = int(written[:10])
        except ValueError as error:
            what = f"'{written[:40]}' is not a whole number"
            raise InputError(what, fix="write a number such as 4") from error
    return found
