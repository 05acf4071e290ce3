"""Log in with a token or with a link of `yard web`, log out, and choose light or dark."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from modelyard.control.api.calls import Call, Refused, failure_of, guarded
from modelyard.control.store.callers import Caller, digest_of, note_call, recognise_digest
from modelyard.web.answers import sent_elsewhere
from modelyard.web.session import CODE_SECONDS
from modelyard.web.site import THEME_COOKIE, THEMES, Site, check_origin

#: of a form that logs somebody in
MOST_BYTES = 8_192
YEAR_SECONDS = 365 * 86_400


def routes(site: Site) -> list[BaseRoute]:
    login = _Login(site)
    link = guarded(site.database, site.clock, login.link)
    return [
        Route("/login", login.page, methods=["GET"]),
        Route("/login", login.enter, methods=["POST"]),
        Route("/logout", login.leave, methods=["POST"]),
        Route("/theme", login.theme, methods=["POST"]),
        Route("/v1/web/links", link, methods=["POST"]),
    ]


class _Login:
    def __init__(self, site: Site) -> None:
        self.site = site

    async def link(self, call: Call) -> Response:
        """POST with a token: a path that logs its first visitor in as the caller."""
        _, _, token = call.request.headers["authorization"].partition(" ")
        code = self.site.sessions.code(token.strip())
        return JSONResponse(
            {"path": f"/login?code={code}", "seconds": CODE_SECONDS}, status_code=201
        )

    async def page(self, request: Request) -> Response:
        """GET: the form, or somebody who follows a link."""
        following = next_page(request.query_params.get("next", ""))
        code = request.query_params.get("code")
        if code is None:
            return self._form(request, following)
        # A page of another site may not log anybody in here: who comes from one is asked first.
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return self.site.plain(request, "login.html", code=code, problem=None, next=following)
        return await self._entered(request, self.site.sessions.redeem(code), following, link=True)

    async def enter(self, request: Request) -> Response:
        """POST: a token or a code."""
        try:
            check_origin(request)
            fields = await _fields(request)
        except Refused as error:
            return self.site.failed(request, None, failure_of(error))
        following = next_page(fields.get("next", ""))
        if "code" in fields:
            digest = self.site.sessions.redeem(fields["code"])
            return await self._entered(request, digest, following, link=True)
        digest = digest_of(fields.get("token", "").strip())
        return await self._entered(request, digest, following, link=False)

    async def leave(self, request: Request) -> Response:
        try:
            check_origin(request)
        except Refused as error:
            return self.site.failed(request, None, failure_of(error))
        response = sent_elsewhere("/login")
        self.site.sessions.end(request, response)
        return response

    async def theme(self, request: Request) -> Response:
        """POST: light, dark, or what the machine prefers."""
        try:
            check_origin(request)
            fields = await _fields(request)
        except Refused as error:
            return self.site.failed(request, None, failure_of(error))
        response = sent_elsewhere(next_page(fields.get("next", "")))
        chosen = fields.get("theme", "")
        response.set_cookie(
            THEME_COOKIE,
            chosen if chosen in THEMES else "",
            max_age=YEAR_SECONDS if chosen in THEMES else 0,
            samesite="strict",
            httponly=True,
        )
        return response

    async def _entered(
        self, request: Request, digest: str | None, following: str, *, link: bool
    ) -> Response:
        caller = await run_in_threadpool(self._known, digest)
        if caller is None or digest is None:
            await run_in_threadpool(self._note, request, None, 401)
            problem = (
                "this link was used before, or is older than a minute: ask for another one with "
                "'yard web'"
                if link
                else "this token is not valid: ask an admin for 'yard tokens issue'"
            )
            return self._form(request, following, problem=problem)
        await run_in_threadpool(self._note, request, caller, 303)
        response = sent_elsewhere(following)
        self.site.sessions.begin(request, response, digest)
        return response

    def _known(self, digest: str | None) -> Caller | None:
        return recognise_digest(self.site.database, digest) if digest else None

    def _note(self, request: Request, caller: Caller | None, status: int) -> None:
        call = f"{request.method} {request.url.path}"
        note_call(self.site.database, at=self.site.clock(), caller=caller, call=call, status=status)

    def _form(self, request: Request, following: str, problem: str | None = None) -> Response:
        status = 401 if problem else 200
        return self.site.plain(
            request, "login.html", problem=problem, next=following, code=None, status=status
        )


def next_page(asked: str) -> str:
    """Where to go afterwards: a path of this site, whatever was asked for."""
    parts = urlsplit(asked)
    sound = asked.startswith("/") and not asked.startswith(("//", "/\\")) and asked.isprintable()
    if parts.scheme or parts.netloc or not sound:
        return "/"
    return asked


async def _fields(request: Request) -> dict[str, str]:
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > MOST_BYTES:
            raise Refused(413, "too much was sent", fix="send the form as it is")
    return dict(parse_qsl(taken.decode("utf-8", errors="replace"), keep_blank_values=True))
