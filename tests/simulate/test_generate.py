"""Synthetic workloads: the laws they promise, and that a saved one is the same workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.simulate.bundled import (
    BUNDLED_DEVICES,
    BUNDLED_JOBS,
    bundled_workload,
    made_bundled_workload,
)
from modelyard.simulate.generate import DAY_SECONDS, Mix, generate, write_csv
from modelyard.simulate.readers import read_workload
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Footprint
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork

mixes = st.builds(
    Mix,
    elastic_share=st.floats(0.0, 1.0),
    daily_swing=st.floats(0.0, 1.0),
    tail_share=st.floats(0.0, 1.0),
    longest_seconds=st.floats(10.0, 1e7),
)

#: any name that one line can hold, commas and quotes included
names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


def seconds_of(job: TraceJob) -> float:
    match job.work:
        case FixedWork(seconds=seconds) | StepsWork(steps=seconds):
            return seconds
    raise AssertionError(f"unexpected work {job.work}")


def device_seconds(workload: Workload) -> float:
    return sum(seconds_of(job) * job.devices for job in workload.jobs)


@given(
    jobs=st.integers(1, 60),
    seed=st.integers(0, 2**32),
    load=st.floats(0.05, 5.0),
    devices=st.integers(1, 100),
    mix=mixes,
)
def test_a_generated_workload_is_valid_and_reads_back_identically(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: int,
    seed: int,
    load: float,
    devices: int,
    mix: Mix,
) -> None:
    workload = generate(jobs, seed=seed, load=load, cluster_devices=devices, mix=mix)
    assert workload == generate(jobs, seed=seed, load=load, cluster_devices=devices, mix=mix)
    assert len({job.id for job in workload.jobs}) == jobs
    submitted = [job.submitted for job in workload.jobs]
    assert submitted == sorted(submitted)
    for job in workload.jobs:
        assert 1 <= job.min_devices <= job.devices <= job.max_devices <= devices
        assert mix.shortest_seconds <= seconds_of(job) <= mix.longest_seconds
    path = tmp_path_factory.mktemp("generated") / f"{workload.name}.csv"
    write_csv(workload, path)
    assert read_workload(path) == workload


@settings(max_examples=50)
@given(
    job_id=names,
    tenant=names,
    model=st.one_of(st.just(""), names),
    submitted=st.floats(0.0, 1e12),
    seconds=st.floats(0.0, 1e12, exclude_min=True),
    serial=st.floats(0.0, 1.0),
    priority=st.integers(-(10**6), 10**6),
    exclusive=st.booleans(),
)
def test_names_and_numbers_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory,
    job_id: str,
    tenant: str,
    model: str,
    submitted: float,
    seconds: float,
    serial: float,
    priority: int,
    exclusive: bool,
) -> None:
    law = AmdahlSpeed(serial, (1.0 - serial) / 2, reference=4)
    job = TraceJob(
        id=job_id,
        submitted=submitted,
        devices=4,
        work=StepsWork(seconds, law),
        max_devices=9,
        model=model,
        tenant=tenant,
        priority=priority,
        exclusive=exclusive,
    )
    path = tmp_path_factory.mktemp("survive") / "one.csv"
    write_csv(Workload("one", (job,)), path)
    assert read_workload(path).jobs == (job,)


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (TraceJob("a\nb", 0.0, 1, FixedWork(1.0, 1)), "line break"),
        (TraceJob(" a", 0.0, 1, FixedWork(1.0, 1)), "blanks around it"),
        (TraceJob("a\ud800", 0.0, 1, FixedWork(1.0, 1)), "control sign"),
        (TraceJob("", 0.0, 1, FixedWork(1.0, 1)), "empty"),
        (TraceJob("a", 0.0, 1, FixedWork(1.0, 1), tenant=""), "empty"),
        (TraceJob("a", 0.0, 2, FixedWork(1.0, 2), min_devices=1), "does not fit a CSV row"),
        (TraceJob("a", 0.0, 2, FixedWork(1.0, 1)), "does not fit a CSV row"),
        (TraceJob("a", 0.0, 2, StepsWork(1.0, AmdahlSpeed(0.1))), "does not fit a CSV row"),
        (TraceJob("a", 0.0, 1, FixedWork(1.0, 1), kinds=("v100",)), "device kinds"),
    ],
)
def test_what_a_file_cannot_hold_is_not_written(tmp_path: Path, job: TraceJob, what: str) -> None:
    path = tmp_path / "bad.csv"
    with pytest.raises(InputError, match=what):
        write_csv(Workload("bad", (job,)), path)
    assert not path.exists()


def test_load_is_the_work_over_what_the_cluster_has_while_jobs_arrive() -> None:
    workload = generate(5_000, seed=3, load=0.7, cluster_devices=128)
    span_seconds = workload.jobs[-1].submitted
    assert device_seconds(workload) / (128 * span_seconds) == pytest.approx(0.7, rel=0.01)


def test_arrivals_follow_the_day() -> None:
    workload = generate(20_000, seed=4, load=0.5, cluster_devices=64, mix=Mix(daily_swing=0.6))
    hours = np.array([job.submitted % DAY_SECONDS / 3600.0 for job in workload.jobs])
    night, noon = (int(((hours - at) % 24 < 2).sum()) for at in (23, 11))
    # the rate swings between 0.4 and 1.6 of its mean; two hours around each end are near that
    assert noon / night == pytest.approx(4.0, rel=0.2)


def test_sizes_and_shares_follow_their_weights() -> None:
    mix = Mix(size_weights=(0.5, 0.0, 0.5), tenant_weights=(1.0, 3.0), elastic_share=0.25)
    jobs = generate(20_000, seed=5, load=1.0, cluster_devices=64, mix=mix).jobs
    assert {job.devices for job in jobs} == {1, 4}
    assert sum(job.devices == 4 for job in jobs) / len(jobs) == pytest.approx(0.5, abs=0.02)
    assert sum(job.tenant == "team-b" for job in jobs) / len(jobs) == pytest.approx(0.75, abs=0.02)
    elastic = [job for job in jobs if job.min_devices < job.max_devices]
    assert len(elastic) / len(jobs) == pytest.approx(0.25, abs=0.02)


def test_rounded_shares_never_exceed_the_whole() -> None:
    mix = Mix(elastic_share=1.0, serial_range=(0.33335,) * 2, crossing_range=(0.66665,) * 2)
    assert generate(3, seed=1, load=1.0, cluster_devices=8, mix=mix).jobs


def test_an_elastic_job_takes_its_duration_on_what_it_asked_for() -> None:
    jobs = generate(200, seed=6, load=1.0, cluster_devices=64, mix=Mix(elastic_share=1.0)).jobs
    for job in jobs:
        run = job.work.begin(adapt_batch=False)
        packed = Footprint("any", (job.devices,))
        assert run.remaining(packed) == pytest.approx(seconds_of(job))


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"load": 0.0},
        {"load": float("nan")},
        {"cluster_devices": 0},
    ],
)
def test_impossible_requests_are_refused(wrong: dict[str, float]) -> None:
    asked = {"jobs": 10, "seed": 1, "load": 0.5, "cluster_devices": 8, **wrong}
    with pytest.raises(ValueError, match="at least 1"):
        generate(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"tail_share": 1.5}, "share from 0 to 1"),
        ({"size_weights": ()}, "positive sum"),
        ({"size_weights": (1.0, -1.0, 3.0)}, "positive sum"),
        ({"longest_seconds": 1.0}, "shortest_seconds"),
        ({"tail_exponent": 0.0}, "positive"),
        ({"median_seconds": float("nan")}, "positive"),
        ({"serial_range": (0.5, 0.1)}, "range"),
        ({"serial_range": (0.0, 0.8), "crossing_range": (0.0, 0.5)}, "range"),
    ],
)
def test_impossible_mixes_are_refused(wrong: dict[str, float], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Mix(**wrong)  # type: ignore[arg-type]


def test_the_bundled_workload_is_what_its_recipe_makes() -> None:
    bundled = bundled_workload()
    assert bundled.jobs == made_bundled_workload().jobs
    assert bundled.notes == ()
    assert len(bundled.jobs) == BUNDLED_JOBS
    assert sum(job.min_devices < job.max_devices for job in bundled.jobs) == 31
    assert max(job.devices for job in bundled.jobs) <= BUNDLED_DEVICES


def test_durations_look_like_philly(data_folder: Path) -> None:
    philly = read_workload(data_folder / "traces" / "philly.csv.gz")
    made = generate(50_000, seed=1, load=1.0, cluster_devices=64)
    real, drawn = (
        np.array([seconds_of(job) for job in workload.jobs]) for workload in (philly, made)
    )
    for quantile in (0.5, 0.9, 0.95, 0.99, 0.999):
        ratio = np.quantile(drawn, quantile) / np.quantile(real, quantile)
        # a law with seven numbers; one and a half times either way is what it can do
        assert 1 / 1.5 < ratio < 1.5, quantile
    assert drawn.mean() == pytest.approx(real.mean(), rel=0.15)
