"""The table of calls as an OpenAPI document: everything in it comes from the code that answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from modelyard import __version__
from modelyard.control.api.answers import ProblemShape
from modelyard.control.api.operation import PATH_WORDS, Media, Operation

REF = "#/components/schemas/{model}"
ABOUT = (
    "Everything that `yard` and `modelyard.Client` can do. Calls carry `Authorization: Bearer "
    "TOKEN` (`yard tokens issue`), and see jobs of the token's tenant only; what a token may not "
    "see is answered like what does not exist. Times are seconds since 1970. A server that does "
    "not lead answers 307 with the address of the one that does; 503 is worth another try."
)
#: every way in which any call can fail, in one shape
FAILURES = {
    "400": "Something in the call cannot be used.",
    "401": "No valid token.",
    "403": "The token's role does not allow it.",
    "404": "It does not exist, or is another tenant's.",
    "409": "Not in this state, or the name means several jobs.",
    "413": "Too much was sent.",
    "503": "Not now: nobody leads, or the database is away.",
}


def description(table: Sequence[Operation]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    shapes = [ProblemShape, *(shape for one in table for shape in _shapes(one))]
    distinct = list(dict.fromkeys(shapes))
    adapters = [(number, "serialization", TypeAdapter(one)) for number, one in enumerate(distinct)]
    found, definitions = TypeAdapter.json_schemas(
        adapters,  # type: ignore[arg-type] # a list of literals is a list of strings to mypy
        ref_template=REF,
    )
    schemas = {shape: found[number, "serialization"] for number, shape in enumerate(distinct)}
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "A yard", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(definitions["$defs"].items())),
            "responses": {
                status: {"description": words, **_content(ProblemShape, schemas)}
                for status, words in FAILURES.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _shapes(one: Operation) -> list[Any]:
    bodies = (one.gives, one.takes)
    found = [body.shape if isinstance(body, Media) else body for body in bodies]
    return [shape for shape in found if shape is not None]


def _operation(one: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    parts = one.path.strip("/").split("/")
    answer = {"description": _says(one.gives), **_content(one.gives, schemas)}
    written: dict[str, Any] = {
        "summary": one.summary,
        "operationId": "_".join([one.method.lower(), *(part.strip("{}") for part in parts)]),
        "tags": [parts[1] if parts[0] == "v1" else "health"],
        "responses": {
            **{str(status): answer for status in (one.status, *one.also)},
            **{
                status: {"$ref": f"#/components/responses/{status}"}
                for status in FAILURES
                if not one.public
            },
        },
    }
    if parameters := _parameters(one):
        written["parameters"] = parameters
    if one.takes is not None:
        written["requestBody"] = _content(one.takes, schemas)
    if one.public:
        written["security"] = []
    if one.admin:
        written["description"] = "For admins."
    return written


def _parameters(one: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_WORDS[name],
            "schema": {"type": "string"},
        }
        for name in one.names
    ]
    in_query = [
        {
            "name": word.name,
            "in": "query",
            "description": word.says,
            "schema": {"type": word.kind.value},
        }
        for word in one.query
    ]
    return [*in_path, *in_query]


def _content(body: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    if not isinstance(body, Media):
        return {"content": {"application/json": {"schema": schemas[body]}}}
    written: dict[str, Any] = {"schema": {"type": "string", "description": body.says}}
    if body.shape is not None:
        # What each piece of a stream is made of; OpenAPI 3.1 has no word for it.
        written["x-item"] = schemas[body.shape]
    return {"content": {body.type: written}}


def _says(body: Any) -> str:
    if isinstance(body, Media):
        return body.says
    return str(body.__doc__ or "As asked.").partition("\n")[0]
