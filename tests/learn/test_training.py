"""Imitation, actor and critic, and training that goes on where it stopped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra 'train'")

from modelyard.errors import InputError  # noqa: E402 (torch may be missing)
from modelyard.learn import course  # noqa: E402
from modelyard.learn.experience import favour, job_returns  # noqa: E402
from modelyard.learn.network import Actor, Critic, stack  # noqa: E402
from modelyard.learn.plan import Plan  # noqa: E402
from modelyard.learn.rollout import (  # noqa: E402
    Episode,
    Look,
    Reward,
    Window,
    demonstrate,
    explore,
    right_actions,
    seen,
    settled,
    sizes_after,
)
from modelyard.learn.setting import Setting  # noqa: E402
from modelyard.learn.shares import EqualShares  # noqa: E402
from modelyard.learn.soonest import Soonest  # noqa: E402
from modelyard.learn.training import Trainer, restore  # noqa: E402
from modelyard.schedule.dl2 import Board, allot  # noqa: E402
from modelyard.schedule.view import View  # noqa: E402
from modelyard.simulate.engine import simulate, snapshot  # noqa: E402
from modelyard.spec.allocation import Footprint  # noqa: E402

TINY = Plan(
    setting=Setting(nodes=2, devices_per_node=4, jobs=6, longest_epochs=20.0),
    teacher="drf",
    lesson_parts=2,
    lessons=1,
    lesson_passes=2,
    rounds=4,
    episodes=1,
    critic_passes=1,
    actor_passes=1,
    critic_rounds=1,
    hidden=8,
    boards=64,
    check_every=2,
    check_workloads=1,
)


def quiet(_stage: str, _share: float) -> None:
    """Nobody watches a test."""


def quiet_share(_share: float) -> None:
    """Nor this one."""


# -- what is seen -------------------------------------------------------------------------


def test_an_episode_gives_every_job_its_whole_reward() -> None:
    """The fractions of all slots sum to 1 for each job, whichever way they are paid."""
    weights = Actor(TINY.setting.encoding(), 8).weights()
    for share in (0.0, 0.5, 1.0):
        played = explore(
            TINY.setting.scenario(0),
            weights,
            draw=np.random.default_rng(0),
            curiosity=0.2,
            reward=Reward(share),
        )
        gained: dict[str, float] = {}
        for window in (window for slot in played.slots for window in slot):
            for job, reward in zip(window.jobs, window.rewards_J.tolist(), strict=True):
                gained[job] = gained.get(job, 0.0) + reward
        assert len(gained) == TINY.setting.jobs
        assert all(total == pytest.approx(1.0) for total in gained.values())


@pytest.mark.parametrize("seed", range(5))
def test_right_actions_lead_where_the_teacher_went(seed: int) -> None:
    """In whichever order they are taken."""
    draw = np.random.default_rng(seed)
    view = _crowded()
    wanted = sizes_after(view, EqualShares().decide(view))

    def choose(board: Board) -> int:
        right = right_actions(board, board.legal(), wanted)
        assert (right <= board.legal()).all()
        return int(draw.choice(np.flatnonzero(right)))

    assert allot(view, TINY.setting.encoding(), choose) == wanted


def test_a_teacher_is_watched_at_every_decision() -> None:
    lessons = demonstrate(
        TINY.setting.scenario(3),
        EqualShares(),
        TINY.setting.encoding(),
        draw=np.random.default_rng(1),
    )
    assert len(lessons) > TINY.setting.jobs
    assert all(lesson.right.any() for lesson in lessons)


def test_what_the_critic_thinks_of_an_action_is_what_it_thinks_of_its_board() -> None:
    torch.manual_seed(0)
    encoding = TINY.setting.encoding()
    critic = Critic(encoding, 8)
    looks: list[Look] = []
    taken: list[int] = []
    draw = np.random.default_rng(2)

    def choose(board: Board) -> int:
        looks.append(seen(board))
        taken.append(int(draw.choice(np.flatnonzero(board.legal()))))
        if taken[-1] == board.end:
            looks.append(settled(looks[-1]))
            taken[-1] = -1
        return taken[-1] if taken[-1] >= 0 else board.end

    allot(_crowded(), encoding, choose)
    boards = stack(looks, encoding)
    with torch.no_grad():
        of_actions = critic.of_actions(boards)
        of_boards = critic(boards.inputs_NJF, boards.present_NJ).sum(dim=1)
    assert len(taken) > 3
    for place, action in enumerate(taken[: len(looks) - 1]):
        assert of_actions[place, action] == pytest.approx(float(of_boards[place + 1]), abs=1e-5)


def _crowded() -> View:
    return snapshot(Setting(nodes=2, jobs=12).scenario(0), EqualShares(), at=20_000.0)


# -- what is learnt -----------------------------------------------------------------------


def _window(jobs: Sequence[str], looks: int, rewards: Sequence[float]) -> Window:
    blank = Look(np.zeros((len(jobs), 1)), np.zeros(1), np.ones(1, dtype=bool), np.zeros((1, 3)))
    return Window(tuple(jobs), (blank,) * looks, np.array(rewards))


def test_returns_are_discounted_between_slots_only() -> None:
    """Job a earns 0.5 in both slots, job b 1 in the first; with λ = 1 the critic has no say."""
    episode = Episode(
        ((_window(["a", "b"], 2, [0.5, 1.0]),), (_window(["a"], 3, [0.5]),)), jct_mean_seconds=0.0
    )
    plan = replace(TINY, discount=0.9, trace_decay=1.0)
    found = job_returns(episode, np.full((5, 2), 7.0), plan)
    assert found.tolist() == [
        [pytest.approx(0.95), 1.0],
        [pytest.approx(0.95), 1.0],
        [0.5, 0.0],
        [0.5, 0.0],
        [0.5, 0.0],
    ]


def test_with_no_trace_the_next_word_of_the_critic_counts() -> None:
    episode = Episode(((_window(["a"], 2, [0.5]),), (_window(["a"], 1, [0.25]),)), 0.0)
    plan = replace(TINY, discount=0.9, trace_decay=0.0)
    found = job_returns(episode, np.array([[10.0], [20.0], [30.0]]), plan)
    assert found[:, 0].tolist() == [20.0, pytest.approx(0.5 + 0.9 * 30.0), 0.25]


def test_looks_of_rewarding_slots_are_favoured_and_last_ones_left_out() -> None:
    episode = Episode(((_window(["a"], 2, [0.5]),), (_window(["a"], 3, [0.0]),)), 0.0)
    wishes = favour([episode]).tolist()
    assert wishes[0] > wishes[2] == wishes[3] > 0.0
    assert wishes[1] == wishes[4] == 0.0


def test_an_imitator_does_as_its_teacher() -> None:
    """Under equal shares everyone starts before anyone gets more: easy to learn and to see."""
    plan = replace(TINY, lessons=3, lesson_passes=20, lesson_rate=5e-3, hidden=16)

    def share_right(trainer: Trainer) -> float:
        draw = np.random.default_rng(9)
        scenario = plan.setting.scenario(77)
        lessons = demonstrate(scenario, EqualShares(), trainer.encoding, draw=draw)
        looks = stack([lesson.look for lesson in lessons], trainer.encoding)
        with torch.no_grad():
            chosen = trainer.actor(looks).argmax(dim=1).tolist()
        right = [
            bool(lesson.right[action if action < len(lesson.right) - 1 else -1])
            for action, lesson in zip(chosen, lessons, strict=True)
        ]
        return float(np.mean(right))

    trainer = Trainer(plan)
    before = share_right(trainer)
    trainer.warm_up(EqualShares(), quiet_share)
    assert share_right(trainer) > max(before, 0.7)


def test_a_teacher_that_plays_shows_its_very_actions() -> None:
    """So the student may act, and is told at each board what the teacher would have done."""
    weights = Actor(TINY.setting.encoding(), 8).weights()
    lessons = demonstrate(
        TINY.setting.scenario(3),
        Soonest(),
        weights.encoding,
        draw=np.random.default_rng(1),
        student=weights,
    )
    assert {int(lesson.right.sum()) for lesson in lessons} == {1}
    assert all((lesson.right <= lesson.look.legal).all() for lesson in lessons)


def test_soonest_does_not_spend_on_a_job_what_it_cannot_use() -> None:
    """A job that ends within the slot at its smallest size gets no more than that."""
    result = simulate(TINY.setting.scenario(1), Soonest())
    assert result.metrics.jobs == TINY.setting.jobs
    view = _crowded()
    given = sizes_after(view, Soonest().decide(view))
    assert 0 < sum(given.values()) <= int(view.available.sum())
    seconds_left = {at: view.jobs.knowledge(at).remaining(_pair(view)) for at in given}
    quick = [at for at, seconds in seconds_left.items() if seconds < 600.0]
    assert all(given[at] == 2 for at in quick)


def _pair(view: View) -> Footprint:
    return Footprint(view.cluster.kinds[0], (2,))


def test_numpy_and_torch_agree() -> None:
    torch.manual_seed(3)
    actor = Actor(TINY.setting.encoding(), 8)
    weights = actor.weights()
    looks: list[Look] = []

    def choose(board: Board) -> int:
        looks.append(seen(board))
        return int(np.flatnonzero(board.legal())[0])

    allot(_crowded(), weights.encoding, choose)
    with torch.no_grad():
        log_chances = actor(stack(looks, weights.encoding)).numpy()
    for look, row in zip(looks, log_chances, strict=True):
        scores = np.where(look.legal, weights.scores(look.features_JF, look.context), -np.inf)
        expected = scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        legal = np.flatnonzero(look.legal[:-1])
        assert row[legal] == pytest.approx(expected[legal], abs=1e-4)


def test_the_actor_moves_to_what_the_critic_likes() -> None:
    trainer = Trainer(replace(TINY, actor_passes=30, actor_rate=1e-2, entropy=0.0))
    looks: list[Look] = []

    def choose(board: Board) -> int:
        looks.append(seen(board))
        return int(np.flatnonzero(board.legal())[0])

    allot(_crowded(), trainer.encoding, choose)
    boards = stack(looks[:1] * 8, trainer.encoding)
    with torch.no_grad():
        before = trainer.actor(boards)[0].exp()
        worth = trainer.critic.of_actions(boards)[0]
    liked = int(torch.where(boards.legal_NA[0], worth, -torch.inf).argmax())
    trainer._improve_actor(boards)
    with torch.no_grad():
        after = trainer.actor(boards)[0].exp()
    assert int(boards.legal_NA[0].sum()) > 1
    assert after[liked] > before[liked]


# -- from beginning to end ----------------------------------------------------------------


def test_a_training_leaves_weights_a_curve_and_a_checkpoint(tmp_path: Path) -> None:
    done = course.begin(TINY, tmp_path / "a", tell=quiet)
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"weights.npz", "curve.csv", "curve.svg", "checkpoint.pt"}
    assert [point.round for point in done.curve] == [0, 1, 2, 3, 4]
    assert done.seconds == min(
        point.checked_seconds for point in done.curve if not math.isnan(point.checked_seconds)
    )
    again = course.begin(TINY, tmp_path / "b", tell=quiet)
    assert again.curve[-1] == done.curve[-1]
    assert np.array_equal(again.weights.first_FH, done.weights.first_FH), "the same every time"


def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = course.begin(TINY, tmp_path / "whole", tell=quiet)

    def stop_at_the_third_round(stage: str, share: float) -> None:
        if stage == course.ROUNDS and share > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        course.begin(TINY, tmp_path / "cut", tell=stop_at_the_third_round)
    resumed = course.resume(tmp_path / "cut", tell=quiet)
    assert repr(resumed.curve) == repr(whole.curve), "as text, because NaN is not equal to itself"
    for name in ("weights.npz", "curve.csv", "curve.svg"):
        cut, straight = (tmp_path / folder / name for folder in ("cut", "whole"))
        assert cut.read_bytes() == straight.read_bytes()
    assert len(course.resume(tmp_path / "cut", rounds=5, tell=quiet).curve) == 6


def test_a_folder_with_a_training_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"precious")
    with pytest.raises(InputError, match="--resume"):
        course.begin(TINY, tmp_path, tell=quiet)
    with pytest.raises(InputError, match="the checkpoint cannot be used"):
        course.resume(tmp_path, tell=quiet)
    with pytest.raises(InputError, match="no training to go on with"):
        course.resume(tmp_path / "none", tell=quiet)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x" * 100])
def test_foreign_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="begin a training of its own"):
        restore(content, "x")


@pytest.mark.parametrize(
    "changes", [{"episodes": 0}, {"discount": 1.5}, {"seed": 100}, {"rounds": 100_000}]
)
def test_senseless_plans_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"it is|share|more than"):
        replace(TINY, **changes)  # type: ignore[arg-type]


def test_equal_shares_are_equal() -> None:
    view = _crowded()
    sizes = [
        decision.allocation.devices
        for decision in EqualShares().decide(view)
        if decision.allocation is not None
    ]
    assert not sizes or max(sizes) - min(sizes) <= 2
    assert simulate(TINY.setting.scenario(1), EqualShares()).metrics.jobs == TINY.setting.jobs
