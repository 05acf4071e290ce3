"""What a person sees: the answer first, at any width, without colour."""

from __future__ import annotations

import re

import pytest

from modelyard.cli import plan_table
from modelyard.cli.plan_table import bars, print_answer, spread
from modelyard.plan.answer import Answer
from modelyard.planner.columns import ranked_columns
from modelyard.spec.layout import Layout

from .answers import NASTY_NAME, answer, mixed, plan, refused, request


def shown(
    made: Answer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> str:
    monkeypatch.setattr(plan_table, "screen_width", lambda: width)
    print_answer(made, top=5)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 160])
@pytest.mark.parametrize("made", [answer(), refused()], ids=["plan", "no plan"])
def test_no_line_is_wider_than_the_screen(
    made: Answer, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(made, capsys, monkeypatch, width).splitlines()
    # Below this nothing can be laid out any more.
    assert max(len(line) for line in lines) <= max(width, 40)


def test_the_answer_comes_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(answer(), capsys, monkeypatch, 160).splitlines()
    assert lines[0].startswith("tiny-7b (6.74B parameters), 300B tokens")
    first = " ".join(" ".join(lines[2:4]).split())
    assert "64 × H100: 3.2 days (2.72–3.68)" in first
    assert "$12,400 ($10,500–$14,300)" in first
    assert "loss 2.050 (2.009–2.091)" in first
    assert "2.1% risk of running out of memory" in first


def test_everything_else_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(answer(), capsys, monkeypatch, 160)
    for words in (
        "data 32 · tensor 2 · ZeRO-1 · sequence parallel · selective recomputation · bf16",
        "1,024 sequences (4.19M tokens)",
        "memory traffic",
        "61.3 GiB (55.2–67.4) of 80 GiB",
        "Bound by devices: all 64 H100",
        "Runner-up (data 16 · tensor 4",
        "it would take 7 hours longer",
        "Cost against time",
        "Tokens per second by number of H100: 8: 135k",
        "note: the loss is extrapolated threefold",
        "12,345 layouts looked at",
    ):
        assert words in text


def test_a_narrow_screen_names_the_columns_it_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(answer(), capsys, monkeypatch, 60)
    assert "No room for:" in text
    assert text.count("No room for:") == 1
    assert "of peak" in text


def test_a_degree_that_is_one_everywhere_has_no_column() -> None:
    titles = [column.title for column in ranked_columns([plan()])]
    assert "tensor" in titles
    assert "pipe" not in titles
    assert "expert" not in titles


def test_no_prices_and_no_law_of_loss(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = plan(usd=None, loss=None, checkpoint_interval_seconds=None)
    text = shown(answer(plans=(bare,), front=()), capsys, monkeypatch, 100)
    assert "cost unknown" in text
    assert "loss 2" not in text


def test_markup_in_a_name_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(answer(request=request(NASTY_NAME)), capsys, monkeypatch, 160)
    assert "[bold]x[/]" in text


def test_a_refusal_says_what_binds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(refused(), capsys, monkeypatch, 100)
    assert "No plan keeps the limits. Bound by deadline: the fastest plan takes 3.2 days" in text


def test_bars_are_as_long_as_their_shares() -> None:
    lines = list(bars({"large": 3.0, "small": 1.0}, 60, lambda seconds: f"{seconds:g} s"))
    lengths = [line.count(plan_table.bar_mark()) for line in lines]
    assert [line.split()[0] for line in lines] == ["large", "small"]
    assert lengths[0] == pytest.approx(3 * lengths[1], abs=2)
    assert re.search(r"3 s\s+75%$", lines[0])


def test_tiny_parts_are_summed_up() -> None:
    parts = {"large": 1000.0, "a": 1.0, "b": 1.0}
    lines = list(bars(parts, 60, lambda amount: f"{amount:g}"))
    assert [line.split()[0] for line in lines] == ["large", "rest"]


def test_a_long_front_is_thinned_out_and_keeps_its_ends() -> None:
    front = [plan(days, layout=Layout(data=1)) for days in range(1, 101)]
    kept = spread(front, 8)
    assert len(kept) == 8
    assert (kept[0], kept[-1]) == (front[0], front[-1])


def test_kinds_that_work_together_are_named_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(answer(plans=(mixed(),), front=()), capsys, monkeypatch, 120)
    assert "8 × H100 + 16 × A100: 3.2 days" in text
    assert "16 × A100: data 16 · bf16; 32 layers, 128 sequences" in text
    assert "512 sequences" in text
