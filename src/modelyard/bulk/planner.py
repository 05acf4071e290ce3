"""The planner that a sweep hands records to, made once in each process that plans."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from modelyard import __version__
from modelyard.bulk.order import Planner, plan_record
from modelyard.errors import InputError, Problem
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.solve import solve
from modelyard.planner.asking import Asked, asked_of
from modelyard.spec.model import Model
from modelyard.spec.model_source import load_model
from modelyard.spec.pool import Pool, Prices, priced

if TYPE_CHECKING:
    from modelyard.planner.options import Options

MODEL = "model"
#: Files that are for the whole sweep; a record that names one would be planned by other rules.
FOR_ALL = ("prices", "pilots", "calibration")
#: Models of one window are few; a sweep over thousands of configs must not keep them all.
MODELS_KEPT = 64
#: What is no text is shown by its beginning.
MOST_SHOWN = 60


def make_planner(knowledge: Knowledge, prices: Prices | None = None) -> Planner:
    """A planner with this knowledge; prices replace those that come with the package."""
    ask = partial(ask_for, prices=prices)
    return partial(plan_record, ask=ask, solve=partial(solve, knowledge=knowledge))


def ask_for(words: Mapping[str, object], prices: Prices | None = None) -> Asked:
    """The request of a record; an `InputError` with everything that is wrong with it."""
    given = {name: value for name, value in words.items() if name not in (MODEL, *FOR_ALL)}
    misplaced = [
        Problem(f"'{name}' is for the whole sweep", f"write --{name} after 'yard plan sweep'")
        for name in FOR_ALL
        if name in words
    ]
    try:
        asked = asked_of(_model(words.get(MODEL)), cast("Options", _present(given)))
    except InputError as error:
        problems = (*misplaced, *error.problems)
        raise InputError(error.message, fix=error.fix, problems=problems) from error
    if misplaced:
        raise InputError(misplaced[0].what, fix=misplaced[0].fix, problems=misplaced)
    if prices is None:
        return asked
    pools = tuple(_priced_anew(pool, prices) for pool in asked.request.pools)
    return replace(asked, request=replace(asked.request, pools=pools))


def fingerprint(knowledge: Knowledge, prices: Prices | None) -> str:
    """A name for what a sweep's planner knows: another knowledge has another name."""
    # numpy shortens what it shows unless it is told not to.
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        shown = repr((__version__, knowledge, prices))
    return hashlib.sha256(shown.encode()).hexdigest()[:16]


def _present(words: Mapping[str, object]) -> dict[str, object]:
    """The words that say something: a cell of a table may be empty."""
    return {
        name: value
        for name, value in words.items()
        if value is not None and not (isinstance(value, str) and not value.strip())
    }


def _model(written: object) -> str | Model:
    """The model, or its text where it is wrong: that is told with all other mistakes."""
    if written is None:
        return ""
    text = written.strip() if isinstance(written, str) else str(written)[:MOST_SHOWN]
    try:
        return _kept_model(text) if text else ""
    except InputError:
        return text


@lru_cache(MODELS_KEPT)
def _kept_model(text: str) -> Model:
    return load_model(text)


def _priced_anew(pool: Pool, prices: Prices) -> Pool:
    unpriced = replace(pool, usd_per_hour=None, spot_usd_per_hour=None, price_source="")
    return priced(unpriced, prices)
