"""The conductor's logic: events in, instructions out. No socket, file or clock is touched here.

JOIN → QUORUM → VOTE → COMMIT. Members of a generation compute the same step; when all of them have
voted, the step is committed: one record in the journal, from which the position in the data, the
learning rate and the next step follow. A member that is lost ends the generation, and the others
begin the next one with the same step; whoever has come meanwhile enters after a commit, so that
nobody's work is thrown away for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from modelyard.train.conductor.deadlines import Deadlines
from modelyard.train.conductor.events import (
    AllKept,
    Arrived,
    Began,
    Came,
    Committed,
    Event,
    Fence,
    Finished,
    Instruction,
    Judged,
    Lost,
    Noted,
    PickedUp,
    RolledBack,
    Send,
    Tick,
)
from modelyard.train.conductor.messages import (
    Beat,
    Commit,
    Dismissed,
    Generation,
    Hello,
    Kept,
    Leave,
    Next,
    Note,
    Peer,
    Phase,
    Trouble,
    Validated,
    Vote,
)
from modelyard.train.conductor.progress import Progress, Settings

#: Where nobody at all is heard, workers may be silent for so many stalls: to leave them behind
#: would help nobody, and costs the step in flight.
ALONE_STALLS = 10.0
#: How many stalls training waits for somebody who knows more steps than those who are there, before
#: it goes back: they may only be slow, or not have noticed yet that there is a new conductor.
BACK_STALLS = 5.0
#: How many stalls all others wait for a member that does something else than compute: to copy or
#: validate what it has, to receive the state of a peer, whatever a script does after a step.
OTHER_STALLS = 600.0
#: Generations that may fail one after the other, with nobody lost, before the job is stopped.
MOST_FAILURES = 5
ALL_DONE = "all steps are done"


@dataclass(slots=True)
class _Worker:
    hello: Hello
    heard: float
    phase: Phase = Phase.GATHERING
    #: since when it is in that phase
    since: float = 0.0
    #: the newest generation that it has entered, by its own word
    entered: int = 0
    leaving: bool = False


@dataclass(slots=True)
class Machine:
    """One job. `handle` is the only way in."""

    settings: Settings
    progress: Progress = field(default_factory=Progress)
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _members: tuple[str, ...] = ()
    _votes: dict[str, Vote] = field(default_factory=dict)
    _waiting_since: float | None = None
    _deadlines: Deadlines = field(init=False)
    #: steps that workers know who were left behind since the last commit and may come again
    _absent: dict[str, int] = field(default_factory=dict)
    _failures: int = 0
    #: whether the steps so far are another conductor's, whose workers may be about to come
    _inherited: bool = False
    #: whether a member of this generation reported trouble
    _troubled: bool = False
    #: the step that was validated last, lest a repeated one be written twice
    _validated: int = -1
    _finished: bool = False

    def __post_init__(self) -> None:
        latest = max(self.progress.generation, self.settings.after_generation)
        self.progress = replace(self.progress, generation=latest)
        self._inherited = not self.progress.blank
        self._deadlines = Deadlines(self.settings.silence_seconds, self.settings.stall_seconds)

    @property
    def members(self) -> tuple[str, ...]:
        """Who takes part now, by rank."""
        return self._members

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self._all_steps_done and (self.progress.kept or not self.settings.keeps)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """What follows from an event at a time; times never run backwards."""
        if self._finished:
            return []
        if isinstance(event, Came):
            return list(self._came(event.hello, now))
        if isinstance(event, Lost):
            return list(self._lost(event.worker, now))
        if isinstance(event, Tick):
            return list(self._tick(now))
        worker = self._workers.get(event.worker)
        if worker is None:
            return []
        self._deadlines.heard(now - worker.heard)
        worker.heard = now
        message = event.message
        if isinstance(message, Leave):
            worker.leaving = True
            # A member stays until its step is over, and until the last one is kept; nobody waits
            # for others.
            needed = {
                *self._members,
                *(self._knowing(self._workers) if self._all_steps_done else ()),
            }
            return list(self._let_go(set(self._workers) - needed))
        if isinstance(message, Note):
            return [Noted(event.worker, message.text)]
        if isinstance(message, Kept):
            return list(self._kept(message.step))
        if isinstance(message, Beat) and message.phase is Phase.KEEPING and self._all_steps_done:
            # Whatever generation it was told to enter meanwhile.
            self._enter(worker, message.phase, now)
            return []
        worker.entered = max(worker.entered, message.generation)
        if event.worker not in self._members or message.generation != self.progress.generation:
            return []
        if isinstance(message, Beat):
            self._enter(worker, message.phase, now)
            return []
        if isinstance(message, Trouble):
            return list(self._trouble(event.worker, message, now))
        if isinstance(message, Validated):
            return list(self._judged_together(message))
        return list(self._voted(event.worker, message, now))

    # Who is there.

    def _came(self, hello: Hello, now: float) -> Iterator[Instruction]:
        if self.done:
            # It was told by the conductor before this one, and not heard.
            yield Send(hello.worker, Dismissed(ALL_DONE, again=False))
            return
        if not self._members and self._ahead(hello):
            yield self._pick_up(hello)
        self._workers[hello.worker] = _Worker(self._judged(hello), heard=now, since=now)
        if hello.keeping and self._all_steps_done:
            self._enter(self._workers[hello.worker], Phase.KEEPING, now)
        if self._absent.pop(hello.worker, None) is not None:
            self._deadlines.mistaken()
        yield Arrived(hello.worker)
        if hello.kept >= self.settings.steps and self.progress.blank:
            yield self._pick_up(hello)
        if self.progress.knows(hello.kept, hello.lineage):
            yield from self._kept(hello.kept)
        if self._finished:
            return
        if self._waiting_since is None:
            self._waiting_since = now
        if not self._members:
            yield from self._gather(now, "workers have come")

    def _ahead(self, hello: Hello) -> bool:
        """Whether it has found a checkpoint of steps whose lines the journal has lost.

        The machine went down before they were on the disk, and the checkpoint was there already.
        """
        progress = self.progress
        same = not progress.blank and hello.lineage == progress.lineage
        return same and hello.kept == hello.applied > progress.step

    def _judged(self, hello: Hello) -> Hello:
        """What a worker's state is worth to this training."""
        applied, progress = hello.applied, self.progress
        voted = (hello.lineage, hello.pending, hello.pending_generation)
        newest = (progress.lineage, progress.step - 1, progress.committed_in)
        if 0 <= applied == hello.pending and voted == newest:
            # Its vote went into a commit of which it was not told.
            applied += 1
        if not (self.progress.blank or self.progress.knows(applied, hello.lineage)):
            applied = -1
        return structs.replace(hello, applied=applied, pending=-1)

    def _lost(self, name: str, now: float, why: str = "") -> Iterator[Instruction]:
        self._workers.pop(name, None)
        if name in self._members:
            self._failures = 0
            told = f"{name} was left behind: {why}" if why else f"{name} was lost"
            yield from self._regroup(now, told)

    def _trouble(self, name: str, message: Trouble, now: float) -> Iterator[Instruction]:
        # Nearly always the messenger of a death whose connection closes in the same moment. If
        # nobody is lost by the next tick, the group is built again with the same members.
        self._enter(self._workers[name], Phase.GATHERING, now)
        self._votes.pop(name, None)
        # Of a group that nobody needs any more it does not matter whether it fails.
        self._failures += not self._all_steps_done
        self._troubled = True
        if self._failures > MOST_FAILURES * max(len(self._members), 1):
            yield from self._stop(f"the group fails again and again: {message.what}", done=False)

    def _tick(self, now: float) -> Iterator[Instruction]:
        for name, why in list(self._silent(now)):
            yield Fence(name, why)
            self._absent[name] = self._workers[name].hello.applied
            yield from self._lost(name, now, why)
        if not self._members:
            yield from self._gather(now, "workers have come")
        elif self._stuck(now):
            yield from self._regroup(now, "the group failed")

    def _silent(self, now: float) -> Iterator[tuple[str, str]]:
        """Workers of whom nothing is heard, and members for whom all others wait beyond measure."""
        limit, alone = self._deadlines.silence, ALONE_STALLS * self.settings.stall_seconds
        silences = {name: now - worker.heard for name, worker in self._workers.items()}
        heard = {name for name, silent in silences.items() if silent <= limit}
        for name, silent in silences.items():
            # Where nobody at all is heard, the machine is busy, or this side of it.
            if name not in heard and (heard or silent > max(limit, alone)):
                yield name, f"nothing was heard of it for {silent:.1f} s"
        late = [name for name in self._members if self._late(self._workers[name], now)]
        if 0 < len(late) < len(self._members):
            for name in late:
                worker = self._workers[name]
                took = f"{now - worker.since:.1f} s, and all others wait for it"
                busy = worker.phase is Phase.COMPUTING
                yield name, f"its step takes {took}" if busy else f"it has not come for {took}"

    def _late(self, worker: _Worker, now: float) -> bool:
        """Whether its step takes too long, be it the one that it has to leave for a generation."""
        waited = now - worker.since
        if worker.phase is Phase.KEEPING:
            # That takes as long as it takes.
            return False
        if worker.entered == self.progress.generation and worker.phase is not Phase.COMPUTING:
            others = (self._workers[name] for name in self._members)
            alone = all(self._waits(other) for other in others if other is not worker)
            longest = OTHER_STALLS * self.settings.stall_seconds
            return alone and not self._waits(worker) and waited > longest
        members = len(self._members)
        limit = self._deadlines.step(-(-self.settings.batch_of(members) // members))
        return limit is not None and waited > limit

    def _waits(self, worker: _Worker) -> bool:
        """Whether it waits for other members."""
        return worker.phase is Phase.REDUCING or worker.hello.worker in self._votes

    def _stuck(self, now: float) -> bool:
        """Somebody reported trouble and nobody was lost."""
        return self._troubled and any(
            self._workers[name].phase is Phase.GATHERING
            and now - self._workers[name].since > self.settings.silence_seconds / 2.0
            for name in self._members
        )

    # Generations.

    def _gather(self, now: float, why: str) -> Iterator[Instruction]:
        """Begin when there are enough, and nobody else is likely to come soon."""
        ready = len(self._workers)
        if self._waiting_since is None:
            return
        enough = ready >= self.settings.fewest
        if not (enough or (self._all_steps_done and self._knowing(self._workers))):
            return
        first = self.progress.generation <= self.settings.after_generation
        patience = self.settings.patience_seconds if first else self.settings.stall_seconds
        waited = now - self._waiting_since
        if waited < patience and ready < self.settings.most:
            return
        best = max(worker.hello.applied for worker in self._workers.values())
        # Those of an earlier conductor may not have noticed yet that there is another one.
        awaited = self.progress.step if self._inherited else max(self._absent.values(), default=0)
        missed = max(best, 0) < awaited
        if missed and waited < BACK_STALLS * self.settings.stall_seconds:
            return
        yield from self._regroup(now, why, back=True)

    def _regroup(
        self, now: float, why: str, *, back: bool = False, committed: bool = False
    ) -> Iterator[Instruction]:
        """The next generation, of all who are there; only with `back` from an earlier step.

        Directly after a step was `committed`, whoever leaves keeps what it has.
        """
        if self._all_steps_done:
            if not self.settings.keeps:
                # Whoever was to validate them is lost: the steps are what counts.
                yield from self._stop(ALL_DONE, done=True)
                return
            if knowing := self._knowing(self._chosen()):
                yield from self._have_kept(knowing, now, why)
                return
        self._votes.clear()
        staying = [name for name, worker in self._workers.items() if not worker.leaving]
        if committed or self._knowing(staying) or not self._knowing(self._workers):
            # Else only those who leave know the last steps, and keep them after the next one.
            yield from self._let_go(list(self._workers))
        chosen = self._chosen()
        best = max((self._workers[name].hello.applied for name in chosen), default=-1)
        if len(chosen) >= self.settings.fewest and best > 0 and self.progress.blank:
            hellos = [self._workers[name].hello for name in chosen]
            yield self._pick_up(max(hellos, key=lambda hello: hello.applied))
        if len(chosen) < self.settings.fewest or (max(best, 0) < self.progress.step and not back):
            # Somebody who was thought dead may come again and save what only they know.
            self._members, self._waiting_since = (), now
            return
        if max(best, 0) < self.progress.step:
            yield self._go_back(max(best, 0), chosen)
        yield from self._begin(chosen, now, why)

    def _have_kept(self, knowing: tuple[str, ...], now: float, why: str) -> Iterator[Instruction]:
        """Have one of those who know all steps keep what they have trained, if none does yet."""
        if any(self._workers[name].phase is Phase.KEEPING for name in knowing):
            self._members = knowing
            return
        yield from self._begin(knowing, now, why)

    def _begin(self, chosen: tuple[str, ...], now: float, why: str) -> Iterator[Instruction]:
        """The next generation."""
        number = self.progress.generation + 1
        self.progress = replace(self.progress, generation=number)
        self._members, self._waiting_since = chosen, None
        self._troubled = self._inherited = False
        hellos = [self._workers[name].hello for name in chosen]
        newest = max(range(len(hellos)), key=lambda rank: hellos[rank].applied)
        message = Generation(
            number=number,
            step=self.progress.step,
            position=self.progress.position,
            batch=self.settings.batch_of(len(chosen)),
            peers=tuple(Peer(h.worker, h.host, h.store_port, h.applied) for h in hellos),
            source=-1 if hellos[newest].applied < 0 else newest,
            lineage=self.progress.lineage,
            done=self._all_steps_done,
        )
        yield Began(number, chosen, why)
        for name in chosen:
            self._enter(self._workers[name], Phase.GATHERING, now, again=True)
            yield Send(name, message)

    def _let_go(self, among: Collection[str]) -> Iterator[Instruction]:
        """Dismiss those who asked for it."""
        for name in [name for name in among if self._workers[name].leaving]:
            del self._workers[name]
            yield Send(name, Dismissed("it asked to leave", again=False))

    def _chosen(self) -> tuple[str, ...]:
        """Members that are still there keep their order; those who came follow in theirs."""
        staying = [name for name in self._members if name in self._workers]
        others = [name for name in self._workers if name not in staying]
        # Whoever knows more steps comes first: after a restart they carry the training on.
        others.sort(key=lambda name: -self._workers[name].hello.applied)
        return tuple((staying + others)[: self.settings.most])

    def _pick_up(self, hello: Hello) -> PickedUp:
        """Go on after the steps that somebody's checkpoint has, and the journal has not."""
        found = PickedUp(hello.applied, hello.position, hello.lineage)
        self.progress = self.progress.picked_up(
            step=found.step, position=found.position, lineage=found.lineage
        )
        for worker in self._workers.values():
            worker.hello = self._judged(worker.hello)
        return found

    def _go_back(self, step: int, chosen: Sequence[str]) -> RolledBack:
        self._validated = -1
        position = self.progress.position_of(step)
        if position is None:
            # It is before the journal: whoever has that state says what it has seen.
            hellos = [self._workers[name].hello for name in chosen]
            position = next(hello.position for hello in hellos if hello.applied == step)
        self.progress = self.progress.after_back(step=step, position=position)
        return RolledBack(step, position)

    # Steps.

    def _voted(self, name: str, vote: Vote, now: float) -> Iterator[Instruction]:
        if vote.step != self.progress.step:
            return
        self._votes[name] = vote
        self._enter(self._workers[name], Phase.VOTED, now)
        if len(self._votes) < len(self._members):
            return
        yield from self._commit(now)

    def _commit(self, now: float) -> Iterator[Instruction]:
        votes = list(self._votes.values())
        step, start = self.progress.step, self.progress.position
        stop = start + self.settings.batch_of(len(self._members))
        generation = self.progress.generation
        yield Committed(
            step=step,
            generation=generation,
            members=self._members,
            start=start,
            stop=stop,
            tokens=sum(vote.tokens for vote in votes),
            loss=_mean_loss(votes),
            bytes_sent=sum(vote.bytes_sent for vote in votes),
            busy=tuple(self._votes[name].busy_seconds for name in self._members),
            values=_mean_values(votes),
        )
        self.progress = self.progress.after_commit(
            step=step, start=start, stop=stop, generation=generation
        )
        for vote in votes:
            self._deadlines.worked(vote.busy_seconds, vote.samples)
        self._deadlines.committed()
        self._absent.clear()
        self._votes.clear()
        self._failures = 0
        for name in self._members:
            worker = self._workers[name]
            worker.hello = structs.replace(worker.hello, applied=step + 1, position=stop)
            self._enter(worker, Phase.COMPUTING, now, again=True)
        done = self._all_steps_done
        leaving = tuple(name for name in self._members if self._workers[name].leaving)
        changes = self._chosen() != self._members or bool(leaving)
        following = Next.STOP if done else Next.REGROUP if changes else Next.GO_ON
        for name in self._members:
            yield Send(name, Commit(generation, step, following, leaving))
        if done and not (self.settings.validates or self.settings.keeps):
            yield from self._stop(ALL_DONE, done=True)
        elif changes and not done:
            yield from self._regroup(now, "members change", committed=True)

    @property
    def _all_steps_done(self) -> bool:
        return self.progress.step >= self.settings.steps

    def _knowing(self, among: Collection[str]) -> tuple[str, ...]:
        """Those who have what all committed steps have trained."""
        step = self.progress.step
        return tuple(name for name in among if max(self._workers[name].hello.applied, 0) == step)

    def _judged_together(self, found: Validated) -> Iterator[Instruction]:
        if found.step == self.progress.step != self._validated:
            self._validated = found.step
            yield Judged(
                step=found.step,
                generation=found.generation,
                loss=found.loss,
                samples=found.samples,
            )
            if self._all_steps_done and not self.settings.keeps:
                yield from self._stop(ALL_DONE, done=True)

    def _kept(self, step: int) -> Iterator[Instruction]:
        if self._all_steps_done and step >= self.settings.steps:
            self.progress = replace(self.progress, kept=True)
            yield AllKept(step)
            yield from self._stop(ALL_DONE, done=True)

    def _stop(self, why: str, *, done: bool) -> Iterator[Instruction]:
        self._finished = True
        if done:
            for name in self._workers:
                yield Send(name, Dismissed(why, again=False))
        yield Finished(why, done)

    def _enter(self, worker: _Worker, phase: Phase, now: float, *, again: bool = False) -> None:
        if again or phase is not worker.phase:
            worker.phase, worker.since = phase, now


def _mean_loss(votes: Sequence[Vote]) -> float | None:
    losses = [vote.loss for vote in votes if vote.loss is not None]
    if len(losses) < len(votes):
        return None
    return sum(losses) / max(sum(vote.samples for vote in votes), 1)


def _mean_values(votes: Sequence[Vote]) -> dict[str, float]:
    means = {}
    for name in sorted({name for vote in votes for name in vote.values}):
        having = [vote for vote in votes if name in vote.values and vote.samples]
        if weight := sum(vote.samples for vote in having):
            means[name] = sum(vote.values[name] * vote.samples for vote in having) / weight
    return means
