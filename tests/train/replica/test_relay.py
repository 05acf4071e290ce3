"""What the places of a replica say becomes what one worker would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train.conductor.messages import Beat, Hello, Leave, Note, Phase, Trouble, Vote
from modelyard.train.replica.relay import Chorus, one_beat, one_hello, one_vote


def vote(
    step: int = 3,
    *,
    generation: int = 1,
    loss: float | None = 1.0,
    samples: int = 2,
    **more: object,
) -> Vote:
    return Vote(generation, step, loss, samples, 10 * samples, 0.5, **more)


def test_a_replica_votes_when_all_its_places_have() -> None:
    chorus = Chorus(3)
    assert chorus.hear(0, vote()) is None
    assert chorus.hear(2, vote(samples=0, loss=0.0)) is None
    one = chorus.hear(1, vote(loss=4.0))
    assert isinstance(one, Vote)
    assert (one.step, one.loss, one.samples, one.tokens) == (3, 5.0, 4, 40)
    assert chorus.hear(0, vote(4)) is None


def test_votes_for_an_abandoned_step_are_forgotten() -> None:
    chorus = Chorus(2)
    assert chorus.hear(0, vote(generation=1)) is None
    assert chorus.hear(0, vote(generation=2)) is None
    one = chorus.hear(1, vote(generation=2))
    assert isinstance(one, Vote)
    assert one.samples == 4


def test_a_loss_that_is_no_number_is_none_of_the_replica() -> None:
    assert one_vote([vote(), vote(loss=None)]).loss is None


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(-10.0, 10.0)), min_size=1, max_size=8))
def test_measured_values_are_means_over_samples(given: list[tuple[int, float]]) -> None:
    votes = [vote(samples=count, values={"norm": value}) for count, value in given]
    total = sum(count for count, _ in given)
    found = one_vote(votes).values
    if not total:
        assert found == {}
    else:
        expected = sum(count * value for count, value in given) / total
        assert found["norm"] == pytest.approx(expected, abs=1e-9)


def test_a_place_that_is_silent_silences_its_replica() -> None:
    chorus = Chorus(2)
    for _ in range(3):
        assert chorus.hear(0, Beat(1, Phase.REDUCING)) is None
    assert chorus.hear(1, Beat(1, Phase.COMPUTING)) == Beat(1, Phase.COMPUTING)
    assert chorus.hear(1, Beat(1, Phase.COMPUTING)) is None


def test_a_replica_is_where_the_last_of_its_places_is() -> None:
    beats = [Beat(2, Phase.GATHERING), Beat(1, Phase.VOTED), Beat(1, Phase.REDUCING)]
    assert one_beat(beats) == Beat(1, Phase.REDUCING)


def test_trouble_is_told_once_and_anybody_may_leave() -> None:
    chorus = Chorus(2)
    assert chorus.hear(1, Trouble(1, "broken")) == Trouble(1, "broken")
    assert chorus.hear(0, Trouble(1, "broken too")) is None
    assert chorus.hear(0, Trouble(2, "again")) == Trouble(2, "again")
    assert chorus.hear(1, Leave()) == Leave()
    assert chorus.hear(1, Note("no space is left")) == Note("no space is left")


def test_a_replica_knows_what_all_its_places_know() -> None:
    """One place may have applied a step whose commit another has not heard of yet."""
    told = Hello("secret", "worker-1.0", "node", "127.0.0.1", 1, applied=8)
    waiting = Hello("secret", "worker-1.1", "node", "127.0.0.1", 2, applied=7, pending=7)
    one = one_hello([told, waiting], "worker-1", 99)
    assert (one.worker, one.store_port, one.applied, one.pending) == ("worker-1", 99, 7, 7)
