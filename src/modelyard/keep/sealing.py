"""JSON with the hash of itself in front: a single changed byte is noticed."""

from __future__ import annotations

import hashlib

_BEFORE = b'{"sha256":"'
_BETWEEN = b'","manifest":'
_AFTER = b"}\n"
_DIGEST = 64


def seal(body: bytes) -> bytes:
    """Some JSON as part of a larger one, which also holds its hash."""
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"".join((_BEFORE, digest, _BETWEEN, body, _AFTER))


def unseal(data: bytes) -> bytes | None:
    """The JSON that was sealed; None when anything of it has changed."""
    start = len(_BEFORE) + _DIGEST + len(_BETWEEN)
    digest, body = data[len(_BEFORE) : len(_BEFORE) + _DIGEST], data[start : -len(_AFTER)]
    rest = (data[: len(_BEFORE)], data[start - len(_BETWEEN) : start], data[-len(_AFTER) :])
    whole = rest == (_BEFORE, _BETWEEN, _AFTER)
    return body if whole and hashlib.sha256(body).hexdigest().encode() == digest else None
