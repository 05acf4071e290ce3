"""What is foreseen, in words."""

from __future__ import annotations

from typing import Any

from modelyard.control.forecast.words import moment_words, plan_lines, short_moment

FOUND: dict[str, Any] = {
    "at": 1000.0,
    "name": "train",
    "tenant": "red",
    "min_devices": 1,
    "max_devices": 2,
    "priority": 0,
    "start": {"at": 1180.0, "low": 1120.0, "high": 1300.0},
    "end": {"at": 4600.0, "low": 4000.0, "high": 8200.0},
    "devices": 2,
    "nodes": [["node1", 2]],
    "basis": "said",
    "hangs": False,
    "waiting": 1,
    "beyond": False,
    "device_hours": 1.9,
    "usd": 4.75,
    "delays": [{"job": "3f9a", "seconds": 80.0}],
    "delayed": 1,
    "delayed_others": 2,
}


def test_a_plan_says_where_when_how_much_and_at_whose_cost() -> None:
    assert [*plan_lines(FOUND)] == [
        "train of tenant red: 2 devices of node1",
        "  starts  in 3m (80 %: 2m to 5m); 1 job waits already",
        "  ends    in 1h (80 %: 50m to 2h), as its file says",
        "  costs   1.9 device-hours, $4.75",
        "  delays  3f9a by 1m20s, 2 jobs of other tenants",
    ]


def test_a_plan_says_what_nobody_knows() -> None:
    unknown = {**FOUND, "basis": "unknown", "end": None, "device_hours": None, "delayed_others": 0}
    unknown |= {"start": {"at": 1000.0, "low": 1000.0, "high": 1000.0}, "waiting": 0}
    unknown |= {"delays": [], "delayed": 0, "nodes": []}
    assert [*plan_lines(unknown)] == [
        "train of tenant red: 1 to 2 devices",
        "  starts  now",
        "  ends    nobody can say: its file has no 'duration', and none like it has succeeded here",
    ]
    assert "nobody can say when; 1 job waits" in "".join(plan_lines({**FOUND, "beyond": True}))
    assert "not as things stand" in "".join(plan_lines({**FOUND, "start": None}))


def test_moments() -> None:
    assert moment_words({"at": 60.0, "low": None, "high": None}, 0.0) == "in 1m"
    assert (
        moment_words({"at": 60.0, "low": 30.0, "high": None}, 0.0) == "in 1m (90 %: not before 30s)"
    )
    assert moment_words(None, 0.0) == ""
    assert short_moment({"at": 60.0}, 0.0) == "in 1m"
    assert short_moment({"at": 60.0}, 70.0) == "now"
