"""What happens in `yard demo`, act by act. Everything that is said was measured.

No act waits for a clock: each begins when the yard has come so far, so that a slow machine plays
the same story more slowly.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.cli.demo_jobs import BASELINE, COUPLET, HAIKU, NOVEL, PIECES, URGENT, Piece
from modelyard.cli.demo_screen import Lines
from modelyard.cli.demo_watch import Seen, Watch
from modelyard.cli.demo_words import asked_words, event_words, first_reason, first_words
from modelyard.cli.demo_yard import DemoYard, pids
from modelyard.cli.output import counted
from modelyard.control.client import Client
from modelyard.engines.interface import Phase, Report
from modelyard.errors import YardError

LOOK_SECONDS = 0.2
#: However slow a machine is, something happens now and then: a step, a start, an end. So long
#: without anything is a fault, of the machine or of ours.
QUIET_SECONDS = 120.0
#: So many steps show that a job is under way.
UNDER_WAY = 8
#: How long the server stays dead: long enough to see that nobody needs it.
AWAY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKill:
    """What the death of one of two workers cost its job."""

    pid: int
    #: committed steps when it was killed
    step: int
    #: without a committed step, and until another worker took part
    stall_seconds: float
    replaced_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKill:
    """What the death of the server cost everybody."""

    pid: int
    away_seconds: float
    #: from its start until it leads
    start_seconds: float
    #: steps that jobs committed while there was no server, by name
    steps: dict[str, int]
    #: processes of jobs that were there before, and those of them that still were afterwards
    tasks: int
    adopted: int


@dataclass
class Story:
    """The acts, on one yard."""

    yard: DemoYard
    jobs_folder: Path
    steps: dict[str, int]
    screen: Lines
    watch: Watch = field(init=False)
    clients: dict[str, Client] = field(default_factory=dict)
    worker_kill: WorkerKill | None = None
    server_kill: ServerKill | None = None
    #: attempts of each job whose first step was told
    _told: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watch = Watch(self.yard.client, self.yard.journal)

    def play(self) -> None:
        """All of it."""
        self.open()
        novel = self.one_job_has_everything()
        self.a_worker_dies(novel)
        self.others_come(novel)
        self.the_server_dies()
        self.somebody_is_in_a_hurry()
        self.all_end()

    # The acts.

    def open(self) -> None:
        seconds = self.yard.start()
        self.screen.say(f"the yard is up after {seconds:.1f} s: one node with two device slots")
        for piece in PIECES:
            if piece.user not in self.clients:
                token = self.yard.client.issue_token(
                    user=piece.user, tenant=piece.tenant, role="member"
                )
                self.clients[piece.user] = Client(token=token, folder=self.yard.folder)

    def one_job_has_everything(self) -> Seen:
        self.screen.heading("A long job comes first and gets everything")
        novel = self.submit(NOVEL)
        self.until(lambda: self.trains(novel, workers=2), f"{novel.name} trains with two workers")
        return novel

    def a_worker_dies(self, novel: Seen) -> None:
        self.screen.heading("A worker dies")
        victim = self._worker_of(novel)
        assert victim.pid is not None
        self.look()
        step, killed = novel.done, time.time()
        os.kill(victim.pid, signal.SIGKILL)
        self.screen.say(f"kill -9 {victim.pid}, one of the two workers of novel, at step {step:,}")
        gone = f"{victim.name.role}.{victim.name.incarnation}"

        def replaced() -> bool:
            last = novel.commits[-1]
            return last.at > killed and len(last.members) == 2 and gone not in last.members

        self.until(replaced, "another worker takes part")
        before = next(one for one in reversed(novel.commits) if gone in one.members)
        after = [one for one in novel.commits if one.step > before.step]
        first, back = after[0], next(one for one in after if len(one.members) == 2)
        self.worker_kill = WorkerKill(
            pid=victim.pid,
            step=step,
            stall_seconds=first.at - before.at,
            replaced_seconds=back.at - killed,
        )
        whole = "no step was lost" if novel.whole and not novel.lost_steps else "steps were lost"
        self.screen.say(
            f"novel stood still for {self.worker_kill.stall_seconds:.2f} s and went on alone; "
            f"after {self.worker_kill.replaced_seconds:.1f} s a new worker took part: {whole}"
        )

    def others_come(self, novel: Seen) -> None:
        self.screen.heading("Short jobs of another team come")
        haiku, couplet = self.submit(HAIKU), self.submit(COUPLET)
        self.until(lambda: len(novel.slots) == 1, "novel makes room")
        self._say_why(couplet)
        seen = len(self.clients[HAIKU.user].jobs(all=True)["jobs"])
        everyone = counted(len(self.watch.jobs), "job")
        self.screen.say(f"{HAIKU.user} sees {seen} of {everyone}: the others are another tenant's")
        self.until(lambda: haiku.done >= UNDER_WAY or haiku.over, "haiku trains")

    def the_server_dies(self) -> None:
        self.screen.heading("The server dies")
        self.look()
        before = pids(self.yard.tasks())
        steps = {job.name: job.done for job in self.watch.jobs.values()}
        pid, killed = self.yard.kill(), time.time()
        self.screen.say(f"kill -9 {pid}, the server: nobody decides, nobody answers")
        self.wait(AWAY_SECONDS)
        started = self.yard.start()
        away = time.time() - killed
        self.look()
        went_on = {job.name: job.done - steps[job.name] for job in self.watch.jobs.values()}
        after = pids(self.yard.tasks())
        self.server_kill = ServerKill(
            pid=pid,
            away_seconds=away,
            start_seconds=started,
            steps={name: count for name, count in went_on.items() if count > 0},
            tasks=len(before),
            adopted=len(before & after),
        )
        words = " and ".join(
            f"{name} {counted(count, 'step')}" for name, count in self.server_kill.steps.items()
        )
        self.screen.say(f"in the {away:.1f} s without a server {words or 'nobody'} went on")
        self.screen.say(
            f"a new server leads {started:.1f} s after its start and finds "
            f"{self.server_kill.adopted} of the {len(before)} processes of jobs as they were"
        )

    def somebody_is_in_a_hurry(self) -> None:
        self.screen.heading("Somebody is in a hurry")
        urgent = self.submit(URGENT)
        self.submit(BASELINE)
        self.until(lambda: urgent.over, "urgent is done")

    def all_end(self) -> None:
        self.screen.heading("Everybody ends")
        self.until(lambda: all(job.over for job in self.watch.jobs.values()), "all jobs are over")

    # What acts are made of.

    def submit(self, piece: Piece) -> Seen:
        path = self.jobs_folder / f"{piece.name}.yaml"
        found = self.clients[piece.user].submit(path)
        steps = self.steps.get(piece.name, 0)
        job = Seen(piece, found["id"], steps, found["submitted"])
        self.watch.add(job)
        self.screen.say(asked_words(job), job.submitted)
        return job

    def trains(self, job: Seen, *, workers: int) -> bool:
        """Whether a job is under way with so many workers."""
        last = job.commits[-UNDER_WAY:]
        return len(last) == UNDER_WAY and all(len(one.members) == workers for one in last)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look on until something is so; `YardError` when it does not come about."""
        moved, seen = time.monotonic(), self._progress()
        while True:
            self.look()
            if condition():
                return
            if (now_seen := self._progress()) != seen:
                moved, seen = time.monotonic(), now_seen
            failed = [job for job in self.watch.jobs.values() if job.state == "failed"]
            if failed or time.monotonic() - moved > QUIET_SECONDS:
                raise self._fault(what, failed)
            time.sleep(LOOK_SECONDS)

    def wait(self, seconds: float) -> None:
        """Look on for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Read what is new, say it, show it."""
        before = {job.id: len(job.slots) for job in self.watch.jobs.values()}
        up = self.yard.is_up
        for event in self.watch.look(server=up):
            job = self.watch.jobs[event["job"]]
            if words := event_words(event, job, before=before[job.id]):
                self.screen.say(words, event["at"])
            before[job.id] = len(job.slots)
        for job in self.watch.jobs.values():
            begun = job.placed and job.commits and job.commits[-1].at > job.placed[-1]
            if begun and self._told.get(job.id) != job.attempt:
                self._told[job.id] = job.attempt
                self.screen.say(first_words(job, job.attempt))
        self.screen.show(self.watch, "the server is up" if up else "there is no server")

    def _progress(self) -> list[tuple[str, int, int]]:
        return [(job.state, job.attempt, job.done) for job in self.watch.jobs.values()]

    def _say_why(self, job: Seen) -> None:
        """What the yard says to somebody who asks why a job waits."""
        found = self.clients[job.piece.user].why(job.id)
        self.screen.say(f"yard why {job.name}: {first_reason(found['sentence'])}")

    def _worker_of(self, job: Seen) -> Report:
        """The worker of a job that came last."""
        workers = [
            report
            for report in self.yard.tasks()
            if report.name.job == job.id
            and report.name.role.startswith("worker")
            and report.phase is Phase.RUNNING
        ]
        if not workers:
            raise YardError(f"{job.name} has no workers")
        return max(workers, key=lambda report: report.name.role)

    def _fault(self, what: str, failed: list[Seen]) -> YardError:
        states = ", ".join(f"{job.name} {job.state}" for job in self.watch.jobs.values())
        for job in failed:
            states += f"; {job.name}: {job.reason}"
        return YardError(f"the demo waits in vain for this: {what} ({states})")
