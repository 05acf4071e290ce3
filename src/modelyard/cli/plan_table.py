"""An answer on the terminal: the answer itself first, then how it compares and where it goes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from modelyard.cli.comparison import GAP
from modelyard.cli.output import counted, print_table, screen_width
from modelyard.planner import words as say
from modelyard.planner.columns import Column, ranked_columns

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, CurvePoint, Plan, Refusal

#: Lines longer than this are hard to read, however wide the screen is.
WIDEST_TEXT = 100
#: Narrower than this nothing can be laid out; such lines are cut by the terminal, not by us.
NARROWEST = 40
WIDEST_BAR = 40
#: Parts that are less than this share of the whole are summed up.
SMALL_PART = 0.005
#: More plans of the front than this do not tell more.
FRONT_SHOWN = 8
CURVE_POINTS_SHOWN = 12
INDENT = "  "


def print_answer(answer: Answer, *, top: int) -> None:
    """Everything but the next commands."""
    width = text_width()
    echo_folded(say.question(answer.request), width)
    click.echo()
    if answer.refusal is not None:
        _print_refusal(answer.refusal, width)
        _print_searched(answer, width)
        return
    best = answer.plans[0]
    _print_best(answer, best, width)
    print_breakdown(best, width)
    _print_ranked(answer.plans[:top])
    _print_reasons(answer, best, width)
    _print_front(answer)
    _print_curve(answer.curve, width)
    _print_searched(answer, width)


def text_width() -> int:
    return max(min(screen_width(), WIDEST_TEXT), NARROWEST)


def _print_best(answer: Answer, best: Plan, width: int) -> None:
    echo_folded(say.headline(best), width)
    peak = f"{say.percent(best.model_flops_share)} of the peak rate"
    for line in (
        *say.division(best),
        say.batch(best, answer.request),
        f"{peak}; {_goodput(best)}",
        say.price(best, spot=answer.request.spot),
    ):
        if line:
            echo_folded(line, width, indent=INDENT)


def _goodput(best: Plan) -> str:
    lost = f"{_share(1 - best.goodput)} of the time lost to failures and checkpoints"
    if best.checkpoint_interval_seconds is None:
        return lost
    return f"{lost}, one every {say.time_words(best.checkpoint_interval_seconds)}"


def print_breakdown(best: Plan, width: int) -> None:
    """Where a step and the memory of the fullest device go, as bars."""
    click.echo()
    echo_folded(f"A step: {say.time_interval(best.step_seconds)}", width)
    for line in bars(best.step_parts, width, say.time_words):
        click.echo(line)
    capacity = best.pool.platform.device.memory_bytes
    of = f" of {say.memory(capacity)}" if capacity else ""
    click.echo()
    echo_folded(f"Memory, fullest device: {say.memory_interval(best.memory_bytes)}{of}", width)
    for line in bars(best.memory_parts, width, say.memory, whole=capacity):
        click.echo(line)


def bars(
    parts: Mapping[str, float],
    width: int,
    words: Callable[[float], str],
    whole: float | None = None,
) -> Iterator[str]:
    """A line for each part, largest first; shares are of `whole`, or of the sum of all parts."""
    total = whole or sum(parts.values())
    if total <= 0:
        return
    rows = [
        (say.part_name(name), amount, words(amount), _share(amount / total))
        for name, amount in _gathered(parts, total)
    ]
    label = min(max(len(name) for name, *_ in rows), max(width // 3, 8))
    figure = max(len(text) for _, _, text, _ in rows)
    room = max(min(width - label - figure - 10, WIDEST_BAR), 4)
    mark = bar_mark()
    for name, amount, text, share in rows:
        bar = mark * max(round(room * min(amount / total, 1.0)), 1)
        yield f"{INDENT}{name[:label]:<{label}}  {bar:<{room}} {text:>{figure}} {share:>4}"


def _share(part: float) -> str:
    return "<1%" if part < SMALL_PART else f"{100 * part:.0f}%"


def _gathered(parts: Mapping[str, float], total: float) -> list[tuple[str, float]]:
    """Parts by size, with those too small to see in one."""
    seen = [(name, amount) for name, amount in parts.items() if amount >= SMALL_PART * total]
    rest = sum(amount for amount in parts.values() if 0 < amount < SMALL_PART * total)
    ranked = sorted(seen, key=lambda part: -part[1])
    return [*ranked, *([("rest", rest)] if rest > 0 else [])]


def bar_mark() -> str:
    """A block where the terminal has one."""
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"


def _print_ranked(plans: Sequence[Plan]) -> None:
    if len(plans) < 2:
        return
    click.echo(f"\nThe best {counted(len(plans), 'plan')}")
    print_columns(ranked_columns(plans))


def print_columns(columns: Sequence[Column], *, name_missing: bool = True) -> None:
    """As many columns as there is room for; what is left out is named below."""
    shown = list(columns)
    while len(shown) > 2 and sum(column.width + GAP for column in shown) > screen_width():
        shown.remove(max(shown, key=lambda column: column.expendable))
    rows = list(zip(*(column.cells for column in shown), strict=True))
    print_table(
        [column.title for column in shown],
        rows,
        numbers=[column.title for column in shown if column.number],
    )
    missing = [column.title for column in columns if column not in shown]
    if missing and name_missing:
        echo_folded(f"No room for: {', '.join(missing)}. -o json has everything.", text_width())


def _print_reasons(answer: Answer, best: Plan, width: int) -> None:
    click.echo()
    echo_folded(f"Bound by {best.binding}: {best.why}", width)
    if answer.runner_up is not None:
        loser = answer.runner_up
        echo_folded(f"Runner-up ({say.divided(loser.plan)}): {loser.why}", width)


def _print_front(answer: Answer) -> None:
    front = answer.front
    if len(front) < 2:
        return
    shown = spread(front, FRONT_SHOWN)
    more = "" if len(shown) == len(front) else f", {len(shown)} of {len(front)}"
    click.echo()
    echo_folded(f"Cost against time: nothing is both cheaper and faster{more}", text_width())
    print_columns(ranked_columns(shown), name_missing=False)


def spread(front: Sequence[Plan], most: int) -> list[Plan]:
    """At most so many of a front, from end to end."""
    if len(front) <= most:
        return list(front)
    return [front[round(at * (len(front) - 1) / (most - 1))] for at in range(most)]


def _print_curve(curve: Sequence[CurvePoint], width: int) -> None:
    for kind in dict.fromkeys(point.kind for point in curve):
        points = [point for point in curve if point.kind == kind]
        if len(points) < 2:
            continue
        step = -(-len(points) // CURVE_POINTS_SHOWN)
        shown = [*points[:-1:step], points[-1]]
        words = ", ".join(
            f"{point.devices:,}: {say.count(point.tokens_per_second)}" for point in shown
        )
        click.echo()
        echo_folded(f"Tokens per second by number of {kind}: {words}", width)


def _print_refusal(refusal: Refusal, width: int) -> None:
    echo_folded(f"No plan keeps the limits. Bound by {refusal.binding}: {refusal.why}", width)


def _print_searched(answer: Answer, width: int) -> None:
    searched = answer.searched
    click.echo()
    for note in answer.notes:
        echo_folded(f"note: {note}", width)
    echo_folded(
        f"{searched.enumerated:,} layouts looked at, {searched.fitting:,} probably fit, "
        f"{searched.kept:,} keep the limits. Ranges hold four times out of five.",
        width,
    )


def echo_folded(text: str, width: int, indent: str = "") -> None:
    """A paragraph, folded to the width."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )
    for line in lines or [""]:
        click.echo(line)
