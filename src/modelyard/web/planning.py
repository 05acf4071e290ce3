"""Plans for pages: a few at a time, and every question once, however many ask it.

The planner is arithmetic in this process. Who could ask for any number of plans at once would take
the processor from the yard itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from modelyard.control.api.calls import Refused
from modelyard.plan.answer import Answer

#: made at the same time
AT_ONCE = 2
#: Whoever comes when so many wait already is asked to come later.
MOST_WAITING = 16
#: answers that are remembered, the least recently asked for forgotten first
MOST_KEPT = 64
#: Nobody waits longer; what is made meanwhile is there when they ask again.
PATIENCE_SECONDS = 30.0


@dataclass(slots=True)
class Planning:
    """Questions that are being answered, and answers that were given."""

    _asked: OrderedDict[Hashable, asyncio.Task[Answer]] = field(default_factory=OrderedDict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def answer(self, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        """What `ask` says, or has said to the same key before."""
        task = self._asked.get(key)
        if task is None:
            if sum(not one.done() for one in self._asked.values()) >= MOST_WAITING:
                fix = "try again in a moment"
                raise Refused(503, "many plans are being made at this moment", fix=fix)
            task = self._asked[key] = asyncio.create_task(self._ask(ask))
        self._asked.move_to_end(key)
        self._forget()
        try:
            # One who leaves must not take it from the others.
            return await asyncio.wait_for(asyncio.shield(task), PATIENCE_SECONDS)
        except TimeoutError:
            fix = "load the page anew in a moment: it is being made"
            raise Refused(503, "this plan takes longer than usual", fix=fix) from None
        except Exception:
            self._asked.pop(key, None)
            raise

    async def _ask(self, ask: Callable[[], Answer]) -> Answer:
        async with self._places:
            return await run_in_threadpool(ask)

    def _forget(self) -> None:
        for key in [key for key, task in self._asked.items() if task.done()]:
            if len(self._asked) <= MOST_KEPT:
                return
            del self._asked[key]
