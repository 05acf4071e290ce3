"""Progress in a log: enough lines to see that a run is alive, and no more."""

from __future__ import annotations

import pytest

from modelyard.cli.progress import Lines
from modelyard.simulate.play import Failure


def test_a_run_is_heard_of_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([100.0, 105.0, 110.0, 119.0, 121.0])
    with Lines(1, clock=lambda: next(moments)) as lines:
        for share in (0.01, 0.05, 0.1, 0.2, 0.25):
            lines.progress("fifo", share)
        lines.done("fifo", Failure("fifo", "it broke"))
    assert capsys.readouterr().err.splitlines() == ["fifo: 10%", "fifo: 25%", "[1/1] fifo: failed"]


def test_a_short_run_is_heard_of_at_its_end_only(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(2, clock=lambda: 0.0) as lines:
        lines.progress("fifo", 0.5)
        lines.progress("las", 0.9)
    assert capsys.readouterr().err == ""
