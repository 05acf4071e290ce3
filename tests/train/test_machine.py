"""The conductor's logic under every sequence of arrivals, deaths, hangs and votes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from modelyard.train.conductor.events import (
    AllKept,
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
    Said,
    Send,
    Tick,
)
from modelyard.train.conductor.machine import (
    ALONE_STALLS,
    BACK_STALLS,
    OTHER_STALLS,
    Machine,
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
    Phase,
    Trouble,
    Validated,
    Vote,
)
from modelyard.train.conductor.progress import (
    Progress,
    Settings,
)

BATCH = 12


@dataclass
class Worker:
    """A worker as the protocol wants it, without any computing."""

    name: str
    applied: int = -1
    pending: int = -1
    pending_generation: int = 0
    generation: Generation | None = None
    step: int = -1
    hung: bool = False
    #: it beats, and its training loop does not get on
    stuck: bool = False
    #: the generation and step of which it has a last word to say
    last: tuple[int, int] | None = None
    #: whether it is to keep what all steps have trained, and the steps that it has kept
    keeping: bool = False
    kept: int = -1
    lineage: int = 0
    #: which commits made its parameters: what must never differ between members
    history: tuple[tuple[int, int], ...] = ()

    def hello(self) -> Hello:
        return Hello(
            "secret",
            self.name,
            "node",
            "127.0.0.1",
            1,
            self.applied,
            pending=self.pending,
            pending_generation=self.pending_generation,
            lineage=self.lineage,
            kept=self.kept,
        )

    def hear(self, message: object, everyone: dict[str, Worker]) -> None:
        if isinstance(message, Generation):
            self.enter(message, everyone)
        elif isinstance(message, Commit):
            assert self.generation is not None
            if message.generation == self.generation.number:
                assert message.step == self.pending == self.applied
                self.apply()
                self.step = self.applied
                if message.next is Next.STOP:
                    self.last = (message.generation, self.applied)
                    self.keeping = self.generation.peers[0].worker == self.name
                if message.next is not Next.GO_ON:
                    self.generation = None

    def enter(self, message: Generation, everyone: dict[str, Worker]) -> None:
        peer = next(peer for peer in message.peers if peer.worker == self.name)
        if 0 <= self.pending == self.applied == peer.applied - 1:
            self.apply()
        # Whoever is behind is known to be, and is healed from somebody who is not. Before the first
        # commit all take what the first of them has.
        if message.source >= 0:
            source = message.peers[message.source]
            assert source.applied == message.step
            if peer.applied == message.step:
                assert self.applied == message.step
            else:
                self.history = everyone[source.worker].known(source.applied)[: message.step]
        else:
            self.history = ()
        assert len(self.history) == message.step
        assert message.batch > 0
        self.last, self.keeping = None, message.done and message.peers[0] is peer
        self.applied, self.pending, self.step = message.step, -1, message.step
        self.generation, self.lineage = message, message.lineage

    def known(self, applied: int) -> tuple[tuple[int, int], ...]:
        """What it hands over: where its vote was committed, it hears of that before it does."""
        if not 0 <= self.pending == self.applied == applied - 1:
            return self.history
        return (*self.history, (self.pending, self.pending_generation))

    def apply(self) -> None:
        self.history = self.known(self.pending + 1)
        self.applied, self.pending = self.pending + 1, -1

    def vote(self) -> Vote | None:
        if self.generation is None or self.generation.done or self.pending >= 0:
            return None
        self.pending, self.pending_generation = self.step, self.generation.number
        return Vote(self.generation.number, self.step, 1.0, BATCH, 0, 0.1)


@dataclass
class World:
    """Workers and a conductor that can all die, and the journal that cannot."""

    wanted: Settings
    now: float = 0.0
    workers: dict[str, Worker] = field(default_factory=dict)
    journal: list[Instruction] = field(default_factory=list)
    #: also those that are gone, because a healer may die while it heals
    everyone: dict[str, Worker] = field(default_factory=dict)
    #: thought dead by the conductor, and perhaps not
    fenced: list[Worker] = field(default_factory=list)
    born: int = 0
    finished: Finished | None = None

    def __post_init__(self) -> None:
        self.machine = Machine(self.wanted)

    def happen(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self.now):
            if isinstance(instruction, Send):
                worker = self.workers.get(instruction.worker)
                if worker is not None and isinstance(instruction.message, Dismissed):
                    del self.workers[worker.name]
                elif worker is not None and not (worker.hung or worker.stuck):
                    worker.hear(instruction.message, self.everyone)
            elif isinstance(instruction, Fence):
                fenced = self.workers.pop(instruction.worker)
                self.fenced.append(fenced)
            elif isinstance(instruction, Finished):
                self.finished = instruction
            else:
                self.journal.append(instruction)

    def join(self) -> None:
        self.born += 1
        worker = Worker(f"w{self.born}")
        self.add(worker)

    def add(self, worker: Worker) -> None:
        worker.hung = False
        self.workers[worker.name] = self.everyone[worker.name] = worker
        self.happen(Came(worker.hello()))

    def wake(self) -> None:
        """Somebody who was thought dead comes again, with what they knew."""
        if self.fenced:
            worker = self.fenced.pop()
            worker.generation = None
            self.add(worker)

    def kill(self, name: str) -> None:
        del self.workers[name]
        self.happen(Lost(name))

    def vote(self, name: str) -> None:
        worker = self.workers[name]
        if worker.last is not None and self.wanted.validates and not worker.hung:
            last, worker.last = worker.last, None
            self.happen(Said(name, Validated(*last, 1.0, 5)))
            return
        if worker.keeping and self.wanted.keeps and not worker.hung:
            worker.kept = len(worker.history)
            self.happen(Said(name, Kept(worker.kept)))
            return
        vote = worker.vote()
        if vote is not None and not worker.hung:
            self.happen(Said(name, vote))

    def restart(self) -> None:
        """The conductor dies and comes back with its journal; workers introduce themselves."""
        progress = Progress()
        for entry in self.journal:
            if isinstance(entry, Committed):
                progress = progress.after_commit(
                    step=entry.step,
                    start=entry.start,
                    stop=entry.stop,
                    generation=entry.generation,
                )
            elif isinstance(entry, RolledBack):
                progress = progress.after_back(step=entry.step, position=entry.position)
            elif isinstance(entry, Began):
                progress = replace(progress, generation=entry.generation)
            elif isinstance(entry, AllKept):
                progress = replace(progress, kept=True)
        self.machine = Machine(self.wanted, progress)
        for worker in list(self.workers.values()):
            if not worker.hung:
                self.happen(Came(worker.hello()))

    def pass_time(self, seconds: float) -> None:
        ticks = max(1, round(seconds / self.wanted.beat_seconds))
        for _ in range(ticks):
            self.now += self.wanted.beat_seconds
            for worker in list(self.workers.values()):
                if not worker.hung:
                    number = worker.generation.number if worker.generation else 0
                    self.happen(Said(worker.name, Beat(number, Phase.REDUCING)))
            self.happen(Tick())

    def committed(self) -> Iterator[Committed]:
        return (entry for entry in self.journal if isinstance(entry, Committed))


def check(world: World) -> None:
    """One lineage of steps, each with its own samples, and each committed by all members."""
    current = [
        worker
        for worker in world.workers.values()
        if worker.generation is not None
        and worker.generation.number == world.machine.progress.generation
        and not worker.hung
    ]
    assert len({worker.history for worker in current}) <= 1
    step = position = generation = 0
    members: tuple[str, ...] = ()
    #: where the samples of each committed step begin
    starts: list[int] = []
    for entry in world.journal:
        if isinstance(entry, Committed):
            assert (entry.step, entry.start) == (step, position)
            assert entry.stop == entry.start + world.wanted.batch_of(len(members))
            assert entry.generation == generation
            assert entry.members == members
            step, position = entry.step + 1, entry.stop
            starts.append(entry.start)
        elif isinstance(entry, RolledBack):
            assert entry.step <= step
            assert entry.position == [*starts, position][entry.step]
            step, position = entry.step, entry.position
            del starts[step:]
        elif isinstance(entry, Began):
            assert entry.generation > generation
            generation, members = entry.generation, entry.members
            assert len(set(members)) == len(members)


def test_all_votes_commit_a_step() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=2))
    world.join()
    world.join()
    assert world.machine.members == ("w1", "w2")
    world.vote("w1")
    assert not list(world.committed())
    world.vote("w2")
    assert [(one.step, one.start, one.stop) for one in world.committed()] == [(0, 0, BATCH)]


def test_a_lost_member_is_left_out_and_the_step_repeated() -> None:
    world = World(Settings(batch=BATCH, steps=3, most=3))
    for _ in range(3):
        world.join()
    for name in ("w1", "w2", "w3"):
        world.vote(name)
    world.vote("w1")
    world.kill("w2")
    assert world.machine.members == ("w1", "w3")
    world.vote("w1")
    world.vote("w3")
    assert [(one.step, one.members) for one in world.committed()] == [
        (0, ("w1", "w2", "w3")),
        (1, ("w1", "w3")),
    ]


def test_numbers_of_generations_begin_after_those_of_an_earlier_job() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=1, after_generation=7))
    world.join()
    assert world.machine.progress.generation == 8


def test_whoever_comes_enters_after_a_commit() -> None:
    world = World(Settings(batch=BATCH, steps=5, most=3, patience_seconds=0.0))
    world.join()
    assert world.machine.members == ("w1",)
    world.join()
    assert world.machine.members == ("w1",)
    world.vote("w1")
    assert world.machine.members == ("w1", "w2")


def test_a_spare_that_leaves_does_not_take_a_leaving_member_along() -> None:
    world = World(Settings(batch=BATCH, steps=5, most=1, patience_seconds=0.0))
    world.join()
    world.join()
    world.happen(Said("w1", Leave()))
    world.happen(Said("w2", Leave()))
    assert set(world.workers) == {"w1"}
    world.pass_time(0.2)
    world.join()
    world.vote("w1")
    assert set(world.workers) == {"w3"}


def test_a_silent_member_is_fenced_and_named() -> None:
    world = World(Settings(batch=BATCH, steps=5, most=2))
    world.join()
    world.join()
    world.pass_time(1.0)
    world.workers["w2"].hung = True
    world.pass_time(1.0)
    assert world.machine.members == ("w1",)
    began = [entry for entry in world.journal if isinstance(entry, Began)]
    assert "w2" in began[-1].why


def test_the_only_worker_is_not_left_behind_for_a_short_silence() -> None:
    world = World(Settings(batch=BATCH, steps=5, most=1))
    world.join()
    world.pass_time(1.0)
    world.workers["w1"].hung = True
    world.pass_time(ALONE_STALLS - 1.0)
    assert world.machine.members == ("w1",)
    world.pass_time(2.0)
    assert world.machine.members == ()


def test_training_does_not_go_back_while_one_who_knows_more_may_come_again() -> None:
    world = World(Settings(batch=BATCH, steps=20, most=2, patience_seconds=0.0))
    world.join()
    for _ in range(4):
        world.vote("w1")
    world.workers["w1"].hung = True
    world.join()
    world.pass_time(BACK_STALLS - 1.0)
    assert world.fenced
    world.wake()
    world.pass_time(2.0)
    assert set(world.machine.members) == {"w1", "w2"}
    assert not any(isinstance(entry, RolledBack) for entry in world.journal)
    check(world)


def test_one_who_does_not_come_to_the_next_generation_is_left_behind() -> None:
    world = World(Settings(batch=BATCH, steps=99, most=3))
    for _ in range(3):
        world.join()
    for _ in range(20):
        for name in ("w1", "w2", "w3"):
            world.vote(name)
    world.workers["w2"].stuck = True
    world.kill("w3")
    assert world.machine.members == ("w1", "w2")
    world.pass_time(3.0)
    assert world.machine.members == ("w1",)
    assert [worker.name for worker in world.fenced] == ["w2"]
    began = [entry for entry in world.journal if isinstance(entry, Began)]
    assert "w2 was left behind: it has not come" in began[-1].why
    world.vote("w1")
    check(world)


def test_those_who_became_slow_take_part_in_the_end() -> None:
    """Deadlines that are wrong do not stay wrong: or slow ones would be left behind for ever."""
    world = World(Settings(batch=BATCH, steps=999, most=3))
    for _ in range(3):
        world.join()
    for _ in range(20):
        for name in ("w1", "w2", "w3"):
            world.vote(name)
    seconds = {"w1": 0.1, "w2": 20.0, "w3": 20.0}
    fast = world.machine.progress.step
    begun: dict[str, tuple[tuple[int, int], float]] = {}
    while not any(one.step > fast and len(one.members) == 3 for one in world.committed()):
        world.now += 0.1
        assert world.now < 600.0
        for name, worker in list(world.workers.items()):
            number = worker.generation.number if worker.generation else 0
            at = (number, worker.step)
            if name not in begun or begun[name][0] != at:
                begun[name] = (at, world.now)
            waits = world.now - begun[name][1] >= seconds[name]
            phase = Phase.REDUCING if waits else Phase.COMPUTING
            world.happen(Said(name, Beat(number, phase)))
            if waits and all(
                world.now - begun[one][1] >= seconds[one]
                for one in world.machine.members
                if one in begun
            ):
                world.vote(name)
        world.happen(Tick())
        while world.fenced:
            world.wake()
    check(world)


def test_a_failed_group_is_built_again() -> None:
    world = World(Settings(batch=BATCH, steps=5, most=2))
    world.join()
    world.join()
    first = world.machine.progress.generation
    world.happen(Said("w1", Trouble(first, "connection reset")))
    for _ in range(10):
        world.now += 0.1
        for name in ("w1", "w2"):
            world.happen(Said(name, Beat(first, Phase.GATHERING)))
        world.happen(Tick())
    assert world.machine.progress.generation > first
    assert world.machine.members == ("w1", "w2")


def test_losing_everyone_goes_back_to_what_a_newcomer_knows() -> None:
    world = World(Settings(batch=BATCH, steps=9, patience_seconds=0.0))
    world.join()
    for _ in range(4):
        world.vote("w1")
    world.kill("w1")
    world.add(Worker("w2", applied=2, history=world.everyone["w1"].history[:2]))
    world.pass_time(2.0)
    assert RolledBack(2, 2 * BATCH) in world.journal
    assert world.machine.progress.step == 2
    check(world)


def test_a_batch_that_follows_the_members_is_announced_and_taken_back() -> None:
    world = World(Settings(batch=8, per_worker=8, steps=9, most=2, patience_seconds=0.0))
    world.join()
    for _ in range(2):
        world.vote("w1")
    world.join()
    world.vote("w1")
    generation = world.workers["w2"].generation
    assert generation is not None
    assert generation.batch == 16
    for _ in range(2):
        world.vote("w1")
        world.vote("w2")
    assert [(one.start, one.stop) for one in world.committed()] == [
        (0, 8),
        (8, 16),
        (16, 24),
        (24, 40),
        (40, 56),
    ]
    # Back to the fourth step, whose samples began after three of a single worker.
    known = world.everyone["w1"].history[:4]
    world.kill("w1")
    world.kill("w2")
    world.add(Worker("w3", applied=4, history=known))
    world.pass_time(2.0)
    assert RolledBack(4, 40) in world.journal
    world.vote("w3")
    assert [(one.start, one.stop) for one in world.committed()][-1] == (40, 48)
    check(world)


def test_a_commit_that_nobody_heard_of_is_applied() -> None:
    world = World(Settings(batch=BATCH, steps=9, most=1, patience_seconds=0.0))
    world.join()
    worker = world.workers["w1"]
    vote = worker.vote()
    assert vote is not None
    # The conductor writes the commit and dies before it has told anybody.
    for instruction in world.machine.handle(Said("w1", vote), world.now):
        if isinstance(instruction, Committed):
            world.journal.append(instruction)
    world.restart()
    world.pass_time(2.0)
    assert worker.applied == 1
    assert RolledBack not in {type(entry) for entry in world.journal}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "kill", "vote", "vote", "vote", "hang", "wake", "time", "leave", "restart"]
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)


@settings(max_examples=300)
@example(
    # One that has voted hangs, and is the only one who will know the step.
    [
        *(("join", 0), ("join", 0), ("time", 2), ("join", 0)),
        *(("vote", 1), ("hang", 1), ("vote", 0), ("kill", 0)),
    ],
    1,
    0,
    4,
    False,
    False,
)
@given(
    ACTIONS,
    st.integers(1, 3),
    st.sampled_from([0, 5]),
    st.sampled_from([4, 40]),
    st.booleans(),
    st.booleans(),
)
def test_steps_are_committed_once_whatever_happens(
    actions: list[tuple[str, int]],
    fewest: int,
    per_worker: int,
    steps: int,
    validates: bool,
    keeps: bool,
) -> None:
    wanted = Settings(
        batch=BATCH,
        per_worker=per_worker,
        steps=steps,
        validates=validates,
        keeps=keeps,
        most=4,
        fewest=fewest,
        patience_seconds=0.2,
    )
    world = World(wanted)
    for action, which in actions:
        names = list(world.workers)
        if action == "join" and len(names) < 6:
            world.join()
        elif action == "time":
            world.pass_time(0.1 * which)
        elif action == "restart":
            world.restart()
        elif action == "wake":
            world.wake()
        elif names:
            name = names[which % len(names)]
            if action == "kill":
                world.kill(name)
            elif action == "hang":
                world.workers[name].hung = True
            elif action == "leave" and not world.workers[name].hung:
                world.happen(Said(name, Leave()))
            elif action == "vote":
                world.vote(name)
        check(world)
    # Whatever has happened, enough healthy workers bring the job to its end.
    for name in [name for name, worker in world.workers.items() if worker.hung]:
        world.kill(name)
    while len(world.workers) < fewest:
        world.join()
    for _ in range(400):
        if world.finished is not None:
            break
        world.pass_time(0.2)
        while len(world.workers) < fewest:
            world.join()
        for name in list(world.workers):
            if name in world.workers:
                world.vote(name)
    check(world)
    assert world.finished is not None
    assert world.finished.done
    judged = [entry for entry in world.journal if isinstance(entry, Judged)]
    back = [entry for entry in world.journal if isinstance(entry, RolledBack)]
    assert len(judged) <= validates * (1 + len(back))
    assert all(entry.step == steps for entry in judged)
    assert [entry for entry in world.journal if isinstance(entry, AllKept)] == [
        AllKept(steps)
    ] * keeps


def test_members_have_the_last_word_where_they_validate() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=2, validates=True))
    world.join()
    world.join()
    number = world.machine.progress.generation
    world.happen(Said("w1", Validated(number, 0, 5.0, 7)))
    world.happen(Said("w2", Validated(number, 0, 5.0, 7)))
    for _ in range(2):
        world.vote("w1")
        world.vote("w2")
    assert world.finished is None
    world.vote("w2")
    assert world.finished is not None
    judged = [entry for entry in world.journal if isinstance(entry, Judged)]
    assert [(entry.step, entry.loss, entry.samples) for entry in judged] == [(0, 5.0, 7), (2, 1, 5)]


def test_a_job_whose_members_die_while_they_validate_is_done() -> None:
    world = World(Settings(batch=BATCH, steps=1, most=2, validates=True))
    world.join()
    world.join()
    world.vote("w1")
    world.vote("w2")
    world.kill("w1")
    assert world.finished is not None
    assert world.finished.done


def test_a_slow_validation_is_no_reason_to_be_left_behind() -> None:
    world = World(Settings(batch=BATCH, steps=99, most=2))
    world.join()
    world.join()
    for _ in range(20):
        world.now += 0.01
        world.vote("w1")
        world.vote("w2")
    number = world.machine.progress.generation
    for phase, members in ((Phase.VALIDATING, 2), (Phase.COMPUTING, 1)):
        for _ in range(100):
            world.now += 0.1
            world.happen(Said("w1", Beat(number, Phase.REDUCING)))
            world.happen(Said("w2", Beat(number, phase)))
            world.happen(Tick())
        assert len(world.machine.members) == members


def test_a_loss_that_is_no_number_is_told_as_none() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=1))
    world.join()
    number = world.machine.progress.generation
    world.workers["w1"].pending = 0
    world.happen(Said("w1", Vote(number, 0, None, BATCH, 0, 0.1)))
    assert [entry.loss for entry in world.committed()] == [None]


def test_what_members_sent_is_summed_in_the_commit() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=2))
    world.join()
    world.join()
    number = world.machine.progress.generation
    for name, sent in (("w1", 100), ("w2", 23)):
        world.workers[name].pending = 0
        world.happen(Said(name, Vote(number, 0, 1.0, BATCH // 2, 0, 0.1, sent)))
    assert [entry.bytes_sent for entry in world.committed()] == [123]


def test_what_members_measured_is_averaged_over_samples() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=2))
    world.join()
    world.join()
    number = world.machine.progress.generation
    votes = (("w1", 9, 0.1, {"accuracy": 0.5, "only": 3.0}), ("w2", 3, 0.4, {"accuracy": 0.9}))
    for name, samples, busy, values in votes:
        world.workers[name].pending = 0
        world.happen(Said(name, Vote(number, 0, 1.0, samples, 0, busy, values=values)))
    (entry,) = world.committed()
    assert entry.busy == (0.1, 0.4)
    assert entry.values == {"accuracy": pytest.approx(0.6), "only": 3.0}


def test_who_was_left_behind_is_named_with_the_reason() -> None:
    world = World(Settings(batch=BATCH, steps=20, most=2))
    world.join()
    world.join()
    world.workers["w2"].hung = True
    world.pass_time(3.0)
    assert any(
        isinstance(one, Began) and one.why.startswith("w2 was left behind: nothing was heard")
        for one in world.journal
    )


def test_what_people_should_know_is_written_down_whoever_says_it() -> None:
    world = World(Settings(batch=BATCH, steps=2, most=1))
    world.join()
    world.join()
    for name in ("w1", "w2"):
        found = world.machine.handle(Said(name, Note("no space is left")), world.now)
        assert found == [Noted(name, "no space is left")]


def test_sums_of_another_generation_are_not_taken_for_those_that_were_committed() -> None:
    # It votes, hangs and is left behind; the others commit the same step with other sums.
    world = World(Settings(batch=BATCH, steps=9, most=3, patience_seconds=0.0))
    for _ in range(3):
        world.join()
    world.pass_time(1.0)
    late = world.workers["w3"]
    world.vote("w3")
    late.hung = True
    world.pass_time(2.0)
    assert world.fenced == [late]
    world.vote("w1")
    world.vote("w2")
    assert [one.step for one in world.committed()] == [0]
    world.wake()
    world.kill("w2")
    check(world)
    assert world.workers["w1"].history == world.workers["w3"].history


def test_one_trouble_without_a_loss_makes_one_new_generation() -> None:
    world = World(Settings(batch=BATCH, steps=9, fewest=2, most=2, patience_seconds=0.0))
    world.join()
    world.join()
    world.pass_time(1.0)
    number = world.machine.progress.generation
    world.happen(Said("w1", Trouble(number, "a sum failed")))
    for _ in range(100):
        world.now += world.wanted.beat_seconds
        for name, worker in world.workers.items():
            assert worker.generation is not None
            # The next group takes long to heal.
            world.happen(Said(name, Beat(worker.generation.number, Phase.GATHERING)))
        world.happen(Tick())
    assert world.machine.progress.generation == number + 1


def inherited(step: int) -> World:
    """A new conductor of a job that has done some steps."""
    world = World(Settings(batch=BATCH, steps=200, most=2, patience_seconds=0.0))
    done = Progress(generation=3)
    for number in range(step):
        start = number * BATCH
        done = done.after_commit(step=number, start=start, stop=start + BATCH, generation=3)
    world.machine = Machine(world.wanted, done)
    return world


def test_a_new_conductor_waits_for_those_who_know_more_before_it_goes_back() -> None:
    world = inherited(100)
    world.add(Worker("fresh", applied=80))
    world.pass_time(1.5)
    assert not world.journal[1:]
    world.add(Worker("survivor", applied=100, history=((0, 3),) * 100))
    world.pass_time(BACK_STALLS)
    assert not any(isinstance(entry, RolledBack) for entry in world.journal)
    assert world.workers["fresh"].step == 100


def test_all_who_leave_stay_for_the_step_in_flight_when_one_of_them_dies() -> None:
    world = World(Settings(batch=BATCH, steps=9, most=2, patience_seconds=0.0))
    world.join()
    world.join()
    world.pass_time(1.0)
    for _ in range(2):
        world.vote("w1")
        world.vote("w2")
    world.happen(Said("w1", Leave()))
    world.happen(Said("w2", Leave()))
    world.kill("w1")
    assert set(world.workers) == {"w2"}
    world.vote("w2")
    assert not world.workers
    assert [one.step for one in world.committed()] == [0, 1, 2]


def kept_job() -> World:
    """All steps are done, and nobody has said yet that they are kept."""
    world = World(Settings(batch=BATCH, steps=1, most=2, keeps=True))
    world.join()
    world.join()
    world.vote("w1")
    world.vote("w2")
    assert world.workers["w1"].applied == 1
    assert world.finished is None
    return world


def test_a_job_is_done_when_what_it_trained_is_kept() -> None:
    world = kept_job()
    world.kill("w2")
    world.pass_time(5.0)
    assert world.finished is None
    assert set(world.workers) == {"w1"}
    world.vote("w1")
    assert world.finished is not None
    assert world.finished.done
    assert world.journal[-1] == AllKept(1)
    assert not world.workers


def test_another_member_keeps_the_last_step_when_the_one_that_did_dies() -> None:
    world = kept_job()
    world.kill("w1")
    generation = world.workers["w2"].generation
    assert generation is not None
    assert generation.done
    world.join()
    world.pass_time(5.0)
    assert world.machine.members == ("w2",)
    world.vote("w2")
    assert world.finished is not None
    assert world.finished.done
    assert not world.workers
    assert not any(isinstance(entry, RolledBack) for entry in world.journal)


def test_a_new_conductor_is_told_what_was_kept_before() -> None:
    world = kept_job()
    world.workers["w1"].kept = 1
    world.restart()
    assert world.finished is not None
    assert world.journal[-1] == AllKept(1)
    # And a third one tells whoever has not heard.
    world.finished = None
    world.add(world.everyone["w2"])
    world.restart()
    assert world.machine.done
    assert not world.workers


def test_a_job_ends_when_a_member_hangs_in_its_last_validation() -> None:
    world = World(Settings(batch=BATCH, steps=1, most=2, validates=True, keeps=True))
    world.join()
    world.join()
    world.vote("w1")
    world.vote("w2")
    world.workers["w2"].hung = True
    for _ in range(20):
        world.now += 0.1
        number = world.machine.progress.generation
        world.happen(Said("w1", Beat(number, Phase.VALIDATING)))
        world.happen(Tick())
    # It waits for a sum that never comes, until there is another generation.
    generation = world.workers["w1"].generation
    assert generation is not None
    assert generation.done
    world.vote("w1")
    assert world.finished is not None
    assert world.finished.done


def test_whoever_keeps_the_last_step_is_left_in_peace_for_as_long_as_it_takes() -> None:
    world = kept_job()
    number = world.machine.progress.generation
    for _ in range(round(2 * OTHER_STALLS)):
        world.now += 0.5
        world.happen(Said("w1", Beat(number, Phase.KEEPING)))
        world.happen(Said("w2", Beat(number, Phase.VOTED)))
        world.happen(Tick())
    assert world.machine.members == ("w1", "w2")
    # Also by a conductor that is new, and told of it.
    hello = world.workers["w1"].hello()
    world.workers["w1"].hung = world.workers["w2"].hung = True
    world.restart()
    world.happen(Came(structs.replace(hello, keeping=True)))
    world.happen(Came(world.workers["w2"].hello()))
    assert world.machine.members == ("w1", "w2")
    assert world.machine.progress.generation == number


def test_all_may_validate_for_as_long_as_they_like() -> None:
    world = World(Settings(batch=BATCH, steps=9, most=2))
    world.join()
    world.join()
    number = world.machine.progress.generation
    for name in ("w1", "w2"):
        world.now += 0.2
        world.happen(Said(name, Beat(number, Phase.VALIDATING)))
    for _ in range(round(3 * OTHER_STALLS)):
        world.now += 0.5
        for name in ("w1", "w2"):
            world.happen(Said(name, Beat(number, Phase.VALIDATING)))
        world.happen(Tick())
    assert world.machine.members == ("w1", "w2")


def test_one_who_knows_the_last_step_is_enough_to_keep_it() -> None:
    world = World(Settings(batch=BATCH, steps=1, fewest=2, most=2, keeps=True))
    world.join()
    world.join()
    world.vote("w1")
    world.vote("w2")
    del world.workers["w2"]
    world.restart()
    world.pass_time(3.0)
    assert world.machine.members == ("w1",)
    world.vote("w1")
    assert world.finished is not None


def test_nobody_who_knows_the_last_step_is_let_go_before_it_is_kept() -> None:
    world = kept_job()
    world.workers["w2"].hung = True
    world.restart()
    assert not world.machine.members
    world.happen(Said("w1", Leave()))
    assert "w1" in world.workers


def test_what_was_kept_of_a_training_that_was_given_up_ends_nothing() -> None:
    world = inherited(100)
    world.machine.progress = replace(world.machine.progress, forks=(40,))
    world.wanted = replace(world.wanted, steps=100, keeps=True)
    world.machine.settings = world.wanted
    stray = Worker("w1", applied=100)
    world.workers["w1"] = world.everyone["w1"] = stray
    world.happen(Came(structs.replace(stray.hello(), kept=100)))
    assert world.finished is None


def test_a_checkpoint_may_know_more_than_the_journal_of_a_machine_that_went_down() -> None:
    world = inherited(100)
    worker = Worker("w1", applied=120, kept=120, history=((0, 3),) * 120)
    world.workers["w1"] = world.everyone["w1"] = worker
    world.happen(Came(structs.replace(worker.hello(), position=120 * BATCH)))
    world.pass_time(3.0)
    assert PickedUp(120, 120 * BATCH, 0) in world.journal
    assert worker.generation is not None
    assert worker.generation.step == 120
    assert not any(isinstance(entry, RolledBack) for entry in world.journal)


def test_what_was_kept_is_not_what_more_steps_have_trained() -> None:
    progress = Progress(step=1, position=BATCH, kept=True)
    assert not progress.after_commit(step=1, start=BATCH, stop=2 * BATCH, generation=2).kept


def test_a_job_goes_back_when_nobody_is_left_who_could_keep_its_last_step() -> None:
    world = kept_job()
    world.kill("w1")
    world.kill("w2")
    world.join()
    world.join()
    world.pass_time(2.0 * BACK_STALLS)
    assert world.finished is None
    assert RolledBack(0, 0) in world.journal
    assert world.workers["w3"].step == 0


def test_a_new_journal_goes_on_with_what_a_checkpoint_holds() -> None:
    world = World(Settings(batch=BATCH, steps=20, most=1, patience_seconds=0.0))
    worker = Worker("w1", applied=12, history=((0, 1),) * 12, lineage=2)
    world.workers["w1"] = world.everyone["w1"] = worker
    world.happen(Came(structs.replace(worker.hello(), position=77)))
    assert world.journal[1] == PickedUp(12, 77, 2)
    assert worker.generation is not None
    assert (worker.generation.step, worker.generation.position) == (12, 77)
    world.vote("w1")
    assert [(one.step, one.start) for one in world.committed()] == [(12, 77)]


def test_a_new_journal_of_a_job_that_is_done_and_kept_trains_nothing() -> None:
    world = World(Settings(batch=BATCH, steps=12, most=1, keeps=True, patience_seconds=0.0))
    worker = Worker("w1", applied=12)
    world.workers["w1"] = world.everyone["w1"] = worker
    world.happen(Came(structs.replace(worker.hello(), position=77, kept=12)))
    assert world.finished is not None
    assert world.finished.done
    assert not list(world.committed())
