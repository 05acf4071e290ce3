"""Slow members are named, and nobody else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.stragglers import FEWEST_STEPS, paces


def steps(busy: dict[str, float], count: int = FEWEST_STEPS) -> list[CommitLine]:
    return [
        CommitLine(
            step=number,
            generation=1,
            members=tuple(busy),
            start=0,
            stop=8,
            tokens=0,
            loss=1.0,
            at=float(number),
            busy=tuple(busy.values()),
        )
        for number in range(count)
    ]


def test_a_slow_member_is_named_with_figures() -> None:
    found = paces(steps({"a": 0.2, "b": 0.45, "c": 0.2}), ("a", "b", "c"))
    assert [name for name, pace in found.items() if pace.slow] == ["b"]
    assert str(found["b"]) == "0.45 s of work a step, the others 0.20 s"


def test_who_has_just_come_is_not_judged() -> None:
    alone, together = steps({"a": 0.1}, 10), steps({"a": 0.1, "b": 9.0}, 3)
    assert list(paces([*alone, *together], ("a", "b"))) == ["a"]


def test_leases_of_workers_that_do_not_keep_step_are_compared_as_well() -> None:
    leases = [
        one
        for _ in range(8)
        for name, took in (("a", 0.1), ("b", 0.5))
        for one in steps({name: took}, 1)
    ]
    found = paces(leases, ("a", "b"))
    assert [name for name, pace in found.items() if pace.slow] == ["b"]


def test_journals_of_earlier_versions_name_nobody() -> None:
    assert paces(steps({}, 10), ("a",)) == {}
    assert paces([], ()) == {}


@given(st.dictionaries(st.text(min_size=1), st.floats(0.0, 1e4), min_size=1, max_size=6))
def test_never_are_all_of_them_slow(busy: dict[str, float]) -> None:
    found = paces(steps(busy), tuple(busy))
    assert not all(pace.slow for pace in found.values())
    assert not any(pace.slow for pace in found.values()) or len(busy) > 1
