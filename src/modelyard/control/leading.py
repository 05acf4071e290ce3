"""The thread that leads a yard: everything that changes records happens in it, one after another.

    ask ──▶ queue ──▶ consider, consider, … settle ──▶ answers
                      look · place · act

Requests that wait together are written together, so that a busy yard pays for few commits. A server
that does not lead waits for the lease; one that loses it, or whose database fails, drops everything
that it believed and begins anew from what is written.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from modelyard.control.lifecycle.events import Event
from modelyard.control.lifecycle.machine import Lifecycle, Outcome
from modelyard.control.loop import Decide, Loop, ProbeRecipe, Recipe
from modelyard.control.store import lease
from modelyard.control.store.store import Store
from modelyard.engines.interface import Engine, Superseded
from modelyard.errors import YardError

log = logging.getLogger(__name__)


class NotNow(YardError):
    """The yard cannot take this at the moment; nothing of it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often things are done, in seconds."""

    #: the longest time between two looks at the engine
    look: float = 0.25
    #: the shortest and the longest time between two decisions; only news shortens the longest
    decide_after_news: float = 0.5
    decide: float = 5.0
    #: before another try after the database or the lease failed
    retry: float = 0.5


PACE = Pace()

#: is told what has just become durable
Settled = Callable[[Sequence[Outcome]], None]

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class _Consulted:
    read: Callable[[Lifecycle, float], object]
    answer: Future[Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    event: Event
    specs: dict[str, str]
    answer: Future[Outcome]


class Clock:
    """Seconds since 1970 that never jump, whatever is done to the machine's clock meanwhile."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset


class _Ledger:
    """The store, with the specs of jobs that are about to be written for the first time."""

    def __init__(self, store: Store, settled: Settled) -> None:
        self._store, self._settled = store, settled
        self.specs: dict[str, str] = {}

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        self._store.write(outcomes, term=term, specs=self.specs)
        self.specs = {}
        self._settled(outcomes)


class Leading:
    """One server's wish to lead; start it, ask it, stop it."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        recipe: Recipe,
        probe: ProbeRecipe,
        deciding: Callable[[], Decide],
        watch: Callable[[Lifecycle, float], Sequence[Event]],
        settled: Settled,
        holder: str,
        address: str,
        pace: Pace = PACE,
        grace_seconds: float = 30.0,
    ) -> None:
        """`deciding` makes the policy's part anew whenever this server begins to lead; `watch`
        gives news of running jobs; `settled` is told in this thread what has become durable.
        """
        self._store, self._engine = store, engine
        self._recipe, self._probe = recipe, probe
        self._deciding, self._watch, self._settled = deciding, watch, settled
        self._holder, self._address = holder, address
        self.pace = pace
        self._grace_seconds = grace_seconds
        self._clock = Clock()
        self._asked: queue.Queue[_Asked | _Consulted | None] = queue.Queue()
        self._stopping = threading.Event()
        self._leads = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leading", daemon=True)
        self.lifecycle: Lifecycle | None = None
        self.decide: Decide | None = None
        #: when it last let the policy decide
        self.decided: float | None = None

    @property
    def leads(self) -> bool:
        return self._leads.is_set()

    @property
    def now(self) -> float:
        return self._clock()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop leading and let another server lead at once; running jobs do not notice."""
        self._stopping.set()
        self._asked.put(None)
        self._thread.join()

    def ask(self, event: Event, specs: dict[str, str] | None = None) -> Future[Outcome]:
        """Let an event happen; the answer comes when it is durable.

        It fails with `NotPossible` when it is refused, and with `NotNow` when this server does not
        lead or cannot write.
        """
        asked = _Asked(event, specs or {}, Future())
        if not self.leads:
            asked.answer.set_exception(_not_leading())
        else:
            self._asked.put(asked)
        return asked.answer

    def consult(self, read: Callable[[Lifecycle, float], _Found]) -> Future[_Found]:
        """What `read` finds in the records of the moment; it must not change anything."""
        consulted = _Consulted(read, Future())
        if not self.leads:
            consulted.answer.set_exception(_not_leading())
        else:
            self._asked.put(consulted)
        return consulted.answer

    # The thread.

    def _run(self) -> None:
        patience = lease.Patience()
        while not self._stopping.is_set():
            term = None
            try:
                term = lease.take(
                    self._store.database,
                    holder=self._holder,
                    address=self._address,
                    patience=patience,
                )
                if term is not None:
                    self._lead(term)
            except Superseded:
                log.warning("another server leads from now on")
                term = None
            except SQLAlchemyError as error:
                log.error("the database failed: %s", str(error).splitlines()[0])
            except Exception:
                log.exception("leading failed; it begins anew")
            finally:
                self._leads.clear()
                self._refuse_all()
            if not self._stopping.is_set():
                self._stopping.wait(self.pace.retry)
            elif term is not None:
                self._release(term)

    def _release(self, term: int) -> None:
        try:
            lease.release(self._store.database, term)
        except SQLAlchemyError:
            log.warning("the lease could not be given back; it ends by itself")

    def _lead(self, term: int) -> None:
        self._engine.lead(term=term)
        lifecycle, ledger = self._store.load(), _Ledger(self._store, self._settled)
        self.lifecycle, self.decide = lifecycle, self._deciding()
        loop = Loop(
            lifecycle=lifecycle,
            ledger=ledger,
            engine=self._engine,
            recipe=self._recipe,
            probe=self._probe,
            decide=self.decide,
            term=term,
            grace_seconds=self._grace_seconds,
        )
        log.info("leads in term %d with %d unfinished jobs", term, len(lifecycle.jobs))
        self._leads.set()
        renewed = decided = -1e9
        news = True
        while not self._stopping.is_set():
            now = self._clock()
            if now - renewed > lease.LEASE_SECONDS / 3:
                lease.renew(self._store.database, term)
                renewed = now
            news |= self._answer(loop, ledger)
            # Waiting for requests takes a while: nobody is placed before they were submitted.
            now = self._clock()
            before = len(loop.lifecycle.active), _states(loop.lifecycle)
            loop.look(now, partial(self._watch, lifecycle, now))
            news |= (len(loop.lifecycle.active), _states(loop.lifecycle)) != before
            since = now - decided
            if since > (self.pace.decide_after_news if news else self.pace.decide):
                loop.place(now)
                decided, news = now, False
                self.decided = now
            loop.act(now)

    def _answer(self, loop: Loop, ledger: _Ledger) -> bool:
        """Wait for requests for a while, and answer all that are there; whether there were any."""
        batch = self._taken()
        considered: list[tuple[_Asked, Outcome]] = []
        for asked in batch:
            if isinstance(asked, _Consulted):
                _consult(asked, loop.lifecycle, self._clock())
                continue
            try:
                outcome = loop.consider(asked.event)
            except YardError as error:
                asked.answer.set_exception(error)
                continue
            ledger.specs.update(asked.specs)
            considered.append((asked, outcome))
        try:
            loop.settle()
        except Exception as error:
            for asked, _ in considered:
                asked.answer.set_exception(_unwritten(error))
            raise
        for asked, outcome in considered:
            asked.answer.set_result(outcome)
        return bool(considered)

    def _taken(self) -> list[_Asked | _Consulted]:
        """Requests that wait; when there are none, the first one to come within a look."""
        found = []
        try:
            first = self._asked.get(timeout=self.pace.look)
            while True:
                if first is not None:
                    found.append(first)
                first = self._asked.get_nowait()
        except queue.Empty:
            return found

    def _refuse_all(self) -> None:
        while True:
            try:
                asked = self._asked.get_nowait()
            except queue.Empty:
                return
            if asked is not None:
                asked.answer.set_exception(_not_leading())


def _consult(asked: _Consulted, lifecycle: Lifecycle, now: float) -> None:
    try:
        asked.answer.set_result(asked.read(lifecycle, now))
    except Exception as error:
        asked.answer.set_exception(error)


def _states(lifecycle: Lifecycle) -> tuple[object, ...]:
    return tuple((job.state, job.devices) for job in lifecycle.active.values())


def _not_leading() -> NotNow:
    return NotNow("this server does not lead at the moment", fix="try again in a few seconds")


def _unwritten(error: Exception) -> NotNow:
    if isinstance(error, Superseded):
        return _not_leading()
    what = f"the yard's database cannot be written: {str(error).splitlines()[0]}"
    return NotNow(what, fix="make space or start the database, and try again")
