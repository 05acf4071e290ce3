"""How pages are sent: with the headers that keep them safe, and small."""

from __future__ import annotations

import gzip

from starlette.requests import Request
from starlette.responses import Response

#: Nothing but what this server itself sends: no inline script or style, no frames, no other site.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With less the browser would not say either where a form was sent from.
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding, Cookie",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
#: Below that compression saves no packet.
WORTH_PACKING_BYTES = 1_200


def sent(
    request: Request, text: str, *, status: int = 200, kind: str = "text/html; charset=utf-8"
) -> Response:
    """A page, or a piece of one."""
    body, headers = text.encode(), dict(HEADERS)
    if len(body) > WORTH_PACKING_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, compresslevel=5, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status_code=status, media_type=kind, headers=headers)


def sent_elsewhere(path: str) -> Response:
    """After a form: look there."""
    return Response(status_code=303, headers={**HEADERS, "Location": path})
