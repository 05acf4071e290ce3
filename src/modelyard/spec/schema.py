"""JSON Schema of the files people write, from the very models that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from modelyard.errors import UnknownName
from modelyard.spec.cluster_spec import ClusterSpec
from modelyard.spec.job import JobSpec
from modelyard.spec.tenant import TenantsSpec

Kind = Literal["job", "cluster", "tenants"]

#: the dialect that pydantic writes
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MODELS: Mapping[str, type[BaseModel]] = {
    "job": JobSpec,
    "cluster": ClusterSpec,
    "tenants": TenantsSpec,
}


def json_schema(kind: Kind) -> dict[str, Any]:
    """The schema of a job, cluster or tenants file; `UnknownName` for anything else."""
    if kind not in _MODELS:
        raise UnknownName("schema", kind, _MODELS)
    return {"$schema": DIALECT, **_MODELS[kind].model_json_schema(mode="validation")}
