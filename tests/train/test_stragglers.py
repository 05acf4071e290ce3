"""Members that hold the others up for a while are named once, and nobody else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.happenings import Kind
from modelyard.train.stragglers import (
    JUDGED_STEPS,
    MOST_STEPS,
    RECENT_STEPS,
    episodes,
    paces,
    slow_among,
)


def step(number: int, busy: Mapping[str, float], *, at: float | None = None) -> CommitLine:
    """A step each second, unless it is said when."""
    return CommitLine(
        step=number,
        generation=1,
        members=tuple(busy),
        start=0,
        stop=8,
        tokens=0,
        loss=1.0,
        at=float(number) if at is None else at,
        busy=tuple(busy.values()),
    )


def steps(busy: Mapping[str, float], count: int = RECENT_STEPS) -> list[CommitLine]:
    return [step(number, busy) for number in range(count)]


def slow(committed: Sequence[CommitLine], members: Sequence[str]) -> set[str]:
    return set(slow_among(paces(committed, members), ()))


def told(
    busy_at: Callable[[int], Mapping[str, float]], count: int, members: Sequence[str]
) -> list[tuple[str, Kind]]:
    """What is told of a job whose every step is looked at."""
    committed: list[CommitLine] = []
    before: frozenset[str] = frozenset()
    found = []
    for number in range(count):
        committed.append(step(number, busy_at(number)))
        judged = paces(committed, members)
        now = slow_among(judged, before)
        found += [(one.worker, one.kind) for one in episodes(judged, before, now)]
        before = now
    return found


def test_a_slow_member_is_named_with_figures() -> None:
    committed = steps({"a": 0.2, "b": 0.45, "c": 0.2})
    assert slow(committed, "abc") == {"b"}
    judged = paces(committed, "abc")
    (happening,) = episodes(judged, (), slow_among(judged, ()))
    assert happening.what == "is slow: 0.45 s of work a step, the others 0.20 s"


def test_who_has_just_come_is_not_judged() -> None:
    alone = steps({"a": 0.1}, 10)
    together = [step(10 + number, {"a": 0.1, "b": 9.0}) for number in range(JUDGED_STEPS - 1)]
    assert list(paces([*alone, *together[:3]], "ab")) == ["a"]
    assert paces([*alone, *together], "ab")["b"].behind is None
    assert slow([*alone, *together], "ab") == set()


def test_what_lasts_a_moment_is_not_judged_however_many_steps_there_were() -> None:
    busy = {"a": 0.01, "b": 0.05}
    brief = [step(number, busy, at=number * 0.05) for number in range(100)]
    assert slow(brief, "ab") == set()
    long = [step(number, busy, at=number * 0.05) for number in range(400)]
    assert slow(long, "ab") == {"b"}
    assert slow([step(number, busy, at=number * 0.05) for number in range(3 * MOST_STEPS)], "ab")


def test_noise_of_a_busy_machine_names_nobody() -> None:
    """Each takes twice as long in every third of its steps, whoever has to wait then."""
    luck = Random(5)

    def busy(_: int) -> dict[str, float]:
        return {name: 0.2 * (2.0 if luck.random() < 1 / 3 else 1.0) for name in "abcd"}

    assert told(busy, 400, "abcd") == []


def test_an_episode_is_told_once_and_so_is_its_end() -> None:
    """Around the border, a member is far behind in half of its steps."""

    def busy(number: int) -> dict[str, float]:
        slows = 40 <= number < 80 or (80 <= number < 200 and number % 2)
        return {"a": 0.2, "b": 0.5 if slows else 0.2, "c": 0.2}

    assert told(busy, 300, "abc") == [("b", Kind.SLOW), ("b", Kind.KEEPS_UP)]


def test_nothing_is_told_of_the_end_of_who_is_gone() -> None:
    judged = paces(steps({"a": 0.2, "c": 0.2}), "ac")
    assert list(episodes(judged, {"b"}, slow_among(judged, {"b"}))) == []


def test_a_pause_of_the_whole_machine_is_nobodys() -> None:
    def busy(number: int) -> dict[str, float]:
        return dict.fromkeys("abc", 0.2 if number < 30 else 3.0)

    assert told(busy, 60, "abc") == []


def test_leases_of_workers_that_do_not_keep_step_are_compared_as_well() -> None:
    leases = [
        step(2 * number + at, {name: took})
        for number in range(RECENT_STEPS)
        for at, (name, took) in enumerate((("a", 0.1), ("b", 0.5)))
    ]
    assert slow(leases, "ab") == {"b"}


def test_journals_of_earlier_versions_name_nobody() -> None:
    assert paces(steps({}, 10), ("a",)) == {}
    assert paces([], ()) == {}


@given(
    st.lists(st.lists(st.floats(0.0, 1e4), min_size=3, max_size=3), min_size=1, max_size=60),
    st.integers(1, 3),
)
def test_never_are_all_of_them_slow(times: list[list[float]], count: int) -> None:
    members = "abc"[:count]
    committed = [
        step(number, dict(zip(members, row, strict=False))) for number, row in enumerate(times)
    ]
    assert slow(committed, members) < set(members)
