"""The schemas describe every field, and agree with the readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from modelyard.errors import UnknownName
from modelyard.spec.cluster_spec import ClusterSpec
from modelyard.spec.job import JobSpec
from modelyard.spec.schema import json_schema

KINDS = ("job", "cluster", "tenants")


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object with properties anywhere in a schema."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_what_it_is_for(kind: Any) -> None:
    found = list(objects(json_schema(kind)))
    assert found
    for item in found:
        assert item["additionalProperties"] is False
        for name, field in item["properties"].items():
            assert field.get("description"), f"{item['title']}.{name} has no description"


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_json_and_whole(kind: Any) -> None:
    schema = json_schema(kind)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["type"] == "object"
    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


#: the words of JSON Schema that these schemas may use; any other would be ignored in silence
VOCABULARY = {"$schema", "$defs", "$ref", "anyOf", "title", "description", "default"}
VOCABULARY |= {"type", "enum", "properties", "required", "additionalProperties", "propertyNames"}
VOCABULARY |= {"items", "minItems", "minLength", "maxLength"}
VOCABULARY |= {"minimum", "maximum", "exclusiveMaximum", "exclusiveMinimum"}


@pytest.mark.parametrize("kind", KINDS)
def test_schema_uses_words_of_json_schema_only(kind: Any) -> None:
    def visit(schema: Any) -> None:
        assert set(schema) <= VOCABULARY
        for key in ("$defs", "properties"):
            for inner in schema.get(key, {}).values():
                visit(inner)
        for inner in schema.get("anyOf", ()):
            visit(inner)
        for key in ("items", "additionalProperties", "propertyNames"):
            if isinstance(schema.get(key), dict):
                visit(schema[key])

    visit(json_schema(kind))


def test_schema_has_the_fields_of_the_models() -> None:
    assert set(json_schema("job")["properties"]) == set(JobSpec.model_fields)
    assert set(json_schema("cluster")["properties"]) == set(ClusterSpec.model_fields)
    assert json_schema("job")["required"] == ["name", "devices"]


def types(field: dict[str, Any]) -> set[str]:
    if "anyOf" in field:
        return set().union(*(types(option) for option in field["anyOf"]))
    return {field.get("type", "object")}


def test_schema_accepts_what_people_write_not_what_it_becomes() -> None:
    job = json_schema("job")["properties"]
    assert types(job["devices"]) == {"integer", "object"}
    assert types(job["duration"]) == {"string", "number", "null"}
    tenant = json_schema("tenants")["$defs"]["TenantSpec"]["properties"]
    assert types(tenant["guaranteed"]) == {"integer", "number", "string"}
    assert tenant["guaranteed"]["default"] == 0


def test_unknown_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'tenants'"):
        json_schema("tenant")  # type: ignore[arg-type]
