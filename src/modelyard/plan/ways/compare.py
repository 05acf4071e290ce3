"""All ways in one table: what was asked for first, then everything that could be done instead."""

from __future__ import annotations

from dataclasses import dataclass

from modelyard.plan.answer import Plan
from modelyard.plan.check import check, has_loss
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.search import equivalent_parameters, search
from modelyard.plan.ways.compress import compress
from modelyard.plan.ways.pricing import best_plan, unlimited
from modelyard.plan.ways.shrink import shrink
from modelyard.plan.ways.stage import stage
from modelyard.plan.ways.tune import tune
from modelyard.plan.ways.way import Way, WayName, keeps_limits
from modelyard.spec.model import ModelKind
from modelyard.spec.tuning import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The ways of a request, the asked one first."""

    request: Request
    ways: tuple[Way, ...]
    #: what a careful reader should know
    notes: tuple[str, ...]

    @property
    def keeping(self) -> tuple[Way, ...]:
        """Those that keep every limit, fastest first."""
        found = [way for way in self.ways if way.keeps and way.seconds is not None]
        return tuple(sorted(found, key=lambda way: way.seconds.value if way.seconds else 0.0))


def ways(request: Request, knowledge: Knowledge) -> Fit:
    """Price every way; the request is checked first."""
    check(request)
    found = search(request, knowledge)
    asked_request = request
    if found.best is None:
        asked_request = unlimited(request)
        found = search(asked_request, knowledge)
    asked = best_plan(asked_request, knowledge, found)
    made: list[Way | None] = [_as_asked(request, asked), tune(request, knowledge, found)]
    notes = []
    if request.tuning.method is Method.FULL:
        made += shrink(request, knowledge, asked)
        made.append(stage(request, knowledge, asked))
    else:
        notes.append("adapters need the weights that they were made for: nothing is shrunk")
    made += compress(request, knowledge)
    notes += _notes(request, knowledge)
    return Fit(
        request=request, ways=tuple(way for way in made if way is not None), notes=tuple(notes)
    )


def _as_asked(request: Request, plan: Plan | None) -> Way:
    if plan is None:
        why = "it fits on none of the devices, however it is divided"
        return Way(
            name=WayName.AS_ASKED,
            model=request.model,
            tokens=request.tokens,
            seconds=None,
            usd=None,
            loss=None,
            keeps=False,
            changes="nothing",
            why=why,
        )
    keeps = keeps_limits(request.limits, plan.run_seconds, plan.usd, plan.loss)
    return Way(
        name=WayName.AS_ASKED,
        model=request.model,
        tokens=request.tokens,
        seconds=plan.run_seconds,
        usd=plan.usd,
        loss=plan.loss,
        kind=plan.pool.kind,
        devices=plan.devices,
        layout=plan.layout,
        keeps=keeps,
        changes="nothing",
        why="the best of all configurations"
        + ("" if keeps else ", and it misses a limit" if _limited(request) else ""),
    )


def _limited(request: Request) -> bool:
    limits = request.limits
    return any(
        limit is not None
        for limit in (limits.deadline_seconds, limits.budget_usd, limits.most_loss)
    )


def _notes(request: Request, knowledge: Knowledge) -> list[str]:
    notes = []
    if has_loss(request):
        warning = knowledge.loss.warning(equivalent_parameters(request.model), request.tokens)
        if warning is not None:
            notes.append(warning)
        if not knowledge.loss.pilots:
            notes.append(
                "losses are those of the published law; pilots on your own data narrow them"
            )
    elif request.model.kind is not ModelKind.DECODER:
        notes.append(f"no law of loss is known for models of the kind '{request.model.kind}'")
    if request.mixed:
        notes.append("each way is priced on one kind of device at a time, though mixing is allowed")
    if not _limited(request):
        notes.append("there is no deadline, budget or loss to keep: every way is shown as it is")
    return notes
