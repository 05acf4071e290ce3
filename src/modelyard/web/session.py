"""Who is logged in: a sealed cookie that names a token without being one.

The cookie holds the hash of the token that was shown at login and the time at which it ends, sealed
with the yard's secret. It is of no use as a token, ends with the token that it stands for, and
survives the server. Codes are for links: one use, within a minute, of this server only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from modelyard.control.store.callers import digest_of

SESSION_SECONDS = 30 * 86_400.0
CODE_SECONDS = 60.0
#: A caller that asks for more of them at once gets the newest only.
MOST_CODES = 100


@dataclass(slots=True)
class Sessions:
    """Seals and opens cookies, and keeps codes until they are used."""

    secret: bytes
    clock: Callable[[], float]
    _codes: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cookie(self) -> str:
        """Its name; browsers do not tell yards apart that are at two ports of one machine."""
        return f"yard_{self._seal('name')[:8]}"

    def open(self, request: Request) -> str | None:
        """The hash of the token that whoever asks has logged in with."""
        digest, _, rest = request.cookies.get(self.cookie, "").partition(".")
        until, _, seal = rest.partition(".")
        if not until.isascii() or not until.isdigit() or len(until) > 12:
            return None
        if not hmac.compare_digest(self._seal(f"{digest}.{until}").encode(), seal.encode()):
            return None
        return digest if int(until) > self.clock() else None

    def begin(self, request: Request, response: Response, digest: str) -> None:
        """Let the browser be logged in from this answer on."""
        until = int(self.clock() + SESSION_SECONDS)
        self._set(request, response, f"{digest}.{until}.{self._seal(f'{digest}.{until}')}")

    def end(self, request: Request, response: Response) -> None:
        self._set(request, response, "", seconds=0)

    def code(self, token: str) -> str:
        """What stands for a token in a link, once and for a short time."""
        made = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[_hashed(made)] = (digest_of(token), self.clock() + CODE_SECONDS)
            while len(self._codes) > MOST_CODES:
                del self._codes[next(iter(self._codes))]
        return made

    def redeem(self, code: str) -> str | None:
        """The hash of the token that a code stands for; a second time there is none."""
        with self._lock:
            digest, until = self._codes.pop(_hashed(code), ("", 0.0))
        return digest if until > self.clock() else None

    def _seal(self, text: str) -> str:
        return hmac.new(self.secret, f"web session {text}".encode(), "sha256").hexdigest()

    def _set(
        self, request: Request, response: Response, value: str, seconds: float = SESSION_SECONDS
    ) -> None:
        response.set_cookie(
            self.cookie,
            value,
            max_age=int(seconds),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )


def _hashed(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
