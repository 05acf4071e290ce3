"""A job as people write it: what to run, on how much, and whose it is."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, model_validator

from modelyard.errors import InputError
from modelyard.spec.band import Band
from modelyard.spec.devices import kind_name
from modelyard.spec.fields import SPEC_CONFIG, Count, Flag, Name, Seconds, Text, WholeNumber
from modelyard.spec.problems import Finding, refuse, validate
from modelyard.spec.source import parse_document, read_document
from modelyard.spec.training import TrainSpec
from modelyard.spec.training_course import beyond_scripts
from modelyard.units import describe

#: for whoever looks at the rest of a file in which these are wrong: see `salvage.py`
STAND_INS = {"name": "unnamed", "devices": 1}
#: far beyond any cluster; a larger number is a typing mistake
MOST_DEVICES = 1_000_000


class DeviceRange(BaseModel):
    """How many devices a job may run on; both ends are included."""

    model_config = SPEC_CONFIG

    min: WholeNumber = Field(
        ge=1, le=MOST_DEVICES, description="the fewest devices on which the job can run"
    )
    max: WholeNumber = Field(
        ge=1, le=MOST_DEVICES, description="the most devices that the job can use"
    )

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if self.min > self.max:
            what = f"'min' ({self.min}) is more than 'max' ({self.max})"
            refuse([Finding(("min",), what, "exchange the two")], info)
        return self


def _range(value: object) -> object:
    """A plain number is a rigid job; a mapping is an elastic one."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise InputError(f"{value} devices are too few", fix="ask for 1 or more")
        return {"min": value, "max": value}
    if isinstance(value, (dict, DeviceRange)):
        return value
    found = f"'{value}'" if isinstance(value, (str, float)) else describe(value)
    raise InputError(
        f"{found} is not a number of devices",
        fix="write a whole number such as 8, or {min: 1, max: 16}",
    )


def _always(value: object) -> object:
    if value is False:
        raise InputError(
            "a job always gets all of its devices at once",
            fix="leave 'gang' out; a job that can do with less says 'devices: {min: …, max: …}'",
        )
    return value


def _spelled(value: object) -> object:
    # Names that the catalogue lacks stay: a cluster may define kinds of its own.
    return kind_name(value) if isinstance(value, str) else value


class JobSpec(BaseModel):
    """One training job. Nobody chooses nodes: the scheduler does."""

    model_config = SPEC_CONFIG

    name: Name = Field(description="what people call the job; small letters, digits and '-'")
    tenant: Name = Field(default="default", description="the team on whose quota the job runs")
    priority: WholeNumber = Field(
        default=0, ge=-1000, le=1000, description="order inside the band, higher first"
    )
    band: Band = Field(
        default=Band.BATCH,
        description="production jobs may take devices from batch jobs, and keep their own",
    )
    devices: Annotated[
        DeviceRange,
        BeforeValidator(_range, json_schema_input_type=Annotated[int, Field(ge=1)] | DeviceRange),
    ] = Field(description="how many devices: a number, or {min, max} for an elastic job")
    kinds: tuple[Annotated[Text, BeforeValidator(_spelled)], ...] = Field(
        default=(), description="device kinds on which the job may run; empty means any"
    )
    exclusive: Flag = Field(
        default=False, description="whether the job's nodes take no other job beside it"
    )
    gang: Annotated[Flag, BeforeValidator(_always)] = Field(
        default=True, description="all devices at once or none; always true"
    )
    command: tuple[Text, ...] | None = Field(
        default=None, min_length=1, description="the program to start on every worker, as a list"
    )
    script: Text | None = Field(
        default=None,
        description="a Python script with a modelyard.train.session, beside the job's file",
    )
    args: tuple[Text, ...] = Field(default=(), description="what the script is called with")
    model: Text | None = Field(default=None, description="the model to train, by name")
    batch: Count | None = Field(
        default=None, description="global batch size in samples, for example 256 or 1k"
    )
    steps: Count | None = Field(
        default=None, description="optimiser steps to run, for example 100k"
    )
    duration: Seconds | None = Field(
        default=None, description="an estimate of the time it runs, for example 2h30m"
    )
    retries: WholeNumber = Field(
        default=0,
        ge=0,
        le=100,
        description="how often it is started again after an error of its own; deaths by others' "
        "hands do not count",
    )
    train: TrainSpec | None = Field(
        default=None, description="how it is trained, for jobs without a command"
    )

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        found = []
        if self.command is None and self.model is None and self.script is None:
            fix = "add 'command: [python, train.py]', 'script: train.py' or 'model: …'"
            others = (("command",), ("script",))
            found.append(Finding(("model",), "the job does not say what to run", fix, others))
        if self.command is not None and self.script is not None:
            what = "both 'command' and 'script' say what to run"
            found.append(Finding(("script",), what, "leave one of them out"))
        if self.args and self.script is None:
            fix = "add 'script: train.py', or leave them out"
            found.append(Finding(("args",), "'args' are for a script, and there is none", fix))
        if self.train is not None and not self.train.data and self.script is None:
            fix = "add 'data: …' (a folder that 'yard data prepare' has made)"
            found.append(Finding(("train", "data"), "'train.data' is missing", fix))
        if self.train is not None and self.script is not None:
            found += [replace(one, path=("train", *one.path)) for one in beyond_scripts(self.train)]
        refuse(found, info)
        return self

    @property
    def places(self) -> int:
        """Processes of one worker."""
        return self.train.parallel.places if self.train is not None else 1


def read_job(path: str | os.PathLike[str]) -> JobSpec:
    """The job of a YAML file, or one `InputError` with all of its problems."""
    return validate(read_document(path), JobSpec)


def parse_job(text: str, source: str = "<string>") -> JobSpec:
    """The job of YAML text, or one `InputError` with all of its problems."""
    return validate(parse_document(text, source), JobSpec)
