"""Scripts and styles: read once, named by what is in them, kept by browsers for ever.

All of them share one name that changes with any of them, `/static/<mark>/…`, so that modules import
each other by plain relative names and never meet another version.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_EVER = "public, max-age=31536000, immutable"
MARK_LETTERS = 12


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """All of them, as they are sent: by name, plain and compressed."""

    mark: str
    plain: dict[str, bytes]
    small: dict[str, bytes]

    def address(self, name: str) -> str:
        if name not in self.plain:
            raise KeyError(f"there is no static file '{name}'")
        return f"/static/{self.mark}/{name}"

    async def serve(self, request: Request) -> Response:
        mark, name = request.path_params["mark"], request.path_params["name"]
        if name not in self.plain:
            return Response("no such file", status_code=404, media_type="text/plain")
        if mark != self.mark:
            # A page of an earlier version asks; it is told to load itself anew soon.
            return RedirectResponse(self.address(name), headers={"Cache-Control": "no-store"})
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
        headers |= {"X-Content-Type-Options": "nosniff"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        body = (self.small if packed else self.plain)[name]
        return Response(body, media_type=KINDS[PurePosixPath(name).suffix], headers=headers)


@cache
def static_files() -> StaticFiles:
    """The files of this installation."""
    folder = files("modelyard.web") / "static"
    plain = {
        one.name: one.read_bytes()
        for one in sorted(folder.iterdir(), key=lambda one: one.name)
        if PurePosixPath(one.name).suffix in KINDS
    }
    whole = hashlib.sha256()
    for name, data in plain.items():
        whole.update(f"{name} {len(data)} ".encode() + data)
    small = {name: gzip.compress(data, mtime=0) for name, data in plain.items()}
    return StaticFiles(whole.hexdigest()[:MARK_LETTERS], plain, small)
