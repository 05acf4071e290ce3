"""From a plan, or a few numbers, to a job: its file, what it would find, and its submission."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call, failure_of
from modelyard.control.forecast.words import outlook_words, where_words
from modelyard.control.leading import NotNow
from modelyard.control.submission import checked_id, new_id
from modelyard.errors import InputError, Problem, YardError
from modelyard.plan.answer import Answer
from modelyard.plan.launch.yard_job import yard_job
from modelyard.planner import words as say
from modelyard.spec.cluster import Cluster
from modelyard.web.answers import sent_elsewhere
from modelyard.web.plan_form import Form
from modelyard.web.site import Site
from modelyard.web.site import form as fields_of

#: the plain form, with what stands in it at first; a small model that any machine can train
PLAIN: Mapping[str, str] = {
    "name": "small-gpt",
    "data": "",
    "min": "1",
    "max": "2",
    "steps": "200",
    "batch": "16",
    "sequence": "128",
    "layers": "4",
    "hidden": "128",
    "heads": "4",
}
MOST_LETTERS = 300
#: of a text in a field; longer ones are refused by the call itself
FILE = "job"

Answered = Callable[[Form], Awaitable[Answer]]


class JobDraft:
    """The page of a job that is not submitted yet."""

    def __init__(self, site: Site, answered: Answered) -> None:
        self.site, self.answered = site, answered

    async def context(self, call: Call) -> dict[str, object]:
        """A draft of what the address says."""
        query = call.request.query_params
        if "plain" in query:
            written = {name: query.get(name, "").strip()[:MOST_LETTERS] for name in PLAIN}
            return await self._shown(call, plain_text(written), title="A small model")
        form = Form.of(query)
        if not form.asked:
            cluster = self.site.parts.jobs.cluster
            return await self._shown(call, plain_text(usual(cluster)), title="A new job")
        answer = await self.answered(form)
        rank = call.number("rank", 1, most=10**6)
        if not 1 <= rank <= len(answer.plans):
            what = f"there is no plan {rank}" if answer.plans else "no plan keeps the limits"
            raise InputError(what, fix="go back to the plans and choose another one")
        chosen = answer.plans[rank - 1]
        text = yard_job(chosen, answer.request, form.written["data"]).files["job.yaml"]
        back = form.address("/plan")
        return await self._shown(call, text, title=say.headline(chosen), back=back, rank=rank)

    async def take(self, call: Call) -> Response:
        """POST: look ahead again with what was edited, or submit it."""
        fields = await fields_of(call)
        text = fields.get("text", "").replace("\r\n", "\n")
        if fields.get("do") != "submit":
            context = await self._shown(call, text, title="A new job", id=fields.get("id", ""))
            return await self.site.shown(call, "plan_job/page.html", context)
        try:
            # The id is that of the page: who presses twice submits once.
            id = checked_id(fields.get("id", ""))
            taken = await self.site.parts.jobs.take(call, text, id=id, file=FILE)
        except NotNow:
            raise
        except YardError as error:
            context = await self._shown(call, text, title="A new job", failure=error)
            status = failure_of(error).status
            return await self.site.shown(call, "plan_job/page.html", context, status=status)
        return sent_elsewhere(f"/jobs/{quote(taken.job.id)}")

    async def _shown(
        self,
        call: Call,
        text: str,
        *,
        title: str,
        back: str = "/plan",
        rank: int = 0,
        id: str = "",
        failure: YardError | None = None,
    ) -> dict[str, object]:
        """The draft with its mistakes, or with what it would find on the yard."""
        outlook, where, problems = [], "", _problems(failure) if failure else []
        if failure is None:
            try:
                found = await run_in_threadpool(
                    lambda: self.site.parts.calls.future.foreseen(call.caller, text, file=FILE)
                )
                outlook, where = list(outlook_words(found)), where_words(found)
            except InputError as error:
                problems = _problems(error)
        return {
            "text": text,
            "title": title,
            "back": back,
            "rank": rank,
            "id": id or new_id(),
            "outlook": outlook,
            "where": where,
            "problems": problems,
            "may_submit": call.caller.may_change(call.caller.tenant),
        }


def usual(cluster: Cluster) -> dict[str, str]:
    """The plain form for a yard: at most what it has."""
    most = max(cluster.largest_gang(kind) for kind in cluster.kinds)
    return {**PLAIN, "max": str(min(int(PLAIN["max"]), most))}


def plain_text(written: Mapping[str, str]) -> str:
    """A job file of a few fields, whatever was written: mistakes are found in the file."""
    data = json.dumps(written.get("data", ""), ensure_ascii=False)
    given = {name: _value(written.get(name, "") or PLAIN[name]) for name in PLAIN}
    return "\n".join(
        (
            f"name: {given['name']}",
            "model: gpt",
            f"devices: {{min: {given['min']}, max: {given['max']}}}",
            f"batch: {given['batch']}",
            f"steps: {given['steps']}",
            "train:",
            f"  data: {data}  # a folder that 'yard data prepare' has made",
            f"  sequence: {given['sequence']}",
            f"  micro_batch: {_micro_batch(written)}",
            f"  model_options: {{layers: {given['layers']}, hidden: {given['hidden']}, "
            f"heads: {given['heads']}, longest: {given['sequence']}}}",
            "",
        )
    )


def _micro_batch(written: Mapping[str, str]) -> int:
    batch = written.get("batch", "")
    return min(int(batch), 4) if batch.isascii() and batch.isdigit() and 0 < len(batch) < 9 else 4


def _value(text: str) -> str:
    """A number as it is; anything else as a string of JSON, which YAML reads as one."""
    plain = text.isascii() and text.isdigit() and len(text) < 12
    return text if plain else json.dumps(text, ensure_ascii=False)


def _problems(error: YardError) -> list[Problem]:
    found = error.problems if isinstance(error, InputError) else ()
    return list(found) or [Problem(error.message, error.fix)]


def job_routes(site: Site, answered: Answered) -> list[BaseRoute]:
    draft = JobDraft(site, answered)
    return [
        *site.page("/plan/job", "plan_job", draft.context),
        site.action("/plan/job", draft.take),
    ]
