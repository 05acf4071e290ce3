"""The thread in which a policy thinks, so that nobody else waits for it.

It is given a copy of the records and takes its time. What it decided is told to whoever leads, who
finds out whether that can still be done (`Loop.follow`). Questions to the policy are asked here
too: it does one thing after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from modelyard.control.lifecycle.events import Decided
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.loop import Decide


@dataclass(frozen=True, slots=True)
class Thought:
    """What a policy decided on which records, and how long that took."""

    seen: Lifecycle
    decided: list[Decided]
    seconds: float


class Thinking:
    """One policy's thread; only the thread that leads uses it."""

    def __init__(self, decide: Decide, wake: Callable[[], None]) -> None:
        """`wake` is called when something was decided."""
        self._decide, self._wake = decide, wake
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._thought: Future[Thought] | None = None

    @property
    def is_idle(self) -> bool:
        return self._thought is None

    @property
    def has_decided(self) -> bool:
        return self._thought is not None and self._thought.done()

    def begin(self, lifecycle: Lifecycle, now: float) -> None:
        """Decide on the records as they are now."""
        self._thought = self._thread.submit(self._think, lifecycle.copy(), now)
        self._thought.add_done_callback(lambda _: self._wake())

    def take(self) -> Thought:
        """What was decided, once; whatever the policy raised is raised here."""
        assert self._thought is not None
        thought, self._thought = self._thought, None
        return thought.result()

    def consult(
        self, read: Callable[[Lifecycle, float], object], lifecycle: Lifecycle, now: float
    ) -> Future[Any]:
        """What `read` finds in the records as they are now, when there is time for that."""
        return self._thread.submit(read, lifecycle.copy(), now)

    def close(self) -> None:
        """Nobody waits for what it thinks about; what was not begun is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _think(self, seen: Lifecycle, now: float) -> Thought:
        began = time.monotonic()
        decided = list(self._decide(seen, now))
        return Thought(seen, decided, time.monotonic() - began)


def hand_over(found: Future[Any], answer: Future[Any], otherwise: Exception) -> None:
    """Let `answer` be what was found, or `otherwise` where nobody began to look for it."""
    try:
        answer.set_result(found.result())
    except CancelledError:
        answer.set_exception(otherwise)
    except Exception as error:
        answer.set_exception(error)
