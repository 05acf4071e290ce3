"""The description of the API is what the server does: every call is made, every answer checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from modelyard.control.api.app import described
from modelyard.control.api.page import calls, page

from .live import LiveYard, command_job
from .test_yard import raw, until


@dataclass(frozen=True, slots=True)
class Made:
    """One call that a test makes; `{job}` and such in it stand for what the yard has."""

    method: str
    path: str
    body: bytes = b""
    query: str = ""
    #: what the path's words stand for where the yard's own do not do
    words: dict[str, str] = field(default_factory=dict)


SLEEPER = command_job("sleeper", "sleep 600").encode()

#: Every call of the table at least once, in an order in which all succeed.
CALLS = (
    Made("GET", "/healthz"),
    Made("GET", "/metrics"),
    Made("POST", "/v1/jobs", SLEEPER, "id=0123456789ab"),
    Made("POST", "/v1/jobs", SLEEPER, "id=0123456789ab"),
    Made("GET", "/v1/jobs", query="all=1&most=5&skip=0"),
    Made("GET", "/v1/jobs/{job}"),
    Made("GET", "/v1/jobs/{job}", query="forecast=1"),
    Made("PATCH", "/v1/jobs/{job}", b'{"priority": 3}'),
    Made("GET", "/v1/jobs/{job}/why"),
    Made("GET", "/v1/jobs/{waiting}/why"),
    Made("GET", "/v1/jobs/{job}/events", query="after=0"),
    Made("GET", "/v1/jobs/{job}/log", query="start=0&attempt=1&incarnation=0&role=worker-0"),
    Made("POST", "/v1/jobs/{job}/pause"),
    Made("POST", "/v1/jobs/{job}/resume"),
    Made("POST", "/v1/jobs/{job}/cancel"),
    Made("GET", "/v1/status"),
    Made("GET", "/v1/nodes"),
    Made("POST", "/v1/nodes/{node}/drain", b'{"why": "new fan"}'),
    Made("POST", "/v1/nodes/{node}/return"),
    Made("GET", "/v1/events", query="after=0&last=5"),
    Made("PUT", "/v1/tenants/{tenant}", b'{"guaranteed": 1, "maximum": "50%", "weight": 2.0}'),
    Made("GET", "/v1/tenants", query="window=3600"),
    Made("DELETE", "/v1/tenants/{tenant}"),
    Made("GET", "/v1/doctor"),
    Made("GET", "/v1/audit", query="after=0&most=10"),
    Made("GET", "/v1/history", query="from=1000000000.5&most=5&points=3"),
    Made("GET", "/v1/workload", query="from=1000000000"),
    Made("GET", "/v1/forecast", query="wait=10000"),
    Made("POST", "/v1/forecast", SLEEPER, "file=job.yaml"),
    Made("POST", "/v1/tokens", b'{"user": "ann", "tenant": "red", "role": "viewer"}'),
    Made("GET", "/v1/tokens"),
    Made("DELETE", "/v1/tokens/{hint}"),
    Made("POST", "/v1/halt"),
)
#: They never end; `test_a_stream_is_what_it_is_said_to_be` reads the beginning.
STREAMS = {("GET", "/v1/stream")}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path_factory.mktemp("described") / "state", options=("--policy", "fifo"))
    try:
        live.start()
        yield live
    finally:
        live.end()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return described()


def answer_schema(document: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """A schema that stands alone."""
    return {**content["schema"], "components": document["components"]}


def test_others_can_read_the_description(document: dict[str, Any]) -> None:
    validate(document)
    names = [operation["operationId"] for _, _, operation in calls(document)]
    assert len(set(names)) == len(names)


def test_every_call_is_made_here(document: dict[str, Any]) -> None:
    table = {(method, path) for path, method, _ in calls(document)}
    made = {(one.method, one.path.replace("{waiting}", "{job}")) for one in CALLS}
    assert table - made - STREAMS == set(), "add the new call to CALLS"
    assert (made | STREAMS) - table == set()


def test_every_field_and_call_is_explained(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name, one in schemas.items() if not one.get("description")] == []
    assert [path for path, _, one in calls(document) if len(one["summary"]) < 10] == []


def test_answers_are_what_they_are_said_to_be(yard: LiveYard, document: dict[str, Any]) -> None:
    token = (yard.folder / "admin.token").read_text().strip()
    job = yard.client.submit_text(command_job("first", "sleep 600"))["id"]
    until(yard.client, job, "running")
    waiting = [
        yard.client.submit_text(command_job("many", "sleep 600", devices=2))["id"] for _ in "abc"
    ][-1]
    hint = yard.client.issue_token(user="bob", tenant="blue", role="member")[:9]
    words = {"job": job, "waiting": waiting, "node": "node1", "hint": hint, "tenant": "red"}
    for made in CALLS:
        if made.path.endswith("/resume"):
            until(yard.client, job, "paused")
        path = made.path.format(**words | made.words)
        target = f"{path}?{made.query}" if made.query else path
        status, body = raw(yard, made.method, target, made.body, token)
        described_path = made.path.replace("{waiting}", "{job}")
        operation = document["paths"][described_path][made.method.lower()]
        assert str(status) in operation["responses"], (made, status, body)
        assert status < 300, (made, body)
        ((medium, content),) = operation["responses"][str(status)]["content"].items()
        if medium == "application/json":
            Draft202012Validator(answer_schema(document, content)).validate(json.loads(body))


def test_a_stream_is_what_it_is_said_to_be(yard: LiveYard, document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/stream"]["get"]["responses"]["200"]["content"]
    item = content["text/event-stream"]["x-item"]
    checked = Draft202012Validator({**item, "components": document["components"]})
    event = next(yard.client.stream())
    checked.validate(event)


def test_refusals_are_what_they_are_said_to_be(yard: LiveYard, document: dict[str, Any]) -> None:
    token = (yard.folder / "admin.token").read_text().strip()
    for path, credential, status in (
        ("/v1/jobs", "", 401),
        ("/v1/jobs/none", token, 404),
        ("/v1/jobs?most=x", token, 400),
        ("/v1/jobs?mots=3", token, 400),
    ):
        found, body = raw(yard, "GET", path, b"", credential)
        assert found == status
        content = document["components"]["responses"][str(status)]["content"]["application/json"]
        Draft202012Validator(answer_schema(document, content)).validate(json.loads(body))


def test_the_server_tells_what_it_does(yard: LiveYard, document: dict[str, Any]) -> None:
    status, body = raw(yard, "GET", "/v1/openapi.json")
    assert (status, json.loads(body)) == (200, json.loads(json.dumps(document)))
    status, shown = raw(yard, "GET", "/docs")
    assert status == 200
    assert shown.decode() == page(document)


def test_the_page_needs_nothing_from_elsewhere(document: dict[str, Any]) -> None:
    text = page(document)
    assert "<script" not in text
    assert "src=" not in text
    assert "http://" not in text
    assert "https://" not in text
    for path, method, operation in calls(document):
        assert f"<b>{method}</b> {path}</h3>" in text
        assert f'id="{operation["operationId"]}"' in text
    targets = {part.partition('"')[0] for part in text.split('href="#')[1:]}
    assert {one for one in targets if f'id="{one}"' not in text} == set()
