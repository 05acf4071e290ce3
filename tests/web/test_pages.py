"""Pages over real HTTP: who sees what, and that what people write stays text."""

from __future__ import annotations

import time

from modelyard.control.client import Client

from ..control.live import LiveYard, command_job
from .conftest import Visitor

HOSTILE = "<img src=x onerror=alert(1)>"


def job_of(yard: LiveYard, name: str, *, tenant: str = "red", script: str = "sleep 600") -> str:
    text = command_job(name, script, more=f"tenant: {tenant}\n")
    return str(yard.client.submit_text(text)["id"])


def until_state(yard: LiveYard, job: str, *states: str) -> None:
    end = time.monotonic() + 60.0
    while yard.client.job(job)["state"] not in states:
        assert time.monotonic() < end, yard.client.job(job)
        time.sleep(0.05)


def test_every_page_wants_to_know_who_asks(address: str) -> None:
    for path in ("/", "/jobs"):
        seen = Visitor(address).get(path)
        assert (seen.status, seen.headers["location"][:12]) == (303, "/login?next="), path
    for path in ("/live", "/live/", "/live/jobs"):
        assert Visitor(address).get(path).status == 401, path


def test_pages_let_nothing_in_from_elsewhere(admin: Visitor) -> None:
    for path in ("/", "/jobs", "/login", "/jobs/nothing-like-that"):
        seen = admin.get(path)
        policy = seen.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert seen.headers["x-frame-options"] == "DENY"
        assert seen.headers["cache-control"] == "no-store"
        assert " style=" not in seen.text
        assert "<script>" not in seen.text
        assert " onclick" not in seen.text


def test_what_people_write_stays_text(yard: LiveYard, admin: Visitor) -> None:
    token = yard.client.issue_token(user=HOSTILE, tenant="red", role="member")
    script = f"echo '{HOSTILE}'; sleep 600"
    text = command_job("plain", script, more=f"# {HOSTILE}\n")
    job = Client(token=token, folder=yard.folder).submit_text(text)["id"]
    until_state(yard, job, "running")
    yard.client.drain("node1", why=HOSTILE)
    time.sleep(1.0)
    hostile = Visitor(admin.address).log_in(token)
    for visitor in (admin, hostile):
        for path in ("/", "/jobs", "/jobs?q=%3Cimg", f"/jobs/{job}", "/jobs?q=%22%3E%3Cimg"):
            assert "<img" not in visitor.get(path).text, path
    page = admin.get(f"/jobs/{job}").text
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 3
    yard.client.give_back("node1")
    yard.client.cancel(job)


def test_other_tenants_jobs_are_on_the_map_without_their_names(
    yard: LiveYard, admin: Visitor, red: Visitor
) -> None:
    mine, other = job_of(yard, "seen-by-red"), job_of(yard, "not-for-red", tenant="blue")
    for job in (mine, other):
        until_state(yard, job, "running")
    time.sleep(1.0)
    for path in ("/", "/jobs"):
        assert "seen-by-red" in red.get(path).text
        assert "not-for-red" not in red.get(path).text
        assert other not in red.get(path).text
        assert "not-for-red" in admin.get(path).text
    assert "another tenant&#39;s" in red.get("/").text
    for job in (mine, other):
        yard.client.cancel(job)


def test_jobs_are_searched_filtered_sorted_and_paged(yard: LiveYard, admin: Visitor) -> None:
    jobs = [job_of(yard, f"paged-{number:02d}", script="true") for number in range(60)]
    for job in jobs:
        yard.client.wait(job, seconds=120)
    first = admin.get("/jobs?q=paged&state=succeeded&sort=name").text
    assert "paged-00" in first
    assert "paged-49" in first
    assert "paged-50" not in first
    assert "1–50 of 60 jobs" in first
    assert "state=succeeded&amp;sort=name&amp;page=2" in first
    second = admin.get("/jobs?q=paged&state=succeeded&sort=name&page=2").text
    assert "paged-50" in second
    assert "paged-49" not in second
    upside_down = admin.get("/jobs?q=paged&sort=name&reverse=1").text
    assert upside_down.index("paged-59") < upside_down.index("paged-58")
    assert "No job is like that" in admin.get("/jobs?q=paged&state=failed").text
    assert admin.get("/jobs?page=-1&sort=nothing&state=%00&tenant=%27").status == 200


def test_static_files_are_kept_for_ever_and_found_by_what_is_in_them(admin: Visitor) -> None:
    page = admin.get("/").text
    address = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    seen = admin.get(address)
    assert seen.status == 200
    assert "immutable" in seen.headers["cache-control"]
    assert seen.headers["content-type"].startswith("text/css")
    old = admin.get("/static/0123456789ab/yard.css")
    assert (old.status, old.headers["location"]) == (307, address)
    assert admin.get("/static/0123456789ab/..%2Fsite.py").status == 404


def test_a_page_that_is_not_there(admin: Visitor) -> None:
    assert admin.get("/nothing").status == 404
