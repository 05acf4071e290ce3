"""Logs as pages show them."""

from __future__ import annotations

import pytest

from modelyard.engines.interface import TaskName
from modelyard.web.task_log import Chosen, _piece, plain

CHOSEN = Chosen("worker-0", 2, TaskName("0123456789ab", 2, "worker-0", 1))


def test_letters_that_are_cut_in_two_come_with_the_next_piece() -> None:
    whole = "naïve".encode()
    cut = _piece(whole[:3], 103)
    assert (cut.text, cut.after) == ("na", 102)
    assert _piece(whole[2:], 106).text == "ïve"


def test_what_is_no_text_is_shown_somehow() -> None:
    assert _piece(b"\xff\xfe\xfd\xfc", 4).after == 4


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("10 %\r50 %\r100 %\ndone", "100 %\ndone"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("a\x00b\x07c\td", "abc\td"),
        ("\x1b]0;title\x07x", "x"),
    ],
)
def test_what_only_terminals_understand_is_left_out(written: str, shown: str) -> None:
    assert plain(written) == shown


def test_a_place_of_another_start_is_none() -> None:
    assert CHOSEN.position(CHOSEN.place(77)) == 77
    for place in ("", "1.1.77", "2.0.77", "2.1.", "2.1.²", "2.1.-1", "77"):
        assert CHOSEN.position(place) is None
