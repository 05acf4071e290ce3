"""A whole yard with real processes: server, database, keepers and jobs.

Nothing cheaper would do: what is shown is that processes outlive each other.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from modelyard.control.client import CallRefused, Client

from .live import LiveYard, command_job


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    # Who comes first is served first: nobody is stopped for another one here.
    live = LiveYard(tmp_path_factory.mktemp("yard") / "state", options=("--policy", "fifo"))
    try:
        live.start()
        yield live
    finally:
        live.end()


def other(yard: LiveYard, *, tenant: str, role: str = "member") -> Client:
    token = yard.client.issue_token(user=f"{role}-of-{tenant}", tenant=tenant, role=role)
    return Client(token=token, folder=yard.folder)


def until(client: Client, job: str, *states: str, seconds: float = 60.0) -> dict[str, object]:
    end = time.monotonic() + seconds
    while (found := client.job(job))["state"] not in states:
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def test_a_command_runs_and_its_words_are_kept(yard: LiveYard) -> None:
    job = yard.client.submit_text(command_job("hello", "echo hello; echo $YARD_NAME"))
    ended = yard.client.wait(job["id"], seconds=60.0)
    assert (ended["state"], ended["reason"]) == ("succeeded", "completed")
    assert yard.client.log(job["id"])[0] == b"hello\nhello\n"
    events = yard.client.events(job["id"])
    assert events[0]["what"] == "submitted"
    assert "its last task has ended" in events[-1]["what"]
    # The log is in order, also where the server had waited for the submission.
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)


def test_a_named_folder_is_meant_whatever_the_environment_says(
    yard: LiveYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("YARD_TOKEN", "of another yard")
    assert Client(folder=yard.folder).status()["user"] == "admin"


def test_a_job_that_fails_by_itself_fails_with_the_reason(yard: LiveYard) -> None:
    script = "seq 1000; echo no such luck >&2; exit 3"
    job = yard.client.submit_text(command_job("broken", script))
    ended = yard.client.wait(job["id"], seconds=60.0)
    assert (ended["state"], ended["reason"]) == ("failed", "exit-code")
    assert "exit code 3" in ended["detail"]
    assert ended["last_lines"][-2:] == ["1000", "no such luck"]
    assert 10 <= len(ended["last_lines"]) <= 40
    why = yard.client.why(job["id"])
    assert why["last_lines"] == ended["last_lines"]
    assert yard.client.doctor()["violations"] == []


def test_a_program_that_does_not_exist(yard: LiveYard) -> None:
    text = "name: nowhere\ndevices: 1\ncommand: [no-such-program-at-all]\n"
    ended = yard.client.wait(yard.client.submit_text(text)["id"], seconds=60.0)
    assert ended["state"] == "failed"


def test_a_killed_task_is_tried_again(yard: LiveYard, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"test -e {mark} && exit 0; touch {mark}; kill -9 $$"
    ended = yard.client.wait(yard.client.submit_text(command_job("again", script))["id"])
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)


def test_pause_resume_and_cancel(yard: LiveYard) -> None:
    job = yard.client.submit_text(command_job("slow", "sleep 600"))["id"]
    until(yard.client, job, "running")
    yard.client.pause(job)
    until(yard.client, job, "paused")
    assert all(one["job"] != job for node in yard.client.nodes() for one in node["devices"])
    yard.client.resume(job)
    until(yard.client, job, "running")
    yard.client.cancel(job)
    assert until(yard.client, job, "cancelled")["reason"] == "cancelled"
    with pytest.raises(CallRefused, match="cancelled already"):
        yard.client.cancel(job)


def test_jobs_outlive_the_server(yard: LiveYard, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    script = f"echo start >> {journal}; sleep 4; echo end >> {journal}"
    jobs = [yard.client.submit_text(command_job("outlives", script))["id"] for _ in range(3)]
    for job in jobs:
        until(yard.client, job, "running", "succeeded")
    yard.kill()
    yard.start()
    for job in jobs:
        assert yard.client.wait(job, seconds=60.0)["attempt"] == 1
    assert sorted(journal.read_text().split()) == ["end"] * 3 + ["start"] * 3


def test_waiting_jobs_say_why(yard: LiveYard) -> None:
    first = [yard.client.submit_text(command_job("full", "sleep 600", devices=2)) for _ in "ab"]
    for job in first:
        until(yard.client, job["id"], "running")
    waiting = yard.client.submit_text(command_job("waits", "true"))["id"]
    time.sleep(1.0)
    said = yard.client.why(waiting)
    assert said["job"]["state"] == "waiting"
    assert "has waited" in said["sentence"]
    assert said["reasons"]
    for job in first:
        yard.client.cancel(job["id"])
    assert yard.client.wait(waiting, seconds=60.0)["state"] == "succeeded"


def test_a_drained_node_is_left_and_comes_back(yard: LiveYard) -> None:
    job = yard.client.submit_text(command_job("moves", "sleep 600"))["id"]
    before = until(yard.client, job, "running")["tasks"][0]["node"]
    yard.client.drain(before, why="new fan")
    end = time.monotonic() + 60.0
    while True:
        found = yard.client.job(job)
        if found["state"] == "running" and found["tasks"][0]["node"] != before:
            break
        assert time.monotonic() < end, found
        time.sleep(0.05)
    yard.client.give_back(before)
    yard.client.cancel(job)
    until(yard.client, job, "cancelled")


def test_a_submission_that_is_repeated_is_one_job(yard: LiveYard) -> None:
    text = command_job("once", "true")
    first = yard.client.submit_text(text, id="0123456789ab")
    assert yard.client.submit_text(text, id="0123456789ab")["id"] == first["id"]
    yard.client.wait(first["id"], seconds=60.0)


# Tenants and tokens.


def test_tenants_do_not_see_or_touch_each_other(yard: LiveYard) -> None:
    red, blue = other(yard, tenant="red"), other(yard, tenant="blue")
    job = red.submit_text(command_job("secret", "sleep 600"))["id"]
    assert red.job(job)["tenant"] == "red"
    for call in (blue.job, blue.why, blue.events, blue.log, blue.pause, blue.cancel):
        with pytest.raises(CallRefused) as refused:
            call(job)
        assert refused.value.status == 404
    assert all(one["id"] != job for one in blue.jobs(all=True)["jobs"])
    assert all(event["job"] != job for event in blue.events())
    until(red, job, "running")
    shown = [one["job"] for node in blue.nodes() for one in node["devices"] if one["job"]]
    assert job not in shown
    with pytest.raises(CallRefused, match="not submit"):
        blue.submit_text(command_job("x", "true", more="tenant: red\n"))
    with pytest.raises(CallRefused, match="is taken"):
        blue.submit_text(command_job("x", "true"), id=job)
    red.cancel(job)


def test_viewers_look_and_members_do_not_administrate(yard: LiveYard) -> None:
    viewer, member = other(yard, tenant="red", role="viewer"), other(yard, tenant="red")
    job = member.submit_text(command_job("seen", "sleep 600"))["id"]
    assert viewer.job(job)["id"] == job
    for call in (
        lambda: viewer.cancel(job),
        lambda: member.drain("node0"),
        lambda: member.issue_token(user="x", tenant="blue", role="admin"),
    ):
        with pytest.raises(CallRefused) as refused:
            call()
        assert refused.value.status == 403
    with pytest.raises(CallRefused, match="not submit"):
        viewer.submit_text(command_job("x", "true"))
    member.cancel(job)


def raw(
    yard: LiveYard, method: str, path: str, body: bytes = b"", token: str = ""
) -> tuple[int, bytes]:
    address = json.loads((yard.folder / "servers" / "main.json").read_text())["address"]
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30.0)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def test_calls_that_are_refused(yard: LiveYard) -> None:
    token = (yard.folder / "admin.token").read_text().strip()
    assert raw(yard, "GET", "/v1/jobs")[0] == 401
    assert raw(yard, "GET", "/v1/jobs", token="yard_wrong")[0] == 401
    assert raw(yard, "GET", "/metrics")[0] == 401
    assert raw(yard, "GET", "/healthz")[0] == 200
    assert raw(yard, "POST", "/v1/jobs", b"x" * (1 << 20), token)[0] == 413
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (at, at, *[at - 1] * 8)
        for at in range(ord("b"), ord("k"))
    )
    assert raw(yard, "POST", "/v1/jobs", bomb, token)[0] == 400
    assert (
        raw(yard, "POST", "/v1/jobs?folder=../..", b"name: x\ndevices: 1\ncommand: [a]", token)[0]
        == 400
    )
    assert raw(yard, "POST", "/v1/jobs?id=../../etc", b"name: x", token)[0] == 400
    assert raw(yard, "GET", "/v1/jobs/..%2f..%2fetc%2fpasswd", token=token)[0] == 404
    assert raw(yard, "PATCH", "/v1/jobs/none", b"[]", token)[0] == 404
    assert raw(yard, "GET", "/v1/jobs?most=" + "9" * 5_000, token=token)[0] == 400
    log = (yard.folder / "server.log").read_text()
    assert token not in log


def test_logs_cannot_be_read_outside_of_the_job(yard: LiveYard) -> None:
    token = (yard.folder / "admin.token").read_text().strip()
    job = yard.client.submit_text(command_job("safe", "echo x"))["id"]
    yard.client.wait(job, seconds=60.0)
    for role in ("../../../../etc/passwd", "..%2f..%2fadmin.token", "worker-0%00", "a" * 5_000):
        status, body = raw(yard, "GET", f"/v1/jobs/{job}/log?role={role}", token=token)
        assert status in (200, 400, 404), (role, status, body)
        assert b"root" not in body
        assert token.encode() not in body


def test_jobs_that_could_never_start_are_refused(yard: LiveYard) -> None:
    with pytest.raises(CallRefused, match="needs 40 devices"):
        yard.client.submit_text(command_job("large", "true", devices=40))
    with pytest.raises(CallRefused, match="no node has"):
        yard.client.submit_text(command_job("kind", "true", more="kinds: [H100]\n"))
    with pytest.raises(CallRefused, match="devices"):
        yard.client.submit_text("name: x\ncommand: [a]\n")


def test_figures_for_prometheus(yard: LiveYard) -> None:
    token = (yard.folder / "admin.token").read_text().strip()
    status, body = raw(yard, "GET", "/metrics", token=token)
    assert status == 200
    assert b'yard_jobs{state="succeeded"}' in body
    assert b"yard_devices 4" in body


def test_the_stream_tells_a_tenant_its_own_news_and_lets_the_server_end(tmp_path: Path) -> None:
    live = LiveYard(tmp_path / "state", options=("--policy", "fifo"))
    try:
        live.start()
        red, blue = other(live, tenant="red"), other(live, tenant="blue")
        connections = {one: listening(one) for one in (red, blue)}
        mine = {one: one.submit_text(command_job("own", "true"))["id"] for one in (red, blue)}
        for client, connection in connections.items():
            found = [json.loads(line) for line in heard_until_over(connection.getresponse())]
            assert {event["job"] for event in found} == {mine[client]}
            assert [event["number"] for event in found] == sorted(e["number"] for e in found)
        assert live.process is not None
        live.process.terminate()
        live.process.wait(timeout=60.0)
        for connection in connections.values():
            connection.close()
    finally:
        live.end()


def listening(client: Client) -> http.client.HTTPConnection:
    urls, token = client._found()
    parts = urlsplit(urls[0])
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60.0)
    connection.request("GET", "/v1/stream", headers={"Authorization": f"Bearer {token}"})
    return connection


def heard_until_over(stream: http.client.HTTPResponse) -> Iterator[bytes]:
    for line in stream:
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ")
            if b'"state": "succeeded"' in line:
                return


def test_lists_are_of_what_was_asked_for_and_of_nobody_else(yard: LiveYard) -> None:
    red, blue = other(yard, tenant="red"), other(yard, tenant="blue")
    mine = [red.submit_text(command_job(name, "sleep 600"))["id"] for name in ("list-b", "list-a")]
    theirs = blue.submit_text(command_job("list-c", "sleep 600"))["id"]
    red.pause(mine[0])
    until(red, mine[0], "paused")

    def ids(client: Client, **asked: Any) -> list[str]:
        return [one["id"] for one in client.jobs(search="LIST-", **asked)["jobs"]]

    assert ids(red) == mine[::-1]
    assert ids(red, reverse=True) == mine
    assert ids(red, order="name") == mine[::-1]
    assert ids(red, states=["paused"]) == mine[:1]
    assert ids(red, states=["cancelled", "paused"], order="lively") == mine[:1]
    assert ids(yard.client) == [theirs, *mine[::-1]]
    assert ids(yard.client, tenant="red") == mine[::-1]
    assert ids(yard.client, all=True) == [theirs, *mine[::-1]]
    # Another tenant's jobs are not to be had by naming it, nor are their numbers.
    assert ids(red, tenant="blue") == ids(red, tenant="blue", all=True) == []
    assert red.jobs(tenant="blue")["counts"] == red.jobs()["counts"]
    assert sum(red.jobs()["counts"].values()) == len(red.jobs(all=True)["jobs"])
    with pytest.raises(CallRefused, match="no state"):
        red.jobs(states=["sleeping"])
    with pytest.raises(CallRefused, match="no order"):
        red.jobs(order="luck")
    for client, job in ((red, mine[0]), (red, mine[1]), (blue, theirs)):
        client.cancel(job)


def test_the_audit_knows_who_changed_what_and_who_was_refused(yard: LiveYard) -> None:
    red, blue = other(yard, tenant="green"), other(yard, tenant="blue")
    job = red.submit_text(command_job("noted", "sleep 600"))["id"]
    for refused in (lambda: blue.cancel(job), lambda: blue.job(job)):
        with pytest.raises(CallRefused):
            refused()
    red.cancel(job)
    with closing(sqlite3.connect(yard.folder / "yard.db")) as database:
        rows = database.execute("SELECT tenant, call, status FROM audit ORDER BY number").fetchall()
    about = [row for row in rows if job in row[1] or row[0] == "green"]
    assert about == [
        ("green", "POST /v1/jobs", 201),
        ("blue", f"POST /v1/jobs/{job}/cancel", 404),
        ("blue", f"GET /v1/jobs/{job}", 404),
        ("green", f"POST /v1/jobs/{job}/cancel", 200),
    ]


def test_a_name_means_one_job_or_nobody(yard: LiveYard) -> None:
    first, second = (
        yard.client.submit_text(command_job("twins", "sleep 600"))["id"] for _ in range(2)
    )
    with pytest.raises(CallRefused, match=f"could be {second} or {first}"):
        yard.client.cancel("twins")
    yard.client.cancel(second)
    yard.client.wait(second, seconds=60)
    # The one that goes on is meant, though the other is newer.
    assert yard.client.job("twins")["id"] == first
    yard.client.cancel("twins")
    yard.client.wait(first, seconds=60)
    assert yard.client.job("twins")["id"] == second
    with pytest.raises(CallRefused, match="cancelled already"):
        yard.client.cancel("twins")


def test_whoever_waits_is_told_what_happens(yard: LiveYard) -> None:
    told: list[str] = []
    job = yard.client.submit_text(command_job("told", "sleep 1"))["id"]
    yard.client.wait(job, seconds=60, tell=lambda found: told.append(found["state"]))
    assert told[-1] == "succeeded"
    assert "running" in told
    assert len(told) == len(set(told))
