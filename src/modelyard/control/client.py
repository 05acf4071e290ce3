"""The yard from a program: the same verbs as on the command line.

    yard = Client()                      # the yard of this machine, or of YARD_URL
    job = yard.submit("job.yaml")
    print(yard.why(job["id"])["sentence"])

Calls that cannot have been carried out are repeated; a submission carries its id, so that asking
twice submits once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from modelyard.errors import InputError, YardError, cause_of

URL_VARIABLE, TOKEN_VARIABLE, FOLDER_VARIABLE = "YARD_URL", "YARD_TOKEN", "YARD_FOLDER"
#: how long a call may take, and for how long it is repeated while the yard is away
CALL_SECONDS, PATIENCE_SECONDS = 10.0, 15.0
PAUSE_SECONDS = 0.2
#: a stream shows every ten seconds that it lives; one that was silent for so long does not
SILENCE_SECONDS = 30.0


class NoYard(YardError):
    """No yard answers."""


class CallRefused(YardError):
    """The yard answered, and not with what was asked for."""

    def __init__(self, status: int, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.status = status


def yard_folder() -> Path:
    """Where this machine's yard keeps its state: YARD_FOLDER, or `.yard` at home."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".yard")


class Client:
    """Calls to one yard."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        folder: Path | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Without an address, that of the environment or of the yard of this machine.

        Whoever names a folder means the yard there, whatever the environment says.
        """
        said = os.environ if folder is None else {}
        self._url = url or said.get(URL_VARIABLE)
        self._token = token or said.get(TOKEN_VARIABLE)
        self._folder = folder or yard_folder()
        self._patience_seconds = patience_seconds

    def submit(self, job: str | Path, *, id: str | None = None) -> dict[str, Any]:
        """Submit a job file; it runs in the file's folder."""
        path = Path(job)
        text = _text_of(path)
        return self.submit_text(text, folder=str(path.resolve().parent), id=id, file=path.name)

    def submit_text(
        self, text: str, *, folder: str = "", id: str | None = None, file: str = "job"
    ) -> dict[str, Any]:
        """Submit the YAML of a job; `file` is what its mistakes are said to be in."""
        query = {"id": id or secrets.token_hex(6), "folder": folder, "file": file}
        found = self._call("POST", "/v1/jobs", query=query, body=text.encode())
        assert isinstance(found, dict)
        return found

    def jobs(
        self,
        *,
        all: bool = False,
        most: int = 100,
        skip: int = 0,
        states: Sequence[str] = (),
        tenant: str = "",
        owner: str = "",
        search: str = "",
        order: str = "submitted",
        reverse: bool = False,
    ) -> dict[str, Any]:
        """Unfinished jobs, or all of them; the newest first, with the number in each state.

        Or only those in some states, of a tenant or an owner, or with some words in their name,
        owner or tenant. `order` is one of `control.listing.Order`.
        """
        asked = {
            "all": "1" if all else "0",
            "most": str(most),
            "skip": str(skip),
            "state": ",".join(states),
            "tenant": tenant,
            "owner": owner,
            "search": search,
            "order": order,
            "reverse": "1" if reverse else "",
        }
        query = {name: value for name, value in asked.items() if value}
        return self._object("GET", "/v1/jobs", query=query)

    def job(self, job: str) -> dict[str, Any]:
        return self._object("GET", f"/v1/jobs/{_part(job)}")

    def why(self, job: str) -> dict[str, Any]:
        return self._object("GET", f"/v1/jobs/{_part(job)}/why")

    def events(
        self, job: str | None = None, *, after: int = 0, last: int | None = None
    ) -> list[dict[str, Any]]:
        """What happened to a job, or of `last` many things that happened in the whole yard."""
        path = f"/v1/jobs/{_part(job)}/events" if job else "/v1/events"
        query = {"after": str(after)}
        if last is not None and job is None:
            query["last"] = str(last)
        found = self._object("GET", path, query=query)["events"]
        assert isinstance(found, list)
        return found

    def stream(self, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Events as they happen, the oldest first; `NoYard` when nobody tells any longer.

        Whoever wants to go on then asks again, with the number of the last event.
        """
        urls, token = self._found()
        for url in urls:
            with contextlib.suppress(OSError, http.client.HTTPException):
                yield from _streamed(url, token, after)
        raise self._nobody(ConnectionResetError("the stream of events has ended"))

    def forecast(self, *, wait_seconds: float | None = None) -> dict[str, Any]:
        """When every unfinished job starts and ends, and on what, as far as anybody can say."""
        query = {} if wait_seconds is None else {"wait": str(round(1000 * wait_seconds))}
        return self._object("GET", "/v1/forecast", query=query)

    def outlook(self, job: str | Path) -> dict[str, Any]:
        """The same of a job file that is not submitted: when, where, at what cost, before whom."""
        path = Path(job)
        return self.outlook_text(_text_of(path), folder=str(path.resolve().parent), file=path.name)

    def outlook_text(self, text: str, *, folder: str = "", file: str = "job") -> dict[str, Any]:
        """The same of the YAML of a job."""
        query = {"folder": folder, "file": file}
        return self._object("POST", "/v1/forecast", query=query, body=text.encode())

    def history(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        most: int = 2_000,
        points: int = 240,
    ) -> dict[str, Any]:
        """What happened, in seconds since 1970: spans of jobs, uses of devices, and curves."""
        query = {"most": str(most), "points": str(points)}
        if since is not None:
            query["from"] = repr(since)
        if until is not None:
            query["to"] = repr(until)
        return self._object("GET", "/v1/history", query=query)

    def workload(self, *, since: float | None = None, until: float | None = None) -> dict[str, Any]:
        """The jobs of a stretch of time, for the simulator to play again; of a day by default."""
        query = {"from": since, "to": until}
        said = {name: repr(value) for name, value in query.items() if value is not None}
        return self._object("GET", "/v1/workload", query=said)

    def log(
        self, job: str, *, role: str = "", start: int = 0, attempt: int | None = None
    ) -> tuple[bytes, int]:
        """A piece of what a task wrote, and where the next one begins.

        Without a role that of the conductor of a training job, of the first node of a command.
        """
        query = {"role": role, "start": str(start)}
        if attempt is not None:
            query["attempt"] = str(attempt)
        piece, headers = self._send("GET", f"/v1/jobs/{_part(job)}/log", query, b"")
        return piece, int(headers.get("x-next", start))

    def pause(self, job: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_part(job)}/pause")

    def resume(self, job: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_part(job)}/resume")

    def cancel(self, job: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_part(job)}/cancel")

    def scale(
        self,
        job: str,
        *,
        min_devices: int | None = None,
        max_devices: int | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """Let a job have more or fewer devices, or another priority."""
        fields = {"min_devices": min_devices, "max_devices": max_devices, "priority": priority}
        said = {name: value for name, value in fields.items() if value is not None}
        return self._object("PATCH", f"/v1/jobs/{_part(job)}", body=json.dumps(said).encode())

    def nodes(self) -> list[dict[str, Any]]:
        found = self._object("GET", "/v1/nodes")["nodes"]
        assert isinstance(found, list)
        return found

    def drain(self, node: str, *, why: str = "") -> None:
        body = json.dumps({"why": why}).encode()
        self._object("POST", f"/v1/nodes/{_part(node)}/drain", body=body)

    def give_back(self, node: str) -> None:
        self._object("POST", f"/v1/nodes/{_part(node)}/return")

    def status(self) -> dict[str, Any]:
        return self._object("GET", "/v1/status")

    def halt(self) -> dict[str, Any]:
        """Stop what runs until the yard is up again, or for a minute; only for admins."""
        return self._object("POST", "/v1/halt")

    def web_link(self) -> str:
        """An address that logs its first visitor in as this caller, within a minute."""
        path = str(self._object("POST", "/v1/web/links")["path"])
        return f"{self._url or self.status()['leader']}{path}"

    def issue_token(self, *, user: str, tenant: str, role: str) -> str:
        body = json.dumps({"user": user, "tenant": tenant, "role": role}).encode()
        return str(self._object("POST", "/v1/tokens", body=body)["token"])

    def tokens(self) -> list[dict[str, Any]]:
        found = self._object("GET", "/v1/tokens")["tokens"]
        assert isinstance(found, list)
        return found

    def revoke_token(self, hint: str) -> int:
        return int(self._object("DELETE", f"/v1/tokens/{_part(hint)}")["revoked"])

    def tenants(self, *, window_seconds: int = 86_400) -> list[dict[str, Any]]:
        """Tenants with their rights, what they hold now, and what they used in a window."""
        query = {"window": str(window_seconds)}
        found = self._object("GET", "/v1/tenants", query=query)["tenants"]
        assert isinstance(found, list)
        return found

    def set_tenant(self, tenant: str, **rights: object) -> dict[str, Any]:
        """Give a tenant other rights: `guaranteed`, `maximum`, `weight` or `band`; for admins."""
        body = json.dumps(rights).encode()
        found = self._object("PUT", f"/v1/tenants/{_part(tenant)}", body=body)["tenants"]
        return next(dict(one) for one in found if one["name"] == tenant)

    def remove_tenant(self, tenant: str) -> None:
        """Forget what was set for a tenant; what the yard's file says counts again."""
        self._object("DELETE", f"/v1/tenants/{_part(tenant)}")

    def audit(self, *, after: int = 0, most: int = 100) -> list[dict[str, Any]]:
        """The newest calls that changed something or were refused, the oldest first."""
        query = {"after": str(after), "most": str(most)}
        found = self._object("GET", "/v1/audit", query=query)["calls"]
        assert isinstance(found, list)
        return found

    def doctor(self) -> dict[str, Any]:
        """What the server that leads finds when it looks at itself; for admins."""
        return self._object("GET", "/v1/doctor")

    def wait(
        self,
        job: str,
        *,
        seconds: float = 1e9,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """The job when it is over; `TimeoutError` when that takes longer.

        Until then `tell` is given the job whenever its state is another one.
        """
        until = time.monotonic() + seconds
        state = ""
        while True:
            found = self.job(job)
            if found["state"] != state:
                state = found["state"]
                tell(found)
            if found["state"] in ("succeeded", "failed", "cancelled"):
                return found
            if time.monotonic() > until:
                raise TimeoutError(f"job {job} is {found['state']} after {seconds:g} s")
            time.sleep(PAUSE_SECONDS)

    def _object(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: bytes = b""
    ) -> dict[str, Any]:
        found = self._call(method, path, query=query or {}, body=body)
        assert isinstance(found, dict)
        return found

    def _call(self, method: str, path: str, *, query: dict[str, str], body: bytes) -> object:
        return json.loads(self._send(method, path, query, body)[0])

    def _send(
        self, method: str, path: str, query: dict[str, str], body: bytes
    ) -> tuple[bytes, dict[str, str]]:
        """One call, repeated while nobody answers: the yard may be starting again."""
        until = time.monotonic() + self._patience_seconds
        for pause in _pauses():
            try:
                status, answer, headers = self._once(method, path, query, body)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + pause > until:
                    raise self._nobody(error) from error
            else:
                if status < 300:
                    return answer, headers
                # 307 once more: whoever led does not any longer.
                if status not in (307, 503) or time.monotonic() + pause > until:
                    raise _refusal(status, answer)
            time.sleep(pause)
        raise AssertionError("there is always another pause")

    def _once(
        self, method: str, path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        """Ask the servers in turn until one answers, and then the one that it says leads."""
        urls, token = self._found()
        failure: Exception | None = None
        for url in urls:
            try:
                found = _exchange(url, token, method, path, query, body)
                if found[0] == 307 and (leader := found[2].get("location")):
                    found = _exchange(leader, token, method, path, query, body)
                return found
            except (OSError, http.client.HTTPException) as error:
                failure = error
        raise failure or FileNotFoundError(f"no yard in {self._folder}")

    def _found(self) -> tuple[list[str], str]:
        """Addresses and token; a yard on this machine may have moved since the last call."""
        urls = [self._url] if self._url else _servers(self._folder)
        token = self._token
        if token is None:
            try:
                token = (self._folder / "admin.token").read_text().strip()
            except OSError as error:
                what = f"no token for {self._url or self._folder}"
                if self._url is None:
                    raise FileNotFoundError(what) from error
                raise InputError(what, fix=f"set {TOKEN_VARIABLE}") from error
        return urls, token

    def _nobody(self, error: Exception) -> NoYard:
        where = self._url or f"the yard in {self._folder}"
        return NoYard(f"{where} does not answer: {cause_of(error)}", fix="start it with 'yard up'")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path} cannot be read: {cause_of(error)}"
        raise InputError(what, fix="name a job file") from error


def _exchange(
    url: str, token: str, method: str, path: str, query: dict[str, str], body: bytes
) -> tuple[int, bytes, dict[str, str]]:
    """One call to one server: status, body and headers of its answer."""
    connection = _connection(url, seconds=CALL_SECONDS)
    try:
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, target, body, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read(), headers
    finally:
        connection.close()


def _streamed(url: str, token: str, after: int) -> Iterator[dict[str, Any]]:
    """Server-sent events of one server, for as long as it sends any."""
    connection = _connection(url, seconds=SILENCE_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("GET", f"/v1/stream?after={after}", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _refusal(response.status, response.read())
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
    finally:
        connection.close()


def _connection(url: str, *, seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    https = parts.scheme == "https"
    kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=seconds)


def _servers(folder: Path) -> list[str]:
    """Addresses of the servers that were started on a folder."""
    found = []
    for path in sorted((folder / "servers").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found.append(str(json.loads(path.read_text())["address"]))
    return found


def _pauses() -> Iterator[float]:
    pause = PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2.0 * pause, 2.0)


def _refusal(status: int, answer: bytes) -> CallRefused:
    try:
        said = json.loads(answer)
        return CallRefused(status, str(said["error"]), fix=str(said.get("fix", "")))
    except (ValueError, KeyError, TypeError):
        return CallRefused(status, f"the yard answered {status}")


def _part(text: str) -> str:
    if not text:
        raise InputError("a job or node is missing", fix="name it")
    return quote(text, safe="")
