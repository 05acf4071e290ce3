"""What members agree on beside parameters: the same for all, exact after a stop, right in size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import torch
from tests.train.aggregate.members import all_at_once, groups

from modelyard.train.aggregate.choose import aggregation
from modelyard.train.aggregate.interface import Share, Trained
from modelyard.train.course import Agreed, Course, Steering, Totals, after, rate_at, summed
from modelyard.train.group import Group
from modelyard.train.optimise.adaptive import Plateau
from modelyard.train.optimise.noise import Noise
from modelyard.train.optimise.precision import LossScale
from modelyard.train.optimise.schedules import Schedule
from modelyard.train.state import pack, skeleton
from modelyard.train.steering import updates


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


EVERYTHING = Steering(
    learning_rate=0.1,
    schedule=Schedule(shape="constant", warmup_steps=2),
    plateau=Plateau(patience=2, memory=0.5, rest=1),
    batch=8,
    rule="adascale",
    scale=LossScale(scale=1024.0, patience=3),
)

numbers = st.floats(0.0, 1e6)
TOTALS = st.builds(
    Totals,
    loss=st.one_of(st.floats(-1e3, 1e3), st.just(math.nan), st.just(math.inf)),
    samples=st.integers(1, 64).map(float),
    squares=numbers,
    inverses=st.floats(0.01, 4.0),
    parts=st.integers(0, 4).map(float),
)
NORMS = st.one_of(st.none(), numbers, st.just(math.inf), st.just(math.nan))


def move(course: Course, step: int, totals: Totals, norm: float | None) -> None:
    course._next = after(course.steering, course.agreed, step, totals, norm)
    course.apply()


@given(st.lists(st.tuples(TOTALS, NORMS), max_size=12), st.integers(0, 12))
def test_a_course_that_was_stored_goes_on_as_if_it_had_not_been(
    steps: list[tuple[Totals, float | None]], stop: int
) -> None:
    """As JSON and back, which joiners and checkpoints get, at any step."""
    through, stored = Course(EVERYTHING), Course(EVERYTHING)
    for step, (totals, norm) in enumerate(steps):
        if step == stop:
            state, _ = skeleton(pack(stored.state())[0])
            stored = Course(EVERYTHING)
            stored.load(state)
        for course in (through, stored):
            move(course, step, totals, norm)
        assert stored.agreed == through.agreed
        for batch in (4, 8, 32):
            rates = [rate_at(EVERYTHING, one.agreed, step, batch) for one in (through, stored)]
            assert rates[0] == rates[1]
            assert math.isfinite(rates[0])
            assert 0.0 < rates[0] <= 0.1 * max(1.0, batch / 8)


@given(st.lists(st.booleans(), max_size=40))
def test_the_scale_is_a_power_of_two_and_falls_with_every_overflow(finite: list[bool]) -> None:
    steering = Steering(scale=LossScale(scale=1024.0, patience=3))
    agreed = Agreed(scale=steering.scale)
    for step, fine in enumerate(finite):
        before = agreed.scale.scale
        agreed = after(steering, agreed, step, Totals(samples=1.0), 1.0 if fine else math.inf)
        assert math.log2(agreed.scale.scale).is_integer()
        assert agreed.scale.scale >= 1.0
        assert agreed.scale.scale >= before if fine else agreed.scale.scale == max(before / 2, 1.0)
    assert agreed.left_out == finite.count(False)


def test_scaled_gradients_show_the_noise_of_the_unscaled() -> None:
    plain = Agreed()
    scaled = Agreed(scale=LossScale(scale=256.0))
    totals = Totals(loss=1.0, samples=16.0, squares=10.0, inverses=0.5, parts=2.0)
    large = totals._replace(squares=10.0 * 256.0**2)
    one = after(Steering(), plain, 0, totals, 1.5)
    other = after(Steering(scale=scaled.scale), scaled, 0, large, 1.5 * 256.0)
    assert other.noise.scale == pytest.approx(one.noise.scale)
    # |G|² + S/4 = 5 and |G|² + S/16 = 2.25, by hand: S = 44/3 and |G|² = 4/3.
    assert one.noise.scale == pytest.approx(11.0)


def test_the_rate_follows_batch_loss_and_warm_up() -> None:
    steering = Steering(
        learning_rate=0.1,
        schedule=Schedule(shape="constant", warmup_steps=3),
        plateau=Plateau(patience=2, memory=0.0, rest=0),
        batch=8,
        rule="square-root",
    )
    course = Course(steering)
    course.begin(32)
    assert course.rate(0) == pytest.approx(0.1 / 4 * 2)
    assert course.rate(3) == pytest.approx(0.2)
    for step in range(6):
        # In the warm-up the loss is not looked at.
        move(course, step, Totals(5.0, 1.0), None)
    assert course.agreed.observed.factor == 0.5
    assert course.rate(6) == pytest.approx(0.1)


def test_a_step_that_comes_again_finds_what_it_found() -> None:
    course = Course(EVERYTHING)
    before = course.agreed
    alone = groups(1)[0]()
    course.begin(8)
    course.finish(alone, 0, Totals(3.0, 8.0), math.inf)
    course.discard()
    course.apply()
    assert course.agreed == before
    course.finish(alone, 0, Totals(3.0, 8.0), math.inf)
    course.apply()
    assert course.scale.scale == 512.0


def test_all_members_get_the_same_totals() -> None:
    owns = [Totals(0.1 * rank, 3.0, 1e-3 / (rank + 1), 1 / 3, 1.0) for rank in range(3)]

    def sum_up(own: Totals, connect: Callable[[], Group]) -> Totals:
        return summed(connect(), own)

    pairs = zip(owns, groups(3), strict=True)
    found = all_at_once([partial(sum_up, own, connect) for own, connect in pairs])
    assert found[0] == found[1] == found[2]
    assert found[0].samples == 9.0
    assert found[0].loss == pytest.approx(0.3)


def test_states_of_other_jobs_begin_anew() -> None:
    course = Course(Steering(scale=LossScale(scale=64.0)))
    course.load({})
    assert course.agreed == Agreed(scale=LossScale(scale=64.0))
    other = Course(EVERYTHING)
    move(other, 5, Totals(3.0, 8.0, 1.0, 0.5, 2.0), 0.5)
    plain = Course(Steering())
    plain.load(other.state())
    assert plain.scale.scale == 1.0
    assert plain.agreed.noise == other.agreed.noise != Noise()


@pytest.mark.parametrize("name", ["all-reduce", "servers"])
def test_all_leave_out_the_steps_that_overflow_for_one(name: str) -> None:
    """Only one member's gradients overflow at first; nobody's parameters move before none does."""
    steps, ends = 18, []

    def play(rank: int, connect: Callable[[], Group]) -> None:
        group = connect()
        model = torch.nn.Linear(4, 1)
        for one in model.parameters():
            torch.nn.init.constant_(one, 0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        way = aggregation(name)
        course = Course(Steering(learning_rate=0.01, scale=LossScale()))
        made = updates(optimizer, course, way, clip=1.0)
        way.attach(Trained(model=model, optimizer=optimizer, update=made))
        way.meet(group, [])
        first = model.weight.detach().clone()
        moved = []
        for step in range(steps):
            way.begin(group, Share(step=step, samples=1, batch=2))
            course.begin(2)
            way.last_pass()
            with torch.autocast("cpu", torch.float16):
                found = model(torch.full((1, 4), 32.0 if rank else 1e-3))
            loss = found.float().square().sum() / 2
            (loss * course.scale.scale).backward()
            way.finish()
            course.finish(group, step, Totals(loss.item(), 1.0), way.gradient_norm)
            way.apply()
            course.apply()
            moved.append(not torch.equal(model.weight, first))
        ends.append((moved, model.weight.detach().clone(), course.agreed))

    pairs = enumerate(groups(2))
    all_at_once([partial(play, rank, connect) for rank, connect in pairs])
    (moved, weight, agreed), other = ends
    assert moved == other[0]
    assert torch.equal(weight, other[1])
    assert agreed == other[2]
    assert agreed.left_out == moved.index(True) > 0
    # fp16 ends at 65,504, and the largest gradient is 32 · 64.5 times the scale.
    assert agreed.scale.scale == 2.0**4
    assert agreed.left_out == 12
