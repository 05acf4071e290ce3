"""The page of comparisons over real HTTP: played in a process, bounded, and seen by its own."""

from __future__ import annotations

import html
import json
import time

import pytest

from modelyard.errors import InputError
from modelyard.web.compare import Asked, request_of
from modelyard.web.comparisons import MOST_TRACE_BYTES

from ..control.live import LiveYard, command_job
from .conftest import Seen, Visitor, token_of

TWO = {"policy-fifo": "1", "policy-srtf": "1"}
TRACE = "id,submitted,devices,duration\n" + "".join(f"j{n},{n},1,60\n" for n in range(20))
HOSTILE = "<img src=x onerror=alert(1)>"
#: plays for minutes: for tests that cancel it
ENDLESS = {"source": "synthetic", "jobs": "5000", "load": "5", "cluster": "64x8", "policy-sia": "1"}


def start(visitor: Visitor, **fields: str) -> str:
    seen = visitor.post("/compare", fields)
    assert seen.status == 303, html.unescape(seen.text)
    return seen.headers["location"]


def until_played(visitor: Visitor, path: str) -> str:
    end = time.monotonic() + 90.0
    while True:
        text = visitor.get(path).text
        if "/cancel" not in text:
            return text
        assert time.monotonic() < end, text
        time.sleep(0.1)


def upload(visitor: Visitor, body: str) -> Seen:
    return visitor.ask("POST", "/compare/trace", body=body, headers={"Origin": visitor.address})


def test_a_bundled_workload_is_compared(admin: Visitor) -> None:
    assert "A small team" in admin.get("/compare").text
    path = start(admin, source="bundled", cluster="4x8", **TWO)
    text = until_played(admin, path)
    for words in ("finishes jobs in", "mean JCT", "Jobs done within a time", "Devices in use"):
        assert words in text, words
    assert " style=" not in text
    # Its address can be kept, and the list has it.
    assert path in admin.get("/compare").text


def test_a_trace_is_uploaded_once_and_played(red: Visitor) -> None:
    seen = upload(red, TRACE)
    assert seen.status == 201
    trace = json.loads(seen.text)["trace"]
    text = until_played(red, start(red, source="trace", trace=trace, **TWO))
    assert "your trace on" in text
    again = red.post("/compare", {"source": "trace", "trace": trace, **TWO})
    assert again.status == 400
    assert "there is no such trace" in html.unescape(again.text).lower()


def test_a_trace_can_be_pasted_and_its_mistakes_have_lines(red: Visitor) -> None:
    text = until_played(red, start(red, source="trace", csv=TRACE, **TWO))
    assert "your trace on" in text
    wrong = f"id,submitted,devices,duration\n{HOSTILE},x,-1,0\n"
    text = until_played(red, start(red, source="trace", csv=wrong, **TWO))
    assert "Line 2" in text
    assert "<img" not in text
    assert "yard-traces-" not in text


def test_the_yards_own_past_is_played_again(yard: LiveYard, red: Visitor) -> None:
    job = str(yard.client.submit_text(command_job("past", "true", more="tenant: red\n"))["id"])
    yard.client.wait(job, seconds=60)
    text = until_played(red, start(red, source="history", window="1h", cluster="1x2", **TWO))
    assert "history on 1x2" in text
    assert "only jobs of your tenant" in html.unescape(text).lower()


def test_one_at_a_time_for_each_and_it_can_be_cancelled(red: Visitor, onlooker: Visitor) -> None:
    path = start(red, **ENDLESS)
    assert red.post("/compare", {"source": "bundled", **TWO}).status == 409
    # Somebody else of the tenant sees it and may not end it.
    assert onlooker.get(path).status == 200
    assert onlooker.post(f"{path}/cancel").status == 403
    assert red.post(f"{path}/cancel").status == 303
    assert "It was cancelled" in until_played(red, path)
    until_played(red, start(red, source="bundled", cluster="4x8", **TWO))


def test_other_tenants_see_nothing_of_it(yard: LiveYard, address: str, admin: Visitor) -> None:
    blue = Visitor(address).log_in(token_of(yard, tenant="blue"))
    path = start(blue, source="bundled", cluster="4x8", **TWO)
    until_played(blue, path)
    green = Visitor(address).log_in(token_of(yard, tenant="green"))
    assert green.get(path).status == 404
    assert green.post(f"{path}/cancel").status == 404
    assert green.get(f"/live{path}").status == 404
    assert admin.get(path).status == 200
    # What an admin compared may hold everybody's jobs: only admins see it.
    theirs = start(admin, source="bundled", cluster="4x8", **TWO)
    until_played(admin, theirs)
    for visitor in (green, blue):
        assert visitor.get(theirs).status == 404
        assert theirs not in visitor.get("/compare").text
    # Nor is somebody's upload anybody else's.
    trace = json.loads(upload(blue, TRACE).text)["trace"]
    assert green.post("/compare", {"source": "trace", "trace": trace, **TWO}).status == 400


def test_strangers_and_other_sites_play_nothing(address: str, red: Visitor) -> None:
    for path in ("/compare", "/compare/trace", "/compare/x/cancel"):
        assert Visitor(address).post(path).status == 401, path
        assert red.post(path, Origin="https://elsewhere.example").status == 403, path
    assert Visitor(address).get("/compare").status == 303


def test_a_trace_that_is_too_large_is_refused_while_it_comes(red: Visitor) -> None:
    seen = upload(red, "#" * (MOST_TRACE_BYTES + 1))
    assert seen.status == 413


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "nothing", **TWO},
        {"source": "bundled"},
        {"source": "bundled", "cluster": "/etc/passwd", **TWO},
        {"source": "bundled", "cluster": "cluster.yaml", **TWO},
        {"source": "bundled", "cluster": HOSTILE, **TWO},
        {"source": "synthetic", "jobs": "1e9", **TWO},
        {"source": "synthetic", "load": "nan", **TWO},
        {"source": "synthetic", "seed": "-1", **TWO},
        {"source": "trace", "trace": "../../etc/passwd", **TWO},
        {"source": "trace", **TWO},
        {"source": "history", "window": "100y", **TWO},
    ],
)
def test_what_cannot_be_played_is_told_at_once(red: Visitor, fields: dict[str, str]) -> None:
    seen = red.post("/compare", fields)
    assert seen.status == 400
    assert "<img" not in seen.text
    assert 'role="alert"' in seen.text


def test_all_mistakes_of_a_form_come_together(red: Visitor) -> None:
    seen = red.post("/compare", {"source": "synthetic", "jobs": "x", "load": "y", "cluster": "z"})
    assert seen.text.count("<li>") >= 4


def test_a_cluster_that_is_too_large_for_a_page_ends_by_itself(red: Visitor) -> None:
    text = until_played(red, start(red, source="bundled", cluster="99999999x8", **TWO))
    assert 'role="alert"' in text


def test_policies_are_names_and_read_no_files() -> None:
    asked = Asked.of(
        {"policy-fifo": "1", "policy-dl2:weights=/etc/passwd": "1", "source": "bundled"}
    )
    assert asked.policies == ("fifo",)
    with pytest.raises(InputError, match="policies"):
        request_of(Asked(policies=()), None, None)  # type: ignore[arg-type]
