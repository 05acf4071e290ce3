"""Field types that the specs share: amounts with units, names, and how strict a model is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from modelyard.errors import InputError
from modelyard.units import (
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_flops,
)

#: Unknown keys are mistakes, values never change, and defaults are held to the same rules.
SPEC_CONFIG = ConfigDict(extra="forbid", frozen=True, validate_default=True)

#: Kubernetes and DNS take no longer label, and jobs become both
LONGEST_NAME = 63

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def _name(value: object) -> object:
    if isinstance(value, str) and value and not _NAME.fullmatch(value):
        fix = "use small letters, digits and '-', with a letter or digit at both ends"
        raise InputError(f"'{value}' is not a name", fix=fix)
    return value


Name = Annotated[StrictStr, BeforeValidator(_name), Field(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[StrictStr, Field(min_length=1)]
WholeNumber = StrictInt
Flag = StrictBool
Number = StrictFloat

# Amounts as `units` reads them, all above zero. The limit stands before the parser because a
# schema describes what is written, where it would mean nothing beside text.
ByteCount = Annotated[
    int, Field(gt=0), BeforeValidator(parse_bytes, json_schema_input_type=str | int)
]
BytesPerSecond = Annotated[
    float, Field(gt=0), BeforeValidator(parse_bandwidth, json_schema_input_type=str | float)
]
Flops = Annotated[
    float, Field(gt=0), BeforeValidator(parse_flops, json_schema_input_type=str | float)
]
Seconds = Annotated[
    float, Field(gt=0), BeforeValidator(parse_duration, json_schema_input_type=str | float)
]
Count = Annotated[int, Field(ge=1), BeforeValidator(parse_count, json_schema_input_type=str | int)]
