"""What is said of a training job: numbers from its journal, and the words for them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec", reason="training needs msgspec: install the extra 'train'")

from msgspec import structs
from rich.console import Console

from modelyard.cli.train_display import SECONDS_BETWEEN_LINES, Lines, report
from modelyard.cli.train_events import EventLines
from modelyard.cli.train_screen import picture
from modelyard.cli.train_view import SPARKS, Means, spark_line, view_of
from modelyard.cli.train_words import checkpoint_words, line_words, summary_words
from modelyard.train.conductor.journal import (
    BackLine,
    CommitLine,
    GenerationLine,
    ValidationLine,
)
from modelyard.train.happenings import Happening, Kind


def commits(count: int, busy: Mapping[str, float] | None = None) -> list[CommitLine]:
    """A step each second, of 8 samples with 10 tokens each."""
    times = busy or {"worker-0": 0.2, "worker-1": 0.2}
    return [
        CommitLine(
            step=number,
            generation=1,
            members=tuple(times),
            start=8 * number,
            stop=8 * number + 8,
            tokens=80,
            loss=10.0 / (number + 1),
            at=1000.0 + number,
            busy=tuple(times.values()),
        )
        for number in range(count)
    ]


def test_a_view_has_speed_use_and_time_left() -> None:
    means = Means(sample_flops=1e9, peak_flops=32e9)
    view = view_of(commits(30), steps=100, means=means, kept_step=20)
    assert (view.step, view.step_seconds, view.left_seconds) == (30, 1.0, 70.0)
    assert view.tokens_per_second == pytest.approx(80.0)
    assert view.utilisation == pytest.approx(0.25)
    busy = Means(sample_flops=1e9, peak_flops=4e9)
    assert view_of(commits(30), steps=100, means=busy).utilisation is None
    assert checkpoint_words(view, now=1029.0) == "step 20, 10s old"


def test_the_first_steps_do_not_make_the_rest_look_long() -> None:
    slow_start = [structs.replace(entry, at=entry.at - 9.0) for entry in commits(1)]
    view = view_of([*slow_start, *commits(4)[1:]], steps=100)
    assert (view.step_seconds, view.left_seconds) == (1.0, 96.0)
    assert view.tokens_per_second == pytest.approx(80.0)


def test_the_pause_between_two_starts_is_no_training() -> None:
    before, after = commits(30), commits(34)[30:]
    later = [structs.replace(entry, at=entry.at + 5_000.0) for entry in after]
    view = view_of([*before, *later], steps=100, since=6_000.0)
    assert (view.step, view.step_seconds) == (34, 1.0)


def test_what_nobody_knows_is_not_made_up() -> None:
    view = view_of([], steps=10, workers=["worker-0"])
    assert summary_words(view) == "no step yet"
    assert checkpoint_words(view, now=0.0) == "none yet"
    assert view.others == ("worker-0",)
    assert "MFU n/a" in summary_words(view_of(commits(5), steps=10))


def test_a_checkpoint_of_steps_that_were_taken_back_is_none() -> None:
    assert view_of(commits(5), steps=10, kept_step=8).kept_step is None


def test_who_is_slow_is_named() -> None:
    slow = commits(20, {"worker-0": 0.2, "worker-7": 0.9})
    assert "2 workers · worker-7 slow" in summary_words(view_of(slow, steps=40))
    shown = drawn(view_of(slow, steps=40, workers=["worker-0", "worker-7", "worker-9"]))
    assert "worker-7  0.90 s a step" in shown
    assert "slow: the others take 0.20 s" in shown
    assert "worker-9  takes no part yet" in shown


def test_who_was_slow_stays_so_until_it_keeps_up() -> None:
    slow = commits(20, {"worker-0": 0.2, "worker-7": 0.9})
    half = [*slow[:10], *commits(20)[10:]]
    members = ("worker-0", "worker-7")
    half = [structs.replace(entry, members=members) for entry in half]
    assert view_of(half, steps=40).slow == frozenset()
    assert view_of(half, steps=40, slow=["worker-7"]).slow == {"worker-7"}


def test_members_of_several_processes_say_so() -> None:
    view = view_of(commits(5), steps=10, processes=4)
    assert "2 workers × 4 processes" in summary_words(view)
    assert "each is 4 processes" in drawn(view)
    assert "processes" not in drawn(view_of(commits(5), steps=10))
    generation = GenerationLine(3, ("a",), "workers have come", 2000.0)
    words = line_words(generation, processes=4)
    assert words == "1 member × 4 processes from now on: workers have come"
    file = io.StringIO()
    EventLines(file, since=0.0, processes=4).hear(generation)
    assert json.loads(file.getvalue())["processes_per_member"] == 4
    assert report(commits(5), batch=8, processes=4)["processes_per_member"] == 4


def drawn(view: object, events: tuple[tuple[float, str], ...] = ()) -> str:
    from modelyard.cli.train_view import View

    assert isinstance(view, View)
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as captured:
        console.print(picture("my-job", view, events, now=1030.0))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_the_picture_shows_everything() -> None:
    found = (ValidationLine(20, 1, 0.75, 64, 1020.0),)
    means = Means(sample_flops=1e9, peak_flops=32e9)
    view = view_of(commits(30), steps=100, validated=found, means=means, kept_step=20)
    shown = drawn(view, ((1029.0, "worker-2 died (-9) [now]"),))
    for words in (
        "step 30 of 100",
        "1m10s left",
        "0.5330  validation 0.7500 after step 20  █",
        "80 tokens/s · 1s a step · MFU 25%",
        "step 20, 11s old",
        "worker-0  0.20 s a step",
        "worker-2 died (-9) [now]",
    ):
        assert words in shown


def test_before_the_first_step_there_is_a_picture() -> None:
    assert "step 0 of 5" in drawn(view_of([], steps=5))


def test_the_journal_in_words() -> None:
    generation = GenerationLine(3, ("a", "b"), "c was lost", 0.0)
    assert line_words(generation) == "2 members from now on: c was lost"
    assert line_words(BackLine(1_000, 8_000, 0.0)).startswith("back to step 1,000")
    assert line_words(ValidationLine(5, 1, None, 1, 0.0)) == (
        "after step 5: loss not a number on 1 held-out sample"
    )
    assert line_words(commits(1)[0]) == ""


def test_lines_come_every_ten_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = Lines(clock=lambda: now)
    for step in range(1, 31):
        now = float(step)
        lines.look(view_of(commits(step), steps=30))
    told = [line.split(" · ")[0] for line in capsys.readouterr().err.splitlines()]
    every = int(SECONDS_BETWEEN_LINES)
    assert told == [f"step {step} of 30" for step in range(every, 31, every)]


def test_json_lines_tell_each_step_once_and_nothing_of_earlier_starts() -> None:
    file = io.StringIO()
    events = EventLines(file, since=1005.0)
    for line in commits(8):
        events.hear(line)
    events.happened(Happening("died (-9)", "worker-1", Kind.DIED))
    told = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [one.get("step") for one in told] == [5, 6, 7, None]
    assert told[0]["event"] == "commit"
    assert {"event", "worker", "what", "at"} == told[3].keys()


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(0, 60))
def test_a_curve_fits_its_room(values: list[float], width: int) -> None:
    curve = spark_line(values, width)
    assert len(curve) == min(len(values), width)
    assert set(curve) <= set(SPARKS)
    if len(set(values)) > 1 and width >= len(values) and math.ulp(max(values)) < 1e-3:
        assert curve[values.index(max(values))] == SPARKS[-1]
        assert curve[values.index(min(values))] == SPARKS[0]
