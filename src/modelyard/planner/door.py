"""`modelyard.plan(...)`: from options to an answer, in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from modelyard.planner.asking import Asked, asked_of
from modelyard.planner.knowledge import Known, known_of
from modelyard.planner.options import Options

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer
    from modelyard.spec.model import Model


def plan(model: str | Model = "", /, **options: Unpack[Options]) -> Answer:
    """The best ways to train a model on some devices, or why there is none.

    `model` is a name of the zoo, a `config.json` or its folder, or a `Model`; without it the shape
    is given in numbers. What else can be said: `modelyard.planner.options.Options`. Everything
    that is wrong comes in one `InputError`; that no plan keeps the limits is no error, but an
    answer with a `refusal`.
    """
    asked = asked_of(model, options)
    return answered(asked, known_of(options.get("pilots"), options.get("calibration")))


def answered(asked: Asked, known: Known) -> Answer:
    """The planner's answer, with notes on where the question and the knowledge come from."""
    # The search brings numpy and scipy along, which a mistake in the options has no use for.
    from modelyard.plan.solve import solve

    answer = solve(asked.request, known.knowledge)
    notes = dict.fromkeys((*asked.notes, *known.notes, *answer.notes))
    return replace(answer, notes=tuple(notes))
