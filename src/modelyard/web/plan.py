"""Plan a run: the planner's form, its answer in tables and pictures, and a job made of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call
from modelyard.errors import InputError
from modelyard.plan.answer import Answer, Plan
from modelyard.planner import words as say
from modelyard.planner.charts import Stacks, memory_stacks, pareto, speed_plot, step_stacks
from modelyard.planner.columns import facts, ranked_columns
from modelyard.planner.door import plan
from modelyard.web.plan_form import (
    FLAGS,
    SHAPE,
    Form,
    device_names,
    model_names,
    own_devices,
    question,
    remedies,
)
from modelyard.web.plan_job import job_routes
from modelyard.web.planning import Planning
from modelyard.web.site import Site

#: in the table
MOST_PLANS = 10
#: facts that are among the figures already
SHOWN = ("memory", "step", "of the peak rate")
#: in which matrices are multiplied in training, for the form
PRECISIONS = ("bf16", "fp16", "fp8", "tf32", "fp32")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the best plan, with its range."""

    title: str
    value: str
    range: str = ""
    note: str = ""


class PlanPage:
    """The page, and the answers that it shares with the page of a job."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cluster = site.parts.jobs.cluster
        self.planning = Planning()

    async def context(self, call: Call) -> dict[str, object]:
        form = Form.of(call.request.query_params)
        answer: Answer | None = None
        if form.asked:
            try:
                answer = await self.answered(form)
            except InputError as error:
                form = form.refused(error)
        else:
            form = replace(form, written={**form.written, "devices": own_devices(self.cluster)})
        return {
            "form": form,
            "models": model_names(),
            "kinds": device_names(),
            "own": own_devices(self.cluster),
            "own_kinds": self.cluster.kinds,
            "precisions": PRECISIONS,
            "in_numbers": any(form.written[name] for name in SHAPE),
            **(_shown(answer, form) if answer else {"answer": None}),
        }

    async def answered(self, form: Form) -> Answer:
        """What the planner says; `InputError` with what is wrong with the question."""
        model, options = question(form)
        return await self.planning.answer(form.key, lambda: plan(model, **options))


def _shown(answer: Answer, form: Form) -> dict[str, object]:
    best = answer.plans[0] if answer.plans else None
    return {
        "answer": answer,
        "question": say.question(answer.request),
        "best": best,
        "figures": _figures(best) if best else [],
        "facts": [one for one in facts(answer, best) if one[0] not in SHOWN] if best else [],
        "runner_up": say.divided(answer.runner_up.plan) if answer.runner_up else "",
        "columns": ranked_columns(answer.plans[:MOST_PLANS]) if best else [],
        "ranges": [_ranges(one) for one in answer.plans[:MOST_PLANS]],
        "pareto": pareto(answer.plans, answer.front) if best else None,
        "memory": memory_stacks(answer.plans) if best else None,
        "steps": step_stacks(answer.plans) if best else None,
        "legends": {
            "memory": legend(memory_stacks(answer.plans)),
            "steps": legend(step_stacks(answer.plans)),
        }
        if best
        else {},
        "speed": speed_plot(answer.curve),
        "remedies": remedies(answer, form),
        "command": command(form.written),
    }


def _figures(best: Plan) -> list[Figure]:
    """What people look for first, each with the range in which it lies four times out of five."""
    time, time_range = _split(say.time_interval(best.run_seconds))
    step, step_range = _split(say.time_interval(best.step_seconds))
    memory, memory_range = _split(say.memory_interval(best.memory_bytes))
    capacity = best.pool.platform.device.memory_bytes
    found = [
        Figure("Devices", say.devices(best), note=f"{say.percent(best.model_flops_share)} of peak"),
        Figure("Time", time, time_range, _kept(best.deadline_probability, "deadline")),
    ]
    if best.usd:
        cost, cost_range = _split(say.money_interval(best.usd))
        found.append(Figure("Cost", cost, cost_range, _kept(best.budget_probability, "budget")))
    found.append(Figure("A step", step, step_range, f"{say.count(best.steps)} steps"))
    of = f"of a device's {say.memory(capacity)}, " if capacity else ""
    note = f"{of}{say.risk(best.memory_risk)} risk of running out"
    found.append(Figure("Memory", memory, memory_range, note))
    if best.loss:
        loss, loss_range = _split(say.loss_interval(best.loss))
        found.append(Figure("Loss", loss, loss_range, f"on {say.count(best.tokens)} tokens"))
    return found


def _ranges(one: Plan) -> dict[str, str]:
    """The ranges of a row of the table, by the titles of its columns."""
    found = {
        "time": _split(say.time_interval(one.run_seconds))[1],
        "step": _split(say.time_interval(one.step_seconds))[1],
        "memory": _split(say.memory_interval(one.memory_bytes))[1],
    }
    if one.usd:
        found["cost"] = _split(say.money_interval(one.usd))[1]
    if one.loss:
        found["loss"] = _split(say.loss_interval(one.loss))[1]
    return found


def _split(words: str) -> tuple[str, str]:
    """`3.2 days (2.8–3.7)` as two."""
    value, _, rest = words.partition(" (")
    return value, rest.rstrip(")")


def _kept(probability: float | None, limit: str) -> str:
    return "" if probability is None else f"keeps the {limit} with {say.percent(probability)}"


def legend(stacks: Stacks) -> list[tuple[int, str]]:
    """Every part with its colour, and how much of it the best plan has."""
    best = {block.colour: block.words for block in stacks.rows[0].blocks} if stacks.rows else {}
    return [(colour, best.get(colour, name)) for name, colour in stacks.legend]


def command(written: Mapping[str, str]) -> str:
    """The same question on a command line; empty where it has no words for it."""
    if written["steps"]:
        return ""
    words = ["yard", "plan", *([written["model"]] if written["model"] else [])]
    for name, text in written.items():
        if name in FLAGS and text:
            words.append(f"--{name}")
        elif text and name not in ("model", "data", "steps"):
            words += [f"--{name}", text]
    return shlex.join(words)


def routes(site: Site) -> list[BaseRoute]:
    page = PlanPage(site)
    return [*site.page("/plan", "plan", page.context), *job_routes(site, page.answered)]
