"""The parameter-server setting: what is published stays what it is."""

from __future__ import annotations

from itertools import pairwise

import pytest

from modelyard.learn.setting import LARGEST_DEVICES, TYPES, JobType, Setting
from modelyard.speed.steps import StepsWork

#: Seconds that one server and one worker need for a batch: compute time plus 2 × size / bandwidth,
#: from the figures published with DL²'s simulator.
PAIR_STEP_SECONDS = {
    "resnet-50": 2.674,
    "vgg-16": 5.285,
    "resnext-110": 0.459,
    "inception-bn": 1.392,
    "seq2seq": 0.683,
    "cnn-text": 1.375,
    "dssm": 0.697,
    "wlm": 3.855,
}
#: Their fits say that these two spend most of a step on something that grows with the workers.
HARDLY_SCALE = {"resnext-110", "cnn-text"}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_steps_are_as_long_as_published(kind: JobType) -> None:
    seconds = 1.0 / kind.speed().steps_per_second(1, 1)
    assert seconds == pytest.approx(PAIR_STEP_SECONDS[kind.name], abs=1e-3)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_more_devices_help_ever_less(kind: JobType) -> None:
    speed = kind.speed()
    splits = [speed.best_split(size) for size in (2, 4, 8, 16, LARGEST_DEVICES)]
    rates = [speed.steps_per_second(split.servers, split.workers) for split in splits if split]
    gains = [after / before for before, after in pairwise(rates)]
    assert all(1.0 < gain <= 2.1 for gain in gains)
    assert (rates[-1] / rates[0] < 2.0) == (kind.name in HARDLY_SCALE)


def test_a_seed_is_one_workload() -> None:
    setting = Setting()
    jobs = setting.scenario(3).workload.jobs
    assert jobs == setting.scenario(3).workload.jobs
    assert jobs != setting.scenario(4).workload.jobs
    assert len(jobs) == setting.jobs
    assert list(jobs) == sorted(jobs, key=lambda job: job.submitted)


def test_jobs_are_as_long_as_their_type_within_ten_per_cent() -> None:
    usual = {kind.name: kind.epochs_share * 100.0 * kind.batches_per_epoch for kind in TYPES}
    for job in Setting(jobs=200).scenario(0).workload.jobs:
        assert isinstance(job.work, StepsWork)
        assert 0.9 <= job.work.steps / usual[job.model] <= 1.1


def test_jobs_arrive_at_the_stated_rate() -> None:
    setting = Setting(jobs=2_000, arrivals_per_slot=1.5)
    last = setting.scenario(1).workload.jobs[-1].submitted
    assert setting.jobs / (last / setting.slot_seconds) == pytest.approx(1.5, rel=0.1)


def test_a_small_cluster_has_small_jobs() -> None:
    jobs = Setting(nodes=1, devices_per_node=4).scenario(0).workload.jobs
    assert {job.max_devices for job in jobs} == {4}
    assert max(job.devices for job in jobs) == 4


@pytest.mark.parametrize(
    "changes",
    [{"jobs": 0}, {"nodes": 0}, {"arrivals_per_slot": 0.0}, {"slot_seconds": -1.0},
     {"daily_swing": 2.0}],
)  # fmt: skip
def test_senseless_settings_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"setting|positive|share"):
        Setting(**changes)  # type: ignore[arg-type]
