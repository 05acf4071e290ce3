"""The columns of a comparison, for the terminal and for the report alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelyard.simulate.result import Metrics
from modelyard.units import format_duration


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a run: how it is called, printed and explained."""

    title: str
    meaning: str
    text: Callable[[Metrics], str]
    #: on a narrow screen columns with a larger number go first
    expendable: int
    #: the figure itself, where less of it is better and the best deserves to be seen
    less_is_better: Callable[[Metrics], float] | None = None


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


COLUMNS = (
    Column(
        "mean JCT",
        "time from submission to end, mean over jobs",
        lambda m: format_duration(m.jct_mean),
        0,
        lambda m: m.jct_mean,
    ),
    Column(
        "median",
        "the same for the job in the middle",
        lambda m: format_duration(m.jct_median),
        5,
        lambda m: m.jct_median,
    ),
    Column(
        "p95",
        "19 of 20 jobs were done within this time",
        lambda m: format_duration(m.jct_p95),
        4,
        lambda m: m.jct_p95,
    ),
    Column(
        "p99",
        "99 of 100 jobs were done within this time",
        lambda m: format_duration(m.jct_p99),
        9,
        lambda m: m.jct_p99,
    ),
    Column(
        "queueing",
        "time in the cluster without devices, mean over jobs",
        lambda m: format_duration(m.queueing_mean),
        3,
        lambda m: m.queueing_mean,
    ),
    Column(
        "makespan",
        "first submission to last end",
        lambda m: format_duration(m.makespan),
        6,
        lambda m: m.makespan,
    ),
    Column("util", "devices held over devices that exist", lambda m: _percent(m.utilisation), 2),
    Column(
        "frag",
        "free devices that jobs of usual sizes could not use",
        lambda m: _percent(m.fragmentation),
        10,
        lambda m: m.fragmentation,
    ),
    Column(
        "ρ mean",
        "finish-time fairness: time here over time alone on a fair share, mean over jobs",
        lambda m: _ratio(m.fairness_mean),
        7,
        lambda m: m.fairness_mean,
    ),
    Column(
        "ρ worst",
        "the same for the job that was treated worst",
        lambda m: _ratio(m.fairness_worst),
        1,
        lambda m: m.fairness_worst,
    ),
    Column("restarts", "starts after the first, over all jobs", lambda m: f"{m.restarts:,}", 8),
    Column(
        "decision",
        "mean time that the policy took to decide",
        lambda m: f"{m.decision_ms_mean:{'.2g' if m.decision_ms_mean < 10 else ',.0f'}}ms",
        11,
    ),
)


def ratio_to_best(value: float, best: float) -> str:
    """`1.00×`, `2.41×`: how much worse than the best."""
    return f"{value / best:.2f}×" if best > 0 else "–"
