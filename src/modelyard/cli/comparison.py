"""A comparison on the terminal: one table, as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import print_table, screen_width

if TYPE_CHECKING:
    from modelyard.simulate.columns import Column
    from modelyard.simulate.result import Result

ORACLE_MARK = "*"
ORACLE_LEGEND = (
    f"{ORACLE_MARK} knows how long every job will run, which no real scheduler does: a yardstick."
)
#: What `print_table` puts between two columns.
GAP = 3
#: A longer name, such as one with a path in it, is folded so that the figures keep their room.
LONGEST_NAME = 40
POLICY = "policy"
AGAINST_BEST = "×best"


def print_comparison(ranked: Sequence[Result], oracles: Collection[str]) -> None:
    """Policies as rows, best first; what did not fit is named below, not cut off."""
    from modelyard.simulate.columns import COLUMNS, ratio_to_best

    best = ranked[0].metrics.jct_mean
    rows = {column.title: [column.text(result.metrics) for result in ranked] for column in COLUMNS}
    rows[AGAINST_BEST] = [ratio_to_best(result.metrics.jct_mean, best) for result in ranked]
    names = [
        _folded(f"{result.policy} {ORACLE_MARK}" if result.policy in oracles else result.policy)
        for result in ranked
    ]
    shown = _that_fit(COLUMNS, rows, names)
    titles = [shown[0].title, AGAINST_BEST, *(column.title for column in shown[1:])]
    print_table(
        (POLICY, *titles),
        [(name, *(rows[title][at] for title in titles)) for at, name in enumerate(names)],
        numbers=titles,
    )
    if any(result.policy in oracles for result in ranked):
        click.echo(ORACLE_LEGEND)
    if len(shown) < len(COLUMNS):
        missing = [column.title for column in COLUMNS if column not in shown]
        click.echo(f"No room for: {', '.join(missing)}. The report has all columns.")


def _that_fit(
    columns: Sequence[Column], rows: dict[str, list[str]], names: Sequence[str]
) -> list[Column]:
    """The columns without the most expendable ones, until the table fits the screen."""
    shown = list(columns)

    def width() -> int:
        titles = [AGAINST_BEST, *(column.title for column in shown)]
        cells = (max(len(title), *map(len, rows[title])) + GAP for title in titles)
        lines = (line for name in names for line in name.split("\n"))
        return max(len(POLICY), *map(len, lines)) + sum(cells)

    while len(shown) > 1 and width() > screen_width():
        shown.remove(max(shown, key=lambda column: column.expendable))
    return shown


def _folded(name: str) -> str:
    starts = range(0, len(name), LONGEST_NAME)
    return "\n".join(name[start : start + LONGEST_NAME] for start in starts)
