"""The event loop: plays a workload on a cluster under a policy.

Time jumps from event to event. A job's own progress is only touched when something happens to
that job, so the cost of an event does not grow with the number of running jobs; the policy's
decision does the rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

import numpy as np

from modelyard.errors import CapacityError, PolicyError
from modelyard.schedule.finished import FinishedLog
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.jobs import IntArray, JobBook, JobCard, JobTable
from modelyard.schedule.lane import Lane
from modelyard.schedule.placement import Strategy, place
from modelyard.schedule.ranked import Candidate, RankedPolicy
from modelyard.schedule.reach import within_reach
from modelyard.schedule.reference import seconds_done
from modelyard.schedule.view import Decision, Policy, View
from modelyard.simulate.agenda import SAME_MOMENT_SECONDS, Agenda, Kind
from modelyard.simulate.departures import Departures
from modelyard.simulate.faults import Outages
from modelyard.simulate.recorder import Recorder
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.standing import Standing
from modelyard.simulate.workload import TraceJob
from modelyard.spec.allocation import Allocation, Footprint, footprint, packed_counts
from modelyard.speed.interference import shared_node_slowdown, uplink_slowdowns
from modelyard.speed.notebook import Notebook
from modelyard.speed.progress import Progress

#: Allocations whose footprint is remembered: most of those inside one node of a large cluster.
FOOTPRINTS_KEPT = 16_384
#: Rounds and faults go on for ever; a policy must not make jobs wait for ever. After so many
#: decisions in a row in which nothing happened, a run ends in which nobody gets anywhere.
IDLE_DECISIONS = 1000
#: So many times in a row that a job was stopped by a failing node, while none ended, are nodes
#: that fail faster than jobs get anything done.
FRUITLESS_FAILURES = 10_000


def simulate(
    scenario: Scenario,
    policy: Policy,
    *,
    on_progress: Callable[[float], None] | None = None,
    use_lane: bool = True,
) -> Result:
    """Run a workload to its end. `on_progress` is told the share of jobs finished.

    `use_lane=False` asks the policy to decide from scratch each time; the result is the same.
    """
    return Engine(scenario, policy, on_progress, use_lane=use_lane).run()


def snapshot(scenario: Scenario, policy: Policy, *, at: float) -> View:
    """The state at a moment of the run, after everything that happens up to and at that moment.

    It is the state at the last event when the run is over by then.
    """
    engine = Engine(scenario, policy, use_lane=False)
    engine.play(until=at)
    return engine.view()


def resume(
    scenario: Scenario,
    policy: Policy,
    standing: Iterable[Standing],
    *,
    now: float,
    available: IntArray,
    finished: FinishedLog | None = None,
) -> Engine:
    """A run that begins in the middle: with jobs that are there, and a decision that is due.

    `available` has the devices in service by node; jobs of the workload are still to come.
    """
    engine = Engine(scenario, policy, use_lane=False, finished=finished)
    engine.now = now
    engine.available, engine.free = available.copy(), available.copy()
    engine.unused = engine.in_service = int(available.sum())
    for one in sorted(standing, key=lambda one: one.job.submitted):
        engine.stand(one)
    engine.decide_at(now)
    return engine


def _refuse_too_large(scenario: Scenario) -> None:
    """A job that no empty cluster could hold would wait for ever."""
    most = scenario.cluster.devices
    names = [job.id for job in scenario.workload.jobs if job.min_devices > most]
    if names:
        raise CapacityError(
            f"{len(names)} jobs need more than the {most} devices of cluster "
            f"'{scenario.cluster.name}' (first: {', '.join(names[:3])})",
            fix="leave them out or simulate a larger cluster",
        )


def _lane(scenario: Scenario, policy: Policy) -> Lane | None:
    """A lane for a ranked policy where the world is plain enough for one."""
    if not isinstance(policy, RankedPolicy) or policy.rank is None:
        return None
    plain = (
        not scenario.round_seconds
        and not scenario.tenants
        and scenario.faults is None
        and not scenario.interference
        and not any(job.network_bandwidth or job.stop_seconds for job in scenario.workload.jobs)
        and len(scenario.cluster.kinds) == 1
        and not any(job.kinds for job in scenario.workload.jobs)
        and not policy.rules.repack
        and policy.rules.strategy is not Strategy.STRICT
    )
    return Lane(policy.rank, policy.rules) if plain else None


class Engine:
    """One run. Use `simulate`; the parts are separate only to be readable."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        on_progress: Callable[[float], None] | None = None,
        *,
        use_lane: bool = True,
        finished: FinishedLog | None = None,
    ) -> None:
        """`finished` has what ended before, which the run adds to."""
        _refuse_too_large(scenario)
        self.scenario, self.policy = scenario, policy
        self.cluster = scenario.cluster
        self.book = JobBook(self.cluster.kinds, len(scenario.workload.jobs))
        self.now = 0.0
        self.available = self.cluster.capacity.copy()
        self.free = self.cluster.capacity.copy()
        #: the sum of `free`, which every decision asks for
        self.unused = self.in_service = self.cluster.devices
        self.active = np.zeros(0, dtype=np.int64)
        self.waiting = 0
        self.recorder = Recorder(self.cluster)
        self.traces: list[TraceJob] = []
        self._progress: list[Progress] = []
        self._version: list[int] = []
        self._busy_until: list[float] = []
        self._synced: list[float] = []
        #: seconds of work to do again, by row: lost when a node last failed
        self._lost: dict[int, float] = {}
        self._rider: dict[int, int] = {}
        self._departures = Departures()
        self._slowdown: dict[int, float] = {}
        self._network = {
            job.id: job.network_bandwidth
            for job in scenario.workload.jobs
            if job.network_bandwidth > 0
        }
        self._shares_links = bool(scenario.interference or self._network)
        self._notebook = Notebook() if policy.traits.shares_measurements else None
        self._finished = finished or FinishedLog(len(scenario.workload.jobs))
        self._agenda = Agenda()
        self._wake_at = math.inf
        self._next_round = -math.inf
        self._decided_at = self._reacts_at = -math.inf
        self._on_progress = on_progress
        #: jobs that are not over, and those that are still to come among them
        self.left = len(scenario.workload.jobs)
        self._events = 0
        self._begun = False
        self._needs_left = policy.traits.oracle
        self._node_size = int(self.cluster.capacity.max())
        # The same devices are given out again and again.
        self._footprint_of = lru_cache(maxsize=FOOTPRINTS_KEPT)(partial(footprint, self.cluster))
        self._idle_decisions = 0
        self._fruitless_failures = 0
        self._lane = _lane(scenario, policy) if use_lane else None

    # -- the loop -------------------------------------------------------------------------

    def run(self) -> Result:
        events = self.play()
        return self.recorder.result(self, events)

    def play(self, *, until: float = math.inf) -> int:
        """Let everything up to `until` happen; how many events there have been by then."""
        if not self._begun:
            self._begin()
        everyone = reported = self.left
        while self.left:
            soonest = self._agenda.next_at
            if soonest == math.inf:
                self._report_deadlock()
            if soonest > until:
                self._rest(until)
                break
            self.now = soonest
            if self.recorder.started is None:
                self.recorder.begin(self.now)
            if self._happen() and self.left:
                self._decide()
                self._watch_for_standstill()
            self._plan_round()
            if self._on_progress and self.left != reported:
                reported = self.left
                self._on_progress(1.0 - self.left / everyone)
        return self._events

    def _begin(self) -> None:
        """Put everything into the queue that is known to come."""
        self._begun = True
        for index, job in enumerate(self.scenario.workload.jobs):
            self._agenda.plan(job.submitted, Kind.ARRIVAL, index)
        if self.scenario.faults is not None and self.left:
            self._outages = Outages(self.scenario.faults, len(self.cluster.nodes))
            for at, node, repaired_at in self._outages.first():
                self._agenda.plan(at, Kind.FAILURE, node)
                self._agenda.plan(repaired_at, Kind.REPAIR, node)

    def _happen(self) -> bool:
        """Everything of this moment; whether a decision is due."""
        due = news = False
        for kind, subject, version in self._agenda.moment(self.now):
            self._events += 1
            if kind == Kind.MILESTONE:
                if self._milestone(subject, version):
                    self.left -= 1
                    news = True
            elif kind == Kind.WAKE:
                # A wake-up that was planned anew since then is void.
                due |= self.now >= self._wake_at - SAME_MOMENT_SECONDS
            elif kind == Kind.ROUND:
                due = True
            else:
                news = True
                if kind == Kind.ARRIVAL:
                    self._arrive(self.scenario.workload.jobs[subject])
                elif kind == Kind.FAILURE:
                    self._fail(subject)
                elif kind == Kind.REPAIR:
                    self._repair(subject)
        if news:
            self._idle_decisions = 0
        if not self.scenario.round_seconds:
            return due or news
        return due or (news and self._reacts())

    def _reacts(self) -> bool:
        """Whether news are decided on now; if not, and they are at all, as soon as that may be."""
        pause = self.scenario.reaction_seconds
        if pause is None:
            return False
        soonest = self._decided_at + pause
        if self.now >= soonest - SAME_MOMENT_SECONDS:
            return True
        if self._reacts_at < soonest - SAME_MOMENT_SECONDS:
            self._reacts_at = soonest
            self.decide_at(soonest)
        return False

    def decide_at(self, at: float) -> None:
        """Let a decision be made then, whatever happens."""
        self._agenda.plan(at, Kind.ROUND)

    def _rest(self, until: float) -> None:
        """Nothing happens until then but progress."""
        self.now = until
        for row in self.active.tolist():
            self._sync(row)

    def _plan_round(self) -> None:
        """Rounds tick at whole multiples of their length while there are jobs."""
        length = self.scenario.round_seconds
        if length and len(self.active) and self._next_round <= self.now + SAME_MOMENT_SECONDS:
            ticks = math.floor(self.now / length + SAME_MOMENT_SECONDS) + 1
            self._next_round = ticks * length
            self._agenda.plan(self._next_round, Kind.ROUND)

    def _watch_for_standstill(self) -> None:
        """Rounds go on for ever: notice when nobody gets anywhere in them."""
        self._idle_decisions += 1
        if self._idle_decisions <= IDLE_DECISIONS:
            return
        self._idle_decisions = 0
        whole = self.in_service == self.cluster.devices
        running = (row for row in self.active.tolist() if self.book.held[row])
        if whole and all(self._progress[row].horizon() == math.inf for row in running):
            self._report_deadlock()

    def _report_deadlock(self) -> None:
        stuck = [self.book.cards[row].id for row in self.active.tolist()]
        raise PolicyError(
            f"policy '{self.policy.name}' leaves {len(stuck)} jobs waiting for ever, or on devices "
            f"on which they do nothing (first: {', '.join(stuck[:3])})",
            fix="check tenants' limits and device kinds of these jobs, or use another policy",
        )

    # -- what happens to jobs and nodes ---------------------------------------------------

    def _arrive(self, job: TraceJob) -> None:
        progress = job.work.begin(
            adapt_batch=self.policy.traits.adapts_batch, notebook=self._notebook
        )
        card = JobCard(
            id=job.id,
            submitted=job.submitted,
            devices=job.devices,
            min_devices=job.min_devices,
            max_devices=job.max_devices,
            model=job.model,
            tenant=job.tenant,
            priority=job.priority,
            exclusive=job.exclusive,
            kinds=job.kinds,
            resize_seconds=job.resize_seconds,
        )
        tenant = self.scenario.tenants.get(job.tenant)
        row = self.book.add(within_reach(card, self.scenario.cluster, tenant), progress)
        self.traces.append(job)
        self._progress.append(progress)
        self._version.append(0)
        self._busy_until.append(0.0)
        self._synced.append(self.now)
        if self._needs_left:
            self.book.left[row] = progress.remaining(self._asked_footprint(job))
        self.active = np.append(self.active, row)
        self.waiting += 1
        if self._lane:
            self._lane.put(row, self._candidate(row))
        self.recorder.arrived(self.now)

    def stand(self, standing: Standing) -> None:
        """Enter a job that is there when the run begins, with what it has had and done."""
        self._arrive(standing.job)
        self.left += 1
        book, row = self.book, len(self.book) - 1
        book.service[row], book.run_seconds[row] = standing.service, standing.run_seconds
        book.first_start[row], book.restarts[row] = standing.first_start, standing.restarts
        if standing.relatives is not None:
            labels = book.family, book.branch, book.sweep, book.burst
            for column, number in zip(labels, standing.relatives, strict=True):
                column[row] = number
        if standing.held is not None:
            self._start(row, standing.held)
            self._busy_until[row] = self.now + standing.busy_seconds
            self._plan_milestone(row)
        book.since[row], book.restarts[row] = standing.since, standing.restarts
        book.first_start[row] = standing.first_start

    def _asked_footprint(self, job: TraceJob) -> Footprint:
        kind = job.kinds[0] if job.kinds else self.cluster.kinds[0]
        return Footprint(kind, packed_counts(job.devices, self._node_size))

    def _milestone(self, row: int, version: int) -> bool:
        """A running job ends or changes its own pace; whether it ended."""
        if version != self._version[row]:
            return False
        self._sync(row)
        if not self._progress[row].finished:
            self._plan_milestone(row)
            return False
        self._release(row)
        self.active = self.active[self.active != row]
        self.waiting -= 1
        if self._lane:
            self._lane.drop(row)
        seconds = seconds_done(self.cluster, self.book.cards[row], self._progress[row])
        self._finished.add(self.book, row, seconds)
        self._fruitless_failures = 0
        self.recorder.finished(row, self.now)
        return True

    def _fail(self, node: int) -> None:
        """A node goes down: its jobs stop and will lose what they did since their checkpoint."""
        faults = self.scenario.faults
        assert faults is not None
        self.in_service -= int(self.available[node])
        self.available[node] = 0
        for row in self.active.tolist():
            held = self.book.allocations[row]
            if held is not None and node in held.nodes:
                behind, worked = self._lost.get(row, 0.0), self._worked(row)
                self._release(row)
                saved = worked - worked % faults.checkpoint_seconds
                self._lost[row] = max(behind, worked) - saved
                self.recorder.failures += 1
                self._fruitless_failures += 1
        if self._fruitless_failures > FRUITLESS_FAILURES:
            raise CapacityError(
                f"nodes fail every {faults.mean_seconds_between:g} s on average, and no job gets "
                f"to its end ({FRUITLESS_FAILURES} interruptions in a row)",
                fix="give a longer time between failures, such as mtbf=7d",
            )
        self.unused -= int(self.free[node])
        self.free[node] = 0

    def _worked(self, row: int) -> float:
        """Seconds for which a running job has worked since it was started, old work included."""
        cost = self._start_cost(self.traces[row], goes_on=False)
        started = float(self.book.since[row]) + cost
        return max(self.now - started, 0.0)

    def _repair(self, node: int) -> None:
        self.available[node] = self.free[node] = self.cluster.capacity[node]
        self.unused += int(self.free[node])
        self.in_service += int(self.available[node])
        at, repaired_at = self._outages.following(node, self.now)
        self._agenda.plan(at, Kind.FAILURE, node)
        self._agenda.plan(repaired_at, Kind.REPAIR, node)

    # -- decisions ------------------------------------------------------------------------

    def _decide(self) -> None:
        self._decided_at = self.now
        if self.scenario.round_seconds:
            self._bring_forward(self.active[self.book.held[self.active] > 0])
        elif not isinstance(self.policy, RankedPolicy):
            # Others read how far jobs have come; of plain ones the time they ran says it.
            running = self.book.held[self.active] > 0
            self._bring_forward(self.active[running & ~self.book.plain[self.active]])
        elif self.waiting == 0:
            # An order over nobody: a ranked policy never touches jobs that all run.
            if self._shares_links:
                self._spread_interference()
            return
        if self._lane:
            self._decide_in_lane(self._lane)
            return
        view = self.view()
        began = time.perf_counter()
        decisions = self.policy.decide(view)
        self.recorder.decided(time.perf_counter() - began)
        if decisions:
            self._apply(view, decisions)
            # That somebody is up now, or has stopped, is news of its own.
            self._reacts()
        if self._shares_links:
            self._spread_interference()
        self._observe()
        if not self.scenario.round_seconds:
            self._plan_wake(self.policy.next_change(self.view()))

    def _bring_forward(self, rows: IntArray) -> None:
        """Let jobs work up to this moment."""
        for row in rows.tolist():
            self._sync(row)
            self._plan_milestone(row)

    def _decide_in_lane(self, lane: Lane) -> None:
        assert isinstance(self.policy, RankedPolicy)
        began = time.perf_counter()
        starts, stops = lane.choose(self.now, self.cluster.devices, self.unused, self._candidate)
        for row in stops:
            self._release(row)
            self.recorder.preemptions += 1
            lane.put(row, self._candidate(row))
        for row in starts:
            given = place(
                self.cluster,
                self.free,
                self.book.cards[row].devices,
                strategy=self.policy.rules.strategy,
            )
            assert given is not None
            self._start(row, given)
            lane.put(row, self._candidate(row))
        self.recorder.decided(time.perf_counter() - began)
        self._observe()
        self._plan_wake(lane.next_wake())

    def _observe(self) -> None:
        used = self.in_service - self.unused
        self.recorder.observe(self.now, self.free, used=used, waiting=self.waiting)

    def _candidate(self, row: int) -> Candidate:
        book = self.book
        held = int(book.held[row])
        elapsed = self.now - float(book.mark[row]) if held else 0.0
        card = book.cards[row]
        # By position: this is made for every rank, and names double its price.
        return Candidate(
            card.submitted,
            card.devices,
            card.priority,
            held > 0,
            float(book.since[row]),
            float(book.first_start[row]),
            float(book.service[row]) + elapsed * held,
            float(book.run_seconds[row]) + elapsed,
            max(float(book.left[row]) - elapsed, 0.0),
            self.now,
        )

    def view(self) -> View:
        """The state as a policy sees it."""
        return View(
            now=self.now,
            cluster=self.cluster,
            jobs=JobTable(self.book, self.active, self.now),
            available=self.available,
            free=self.free,
            tenants=self.scenario.tenants,
            round_seconds=self.scenario.round_seconds,
            restart_seconds=self.scenario.restart_seconds,
            finished=self._finished.so_far(),
        )

    def _plan_wake(self, at: float) -> None:
        at = max(at, self.now + 2 * SAME_MOMENT_SECONDS)
        if at < math.inf and at != self._wake_at:
            self._agenda.plan(at, Kind.WAKE)
        self._wake_at = at

    def _apply(self, view: View, decisions: list[Decision]) -> None:
        problems = broken_rules(view, decisions)
        if problems:
            raise PolicyError(
                f"policy '{self.policy.name}' broke a rule at {self.now:.0f} s: {problems[0]}",
                fix="this is a bug of the policy: report it with the workload and the cluster",
            )
        rows = [self.book.row_of[decision.job] for decision in decisions]
        was_running = [self.book.allocations[row] is not None for row in rows]
        for row, decision, running in zip(rows, decisions, was_running, strict=True):
            if running:
                held, seconds = self.book.allocations[row], self.traces[row].stop_seconds
                if held is not None and seconds > 0.0:
                    self._departures.leave(held, decision.allocation, self.now + seconds)
                self._release(row)
        for row, decision, running in zip(rows, decisions, was_running, strict=True):
            if decision.allocation is not None:
                self._start(row, decision.allocation, goes_on=running)
            elif running:
                self.recorder.preemptions += 1

    def _start(self, row: int, given: Allocation, *, goes_on: bool = False) -> None:
        """Give a job devices; it `goes_on` where it had others a moment ago."""
        book = self.book
        delay = self._start_cost(self.traces[row], goes_on) + self._lost.get(row, 0.0)
        if not goes_on:
            delay += self._departures.wait(given, self.free, self.now)
        if given.host is None:
            for node, count in given.parts:
                self.free[node] -= count
                self.unused -= count
        else:
            self._rider[self.book.row_of[given.host]] = row
        book.allocations[row] = given
        book.held[row] = given.devices
        book.mark[row] = book.since[row] = self.now
        if book.first_start[row] == math.inf:
            book.first_start[row] = self.now
        else:
            book.restarts[row] += 1
        self.waiting -= 1
        self._busy_until[row] = self.now + delay
        self._synced[row] = self.now
        self._progress[row].place(self._footprint(row, given))
        self._plan_milestone(row)
        if given.host is not None:
            self._pace_again(self.book.row_of[given.host])

    def _start_cost(self, job: TraceJob, goes_on: bool) -> float:
        own = job.start_seconds
        if goes_on and job.resize_seconds is not None:
            own = job.resize_seconds
        return self.scenario.restart_seconds if own is None else own

    def _release(self, row: int) -> None:
        """Take a job off its devices, whatever happens to it next."""
        book = self.book
        self._sync(row)
        if row in self._lost:
            self._lost[row] = max(self._lost[row] - self._worked(row), 0.0)
        held = book.allocations[row]
        assert held is not None
        self.recorder.ran(row, float(book.since[row]), self.now, held)
        for node in held.nodes[:1]:
            kind = self.cluster.kind_of_node[node]
            book.seconds_on[row, kind] += self.now - book.since[row]
        book.held[row] = 0
        book.since[row] = self.now
        book.allocations[row] = None
        self._version[row] += 1
        self._slowdown.pop(row, None)
        self._progress[row].place(None)
        self.waiting += 1
        rider = self._rider.pop(row, None)
        if held.host is not None:
            host = self.book.row_of[held.host]
            self._rider.pop(host, None)
            self._pace_again(host)
        elif rider is not None:
            book.allocations[rider] = Allocation(held.parts)
            self._pace_again(rider)
        else:
            for node, count in held.parts:
                if self.available[node]:
                    self.free[node] += count
                    self.unused += count

    # -- progress -------------------------------------------------------------------------

    def _sync(self, row: int) -> None:
        """Bring a running job's progress to now."""
        if self._synced[row] == self.now:
            return
        if self.book.held[row]:
            start = max(self._synced[row], self._busy_until[row])
            if self.now > start:
                progress = self._progress[row]
                progress.advance(min(self.now - start, progress.horizon()))
        self._synced[row] = self.now
        self.book.bring_forward(row, self.now)
        if self._needs_left:
            self.book.left[row] = self._progress[row].remaining(
                self._asked_footprint(self.traces[row])
            )

    def _plan_milestone(self, row: int) -> None:
        self._version[row] += 1
        wait = max(self._busy_until[row] - self.now, 0.0)
        at = self.now + wait + self._progress[row].horizon()
        if at < math.inf:
            self._agenda.plan(at, Kind.MILESTONE, row, self._version[row])

    def _footprint(self, row: int, held: Allocation) -> Footprint:
        partner = self.book.row_of[held.host] if held.host is not None else self._rider.get(row)
        model = self.book.cards[partner].model if partner is not None else None
        slowdown = self._slowdown.get(row, 0.0)
        return self._footprint_of(held, partner=model, slowdown=slowdown)

    def _pace_again(self, row: int) -> None:
        """The job stays where it is but its surroundings changed."""
        held = self.book.allocations[row]
        if held is not None:
            self._sync(row)
            self._progress[row].place(self._footprint(row, held))
            self._plan_milestone(row)

    def _spread_interference(self) -> None:
        running = {
            self.book.cards[row].id: held
            for row in self.active.tolist()
            if (held := self.book.allocations[row]) is not None
        }
        fixed = shared_node_slowdown(running, fraction=self.scenario.interference)
        crowded = uplink_slowdowns(self.cluster, running, self._network)
        for job in running:
            row, slowdown = self.book.row_of[job], max(fixed[job], crowded[job])
            if slowdown != self._slowdown.get(row, 0.0):
                self._slowdown[row] = slowdown
                self._pace_again(row)
