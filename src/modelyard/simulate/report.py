"""A comparison as one HTML page that needs nothing but itself: no network, no other file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from modelyard import __version__
from modelyard.simulate.charts import (
    Axis,
    count_axis,
    course,
    distribution,
    duration_axis,
    fairness_axis,
    fairness_spread,
    share_axis,
    stretch_means,
    time_axis,
)
from modelyard.simulate.columns import COLUMNS, Column, ratio_to_best
from modelyard.simulate.compare import Comparison
from modelyard.simulate.export import write_atomically
from modelyard.simulate.gantt import gantt
from modelyard.simulate.result import Metrics, Result
from modelyard.spec.cluster import Cluster
from modelyard.units import format_duration

TEMPLATE = "report.html.j2"
#: Colours that people can tell apart; lines beyond repeat them with another dash.
COLOURS = 8
#: Beyond this the drawings of who ran where would make the page too heavy: the best are drawn.
MOST_GANTTS = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """What a comparison was made on and how to make it again."""

    cluster: Cluster
    #: what readers and the command line changed or left out, in plain words
    notes: Sequence[str] = ()
    #: rules of the world as (name, words)
    rules: Sequence[tuple[str, str]] = ()
    #: policies that know how long jobs will run
    oracles: Collection[str] = field(default=frozenset())
    command: str = ""


def write_report(path: Path, comparison: Comparison, setting: Setting) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_report(comparison, setting).encode())


def render_report(comparison: Comparison, setting: Setting) -> str:
    """The page. At least one run must have finished."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("modelyard.simulate", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(**_content(comparison, setting))


def _content(comparison: Comparison, setting: Setting) -> dict[str, Any]:
    ranked = comparison.ranked
    across = _span(ranked)
    return {
        **figures(comparison, setting),
        "columns": COLUMNS,
        "gantts": [
            {"policy": result.policy, "chart": gantt(result, setting.cluster, across)}
            for result in ranked[:MOST_GANTTS]
        ],
        "gantts_left_out": max(len(ranked) - MOST_GANTTS, 0),
        "comparison": comparison,
        "notes": setting.notes,
        "command": setting.command,
        "version": __version__,
    }


def figures(comparison: Comparison, setting: Setting) -> dict[str, Any]:
    """Tables and charts of a comparison as words and shapes, for any page to show."""
    ranked = comparison.ranked
    across = _span(ranked)
    return {
        "title": f"{ranked[0].workload} on {ranked[0].cluster}",
        "headline": headline(ranked, setting.oracles),
        "facts": _facts(ranked[0], setting),
        "rows": _rows(ranked, setting.oracles),
        "any_oracle": any(result.policy in setting.oracles for result in ranked),
        "cdf": _cdf(ranked),
        "courses": _courses(ranked, across),
        "fairness": _fairness(ranked),
        "time_axis": across,
    }


def headline(ranked: Sequence[Result], oracles: Collection[str]) -> str:
    """The outcome in a sentence, about the best policy that could be used for real."""
    usable = [result for result in ranked if result.policy not in oracles] or list(ranked)
    best, last = usable[0], usable[-1]
    mean = best.metrics.jct_mean
    text = f"{best.policy} finishes jobs in {format_duration(mean)} on average"
    if len(usable) == 1:
        return f"{text}."
    ratio = last.metrics.jct_mean / mean if mean > 0 else 1.0
    return f"{text}, {ratio:.1f} times sooner than {last.policy}."


def _facts(result: Result, setting: Setting) -> list[tuple[str, str]]:
    kinds = ", ".join(setting.cluster.kinds)
    return [
        ("jobs", f"{len(result.jobs):,}"),
        ("nodes", f"{len(setting.cluster.nodes):,}"),
        ("devices", f"{result.devices:,} ({kinds})"),
        *setting.rules,
    ]


def _span(ranked: Sequence[Result]) -> Axis:
    """The same axis of time for all policies, so that their lengths can be compared."""
    start = min(job.submitted for result in ranked for job in result.jobs)
    end = max(job.finished for result in ranked for job in result.jobs)
    return time_axis(start, end)


def _rows(ranked: Sequence[Result], oracles: Collection[str]) -> list[dict[str, Any]]:
    best = ranked[0].metrics.jct_mean
    slowest = ranked[-1].metrics.jct_mean
    metrics = [result.metrics for result in ranked]
    return [
        {
            "policy": result.policy,
            "oracle": result.policy in oracles,
            "ratio": ratio_to_best(result.metrics.jct_mean, best),
            "bar": round(100 * result.metrics.jct_mean / slowest, 1) if slowest > 0 else 0.0,
            "cells": [
                {"text": column.text(result.metrics), "best": _is_best(column, result, metrics)}
                for column in COLUMNS
            ],
        }
        for result in ranked
    ]


def _is_best(column: Column, result: Result, others: Sequence[Metrics]) -> bool:
    figure = column.less_is_better
    if figure is None or len(others) < 2:
        return False
    return figure(result.metrics) <= min(figure(other) for other in others)


def _cdf(ranked: Sequence[Result]) -> dict[str, Any]:
    across = duration_axis(ranked)
    return {
        "across": across,
        "up": share_axis(),
        "lines": [
            {"policy": result.policy, "path": distribution(result, across), **_style(at)}
            for at, result in enumerate(ranked)
        ],
    }


def _style(at: int) -> dict[str, int]:
    return {"colour": at % COLOURS, "dash": at // COLOURS}


def _courses(ranked: Sequence[Result], across: Axis) -> dict[str, Any]:
    used = share_axis()
    waiting = count_axis(max(max(result.series.waiting, default=0) for result in ranked))
    return {
        "used": used,
        "waiting": waiting,
        "rows": [
            {
                "policy": result.policy,
                "used": course(result, _share_used(result), across, used),
                "waiting": course(result, result.series.waiting, across, waiting),
                "used_words": f"{100 * result.metrics.utilisation:.0f}% on average",
                "waiting_words": _waiting_words(result, across),
            }
            for result in ranked
        ],
    }


def _share_used(result: Result) -> list[float]:
    return [used / result.devices for used in result.series.used]


def _waiting_words(result: Result, across: Axis) -> str:
    waiting = result.series.waiting
    end = max(job.finished for job in result.jobs)
    whole = np.array([across.low, max(end, across.low + 1.0)])
    mean = float(stretch_means(result.series.times, waiting, whole)[0])
    return f"{mean:.1f} on average, {max(waiting, default=0):,} at most"


def _fairness(ranked: Sequence[Result]) -> dict[str, Any]:
    axis = fairness_axis(ranked)
    return {
        "axis": axis,
        "one": round(100 * axis.place(1.0), 2),
        "rows": [fairness_spread(result, axis) for result in ranked],
    }
