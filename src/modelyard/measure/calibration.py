"""A calibration: what was measured on one machine, and what the planner believes after it.

Kept as one JSON file that `yard calibrate` writes and `yard plan --calibration` reads. Numbers that
the planner needs are checked when it is read; the measurements beside them are for people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelyard.errors import InputError, Problem
from modelyard.files import write_atomically
from modelyard.measure.calibration_fit import (
    Belief,
    Check,
    calibrated,
    measured_platform,
)
from modelyard.measure.survey import Survey
from modelyard.spec.devices import Device, Precision
from modelyard.spec.platform import Platform
from modelyard.spec.text_file import read_text
from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory_coefficients import NAMES, MemoryCoefficients
from modelyard.speed.physical.terms import PARAMETERS

FORMAT = "modelyard calibration"
VERSION = 1
#: a hundred times what a calibration takes
MOST_BYTES = 16 * 1024 * 1024
#: problems of one file that are told; more of the same help nobody
MOST_PROBLEMS = 12
NAME_ANOTHER = "name a file that 'yard calibrate' wrote"
MEASURE_AGAIN = "measure again with 'yard calibrate'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Median relative error on runs that were left out of the fit."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One machine. `platform` has the device at its measured rates and as many as measured."""

    #: when it was made: date and time, UTC
    made: str
    torch: str
    #: the maker's name of the processor or accelerator
    hardware: str
    threads: int
    platform: Platform
    #: of the training runs that were measured
    precision: Precision
    steps: Coefficients
    memory: MemoryCoefficients
    #: None where too little was measured to leave something out
    time_errors: Errors | None = None
    memory_errors: Errors | None = None
    #: measured runs behind it, later ones of the user included
    runs: int = 0
    #: what was measured, as the file keeps it
    record: Mapping[str, object] | None = None

    @property
    def device(self) -> Device:
        return self.platform.device

    def platform_for(self, devices: int) -> Platform:
        """Machines like this one: as many as that takes."""
        return replace(self.platform, devices=devices)


def calibration_of(survey: Survey, *, made: str) -> tuple[Calibration, Check, Check]:
    """What a survey says, with its checks of time and memory on runs left out."""
    platform = measured_platform(survey)
    belief, times, peaks = calibrated(survey, platform)
    found = Calibration(
        made=made,
        torch=survey.about.torch,
        hardware=survey.about.name,
        threads=survey.machine.threads,
        platform=platform,
        precision=survey.machine.precision,
        steps=belief.steps,
        memory=belief.memory,
        time_errors=_errors(times),
        memory_errors=_errors(peaks),
        runs=len(survey.runs),
        record=_record(survey),
    )
    return found, times, peaks


def believing(calibration: Calibration, belief: Belief, *, runs: int) -> Calibration:
    """The same machine after `runs` more."""
    return replace(
        calibration, steps=belief.steps, memory=belief.memory, runs=calibration.runs + runs
    )


def write_calibration(path: str | os.PathLike[str], calibration: Calibration) -> None:
    """Whole, or not at all."""
    write_atomically(path, to_text(calibration))


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """What `write_calibration` wrote; `InputError` for anything else."""
    return from_text(read_text(path, MOST_BYTES), os.fspath(path))


def to_text(calibration: Calibration) -> str:
    """As JSON; reading it back gives the same calibration."""
    device, links = calibration.device, calibration.platform
    document = {
        "format": FORMAT,
        "version": VERSION,
        "made": calibration.made,
        "torch": calibration.torch,
        "hardware": calibration.hardware,
        "threads": calibration.threads,
        "precision": calibration.precision,
        "runs": calibration.runs,
        "device": {
            "name": device.name,
            "maker": device.maker,
            "peak_flops": dict(device.peak_flops),
            "matmul_flops": dict(device.matmul_flops),
            "memory_bytes": device.memory_bytes,
            "memory_bandwidth": device.memory_bandwidth,
            "source": device.source,
        },
        "links": {
            "devices": links.devices,
            "devices_per_node": links.devices_per_node,
            "inside_bandwidth": links.inside_bandwidth,
            "across_bandwidth": links.across_bandwidth,
            "inside_latency": links.inside_latency,
            "across_latency": links.across_latency,
        },
        "time_errors": asdict(calibration.time_errors) if calibration.time_errors else None,
        "memory_errors": asdict(calibration.memory_errors) if calibration.memory_errors else None,
        "steps": {
            "names": PARAMETERS,
            "mean": calibration.steps.mean.tolist(),
            "covariance": _triangle(calibration.steps.covariance),
            "spread": calibration.steps.residual_sigma,
            "rows": calibration.steps.rows,
        },
        "memory": {
            "names": NAMES,
            "mean": list(calibration.memory.logarithms),
            "covariance": _triangle(calibration.memory.matrix),
            "spread": calibration.memory.spread,
        },
        "record": calibration.record,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_text(text: str, where: str = "") -> Calibration:
    """The inverse of `to_text`."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not JSON: {str(error)[:80]}",
            fix="name a file that 'yard calibrate' wrote",
            where=where,
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError("not a calibration", fix=NAME_ANOTHER, where=where)
    if content.get("version") != VERSION:
        what = f"a calibration of version {str(content.get('version'))[:20]}, not {VERSION}"
        raise InputError(what, fix=MEASURE_AGAIN, where=where)
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise _refusal(error, where) from None
    return _calibration(file, where)


def _calibration(file: _File, where: str) -> Calibration:
    device = Device(
        name=file.device.name,
        maker=file.device.maker,
        peak_flops=tuple(file.device.peak_flops.items()),
        matmul_flops=tuple(file.device.matmul_flops.items()),
        memory_bytes=file.device.memory_bytes,
        memory_bandwidth=file.device.memory_bandwidth,
        source=file.device.source,
    )
    mean, covariance = _gaussian(file.steps, PARAMETERS, where)
    memory_mean, memory_covariance = _gaussian(file.memory, NAMES, where)
    return Calibration(
        made=file.made,
        torch=file.torch,
        hardware=file.hardware,
        threads=file.threads,
        precision=file.precision,
        runs=file.runs,
        platform=Platform(
            device=device,
            devices=file.links.devices,
            devices_per_node=file.links.devices_per_node,
            inside_bandwidth=file.links.inside_bandwidth,
            across_bandwidth=file.links.across_bandwidth,
            inside_latency=file.links.inside_latency,
            across_latency=file.links.across_latency,
        ),
        steps=Coefficients(
            mean=mean,
            covariance=covariance,
            residual_sigma=file.steps.spread,
            rows=file.steps.rows,
        ),
        memory=MemoryCoefficients.of(memory_mean, memory_covariance, file.memory.spread),
        time_errors=Errors(**file.time_errors.model_dump()) if file.time_errors else None,
        memory_errors=Errors(**file.memory_errors.model_dump()) if file.memory_errors else None,
        record=file.record,
    )


# -- the file ----------------------------------------------------------------------------------

_Positive = Annotated[float, Field(gt=0.0, lt=1e30)]
_Count = Annotated[int, Field(ge=1, le=2**62)]
_Number = Annotated[float, Field(gt=-1e6, lt=1e6)]
_Word = Annotated[str, Field(max_length=500)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _DevicePart(_Part):
    name: _Word
    maker: _Word
    peak_flops: dict[Precision, _Positive] = Field(min_length=1)
    matmul_flops: dict[Precision, _Positive]
    memory_bytes: _Count
    memory_bandwidth: _Positive
    source: _Word


class _LinksPart(_Part):
    devices: _Count
    devices_per_node: _Count
    inside_bandwidth: _Positive
    across_bandwidth: _Positive
    inside_latency: _Positive
    across_latency: _Positive


class _ErrorsPart(_Part):
    before: float = Field(ge=0.0)
    after: float = Field(ge=0.0)


class _GaussianPart(_Part):
    names: list[_Word]
    mean: list[_Number]
    #: lower triangle, row by row
    covariance: list[list[_Number]]
    spread: float = Field(gt=0.0, lt=10.0)


class _StepsPart(_GaussianPart):
    rows: int = Field(ge=0)


class _File(_Part):
    format: str
    version: int
    made: _Word
    torch: _Word
    hardware: _Word
    threads: _Count
    precision: Precision
    runs: int = Field(ge=0)
    device: _DevicePart
    links: _LinksPart
    time_errors: _ErrorsPart | None
    memory_errors: _ErrorsPart | None
    steps: _StepsPart
    memory: _GaussianPart
    record: dict[str, Any] | None


def _gaussian(part: _GaussianPart, names: tuple[str, ...], where: str) -> tuple[Column, Column]:
    """Mean and covariance in the order of this version's terms."""
    if set(part.names) != set(names) or len(part.names) != len(names):
        what = "the calibration was made for other terms than this version of Modelyard has"
        raise InputError(what, fix=MEASURE_AGAIN, where=where)
    size = len(names)
    rows = [len(row) for row in part.covariance]
    if len(part.mean) != size or rows != list(range(1, size + 1)):
        raise InputError("numbers of the fit are missing", fix=MEASURE_AGAIN, where=where)
    covariance = np.zeros((size, size))
    for at, row in enumerate(part.covariance):
        covariance[at, : at + 1] = row
        covariance[: at + 1, at] = row
    if np.linalg.eigvalsh(covariance).min() < -1e-6:
        what = "the numbers of the fit contradict each other"
        raise InputError(what, fix=MEASURE_AGAIN, where=where)
    order = [part.names.index(name) for name in names]
    return np.array(part.mean)[order], covariance[np.ix_(order, order)]


def _triangle(matrix: Column) -> list[list[float]]:
    return [
        [float(f"{value:.12g}") for value in row[: at + 1]]
        for at, row in enumerate(matrix.tolist())
    ]


def _refusal(error: ValidationError, where: str) -> InputError:
    problems = [
        Problem(
            f"'{'.'.join(str(step) for step in detail['loc'])}': {detail['msg'].lower()}"[:200],
            MEASURE_AGAIN,
            where,
        )
        for detail in error.errors(include_url=False, include_input=False)[:MOST_PROBLEMS]
    ]
    return InputError("the calibration is damaged", where=where, problems=problems)


def _errors(check: Check) -> Errors | None:
    if not check.measured.size:
        return None
    return Errors(before=check.error_before, after=check.error_after)


def _record(survey: Survey) -> dict[str, object]:
    """What was measured, for people and for later questions."""
    return {
        "waited_share": survey.waited_share,
        "products": [asdict(one) for one in survey.products],
        "copies": [asdict(one) for one in survey.copies],
        "exchanges": [asdict(one) for one in survey.exchanges],
        "blocks": [asdict(one) for one in survey.blocks],
        "runs": [asdict(one) for one in survey.runs],
    }
