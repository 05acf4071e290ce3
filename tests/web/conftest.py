"""A real yard with its pages, and somebody who looks at them without a browser."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import pytest

from ..control.live import LiveYard


@dataclass(frozen=True)
class Seen:
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Visitor:
    """Keeps cookies as a browser does, and says where its forms come from."""

    address: str
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Seen:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Seen:
        sent = {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, body=urlencode(fields or {}), headers=sent | headers)

    def ask(self, method: str, path: str, *, body: str = "", headers: dict[str, str]) -> Seen:
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, body, {"Cookie": cookie, **headers})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        found: dict[str, str] = {}
        for name, value in response.getheaders():
            found[name.lower()] = f"{found[name.lower()]}\n{value}" if name in found else value
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return Seen(response.status, found, text)

    def log_in(self, token: str) -> Visitor:
        assert self.post("/login", {"token": token}).status == 303
        return self


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    # Who comes first is served first: nobody is stopped for another one here.
    live = LiveYard(tmp_path_factory.mktemp("web") / "state", options=("--policy", "fifo"))
    try:
        live.start()
        yield live
    finally:
        live.end()


@pytest.fixture(scope="module")
def address(yard: LiveYard) -> str:
    return str(yard.client.status()["leader"])


def token_of(yard: LiveYard, *, tenant: str, role: str = "member") -> str:
    return yard.client.issue_token(user=f"{role}-of-{tenant}", tenant=tenant, role=role)


@pytest.fixture(scope="module")
def admin(yard: LiveYard, address: str) -> Visitor:
    return Visitor(address).log_in((yard.folder / "admin.token").read_text().strip())


@pytest.fixture(scope="module")
def red(yard: LiveYard, address: str) -> Visitor:
    return Visitor(address).log_in(token_of(yard, tenant="red"))


@pytest.fixture(scope="module")
def onlooker(yard: LiveYard, address: str) -> Visitor:
    """May look at what red has, and change nothing."""
    return Visitor(address).log_in(token_of(yard, tenant="red", role="viewer"))
