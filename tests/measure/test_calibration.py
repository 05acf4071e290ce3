"""Calibrations: what they believe, how they are kept, and how runs of one's own refine them."""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.measure.calibration import (
    Calibration,
    calibration_of,
    from_text,
    read_calibration,
    to_text,
    write_calibration,
)
from modelyard.measure.calibration_fit import Check, columns_of
from modelyard.measure.refine import refine, refined
from modelyard.spec.devices import Precision
from modelyard.speed.physical.families import Family, family_of
from modelyard.speed.physical.memory import peak_memory
from modelyard.speed.physical.steps import step_times


@cache
def two_cores() -> ModuleType:
    """The machine beside this file; tests are no package, so it is found by its path."""
    path = Path(__file__).with_name("two_cores.py")
    found = importlib.util.spec_from_file_location("two_cores", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@cache
def calibrated() -> tuple[Calibration, Check, Check]:
    runs, _ = two_cores().split_runs()
    return calibration_of(two_cores().survey_of(runs), made="2026-11-18T02:00:00+00:00")


def test_runs_that_were_not_calibrated_with_are_predicted_within_ten_per_cent() -> None:
    calibration, times, peaks = calibrated()
    _, others = two_cores().split_runs()
    assert len(others) >= 12
    columns = columns_of(calibration.platform, Precision.FP32, [one.run for one in others])
    seconds = np.array([one.timing.seconds for one in others])
    held = np.array([one.peak_bytes for one in others])
    off = np.abs(step_times(columns, calibration.steps).seconds / seconds - 1.0)
    assert np.median(off) <= 0.10
    off = np.abs(peak_memory(columns, calibration.memory).bytes / held - 1.0)
    assert np.median(off) <= 0.10
    # Runs left out of the fit in turn agree with that, and say what calibrating was worth.
    assert times.error_after <= 0.10
    assert times.error_after < times.error_before
    assert peaks.error_after <= 0.10


def test_the_machine_has_its_measured_rates() -> None:
    calibration, _, _ = calibrated()
    device = calibration.device
    assert device.name == "local"
    assert family_of(device) is Family.CPU
    assert device.peak(Precision.FP32) == pytest.approx(98.9e9)
    # Plans are made in the precision that was trained in; the other rate is kept beside it.
    assert device.peak(Precision.BF16) is None
    assert device.best_matmul(Precision.BF16) == pytest.approx(216e9)
    assert device.memory_bandwidth == pytest.approx(21.2e9)
    assert device.memory_bytes == 25_276_518_400 // 2
    assert calibration.platform.inside_bandwidth == pytest.approx(0.76e9, rel=0.3)
    assert calibration.platform_for(8).nodes == 4


def test_a_calibration_comes_back_as_it_was_written(tmp_path: Path) -> None:
    calibration, _, _ = calibrated()
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration)
    again = read_calibration(path)
    assert to_text(again) == to_text(calibration)
    assert again.platform == calibration.platform
    np.testing.assert_allclose(
        again.steps.covariance, calibration.steps.covariance, rtol=1e-9, atol=1e-24
    )
    runs, _ = two_cores().split_runs()
    columns = columns_of(calibration.platform, Precision.FP32, [one.run for one in runs])
    one, other = (step_times(columns, item.steps) for item in (calibration, again))
    np.testing.assert_allclose(one.seconds, other.seconds)
    np.testing.assert_allclose(one.sigma, other.sigma, rtol=1e-6)


def changed(**parts: Any) -> str:
    document = json.loads(to_text(calibrated()[0]))
    for name, value in parts.items():
        place, *rest = name.split("__")
        if rest:
            document[place][rest[0]] = value
        else:
            document[place] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[1, 2]", "not a calibration"),
        ("9" * 5_000, "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"format": "modelyard calibration", "version": 99}', "version 99"),
        ('{"format": "modelyard calibration", "version": 1}', "'device': field required"),
    ],
)
def test_other_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_text(text, "file.json")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"device__memory_bandwidth": -1.0}, "greater than 0"),
        ({"device__memory_bandwidth": float("nan")}, "memory_bandwidth"),
        ({"device__memory_bytes": 10**5_00}, "memory_bytes"),
        ({"device__peak_flops": {}}, "peak_flops"),
        ({"device__peak_flops": {"fp64": 1e9}}, "peak_flops"),
        ({"links__devices": 0}, "links.devices"),
        ({"steps__names": ["matmul"]}, "other terms"),
        ({"steps__mean": [0.0]}, "missing"),
        ({"steps__spread": 0.0}, "steps.spread"),
        ({"memory__covariance": []}, "missing"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_damaged_calibration_is_refused(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_text(changed(**parts), "file.json")


def test_a_fit_that_contradicts_itself_is_refused() -> None:
    document = json.loads(to_text(calibrated()[0]))
    document["memory"]["covariance"][1][0] = 900.0
    with pytest.raises(InputError, match="contradict"):
        from_text(json.dumps(document))


@given(st.binary(max_size=200))
def test_no_content_gives_a_traceback(content: bytes) -> None:
    with pytest.raises(InputError):
        from_text(content.decode("utf-8", "replace"))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "absent.json", pipe):
        with pytest.raises(InputError):
            read_calibration(path)


HEADER = (
    "id,model,arch,layers,hidden,heads,ffn,vocab,seq_len,device,n_devices,dp,micro_batch,"
    "grad_accum,global_batch,precision,framework,sharding,step_time_s,mem_gb,mem_kind"
)


def own_rows(slower: float, device: str = "local", rows: int = 8) -> str:
    """Runs of the machine on which everything took `slower` times as long."""
    lines = [HEADER]
    _, others = two_cores().split_runs()
    for place, one in enumerate(others[:rows]):
        run, model = one.run, one.run.model
        lines.append(
            f"mine-{place},{model.name},{model.kind},{run.layers},{run.hidden},{model.heads},"
            f"{model.ffn},{run.vocab},{run.sequence},{device},{run.processes},{run.processes},"
            f"{run.micro_batch},{run.accumulation},"
            f"{run.micro_batch * run.accumulation * run.processes},,pytorch ddp,none,"
            f"{slower * one.timing.seconds},{one.peak_bytes / 2**30},rss"
        )
    return "\n".join(lines) + "\n"


def test_runs_of_ones_own_refine_a_calibration(tmp_path: Path) -> None:
    calibration, _, _ = calibrated()
    path = tmp_path / "mine.csv"
    path.write_text(own_rows(slower=1.4))
    found = refine(calibration, path)
    assert found.runs == 8
    assert not found.skipped
    assert found.times.before == pytest.approx(0.29, abs=0.05)
    assert found.times.after < 0.10
    assert found.peaks is not None
    assert found.peaks.after < 0.12
    assert found.calibration.runs == calibration.runs + 8
    assert from_text(to_text(found.calibration)).runs == found.calibration.runs


def test_runs_on_other_devices_are_named_and_left_out() -> None:
    calibration, _, _ = calibrated()
    text = own_rows(slower=1.0, rows=3) + own_rows(slower=1.0, device="A100", rows=1).partition(
        "\n"
    )[2].replace("mine-0", "theirs")
    found = refined(calibration, text)
    assert found.runs == 3
    assert [(one.id, one.reason) for one in found.skipped] == [("theirs", "on A100, not on local")]
    with pytest.raises(InputError, match="no run is on the calibration's device 'local'"):
        refined(calibration, own_rows(slower=1.0, device="A100", rows=2))


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEADER, own_rows(1.0, rows=1) + "x" * 50])
def test_tables_that_say_nothing_are_refused(text: str) -> None:
    calibration, _, _ = calibrated()
    if text.startswith("id") and "mine" in text:
        # A row that is cut off is skipped with the reason, not dropped in silence.
        assert len(refined(calibration, text).skipped) == 1
    else:
        with pytest.raises(InputError):
            refined(calibration, text, "mine.csv")
