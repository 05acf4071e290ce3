"""What a page is made with: who asks, a template, and a stream that keeps it up to date.

    def routes(site: Site) -> list[BaseRoute]:
        async def context(call: Call) -> dict[str, object]:
            return {"picture": await site.camera.picture(), …}

        return site.page("/cluster", "cluster", context, live=("map", "figures"))

That is `templates/cluster/page.html`. `live` names files beside it, which are rendered anew when
the yard has changed: the page includes each in an element with `data-live="map"`, whose content is
then made to match. Every route checks its caller with the code of the API, and raises what the API
raises: it becomes a page with the same status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

import jinja2
from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from modelyard.control.api.calls import Answer, Call, Failure, Refused, failure_of, guarded
from modelyard.control.leading import Clock
from modelyard.control.parts import Parts
from modelyard.control.store.callers import Caller, Role, recognise_digest
from modelyard.web.answers import HEADERS, sent, sent_elsewhere
from modelyard.web.colours import colour
from modelyard.web.live import (
    RETRY_MILLISECONDS,
    SIGN_OF_LIFE_SECONDS,
    Message,
    Pulse,
    block,
)
from modelyard.web.pasts import Pasts
from modelyard.web.picture import Camera, Picture
from modelyard.web.session import Sessions
from modelyard.web.static_files import StaticFiles, static_files
from modelyard.web.words import FILTERS

#: what a template is given
Context = Callable[[Call], Awaitable[Mapping[str, object]]]
#: what a page is told beside its live blocks, given the cursor of the last message
Messages = Callable[[Call, str], Awaitable[Sequence[Message]]]

THEMES = ("light", "dark")
THEME_COOKIE = "yard_theme"
#: What only time changes, such as a bar of progress, is rendered anew so often.
SLOWLY_SECONDS = 5.0
#: of pages that are looked at in so many different ways the blocks are kept for who comes next
MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class Tab:
    """An entry of the navigation."""

    path: str
    title: str


async def no_messages(_: Call, __: str) -> Sequence[Message]:
    return ()


class Site:
    """Everything that pages share."""

    def __init__(self, parts: Parts, tabs: tuple[Tab, ...]) -> None:
        self.parts, self.tabs = parts, tabs
        self.clock = Clock()
        self.static = static_files()
        self.sessions = Sessions(parts.secret, self.clock)
        self.camera = Camera(parts)
        self.pasts = Pasts(parts)
        self.pulse = Pulse(self.camera)
        self.templates = _templates(self.static)
        #: live blocks by page, caller and picture
        self._blocks: dict[tuple[object, ...], asyncio.Task[dict[str, str]]] = {}

    @property
    def database(self) -> Database:
        return self.parts.yard.store.database

    # Routes.

    def page(
        self,
        path: str,
        folder: str,
        context: Context,
        *,
        live: Sequence[str] = (),
        messages: Messages = no_messages,
    ) -> list[Route]:
        """A page, and the stream that keeps it up to date."""

        async def show(call: Call) -> Response:
            return await self.shown(call, f"{folder}/page.html", await context(call))

        async def follow(call: Call) -> Response:
            # What would be refused as a page is refused as a stream of it.
            picture = await self.camera.picture()
            await self._rendered(call, folder, context, tuple(live), _moment(picture))
            return StreamingResponse(
                self._told(call, folder, context, tuple(live), messages),
                media_type="text/event-stream",
                headers={**HEADERS, "X-Accel-Buffering": "no"},
            )

        return [
            Route(path, self._guarded(show, self._as_page), methods=["GET"]),
            Route(f"/live{path}", self._guarded(follow, _as_json), methods=["GET"]),
        ]

    def action(self, path: str, answer: Answer) -> Route:
        """What a form does; it is refused when the form was not one of this site's pages."""
        return Route(path, self._guarded(answer, self._as_page), methods=["POST"])

    def data(self, path: str, answer: Answer) -> Route:
        """Something that a script of a page asks for."""
        return Route(path, self._guarded(answer, _as_json), methods=["GET"])

    def presence(self) -> Route:
        """Whether a page that has lost its stream may ask for another one here."""

        async def answer(_: Call) -> Response:
            await self.camera.picture()
            return Response(status_code=204, headers=HEADERS)

        return self.data("/live", answer)

    # Answers.

    async def shown(
        self, call: Call, template: str, context: Mapping[str, object], *, status: int = 200
    ) -> Response:
        """A template, as a page."""
        shared = self._shared(call.request, call.caller)
        text = await run_in_threadpool(
            lambda: self.templates.get_template(template).render(**shared, **context)
        )
        return sent(call.request, text, status=status)

    def failed(self, request: Request, caller: Caller | None, failure: Failure) -> Response:
        """A page that says what went wrong and what to do."""
        shared = self._shared(request, caller)
        text = self.templates.get_template("failed.html").render(**shared, failure=failure)
        return sent(request, text, status=failure.status)

    def plain(self, request: Request, template: str, **context: object) -> Response:
        """A page for whoever is not known."""
        status = context.pop("status", 200)
        assert isinstance(status, int)
        shared = self._shared(request, None)
        text = self.templates.get_template(template).render(**shared, **context)
        return sent(request, text, status=status)

    def _as_page(self, request: Request, caller: Caller | None, failure: Failure) -> Response:
        if failure.status == 401 and request.method == "GET":
            asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return sent_elsewhere(f"/login?next={quote(asked, safe='')}")
        return self.failed(request, caller, failure)

    def _guarded(
        self, answer: Answer, show: Callable[[Request, Caller | None, Failure], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        return guarded(self.database, self.clock, answer, identify=self.identify, show=show)

    def identify(self, database: Database, request: Request) -> Caller:
        """Who has logged in; forms must come from this site."""
        if request.method != "GET":
            check_origin(request)
        digest = self.sessions.open(request)
        caller = recognise_digest(database, digest) if digest else None
        if caller is None:
            raise Refused(401, "nobody is logged in here", fix="log in again")
        return caller

    def _shared(self, request: Request, caller: Caller | None) -> dict[str, object]:
        """What every template may use."""
        theme = request.cookies.get(THEME_COOKIE, "")
        query = f"?{request.url.query}" if request.url.query else ""
        return {
            "caller": caller,
            "admin": caller is not None and caller.role is Role.ADMIN,
            "here": request.url.path,
            "query": query,
            "now": self.clock(),
            "tabs": self.tabs,
            "theme": theme if theme in THEMES else "",
        }

    # Streams.

    async def _told(
        self,
        call: Call,
        folder: str,
        context: Context,
        live: tuple[str, ...],
        messages: Messages,
    ) -> AsyncIterator[str]:
        """What the page is told for as long as it is open and its caller is known."""
        cursor = call.request.headers.get("last-event-id", "")
        cursor = cursor or call.request.query_params.get("cursor", "")
        had: dict[str, str] = {}
        quiet_since = self.clock()
        yield f"retry: {RETRY_MILLISECONDS}\n" + Message("hello", {"mark": self.static.mark}).text()
        async for picture in self.pulse.beats():
            if picture is None:
                # Somebody else leads, or nobody yet: the page finds out whom to ask.
                return
            news: list[Message] = []
            try:
                rendered = await self._rendered(call, folder, context, live, _moment(picture))
                news += [block(*one) for one in rendered.items() if had.get(one[0]) != one[1]]
                had = rendered
                news += await messages(call, cursor)
            except Exception as error:
                failure = failure_of(error)
                yield Message("failed", {"error": failure.error, "fix": failure.fix}).text()
                return
            for message in news:
                cursor = message.cursor or cursor
                yield message.text()
            if news:
                quiet_since = self.clock()
            elif self.clock() - quiet_since > SIGN_OF_LIFE_SECONDS:
                quiet_since = self.clock()
                if not await run_in_threadpool(self._still_known, call.request):
                    return
                yield Message("alive", {}).text()

    async def _rendered(
        self, call: Call, folder: str, context: Context, live: tuple[str, ...], moment: object
    ) -> dict[str, str]:
        """The live blocks, made once for all who see the same."""
        if not live:
            return {}
        request = call.request
        query = [pair for pair in parse_qsl(request.url.query) if pair[0] != "cursor"]
        key = (folder, request.url.path, tuple(query), call.caller, moment)
        task = self._blocks.get(key)
        if task is None:
            task = asyncio.create_task(self._render(call, folder, context, live))
            self._blocks[key] = task
            while len(self._blocks) > MOST_KEPT:
                del self._blocks[next(iter(self._blocks))]
        try:
            # One page that is closed must not take it from the others.
            return await asyncio.shield(task)
        except Exception:
            self._blocks.pop(key, None)
            raise

    async def _render(
        self, call: Call, folder: str, context: Context, live: tuple[str, ...]
    ) -> dict[str, str]:
        given = {**self._shared(call.request, call.caller), **await context(call)}
        given["here"] = str(given["here"]).removeprefix("/live") or "/"
        made = {name: self.templates.get_template(f"{folder}/{name}.html") for name in live}
        return await run_in_threadpool(
            lambda: {name: template.render(given) for name, template in made.items()}
        )

    def _still_known(self, request: Request) -> bool:
        try:
            self.identify(self.database, request)
        except Refused:
            return False
        return True


def check_origin(request: Request) -> None:
    """Refuse what a page of another site sends in the name of whoever has logged in here."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc == request.headers.get("host", ""):
        return
    if origin is None and request.headers.get("sec-fetch-site") == "same-origin":
        return
    raise Refused(403, "this form was not sent from a page of this yard", fix="load the page anew")


async def form(call: Call) -> dict[str, str]:
    """The fields of a form."""
    text = (await call.body()).decode("utf-8", errors="replace")
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=100))


def _moment(picture: Picture) -> object:
    """The same for pictures on which nothing has changed that anybody would notice."""
    return picture.number, int(picture.at / SLOWLY_SECONDS)


def _as_json(_: Request, __: Caller | None, failure: Failure) -> Response:
    return failure.as_json()


def _templates(static: StaticFiles) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("modelyard.web", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(colour=colour, static=static.address)
    return environment
