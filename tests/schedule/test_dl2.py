"""DL²: the game of handing out devices, and the policy that plays it with a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.dl2 import ACTIONS_PER_JOB, ONE, PAIR, Board, Dl2, Encoding, Weights, allot
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.view import TenantView, View
from modelyard.spec.cluster import uniform_cluster

from .moments import elastic, moment, sizes_after
from .worlds import views

HIDDEN = 8
ENCODING = Encoding(("a", "b"), window=3, slot_seconds=600.0)


def weights(seed: int = 0, encoding: Encoding = ENCODING, scale: float = 1.0) -> Weights:
    """A network that nobody trained."""
    draw = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return scale * draw.normal(size=shape)

    return Weights(
        encoding=encoding,
        first_FH=some(encoding.inputs, HIDDEN),
        first_H=some(HIDDEN),
        second_HH=some(HIDDEN, HIDDEN),
        second_H=some(HIDDEN),
        job_HA=some(HIDDEN, ACTIONS_PER_JOB),
        job_A=some(ACTIONS_PER_JOB),
        end_H=some(HIDDEN),
        end_bias=0.0,
    )


def first_legal(board: Board) -> int:
    return int(np.flatnonzero(board.legal())[0])


def scripted(*actions: int) -> Callable[[Board], int]:
    left = list(actions)
    return lambda board: left.pop(0) if left else board.end


def one_of(job: int) -> int:
    return ACTIONS_PER_JOB * job + ONE


def pair_of(job: int) -> int:
    return ACTIONS_PER_JOB * job + PAIR


def two_jobs(**changes: object) -> View:
    jobs = [elastic("x", smallest=2, **changes), elastic("y", smallest=3)]  # type: ignore[arg-type]
    return moment(uniform_cluster(2, 4), jobs)


def test_a_pair_starts_a_job_at_its_smallest_size_and_then_adds_two() -> None:
    view = two_jobs()
    assert allot(view, ENCODING, scripted(pair_of(1))) == {1: 3}
    assert allot(view, ENCODING, scripted(pair_of(1), pair_of(1), one_of(1))) == {1: 6}
    assert allot(view, ENCODING, scripted(pair_of(0), pair_of(1), one_of(0))) == {0: 3, 1: 3}


def test_what_is_legal_changes_as_devices_go() -> None:
    seen: list[list[bool]] = []

    def choose(board: Board) -> int:
        seen.append(board.legal().tolist())
        return [pair_of(0), pair_of(1), pair_of(0)][len(seen) - 1] if len(seen) < 4 else board.end

    assert allot(two_jobs(), ENCODING, choose) == {0: 4, 1: 3}
    #                one0   pair0  one1   pair1  end
    assert seen == [
        [False, True, False, True, False],  # somebody has to start before anybody may stop
        [True, True, False, True, True],
        [True, True, True, True, True],
        [True, False, True, False, True],  # one device is left
    ]


def test_a_tenant_s_maximum_and_a_job_s_largest_size_are_limits() -> None:
    limits = {"red": TenantView("red", maximum=3)}
    jobs = [elastic("x", smallest=2, tenant="red"), elastic("y", smallest=2, largest=4)]
    view = moment(uniform_cluster(2, 8), jobs, limits=limits)
    assert allot(view, ENCODING, first_legal) == {0: 3, 1: 4}


def test_windows_follow_each_other_until_nothing_is_left() -> None:
    boards: list[tuple[int, ...]] = []

    def choose(board: Board) -> int:
        if not boards or boards[-1] != board.jobs:
            boards.append(board.jobs)
        starts = np.flatnonzero(board.legal()[PAIR:-1:ACTIONS_PER_JOB] & (board.given == 0))
        return pair_of(int(starts[0])) if len(starts) else board.end

    jobs = [elastic(f"j{index}", priority=int(index == 4)) for index in range(6)]
    view = moment(uniform_cluster(2, 4), jobs)
    assert allot(view, ENCODING, choose) == dict.fromkeys(range(6), 1)
    assert boards == [(4,), (0, 1, 2), (3, 5)], "priority first, then as submitted, three at a time"


def test_a_job_that_restarts_is_left_alone() -> None:
    jobs = [elastic("x", submitted=3600.0), elastic("y")]
    view = moment(uniform_cluster(2, 4), jobs, running={"x": ((0, 3),)}, now=3630.0)
    # `since` is the submission here: x has run for 30 s, half of what it is granted.
    assert allot(view, ENCODING, scripted(pair_of(1))) == {0: 3, 1: 1}


def test_the_network_is_told_what_the_paper_says() -> None:
    looks: list[tuple[np.ndarray, np.ndarray]] = []

    def choose(board: Board) -> int:
        looks.append((board.features().copy(), board.context()))
        return pair_of(1) if len(looks) == 1 else board.end

    jobs = [elastic("x", steps=1200.0, model="b"), elastic("y", smallest=2, model="other")]
    allot(moment(uniform_cluster(2, 4), jobs, now=3000.0), ENCODING, choose)
    (before, _), (after, context) = looks
    age, two_slots = np.log1p(5.0) / 3.0, np.log1p(2.0) / 3.0
    assert before[0] == pytest.approx([0, 1, age, two_slots, 1, 0, 0, 0])
    assert after[0] == pytest.approx(before[0])
    assert after[1, :2] == pytest.approx([0, 0]), "a type that it was not trained on"
    assert after[1, -3:] == pytest.approx([2 / 8, np.log2(3) / 4, 1])
    assert context[-3:] == pytest.approx([6 / 8, np.log1p(2) / 3, 0])
    assert context[:-3] == pytest.approx(after.mean(axis=0))


def test_scores_do_not_depend_on_the_order_of_jobs() -> None:
    draw = np.random.default_rng(1)
    features = draw.random((3, ENCODING.job_features))
    context = draw.random(ENCODING.inputs - ENCODING.job_features)
    network = weights()
    turned = network.scores(features[::-1], context)
    straight = network.scores(features, context)
    assert turned[:-1].reshape(3, -1)[::-1] == pytest.approx(straight[:-1].reshape(3, -1))
    assert turned[-1] == pytest.approx(straight[-1])


def test_the_best_score_wins() -> None:
    """A network that wants the end above all else starts one job, because somebody has to run."""
    keen = weights(scale=0.0)
    view = moment(uniform_cluster(2, 4), [elastic("x"), elastic("y")])
    idle = Dl2(Weights(**{**_fields(keen), "end_bias": 1.0}))
    assert sizes_after(view, idle.decide(view)) == {"x": 1}
    busy = Dl2(Weights(**{**_fields(keen), "end_bias": -1.0}))
    assert sum(sizes_after(view, busy.decide(view)).values()) == 8


def _fields(network: Weights) -> dict[str, object]:
    return {name: getattr(network, name) for name in Weights.__slots__}


@settings(max_examples=40, deadline=None)
@given(view=views(), seed=st.integers(0, 50))
def test_any_network_keeps_every_rule_and_is_pure(view: View, seed: int) -> None:
    chosen = Dl2(weights(seed))
    decisions = chosen.decide(view)
    assert broken_rules(view, decisions) == []
    assert chosen.decide(view) == decisions
    assert Dl2(weights(seed)).decide(view) == decisions
    assert chosen.next_change(view) >= view.now


@pytest.mark.parametrize("changes", [{"window": 0}, {"slot_seconds": 0.0}])
def test_an_encoding_without_sense_is_refused(changes: dict[str, float]) -> None:
    plain = {"types": ("a",), "window": 3, "slot_seconds": 600.0}
    with pytest.raises(ValueError, match="make no sense"):
        Encoding(**{**plain, **changes})  # type: ignore[arg-type]
