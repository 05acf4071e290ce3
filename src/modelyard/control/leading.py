"""The thread that leads a yard: everything that changes records happens in it, one after another.

    ask ──▶ queue ──▶ consider, consider, … settle ──▶ answers
                      look · follow · act
                               ▲
             a copy of the records ──▶ policy   in a thread of its own

Requests that wait together are written together, so that a busy yard pays for few commits. Nobody
waits for the policy: it decides on a copy, and what it decided is followed if that still can be.

A server that does not lead waits for the lease; one that loses it, or whose database fails, drops
everything that it believed and begins anew from what is written.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from modelyard.control.board import Board
from modelyard.control.lifecycle.events import Event
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.loop import Decide, Loop, ProbeRecipe, Recipe
from modelyard.control.store import lease
from modelyard.control.store.callers import Note
from modelyard.control.store.store import Store
from modelyard.control.thinking import Thinking, hand_over
from modelyard.engines.interface import Engine, Superseded
from modelyard.errors import YardError, cause_of

log = logging.getLogger(__name__)


class NotNow(YardError):
    """The yard cannot take this at the moment; nothing of it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often things are done, in seconds."""

    #: the longest time between two looks at the engine, and the shortest
    look: float = 0.25
    look_after_news: float = 0.05
    #: the shortest and the longest time between two decisions; only news shortens the longest, and
    #: a policy rests for as long as it took
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
    #: whether it takes its time, and so is better done where the policy decides
    at_length: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    event: Event
    specs: dict[str, str]
    answer: Future[Outcome]
    #: for the audit, when it has happened
    note: Note | None = None


class Clock:
    """Seconds since 1970 that never jump, whatever is done to the machine's clock meanwhile."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset


class _Ledger:
    """The store, with what is about to be written beside the outcomes."""

    def __init__(self, store: Store, settled: Settled) -> None:
        self._store, self._settled = store, settled
        #: of jobs that are written for the first time
        self.specs: dict[str, str] = {}
        self.notes: list[Note] = []

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        self._store.write(outcomes, term=term, specs=self.specs, notes=self.notes)
        self.specs, self.notes = {}, []
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
        #: when it last did what the policy had decided
        self.decided: float | None = None
        self._renewed = self._held_until = -math.inf
        self._board = Board()
        #: how long the last decision took
        self.decision_seconds = 0.0

    @property
    def leads(self) -> bool:
        return self._leads.is_set()

    @property
    def board(self) -> Board | None:
        """Unfinished jobs as they are; None where this server cannot be sure that it leads."""
        sure = self.leads and self.now - self._renewed < lease.LEASE_SECONDS
        return self._board if sure else None

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

    def hold(self, seconds: float) -> None:
        """Let nobody start for a while; nothing else changes, and it ends by itself."""
        self._held_until = self.now + seconds

    def ask(
        self, event: Event, specs: dict[str, str] | None = None, *, note: Note | None = None
    ) -> Future[Outcome]:
        """Let an event happen; the answer comes when it is durable, and so is the note of it.

        It fails with `NotPossible` when it is refused, and with `NotNow` when this server does not
        lead or cannot write.
        """
        asked = _Asked(event, specs or {}, _promise(), note)
        if not self.leads:
            asked.answer.set_exception(_not_leading())
        else:
            self._asked.put(asked)
        return asked.answer

    def consult(
        self, read: Callable[[Lifecycle, float], _Found], *, at_length: bool = False
    ) -> Future[_Found]:
        """What `read` finds in the records of the moment; it must not change anything.

        What takes long, or asks the policy, is done `at_length`: in the policy's thread, on a copy.
        """
        consulted = _Consulted(read, _promise(), at_length)
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
                log.error("the database failed: %s", cause_of(error))
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
        lifecycle, ledger = self._store.load(), _Ledger(self._store, self._written)
        self._board.fill(lifecycle.jobs.values(), self._store.over())
        loop = Loop(
            lifecycle=lifecycle,
            ledger=ledger,
            engine=self._engine,
            recipe=self._recipe,
            probe=self._probe,
            decide=self._deciding(),
            term=term,
            grace_seconds=self._grace_seconds,
        )
        self._renew(term)
        log.info("leads in term %d with %d unfinished jobs", term, len(lifecycle.jobs))
        self._leads.set()
        with closing(Thinking(loop.decide, lambda: self._asked.put(None))) as policy:
            self._rounds(loop, ledger, policy)

    def _rounds(self, loop: Loop, ledger: _Ledger, policy: Thinking) -> None:
        looked = decided = -math.inf
        answered = news = True
        while not self._stopping.is_set():
            soon = answered or policy.has_decided
            due = looked + (self.pace.look_after_news if soon else self.pace.look)
            answered |= self._answer(loop, ledger, policy, within=due - self._clock())
            now = self._clock()
            if now - self._renewed > lease.LEASE_SECONDS / 3:
                self._renew(loop.term)
            soon = answered or policy.has_decided
            if now < looked + (self.pace.look_after_news if soon else self.pace.look):
                continue
            before = _states(loop.lifecycle)
            loop.look(now, partial(self._watch, loop.lifecycle, now))
            news |= answered or _states(loop.lifecycle) != before
            if policy.has_decided:
                news |= not self._followed(loop, policy, now)
                decided = self.decided = now
            rest = self.pace.decide_after_news if news else self.pace.decide
            held = now < self._held_until
            if policy.is_idle and not held and now - decided > max(rest, self.decision_seconds):
                policy.begin(loop.lifecycle, now)
                news = False
            loop.act(now)
            looked, answered = now, False

    def _followed(self, loop: Loop, policy: Thinking, now: float) -> bool:
        """Do what the policy decided; whether that could be done."""
        try:
            thought = policy.take()
        # A policy may be anybody's code, and may raise anything.
        except Exception:
            log.exception("the policy failed; everybody keeps what they have")
            return True
        self.decision_seconds = thought.seconds
        if now < self._held_until:
            return True
        return loop.follow(thought.decided, thought.seen, now)

    def _renew(self, term: int) -> None:
        now = self._clock()
        lease.renew(self._store.database, term)
        self._renewed = now

    def _written(self, outcomes: Sequence[Outcome]) -> None:
        self._board.update(job for outcome in outcomes for job in outcome.jobs)
        self._settled(outcomes)

    def _answer(self, loop: Loop, ledger: _Ledger, policy: Thinking, *, within: float) -> bool:
        """Wait for requests for a while, and answer all that are there; whether there were any."""
        batch = self._taken(within)
        considered: list[tuple[_Asked, Outcome]] = []
        for asked in batch:
            if isinstance(asked, _Consulted) and asked.at_length:
                found = policy.consult(asked.read, loop.lifecycle, self._clock())
                found.add_done_callback(
                    partial(hand_over, answer=asked.answer, otherwise=_not_leading())
                )
                continue
            if isinstance(asked, _Consulted):
                _consult(asked, loop.lifecycle, self._clock())
                continue
            try:
                outcome = loop.consider(asked.event)
            except YardError as error:
                asked.answer.set_exception(error)
                continue
            ledger.specs.update(asked.specs)
            if asked.note is not None:
                ledger.notes.append(asked.note)
            considered.append((asked, outcome))
        try:
            loop.settle()
            if ledger.notes:
                # Calls that were granted and changed nothing.
                ledger.write((), term=loop.term)
        except Exception as error:
            for asked, _ in considered:
                asked.answer.set_exception(_unwritten(error))
            raise
        for asked, outcome in considered:
            asked.answer.set_result(outcome)
        return bool(considered)

    def _taken(self, within: float) -> list[_Asked | _Consulted]:
        """Requests that wait; when there are none, the first one to come within some seconds."""
        found = []
        try:
            first = self._asked.get(timeout=max(within, 0.0))
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


def _promise() -> Future[Any]:
    """An answer that nobody can call off: whoever asked may have gone, as a page that is closed."""
    answer: Future[Any] = Future()
    answer.set_running_or_notify_cancel()
    return answer


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
    what = f"the yard's database cannot be written: {cause_of(error)}"
    return NotNow(what, fix="make space or start the database, and try again")
