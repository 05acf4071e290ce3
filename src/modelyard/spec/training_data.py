"""What a job learns from, as people write it: a folder, or several with weights."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from modelyard.spec.fields import SPEC_CONFIG, Number, Text


class DataSource(BaseModel):
    """One of the data sets of a job."""

    model_config = SPEC_CONFIG

    folder: Text = Field(description="a folder that 'yard data prepare' has made")
    weight: Number = Field(
        default=1.0, gt=0, description="how many of the samples are its, against the others"
    )
    task: Text | None = Field(
        default=None, description="of a multitask model: the task that learns from it"
    )


def _listed(value: object) -> object:
    """A plain folder is the only source."""
    return [{"folder": value}] if isinstance(value, str) else value


#: a folder, or a list of sources
DataSources = Annotated[
    tuple[DataSource, ...],
    BeforeValidator(_listed, json_schema_input_type=Text | list[DataSource]),
    Field(min_length=1),
]
