"""The page stands on its own, says what it shows, and keeps strangers' text as text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from modelyard.simulate.charts import Axis, fairness_axis, stretch_means, time_axis
from modelyard.simulate.compare import Comparison, compare
from modelyard.simulate.gantt import MOST_BLOCKS, MOST_NODES, gantt
from modelyard.simulate.generate import generate
from modelyard.simulate.play import Failure
from modelyard.simulate.report import Setting, headline, render_report
from modelyard.simulate.result import Result, Segment
from modelyard.simulate.scenario import Scenario
from modelyard.spec.cluster import uniform_cluster

CLUSTER = uniform_cluster(2, 8)
VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    workload = generate(40, seed=5, load=1.4, cluster_devices=16)
    return compare(Scenario(workload, CLUSTER), ("fifo", "srtf", "las"), workers=1)


@pytest.fixture(scope="module")
def page(comparison: Comparison) -> str:
    setting = Setting(
        CLUSTER, notes=("a note",), oracles={"srtf"}, command="yard simulate jobs.csv"
    )
    return render_report(comparison, setting)


class Outline(HTMLParser):
    """Checks that tags match and gathers what a browser would have to load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Complete in itself."""

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_page_is_well_formed_and_loads_nothing(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert outline.loads == []
    assert "url(" not in page
    assert "http" not in page
    assert outline.headings == [
        "Policies, best first",
        "How soon jobs are done",
        "Use and queue over time",
        "Finish-time fairness",
        "Who ran where",
        "Notes",
        "How to make this again",
    ]


def test_page_shows_every_policy_note_and_command(page: str) -> None:
    for words in ("fifo", "srtf", "las", "a note", "yard simulate jobs.csv", "oracle"):
        assert words in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"\bnan\b|\binf\b|None", page)


def test_every_drawing_has_words_for_those_who_do_not_see_it(page: str) -> None:
    for drawing in re.findall(r"<svg[^>]*>", page):
        assert "aria-label=" in drawing or "aria-hidden=" in drawing


def test_strangers_text_stays_text(comparison: Comparison) -> None:
    evil = "<script>alert(1)</script>"
    jobs = tuple(replace(job, tenant=evil) for job in comparison.results[0].jobs)
    spoilt = replace(comparison.results[0], policy=evil, workload=evil, jobs=jobs)
    failures = (Failure(evil, evil),)
    page = render_report(Comparison((spoilt,), failures), Setting(CLUSTER, (evil,), command=evil))
    assert evil not in page
    assert "&lt;script&gt;" in page


def test_failures_and_interruptions_are_shown(comparison: Comparison) -> None:
    partial = Comparison(comparison.results, (Failure("borg", "broke a rule"),), ("sia",))
    page = render_report(partial, Setting(CLUSTER))
    assert "borg failed: broke a rule" in page
    assert "Interrupted before they ended: sia" in page


def test_headline_is_about_policies_that_can_be_used(comparison: Comparison) -> None:
    ranked = comparison.ranked
    assert "srtf" not in headline(ranked, {"srtf"})
    assert headline(ranked[:1], ()).endswith("on average.")


def test_stretch_means_keep_the_area() -> None:
    # 0 until 1, 2 until 3, 4 from there: the integral from 0 to 5 is 0 + 4 + 8.
    edges = np.array([0.0, 2.0, 5.0])
    means = stretch_means((1.0, 3.0), (2.0, 4.0), edges)
    assert means.tolist() == pytest.approx([1.0, 10.0 / 3.0])
    assert float(means @ np.diff(edges)) == pytest.approx(12.0)
    assert stretch_means((), (), edges).tolist() == [0.0, 0.0]


def test_fairness_axis_always_shows_one(comparison: Comparison) -> None:
    assert "1" in [tick.label for tick in fairness_axis(comparison.results).ticks]


def test_gantt_draws_all_device_time_once(comparison: Comparison) -> None:
    result = comparison.results[0]
    drawing = gantt(result, CLUSTER, _span(result))
    area = sum(
        float(width) * float(height)
        for path in drawing.paths
        for width, height in re.findall(r"h([\d.e-]+)v([\d.e-]+)h", path)
    )
    # The whole plot is 1000 × 1000 and stands for all devices from the first to the last event.
    assert area / 1e6 == pytest.approx(result.metrics.utilisation, rel=0.01)
    assert [name for name, _ in drawing.legend] == ["team-a", "team-b", "team-c"]
    assert drawing.notes == ()


def test_gantt_says_what_it_leaves_out(comparison: Comparison) -> None:
    result = comparison.results[0]
    job = result.jobs[0].id
    many = tuple(Segment(job, float(at), at + 0.5, ((0, 1),)) for at in range(MOST_BLOCKS + 10))
    drawing = gantt(replace(result, segments=many), CLUSTER, time_axis(0.0, MOST_BLOCKS + 10.0))
    assert any(f"{MOST_BLOCKS:,} of {MOST_BLOCKS + 10:,}" in note for note in drawing.notes)
    wide = gantt(result, uniform_cluster(MOST_NODES + 1, 8), _span(result))
    assert any(f"first {MOST_NODES} of {MOST_NODES + 1}" in note for note in wide.notes)


def _span(result: Result) -> Axis:
    return time_axis(
        min(job.submitted for job in result.jobs), max(job.finished for job in result.jobs)
    )
