"""What a keeper is told, over a pipe: an environment with secrets in it never touches the disk.

Both ends are the same version of the same interpreter, which is what `marshal` asks for; it is
built in and costs nothing to load.
"""

from __future__ import annotations

import marshal

#: answers, each with a reason behind it or nothing
STARTED = "started"
ALREADY = "already"
SUPERSEDED = "superseded"
UNAVAILABLE = "unavailable"


class Order:
    """A task to start. Paths and texts for the kernel are bytes, as it wants them."""

    def __init__(
        self,
        *,
        base: bytes,
        key: str,
        job: str,
        attempt: int,
        node: str,
        marker: str,
        argv: list[bytes],
        environment: dict[bytes, bytes],
        folder: bytes,
        wanted: dict[str, float],
        use_groups: bool,
        piece_bytes: int,
        pieces: int,
        umask: int,
    ) -> None:
        #: the state folder under the name that it has in this term
        self.base = base
        #: the task's name, also that of its folder
        self.key = key
        self.job = job
        self.attempt = attempt
        self.node = node
        #: unique to this task of this engine
        self.marker = marker
        self.argv = argv
        self.environment = environment
        self.folder = folder
        #: limits by controller
        self.wanted = wanted
        self.use_groups = use_groups
        self.piece_bytes = piece_bytes
        self.pieces = pieces
        self.umask = umask

    def pack(self) -> bytes:
        return marshal.dumps(self.__dict__)


def unpack(text: bytes) -> Order:
    """Raises when the sender died before it was done: half an order is none."""
    return Order(**marshal.loads(text))
