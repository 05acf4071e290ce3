"""What every call goes through: who calls, how much they send, and what is said when it fails."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from modelyard.control.leading import Clock, NotNow
from modelyard.control.lifecycle.machine import NotPossible
from modelyard.control.store.callers import Caller, Callers, Note, digest_of, note_call
from modelyard.control.store.lease import leader
from modelyard.errors import InputError, YardError

log = logging.getLogger(__name__)

#: of a body; a job file is a few kilobytes
MOST_BYTES = 512 * 1024
#: a moment that nobody means; what is later was written in milliseconds
LATEST = 1e11


class Refused(YardError):
    """The call is answered with a status of its own."""

    def __init__(self, status: int, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.status = status


def not_found(name: str) -> Refused:
    """Also for what exists and is another tenant's: its existence is nobody's business."""
    return Refused(404, f"there is no job '{name}'", fix="see 'yard ps --all'")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a known caller."""

    request: Request
    caller: Caller

    @property
    def job(self) -> str:
        return str(self.request.path_params["job"])

    def note(self, at: float, status: int) -> Note:
        """What the audit says of it when it has ended so."""
        call = f"{self.request.method} {self.request.url.path}"
        return Note(at, self.caller, call, status)

    def number(self, name: str, otherwise: int, *, most: int) -> int:
        """A whole number of the query."""
        written = self.request.query_params.get(name)
        if written is None:
            return otherwise
        if not written.isascii() or not written.isdigit() or len(written) > 18:
            raise InputError(
                f"'{name}={written[:40]}' is not a whole number", fix="write 0 or more"
            )
        return min(int(written), most)

    def moment(self, name: str, otherwise: float) -> float:
        """A time of the query, in seconds since 1970."""
        written = self.request.query_params.get(name)
        if written is None:
            return otherwise
        try:
            found = float(written)
        except ValueError:
            found = math.nan
        if not 0.0 <= found < LATEST:
            fix = "write seconds since 1970, such as 1767225600"
            raise InputError(f"'{name}={written[:40]}' is no time", fix=fix)
        return found

    def flag(self, name: str) -> bool:
        return self.request.query_params.get(name, "") in ("1", "true", "yes")

    async def body(self) -> bytes:
        """What was sent, if it is not too much."""
        taken = bytearray()
        async for piece in self.request.stream():
            taken += piece
            if len(taken) > MOST_BYTES:
                what = f"more than {MOST_BYTES // 1024} KiB were sent"
                raise Refused(413, what, fix="a job file needs a few kilobytes")
        return bytes(taken)

    async def fields(self) -> dict[str, object]:
        """The JSON object that was sent."""
        try:
            found = json.loads(await self.body() or b"{}")
        except (ValueError, RecursionError) as error:
            raise InputError(
                "the body is not JSON", fix='send an object such as {"a": 1}'
            ) from error
        if not isinstance(found, dict):
            raise InputError("the body is not an object", fix='send an object such as {"a": 1}')
        return found


Answer = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said of a call that failed."""

    status: int
    error: str
    fix: str

    def as_json(self) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        body = {"error": self.error, "fix": self.fix}
        return JSONResponse(body, status_code=self.status, headers=headers)


#: who calls; `Refused` when that is not known
Identify = Callable[[Database, Request], Caller]
#: how a failure is shown to whoever called, if that is known
Show = Callable[[Request, Caller | None, Failure], Response]


def guarded(
    database: Database,
    clock: Clock,
    answer: Answer,
    *,
    identify: Identify | None = None,
    show: Show = lambda _, __, failure: failure.as_json(),
    callers: Callers | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """A route that knows its caller, answers every error in one shape, and leaves a trace."""
    known = callers or Callers(database)

    async def route(request: Request) -> Response:
        caller: Caller | None = None
        detail = ""
        try:
            if identify is not None:
                caller = await run_in_threadpool(identify, database, request)
            else:
                caller = await _bearer(known, request)
            response = await answer(Call(request, caller))
        except ClientDisconnect:
            return Response(status_code=499)
        except NotNow as error:
            elsewhere = await run_in_threadpool(_leader_elsewhere, database, request)
            response, detail = elsewhere or show(request, caller, failure_of(error)), str(error)
        except Exception as error:
            response, detail = show(request, caller, failure_of(error)), str(error)
        if _leaves_a_trace(request, response.status_code):
            call = f"{request.method} {request.url.path}"
            await run_in_threadpool(
                _trace, database, clock(), caller, call, response.status_code, detail
            )
        return response

    return route


def _leaves_a_trace(request: Request, status: int) -> bool:
    """Whether the audit is to know of a call, and does not yet.

    Whoever is sent to another server is noted there.
    """
    if getattr(request.state, "noted", False) or status == 307:
        return False
    return request.method != "GET" or 400 <= status < 500


async def _bearer(callers: Callers, request: Request) -> Caller:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        fix = "send 'Authorization: Bearer TOKEN', or set YARD_TOKEN"
        raise Refused(401, "this yard wants to know who calls", fix=fix)
    digest = digest_of(token.strip())
    caller = callers.known(digest) or await run_in_threadpool(callers.recognise, digest)
    if caller is None:
        raise Refused(401, "this token is not valid", fix="ask an admin for 'yard tokens issue'")
    return caller


def _leader_elsewhere(database: Database, request: Request) -> Response | None:
    """Where to ask instead, when another server leads."""
    try:
        found = leader(database)
    except SQLAlchemyError:
        return None
    if (
        found is None
        or found.seconds_left <= 0.0
        or urlsplit(found.address).port == request.url.port
    ):
        return None
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return Response(status_code=307, headers={"Location": found.address + asked})


def _trace(
    database: Database, at: float, caller: Caller | None, call: str, status: int, detail: str
) -> None:
    try:
        note_call(database, at=at, caller=caller, call=call, status=status, detail=detail)
    except SQLAlchemyError:
        # The call itself was answered; a full disk is told by the calls that need it.
        log.warning("%s by %s (%d) could not be written to the audit", call, caller, status)


def failure_of(error: Exception) -> Failure:
    """What people are told of an error; the log has what they are not."""
    status = 500
    if isinstance(error, Refused):
        status = error.status
    elif isinstance(error, NotPossible):
        status = 409
    elif isinstance(error, InputError):
        status = 400
    elif isinstance(error, (NotNow, SQLAlchemyError)):
        status = 503
    if isinstance(error, YardError):
        return Failure(status, error.message if error.fix else str(error), error.fix)
    if status == 503:
        return Failure(status, "the yard's database does not answer", "try again in a moment")
    log.exception("a call failed", exc_info=error)
    return Failure(status, "the yard made a mistake", "see the server's log")
