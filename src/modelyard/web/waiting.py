"""Why jobs wait, asked of the scheduler at most now and then, however many look.

An explanation of a long queue takes a second or more: pages do not wait for it. They show what was
said last, and are told when there is something new.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from modelyard.control.api.jobs import Jobs
from modelyard.control.store.store import Kept

#: After that long it is asked again, and after that long nothing old is said any more.
FRESH_SECONDS, KEPT_SECONDS = 5.0, 60.0
#: of explanations that are remembered
MOST_KEPT = 256
#: A page that is just being opened waits for so long: most queues are short.
PATIENCE_SECONDS = 0.15

Explanation = dict[str, object]


def named(words: str, names: Mapping[str, str]) -> str:
    """An explanation that calls jobs by their names, which people know, instead of their ids."""
    return re.sub(r"\w+", lambda found: names.get(found[0], found[0]), words)


@dataclass(slots=True)
class Explanations:
    """What was said last of each waiting job that somebody looks at."""

    jobs: Jobs
    _said: dict[str, tuple[float, Explanation]] = field(default_factory=dict)
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def of(self, kept: Kept, *, patience: float = PATIENCE_SECONDS) -> Explanation | None:
        """Why this job waits; None when that takes longer."""
        now, name = self.jobs.leading.now, kept.job.id
        at, said = self._said.get(name, (-1e9, {}))
        if now - at > FRESH_SECONDS or kept.job.since > at:
            task = self._asking.get(name)
            if task is None:
                task = self._asking[name] = asyncio.create_task(self._ask(kept))
            await asyncio.wait({task}, timeout=patience)
            at, said = self._said.get(name, (-1e9, {}))
        return said if now - at < KEPT_SECONDS and kept.job.since <= at else None

    async def _ask(self, kept: Kept) -> None:
        name = kept.job.id
        try:
            said = await self.jobs.explained(kept)
            self._said[name] = (self.jobs.leading.now, said)
            while len(self._said) > MOST_KEPT:
                del self._said[next(iter(self._said))]
        except Exception:
            # Whoever leads may have changed meanwhile; the next look asks again.
            self._said.pop(name, None)
        finally:
            del self._asking[name]
