"""The API described for people: one page without scripts, and with nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup, escape

#: of nothing that a page shows may come from elsewhere, or run
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, method, operation in calls(document):
        group = groups.setdefault(operation["tags"][0], [])
        group.append({"path": path, "method": method, **operation})
    return _template().render(
        document=document,
        groups=groups,
        schemas=document["components"]["schemas"],
        failures=document["components"]["responses"],
    )


def calls(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of every call."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def type_words(schema: dict[str, Any]) -> str:
    """A schema in a few words; a name of another one is `[Name]`."""
    if "$ref" in schema:
        return f"[{schema['$ref'].rpartition('/')[2]}]"
    if several := schema.get("anyOf"):
        return " or ".join(type_words(one) for one in several)
    kind = schema.get("type", "anything")
    if kind == "array":
        if places := schema.get("prefixItems"):
            return f"({', '.join(type_words(one) for one in places)})"
        return f"list of {type_words(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"any name → {type_words(schema['additionalProperties'])}"
    return str(kind)


def bodies(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is sent and what comes back, in words."""
    if "requestBody" in operation:
        yield "takes", _body(operation["requestBody"]["content"])
    for status, answer in operation["responses"].items():
        if "content" in answer:
            yield f"gives {status}", _body(answer["content"])


def _body(content: dict[str, Any]) -> str:
    ((medium, body),) = content.items()
    words = body["schema"].get("description") or type_words(body["schema"])
    item = f", each {type_words(body['x-item'])}" if "x-item" in body else ""
    return f"{words}{item}" if medium == "application/json" else f"{medium}: {words}{item}"


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"type_words": lambda one: _linked(type_words(one)), "linked": _linked}
    environment.globals |= {"bodies": bodies, "policy": POLICY}
    text = files("modelyard.control.api").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _linked(words: str) -> Markup:
    """`[Name]` as a link to where it is described, `code` as code; everything else as it is."""
    safe = re.sub(r"\[(\w+)\]", r'<a href="#\1">\1</a>', str(escape(words)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))
