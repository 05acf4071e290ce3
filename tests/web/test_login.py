"""Who gets in, for how long, and what others cannot do in their name."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from modelyard.web.login import next_page
from modelyard.web.session import CODE_SECONDS, SESSION_SECONDS, Sessions

from ..control.live import LiveYard
from .conftest import Visitor, token_of


def admin_token(yard: LiveYard) -> str:
    return (yard.folder / "admin.token").read_text().strip()


def test_a_token_logs_in_and_is_not_in_the_cookie(yard: LiveYard, address: str) -> None:
    visitor = Visitor(address)
    assert visitor.get("/").headers["location"] == "/login?next=%2F"
    seen = visitor.post("/login", {"token": admin_token(yard), "next": "/jobs"})
    assert (seen.status, seen.headers["location"]) == (303, "/jobs")
    cookie = seen.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert admin_token(yard) not in cookie
    assert visitor.get("/").status == 200


def test_a_wrong_token_does_not(address: str) -> None:
    visitor = Visitor(address)
    seen = visitor.post("/login", {"token": "yard_wrong"})
    assert seen.status == 401
    assert "This token is not valid" in seen.text
    assert not visitor.cookies


def test_a_cookie_is_secure_behind_https(yard: LiveYard, address: str) -> None:
    visitor = Visitor(address)
    https = {"X-Forwarded-Proto": "https"}
    seen = visitor.post("/login", {"token": admin_token(yard)}, **https)
    assert "; secure" in seen.headers["set-cookie"].lower()


def test_a_link_works_once(yard: LiveYard, address: str) -> None:
    link = urlsplit(yard.client.web_link())
    path = f"{link.path}?{link.query}"
    assert Visitor(address).get(path).headers["location"] == "/"
    second = Visitor(address).get(path)
    assert second.status == 401
    assert "used before" in second.text


def test_whoever_comes_to_a_link_from_elsewhere_is_asked_first(
    yard: LiveYard, address: str
) -> None:
    link = urlsplit(yard.client.web_link())
    visitor = Visitor(address)
    asked = visitor.get(f"{link.path}?{link.query}", **{"Sec-Fetch-Site": "cross-site"})
    assert asked.status == 200
    assert not visitor.cookies
    code = link.query.removeprefix("code=")
    assert code in asked.text
    assert visitor.post("/login", {"code": code}).status == 303
    assert visitor.get("/").status == 200


def test_a_link_needs_a_token(address: str) -> None:
    assert Visitor(address).post("/v1/web/links").status == 401


def test_a_revoked_token_ends_its_sessions(yard: LiveYard, address: str) -> None:
    token = token_of(yard, tenant="blue")
    visitor = Visitor(address).log_in(token)
    assert visitor.get("/jobs").status == 200
    yard.client.revoke_token(token)
    assert visitor.get("/jobs").status == 303


def test_log_out(yard: LiveYard, address: str) -> None:
    visitor = Visitor(address).log_in(admin_token(yard))
    assert visitor.post("/logout").headers["location"] == "/login"
    assert visitor.get("/").status == 303


def test_a_session_of_somebody_elses_making_is_none(yard: LiveYard, address: str) -> None:
    visitor = Visitor(address).log_in(admin_token(yard))
    (name, value) = next(iter(visitor.cookies.items()))
    digest, until, seal = value.split(".")
    for forged in (
        f"{digest}.{int(until) + 1}.{seal}",
        f"{'0' * 64}.{until}.{seal}",
        f"{digest}.{until}.",
        f"{digest}.²³.{seal}",
        "nonsense",
    ):
        assert Visitor(address, {name: forged.encode().decode("latin-1")}).get("/").status == 303


def test_sessions_and_codes_end() -> None:
    now = [1_000.0]
    sessions = Sessions(b"secret", lambda: now[0])
    code = sessions.code("yard_token")
    now[0] += CODE_SECONDS + 1
    assert sessions.redeem(code) is None
    assert SESSION_SECONDS > CODE_SECONDS


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://127.0.0.1:1"])
def test_forms_of_other_sites_are_refused(admin: Visitor, origin: str) -> None:
    for path in ("/logout", "/theme", "/login"):
        seen = admin.post(path, {"theme": "dark"}, Origin=origin)
        assert seen.status == 403, path


def test_a_form_that_does_not_say_where_it_is_from_is_refused(admin: Visitor) -> None:
    assert admin.ask("POST", "/logout", headers={}).status == 403


@pytest.mark.parametrize(
    "asked", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere", "jobs", "", "/\n"]
)
def test_nobody_is_sent_elsewhere_after_login(asked: str) -> None:
    assert next_page(asked) == "/"


def test_a_path_of_this_site_is_where_to_go_after_login() -> None:
    assert next_page("/jobs?q=a&state=failed") == "/jobs?q=a&state=failed"


def test_colours_can_be_chosen(address: str) -> None:
    visitor = Visitor(address)
    assert visitor.post("/theme", {"theme": "dark", "next": "/login"}).status == 303
    assert 'data-theme="dark"' in visitor.get("/login").text
    visitor.post("/theme", {"theme": "<script>", "next": "/login"})
    assert "data-theme" not in visitor.get("/login").text
