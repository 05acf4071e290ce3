"""What `yard ps` leaves out where there is little room."""

from __future__ import annotations

from modelyard.cli.ps import HEADINGS, _fitting

ROW = (
    "98aa58d3e1f0",
    "sleeper",
    "default",
    "running",
    "up",
    "2 of 2",
    "",
    "1m3s",
    "20s",
    "",
    "in 4m",
)


def test_columns_that_say_nothing_are_left_out() -> None:
    headings, rows = _fitting([ROW], 200)
    assert headings == [name for name in HEADINGS if name not in ("steps", "starts")]
    assert "" not in rows[0]


def test_a_narrow_terminal_keeps_who_it_is_and_where() -> None:
    headings, rows = _fitting([ROW], 50)
    assert headings[:3] == ["id", "name", "state"]
    assert "devices" in headings
    assert len(rows[0]) == len(headings)
    assert sum(len(cell) + 3 for cell in rows[0]) <= 53
