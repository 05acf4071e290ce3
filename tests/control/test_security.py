"""What strangers, neighbours and careless people send: refused in words, noted, and survived.

Calls are taken from the table of the API, so that a new one cannot be forgotten here.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from .live import LiveYard, command_job
from .test_openapi import CALLS, calls, described
from .test_yard import other, raw, until

#: They are for whoever watches a server or reads about it, and say nothing of anybody's jobs.
OPEN = {"/healthz", "/docs", "/v1/openapi.json"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path_factory.mktemp("guarded") / "state", options=("--policy", "fifo"))
    try:
        live.start()
        yield live
    finally:
        live.end()


@pytest.fixture(scope="module")
def admin(yard: LiveYard) -> str:
    return (yard.folder / "admin.token").read_text().strip()


@pytest.fixture(autouse=True)
def still_well(yard: LiveYard, admin: str) -> Iterator[None]:
    """After whatever was sent, the same server answers, has made no mistake, and keeps secrets."""
    before, path = yard.pid, yard.folder / "server.log"
    read = path.stat().st_size
    yield
    assert yard.process is not None
    assert yard.process.poll() is None
    assert yard.pid == before
    status, body = raw(yard, "GET", "/v1/status", token=admin)
    assert status == 200, body
    log = path.read_bytes()[read:].decode(errors="replace")
    assert admin not in log
    assert "Traceback" not in log, log


TABLE = sorted((method, path) for path, method, _ in calls(described()) if path not in OPEN)
FOR_ADMINS = {
    (method, path)
    for path, method, one in calls(described())
    if one.get("description") == "For admins."
}
BODIES = {(made.method, made.path): made.body for made in CALLS}
EVERY_CALL = pytest.mark.parametrize(("method", "path"), TABLE)


def audited(yard: LiveYard, call: str, status: int) -> bool:
    return any(
        one["call"].startswith(call) and one["status"] == status
        for one in yard.client.audit(most=200)
    )


def filled(path: str, **words: str) -> str:
    known = {"job": "0" * 12, "node": "node0", "hint": "yard_0000", "tenant": "red", **words}
    return path.format(**known)


@EVERY_CALL
def test_nobody_calls_without_a_valid_token(yard: LiveYard, method: str, path: str) -> None:
    revoked = yard.client.issue_token(user="gone", tenant="red", role="admin")
    yard.client.revoke_token(revoked[:9])
    where, body = filled(path), BODIES.get((method, path), b"")
    for token in ("", "yard_" + "x" * 43, revoked, "é" * 20, "x" * 5_000):
        status, said = raw(yard, method, where, body, quote(token, safe=""))
        assert status == 401, (token[:12], said)
        assert token[9:] == "" or token[9:].encode() not in said
    assert audited(yard, f"{method} {where}", 401)


@EVERY_CALL
def test_viewers_change_nothing_and_members_do_not_administrate(
    yard: LiveYard, method: str, path: str
) -> None:
    for_admins = (method, path) in FOR_ADMINS
    job = _sleeper(yard, "red")
    where, body = filled(path, job=job), BODIES.get((method, path), b"")
    viewer = yard.client.issue_token(user="eve", tenant="red", role="viewer")
    member = yard.client.issue_token(user="mia", tenant="red", role="member")
    if method != "GET" and path not in HARMLESS:
        status, said = raw(yard, method, where, body, viewer)
        assert status in (400, 403), (status, said)
        assert audited(yard, f"{method} {where}", status)
        assert yard.client.job(job)["state"] in ("waiting", "starting", "running")
    if for_admins:
        assert raw(yard, method, where, body, member)[0] == 403
    for token in (viewer, member):
        yard.client.revoke_token(token[:9])


#: Calls that are no GET and change nothing of the yard: looking ahead, and at pages.
HARMLESS = {"/v1/forecast", "/v1/web/links"}


@pytest.mark.parametrize(("method", "path"), [one for one in TABLE if "{job}" in one[1]])
def test_another_tenants_job_is_like_one_that_does_not_exist(
    yard: LiveYard, method: str, path: str
) -> None:
    job = _sleeper(yard, "red")
    blue = yard.client.issue_token(user="bob", tenant="blue", role="member")
    body = BODIES.get((method, path), b"")
    for name in (job, job[:6], "sleeper-of-red"):
        status, said = raw(yard, method, path.format(job=name), body, blue)
        assert status == 404, (name, said)
        nothing = raw(yard, method, path.format(job="f" * len(name)), body, blue)[1]
        # Word for word, but for the name that was asked for.
        assert said.replace(name.encode(), b"") == nothing.replace(b"f" * len(name), b"")
        assert audited(yard, f"{method} {path.format(job=name)}", 404)
    assert yard.client.job(job)["state"] in ("waiting", "starting", "running")
    yard.client.revoke_token(blue[:9])


def _sleeper(yard: LiveYard, tenant: str) -> str:
    """A job of a tenant that does not end; one for all tests."""
    for job in yard.client.jobs(most=1000)["jobs"]:
        if job["name"] == f"sleeper-of-{tenant}":
            return str(job["id"])
    client = other(yard, tenant=tenant)
    job = client.submit_text(command_job(f"sleeper-of-{tenant}", "sleep 3600"))["id"]
    until(client, job, "running")
    return str(job)


NASTY = (
    "../../../../etc/passwd",
    "..",
    "/etc/passwd",
    "..\\..\\secret",
    "x\0y",
    "a/../../b",
    "%2e%2e%2f",
    "\r\nSet-Cookie: a=b",
    "'; DROP TABLE jobs; --",
    "%",
    "_" * 12,
    "a" * 5_000,
    "\u202egpj.exe",
)


@pytest.mark.parametrize("nasty", NASTY)
def test_names_lead_nowhere(yard: LiveYard, admin: str, nasty: str) -> None:
    job, part = _sleeper(yard, "red"), quote(nasty, safe="")
    for method, path in TABLE:
        if "{" not in path or path == "/v1/tenants/{tenant}":
            continue
        where = path.replace("{job}", part).replace("{node}", part).replace("{hint}", part)
        status, said = raw(yard, method, where, BODIES.get((method, path), b""), admin)
        assert 400 <= status < 500, (method, path, status, said)
        assert b"root:" not in said
    for query in ("role", "attempt", "incarnation", "start"):
        status, said = raw(yard, "GET", f"/v1/jobs/{job}/log?{query}={part}", token=admin)
        assert 400 <= status < 500, (query, said)
        assert audited(yard, f"GET /v1/jobs/{job}/log", status)
    body = command_job("x", "true").encode()
    for query in ("id", "folder"):
        if query == "folder" and nasty.startswith("/"):
            # An absolute folder is anybody's who may run programs here; it only has to be one.
            continue
        status, said = raw(yard, "POST", f"/v1/jobs?{query}={part}", body, admin)
        assert 400 <= status < 500, (query, said)
    wanted = json.dumps({"user": "u", "tenant": "t", "role": nasty}).encode()
    assert raw(yard, "POST", "/v1/tokens", wanted, admin)[0] == 400


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(at)}: &{chr(at)} [{','.join(['*' + chr(at - 1)] * 9)}]\n"
    for at in range(ord("b"), ord("k"))
)

WRONG_BODIES: dict[str, bytes] = {
    "aliases": BOMB.encode(),
    "aliases as devices": (BOMB + "name: x\ndevices: *j\ncommand: [a]\n").encode(),
    "deep lists": b"[" * 5_000,
    "deep maps": b"name: x\ndevices: 1\ncommand: " + b"{a: " * 5_000,
    "huge number": b"name: x\ndevices: 1" + b"0" * 5_000 + b"\ncommand: [a]\n",
    "huge exponent": b"name: x\ndevices: 1e999999\ncommand: [a]\n",
    "negative": b"name: x\ndevices: -1\ncommand: [a]\n",
    "not a number": b"name: x\ndevices: .nan\ncommand: [a]\n",
    "no text": bytes(range(256)) * 8,
    "utf-16": "name: x\ndevices: 1\ncommand: [a]\n".encode("utf-16"),
    "nul in a name": b'name: "x\\0y"\ndevices: 1\ncommand: [a]\n',
    "python objects": b"name: !!python/object/apply:os.system ['touch /tmp/owned']\n",
    "several documents": b"name: x\n---\nname: y\n",
    "a date": b"2001-01-01",
    "nothing": b"",
    "long line": b"name: " + b"x" * 400_000,
    "merge": b"<<: *x\nname: x\n",
    "control letters": b"name: \x01\x02\ndevices: 1\ncommand: [a]\n",
}


@pytest.mark.parametrize("what", WRONG_BODIES)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/forecast"])
def test_wrong_job_files_are_refused(yard: LiveYard, admin: str, path: str, what: str) -> None:
    status, said = raw(yard, "POST", path, WRONG_BODIES[what], admin)
    assert status == 400, (status, said)
    assert json.loads(said)["error"]
    assert len(said) < 100_000
    assert audited(yard, f"POST {path}", 400)
    assert not Path("/tmp/owned").exists()


WRONG_JSON = (
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"{\xff\xfe}",
    b'{"priority": 1e999}',
    b'{"priority": ' + b"9" * 5_000 + b"}",
    b'{"priority": NaN}',
    b'{"priority": true}',
    b'{"priority": "5"}',
    b'{"priority": null}',
    b'{"min_devices": -1}',
    b'{"max_devices": 0}',
    b'{"unknown\\u0000": 1}',
    b"null",
    b'"x"',
)


@pytest.mark.parametrize("body", WRONG_JSON)
def test_wrong_json_is_refused(yard: LiveYard, admin: str, body: bytes) -> None:
    job = _sleeper(yard, "red")
    status, said = raw(yard, "PATCH", f"/v1/jobs/{job}", body, admin)
    assert status in (400, 409), said
    assert json.loads(said)["error"]


@EVERY_CALL
def test_bodies_that_are_too_large_are_refused(
    yard: LiveYard, admin: str, method: str, path: str
) -> None:
    if method == "GET" or not BODIES.get((method, path)):
        pytest.skip("it takes no body")
    where = filled(path, job=_sleeper(yard, "red"))
    assert raw(yard, method, where, b"x" * (1 << 20), admin)[0] == 413
    assert audited(yard, f"{method} {where}", 413)


def _connected(yard: LiveYard) -> socket.socket:
    address = json.loads((yard.folder / "servers" / "main.json").read_text())["address"]
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30.0)


def test_headers_that_are_too_large_or_wrong_are_refused(yard: LiveYard) -> None:
    for head in (
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    ):
        with _connected(yard) as connection:
            try:
                connection.sendall(head)
                answer = connection.recv(4096)
            except OSError:
                # It does not listen to the end of it.
                continue
            assert answer == b"" or answer.split()[1][:1] == b"4", answer


def test_bodies_that_never_end_keep_nobody_else_waiting(yard: LiveYard, admin: str) -> None:
    slow = []
    for _ in range(50):
        connection = _connected(yard)
        connection.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
            b"Authorization: Bearer " + admin.encode() + b"\r\n\r\nname: "
        )
        slow.append(connection)
    job = yard.client.submit_text(command_job("quick", "true"))["id"]
    assert yard.client.wait(job, seconds=60.0)["state"] == "succeeded"
    for connection in slow:
        connection.close()


def test_tokens_are_nowhere_to_be_read(yard: LiveYard, admin: str) -> None:
    member = yard.client.issue_token(user="mia", tenant="red", role="member")
    raw(yard, "GET", f"/v1/jobs/{member}", token=member)
    raw(yard, "POST", "/v1/jobs", member.encode(), member)
    job = yard.client.submit_text(command_job("env", "env; cat /proc/$PPID/environ || true"))["id"]
    yard.client.wait(job, seconds=60.0)
    log = yard.client.log(job)[0].decode(errors="replace")
    processes = subprocess.run(
        ["ps", "-eo", "args", "eww"], capture_output=True, text=True, check=True
    ).stdout
    for token in (admin, member):
        assert token not in log
        assert token not in (yard.folder / "server.log").read_text()
        assert token not in json.dumps(yard.client.events())
        assert token not in json.dumps(yard.client.tokens())
        assert token not in processes
        # Only its hash is in the database, whatever was written where a token does not belong.
        assert token not in json.dumps(yard.client.audit(most=1000))
        for path in yard.folder.glob("yard.db*"):
            assert token.encode() not in path.read_bytes()
    assert os.stat(yard.folder / "admin.token").st_mode & 0o077 == 0
    assert os.stat(yard.folder / "secret").st_mode & 0o077 == 0


def test_methods_and_paths_that_nobody_knows(yard: LiveYard, admin: str) -> None:
    for method, path in (
        ("GET", "/v1/nothing"),
        ("DELETE", "/v1/jobs"),
        ("TRACE", "/v1/status"),
        ("GET", "//v1/jobs"),
        ("GET", "/v1/../v1/tokens"),
    ):
        assert raw(yard, method, path, token=admin)[0] in (404, 405)
