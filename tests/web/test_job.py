"""A job's page and its forms over real HTTP: the same rights and refusals as the API's."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

from ..control.live import LiveYard, command_job
from .conftest import Visitor
from .test_pages import job_of, until_state

ACTIONS = ("pause", "resume", "scale", "priority", "cancel")


def test_a_jobs_page(yard: LiveYard, admin: Visitor, red: Visitor) -> None:
    job = job_of(yard, "whole", script="echo said this; sleep 600")
    until_state(yard, job, "running")
    for visitor in (admin, red):
        text = visitor.get(f"/jobs/{job}").text
        assert "whole" in text
        assert "said this" in text
        assert f'action="/jobs/{job}/cancel"' in text
        assert "submitted" in text
        assert "command: [sh, -c" in text
    # As everywhere the beginning of an id, or a name, will do.
    assert job in red.get(f"/jobs/{job[:6]}").text
    assert job in red.get("/jobs/whole").text
    yard.client.cancel(job)


def test_nobody_sees_or_changes_what_belongs_to_others(
    yard: LiveYard, address: str, red: Visitor, onlooker: Visitor
) -> None:
    other, own = job_of(yard, "of-blue", tenant="blue"), job_of(yard, "of-red")
    for path in (f"/jobs/{other}", f"/live/jobs/{other}", "/jobs/of-blue"):
        assert red.get(path).status == 404, path
    for action in ACTIONS:
        assert red.post(f"/jobs/{other}/{action}").status == 404
        seen = onlooker.post(f"/jobs/{own}/{action}")
        assert seen.status == 403
        assert "may look at jobs, not change them" in seen.text
        assert Visitor(address).post(f"/jobs/{own}/{action}").status == 401
        elsewhere = red.post(f"/jobs/{own}/{action}", Origin="https://elsewhere.example")
        assert elsewhere.status == 403
    assert "cancel" not in onlooker.get(f"/jobs/{own}").text
    for job in (other, own):
        assert yard.client.job(job)["state"] != "cancelled"
        yard.client.cancel(job)


def test_a_job_that_failed_shows_the_log_of_who_brought_it_down(
    yard: LiveYard, red: Visitor
) -> None:
    script = 'test "$YARD_NODE_RANK" = 0 && sleep 600; echo my fault; exit 3'
    text = command_job("half", script, devices=4, more="tenant: red\n")
    job = str(yard.client.submit_text(text)["id"])
    until_state(yard, job, "failed")
    page = red.get(f"/jobs/{job}").text
    assert 'aria-label="What worker-1 wrote">my fault' in page


def test_forms_do_what_the_api_does(yard: LiveYard, red: Visitor) -> None:
    job = job_of(yard, "turned")
    until_state(yard, job, "running")
    done = red.post(f"/jobs/{job}/pause")
    assert (done.status, done.headers["location"]) == (303, f"/jobs/{job}?done=pause")
    assert "It pauses." in red.get(done.headers["location"]).text
    until_state(yard, job, "paused")
    assert red.post(f"/jobs/{job}/resume").status == 303
    fields = {"min_devices": "1", "max_devices": ""}
    assert red.post(f"/jobs/{job}/scale", fields).status == 303
    assert red.post(f"/jobs/{job}/priority", {"priority": "7"}).status == 303
    assert yard.client.job(job)["priority"] == 7
    assert red.post(f"/jobs/{job}/cancel").status == 303
    until_state(yard, job, "cancelled")
    again = red.post(f"/jobs/{job}/cancel")
    assert again.status == 409
    assert "is cancelled already" in again.text
    assert any("paused by member-of-red" in event["what"] for event in yard.client.events(job))


@pytest.mark.parametrize("written", ["many", "1e3", "4; drop table jobs", "²"])
def test_numbers_that_are_none(yard: LiveYard, red: Visitor, written: str) -> None:
    job = job_of(yard, "numbers")
    seen = red.post(f"/jobs/{job}/scale", {"max_devices": written})
    assert seen.status == 400
    assert "is not a whole number" in seen.text
    yard.client.cancel(job)


def test_a_stream_tells_what_has_changed(yard: LiveYard, admin: Visitor) -> None:
    job = job_of(yard, "streamed", script="sleep 1; echo grows; sleep 600")
    parts = urlsplit(admin.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    cookie = "; ".join(f"{name}={value}" for name, value in admin.cookies.items())
    connection.request("GET", f"/live/jobs/{job}", headers={"Cookie": cookie})
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type", "").startswith("text/event-stream")
    events: dict[str, list[dict[str, object]]] = {}
    event = cursor = ""
    try:
        while not any("grows" in str(one["text"]) for one in events.get("log", [])):
            line = response.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "id":
                cursor = value
            elif name == "data":
                events.setdefault(event, []).append(json.loads(value))
    finally:
        connection.close()
    assert "mark" in events["hello"][0]
    assert {"head", "timeline", "tasks"} <= {str(one["name"]) for one in events["block"]}
    assert cursor.endswith("1.0.6")
    yard.client.cancel(job)
