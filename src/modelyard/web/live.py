"""What keeps an open page up to date: one stream of what has changed on it.

    camera ──▶ pulse ──▶ every open page: its live blocks, rendered anew, if they differ

A page's live blocks are blocks of its template. They are rendered once for all who look at the same
page with the same rights, and sent to whoever was sent something else before. What only grows, such
as a log, is sent by the page itself as messages of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from modelyard.control.leading import NotNow
from modelyard.web.picture import Camera, Picture

#: between two looks at the yard while somebody watches
PULSE_SECONDS = 1.0
#: A stream that has nothing to say shows so often that it lives.
SIGN_OF_LIFE_SECONDS = 10.0
#: A browser that lost its stream tries again after so long.
RETRY_MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that a page is told. `event` names who on the page listens."""

    event: str
    data: object
    #: what the page shows when it comes again, so that it is told only the rest
    cursor: str = ""

    def text(self) -> str:
        lines = [f"id: {self.cursor}"] if self.cursor else []
        lines += [f"event: {self.event}", f"data: {json.dumps(self.data, separators=(',', ':'))}"]
        return "\n".join(lines) + "\n\n"


def block(name: str, html: str) -> Message:
    """A live block that is to look like this from now on."""
    return Message("block", {"name": name, "html": html})


@dataclass(slots=True)
class Pulse:
    """Wakes all streams together, and looks at the yard only while there are any."""

    camera: Camera
    _watchers: int = 0
    _beat: asyncio.Event = field(default_factory=asyncio.Event)
    _beating: asyncio.Task[None] | None = None
    #: the yard at the last beat; none while another server leads
    picture: Picture | None = None

    async def beats(self) -> AsyncIterator[Picture | None]:
        """A picture now and with every beat; None while nobody can say how the yard is."""
        self._watchers += 1
        try:
            if self._beating is None:
                self._beating = asyncio.create_task(self._run())
            yield self.picture or await self._look()
            while True:
                await self._beat.wait()
                yield self.picture
        finally:
            self._watchers -= 1
            if self._watchers == 0 and self._beating is not None:
                self._beating.cancel()
                self._beating = self.picture = None

    async def _run(self) -> None:
        while True:
            self.picture = await self._look()
            beat, self._beat = self._beat, asyncio.Event()
            beat.set()
            await asyncio.sleep(PULSE_SECONDS)

    async def _look(self) -> Picture | None:
        try:
            return await self.camera.picture()
        except NotNow:
            return None
