"""The HTML page of an answer: whole by itself, and safe whatever a model is called."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from modelyard.cli.plan_report import render_plan
from modelyard.plan.answer import Answer, CurvePoint
from modelyard.planner.charts import amount_axis, memory_stacks, pareto, speed_plot, step_stacks
from modelyard.units import format_count

from .answers import NASTY_NAME, answer, interval, mixed, plan, refused, request

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Tags(HTMLParser):
    """Checks that what is opened is closed, and keeps everything that a page could load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(page: str) -> Tags:
    found = Tags()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


@pytest.mark.parametrize(
    "made",
    [
        answer(),
        refused(),
        answer(plans=(plan(usd=None, loss=None),), front=(), runner_up=None, curve=()),
        answer(plans=(mixed(),)),
        answer(curve=(CurvePoint("H100", 8, 1.0, 1e5),)),
    ],
    ids=["plan", "no plan", "bare", "mixed", "one point"],
)
def test_a_page_is_whole_and_loads_nothing(made: Answer) -> None:
    page = render_plan(made, top=5, command="yard plan x")
    found = tags(page)
    assert found.loads == []
    assert found.scripts == 0
    assert "nan" not in page
    assert "://" not in page


def test_names_are_escaped_everywhere() -> None:
    made = answer(request=request(NASTY_NAME), notes=(NASTY_NAME,))
    page = render_plan(made, top=5, command=f"yard plan {NASTY_NAME}")
    assert tags(page).scripts == 0
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_changed_worlds_are_in_the_page() -> None:
    worlds = {"devices=+8xH100": answer(plans=(plan(2.2, 12_000.0),)), NASTY_NAME: refused()}
    page = render_plan(answer(), top=5, what_if=worlds)
    assert tags(page).scripts == 0
    assert "<td>devices=+8xH100</td>" in page
    assert "-31%" in page
    assert "no plan. Bound by deadline" in page
    assert "What if" not in render_plan(answer(), top=5)


def test_light_and_dark() -> None:
    page = render_plan(answer(), top=5)
    assert "prefers-color-scheme: dark" in page
    assert 'name="color-scheme" content="light dark"' in page


def test_a_refusal_has_commands_to_copy() -> None:
    page = render_plan(refused(), top=5, remedies=["yard plan x --deadline 4d"])
    assert "<code>yard plan x --deadline 4d</code>" in page
    assert "64 × H100 would need 3.2 days" in page


def test_the_front_is_a_line_through_its_plans() -> None:
    made = answer()
    chart = pareto(made.plans, made.front)
    assert chart is not None
    assert len(chart.dots) == 3
    assert [dot.best for dot in chart.dots].count(True) == 1
    assert chart.line.count("L") == len(made.front) - 1
    xs = [dot.x for dot in chart.dots if dot.front]
    ys = [dot.y for dot in chart.dots if dot.front]
    assert xs == sorted(xs)
    # Down is cheaper: slower plans of the front stand lower.
    assert ys == sorted(ys)


def test_stacks_add_up_to_their_totals() -> None:
    for stacks in (memory_stacks([plan()]), step_stacks([plan()])):
        blocks = stacks.rows[0].blocks
        for left, right in pairwise(blocks):
            assert right.left == pytest.approx(left.left + left.width, abs=0.05)
        assert 0 < stacks.rows[0].low < stacks.rows[0].high <= 100


def test_the_memory_of_a_device_is_marked() -> None:
    assert memory_stacks([plan()]).rows[0].limit == pytest.approx(80, abs=0.1)
    assert step_stacks([plan()]).rows[0].limit is None


def test_parts_beyond_the_colours_are_summed_up() -> None:
    many = {f"part{number}": 1.0 + number for number in range(20)}
    stacks = step_stacks([plan(step_parts=many, step_seconds=interval(sum(many.values())))])
    assert [name for name, _ in stacks.legend][-1] == "rest"
    assert len({colour for _, colour in stacks.legend}) == len(stacks.legend) == 8
    last = stacks.rows[0].blocks[-1]
    whole = 100 * stacks.axis.place(sum(many.values()))
    assert last.left + last.width == pytest.approx(whole, abs=0.05)


def test_speed_needs_two_points_of_a_kind() -> None:
    assert speed_plot(()) is None
    assert speed_plot((CurvePoint("H100", 8, 1.0, 1e5),)) is None
    chart = speed_plot(answer().curve)
    assert chart is not None
    assert [tick.label for tick in chart.across.ticks] == ["8", "16", "32", "64"]


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [1e-9, 2e-9], [1.0, 1e12], [5.0, 5.0], [0.0, 0.0], [3.0, 1000.0]]
)
def test_axes_hold_their_values(values: list[float]) -> None:
    axis = amount_axis(values, lambda amount: format_count(amount))
    assert all(0 <= axis.place(value) <= 1 for value in values)
    assert all(0 <= tick.at <= 100 for tick in axis.ticks)
    assert len({tick.label for tick in axis.ticks}) == len(axis.ticks) or values[1] < 1e-3


def test_numbers_in_the_page_are_plain() -> None:
    page = render_plan(answer(), top=5)
    assert not re.search(r"\d{7,}", re.sub(r"#[0-9a-f]+", "", page.partition("<body>")[2]))
