"""Whatever fails however often: places are manned once, machines end no job, and mistakes do."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.staffing import (
    FAILURES_OF_A_PLACE,
    PAUSE_SECONDS,
    SAME_ENDS,
    Again,
    Failure,
    Hopeless,
    Place,
    Request,
    Staffing,
    ThisMachine,
    Verdict,
    pause,
)

KILLED = -int(signal.SIGKILL)


def failure(
    status: int = KILLED, *, said: str = "", took_part: bool = False, committed: int = 0
) -> Failure:
    return Failure(status=status, said=said, took_part=took_part, committed=committed)


def staffed(workers: int) -> Staffing:
    staffing = Staffing(ThisMachine("here"), workers)
    assert len(staffing.births(0.0)) == workers
    return staffing


@dataclass
class Scarce:
    """Has a few places, and none of them twice."""

    places: list[Place] = field(default_factory=list)

    def another(self, avoid: Collection[Place]) -> Place | None:
        free = [place for place in self.places if place not in avoid]
        if free:
            self.places.remove(free[0])
        return free[0] if free else None


def test_all_places_are_manned_at_once() -> None:
    assert staffed(3).manned == tuple(Place("here", slot) for slot in range(3))


def test_a_place_gets_another_worker_at_once_after_its_first_failure() -> None:
    staffing = staffed(2)
    first = staffing.manned[0]
    assert staffing.failed(first, failure(took_part=True), 5.0) == [Again(first, 0.0)]
    assert staffing.births(5.0) == [first]


def test_a_place_that_fails_again_and_again_is_left_for_another() -> None:
    staffing = staffed(2)
    bad, now, told = staffing.manned[1], 0.0, list[Verdict]()
    for _ in range(FAILURES_OF_A_PLACE):
        told += staffing.failed(bad, failure(), now)
        now += PAUSE_SECONDS[1]
        (place,) = staffing.births(now)
    requests = [one for one in told if isinstance(one, Request)]
    assert [(one.workers, one.avoid) for one in requests] == [(1, (bad,))]
    assert requests[0].why == "here/1 failed 3 times in a row, last with signal 9"
    assert place not in (bad, staffing.manned[0])


def test_taking_part_is_a_new_beginning() -> None:
    staffing = staffed(1)
    (place,), now = staffing.manned, 0.0
    for _ in range(10):
        (verdict,) = staffing.failed(place, failure(took_part=True), now)
        assert verdict == Again(place, 0.0)
        staffing.births(now)


def test_workers_that_end_alike_before_anything_is_done_are_the_jobs_fault() -> None:
    staffing = staffed(3)
    told: list[Verdict] = []
    for number, place in enumerate(staffing.manned):
        said = f"ValueError: worker-{number} has no data at 0x7f{number}"
        told = staffing.failed(place, failure(1, said=said), 0.0)
    assert told == [Hopeless("3 workers ended with exit status 1 before the first step")]


def test_steps_between_ends_show_that_the_job_is_sound() -> None:
    staffing, now = staffed(1), 0.0
    for done in range(20):
        (place,) = staffing.manned
        told = staffing.failed(place, failure(1, said="boom", committed=done), now)
        assert not any(isinstance(one, Hopeless) for one in told)
        now += PAUSE_SECONDS[1]
        staffing.births(now)


def test_where_no_place_is_free_the_job_waits() -> None:
    staffing = Staffing(Scarce([Place("a", 0)]), 2)
    assert staffing.births(0.0) == [Place("a", 0)]
    assert staffing.births(1e9) == []
    scarce = staffing.provider
    assert isinstance(scarce, Scarce)
    scarce.places.append(Place("b", 0))
    assert staffing.births(2e9) == [Place("b", 0)]


def test_who_leaves_is_not_replaced() -> None:
    staffing = staffed(3)
    staffing.left(staffing.manned[0], fewer=True)
    assert staffing.births(100.0) == []
    assert staffing.wanted == 2


@given(st.integers(0, 10**9))
def test_pauses_grow_and_are_bounded(failures: int) -> None:
    assert 0.0 <= pause(failures) <= pause(failures + 1) <= PAUSE_SECONDS[1]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["kill", "end", "leave", "commit", "time", "resize"]),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


@given(st.integers(1, 5), EVENTS)
def test_no_sequence_of_failures_breaks_the_books(
    workers: int, events: list[tuple[str, int, bool]]
) -> None:
    staffing = staffed(workers)
    now, committed, alike, avoided = 0.0, 0, 0, set[Place]()
    for what, which, took_part in events:
        manned = staffing.manned
        place = manned[which % len(manned)] if manned else None
        told: list[Verdict] = []
        if what == "time":
            now += 10.0 * which
        elif what == "commit":
            committed, alike = committed + 1, 0
        elif what == "resize":
            staffing.wanted = which
        elif place is not None and what == "leave":
            staffing.left(place, fewer=took_part)
        elif place is not None and what == "kill":
            alike = 0
            told = staffing.failed(place, failure(took_part=took_part, committed=committed), now)
        elif place is not None and what == "end":
            alike += 1
            end = failure(1, said="x", took_part=took_part, committed=committed)
            told = staffing.failed(place, end, now)
        # Only what the job does itself, again and again, ends it.
        assert any(isinstance(one, Hopeless) for one in told) == (alike >= SAME_ENDS)
        if alike >= SAME_ENDS:
            return
        avoided.update(*(one.avoid for one in told if isinstance(one, Request)))
        before = set(staffing.manned)
        born = staffing.births(now)
        assert not before.intersection(born)
        assert not avoided.intersection(staffing.manned)
        assert len(staffing.manned) <= max(len(before), staffing.wanted)
    # Whatever has failed, in the end everyone who is wanted is there.
    staffing.births(now + PAUSE_SECONDS[1])
    assert len(staffing.manned) >= staffing.wanted
