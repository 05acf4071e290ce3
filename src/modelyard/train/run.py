"""The run of one worker: steps that are committed together or repeated, whoever dies or joins.

    with elastic(address, token=…, worker=…, data_size=…, batch=…) as run:
        run.train(model, optimizer)
        for step in run.steps():
            for chosen in step.microbatches():
                step.backward(loss_of(model, chosen), samples=len(chosen))
            step.commit()

A step that is not committed comes again with the same samples, divided among those who are left.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist

from modelyard.errors import InputError
from modelyard.train.aggregate.all_reduce import AllReduce
from modelyard.train.aggregate.interface import Aggregation, Trained
from modelyard.train.alone import Alone
from modelyard.train.conductor.messages import Generation, Hello, Next, Phase
from modelyard.train.conductor.progress import Settings as ConductorSettings
from modelyard.train.course import Course
from modelyard.train.group import Disturbed, Group, connect, open_store
from modelyard.train.inside import JOINING, Inside, OneProcess, Word, agreed
from modelyard.train.keeping import Keeper
from modelyard.train.member import Dismissal, Member, NoConductor, Standing
from modelyard.train.named_state import by_name, by_number, parameter_names
from modelyard.train.snapshots import Restored
from modelyard.train.state import receive_state, send_state
from modelyard.train.step import Step

#: Ways to train together in which each member has everything at any time.
WHOLE = frozenset(("all-reduce", "local-sgd", "diloco"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What every worker of a job knows."""

    address: tuple[str, int]
    token: str
    worker: str
    #: samples in the data set, of a step, and of one forward pass
    data_size: int
    batch: int
    micro_batch: int
    seed: int = 0
    host: str = "127.0.0.1"
    beat_seconds: float = 0.1
    #: what a conductor would be told, for a worker that is its own; nobody is at `address` then
    alone: ConductorSettings | None = None


class Run:
    """One worker's part in a job."""

    def __init__(
        self,
        settings: RunSettings,
        aggregation: Aggregation | None = None,
        inside: Inside | None = None,
    ) -> None:
        """`aggregation` is how members train together: all-reduce when it is not given.

        `inside` is what this process shares with others of its worker, where it is not alone.
        """
        self.settings = settings
        self.inside: Inside = inside or OneProcess()
        self.aggregation: Aggregation = aggregation or AllReduce()
        #: what all members agree on beside parameters
        self.course = Course()
        self.applied = -1
        self._pending, self._pending_generation = -1, 0
        self._lineage = 0
        #: whether this worker is let go after the step that was committed last
        self._let_go = False
        #: samples that the parameters have seen, and steps of what is known to be kept
        self._position, self._safe = 0, -1
        #: whether all steps of the job are done, and whether this worker is keeping them
        self._all_done = self._keeping = False
        self._store, self._member = self._line()
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        #: sees to it that now and then, and at the end, `state` is kept
        self.keeper: Keeper | None = None
        self._group: Group | None = None

    def _line(self) -> tuple[dist.Store, Member | Alone]:
        """To peers, and to the conductor."""
        settings = self.settings

        def standing() -> Standing:
            return Standing(
                applied=self.applied,
                pending=self._pending,
                lineage=self._lineage,
                pending_generation=self._pending_generation,
                position=self._position,
                kept=self._safe,
                keeping=self._keeping,
            )

        store = self.inside.store
        if store is None:
            store = open_store(settings.host) if settings.alone is None else dist.HashStore()
        port = store.port if settings.alone is None else 0
        node, name = socket.gethostname(), self.inside.called(settings.worker)
        hello = Hello(settings.token, name, node, settings.host, port, -1)
        if settings.alone is not None:
            return store, Alone(settings.alone, hello=hello, standing=standing)
        beats = settings.beat_seconds
        return store, Member(settings.address, hello=hello, standing=standing, beat_seconds=beats)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._member.__exit__(kind, error, traceback)

    def train(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        update: Callable[[int], object] | None = None,
        keeper: Keeper | None = None,
        course: Course | None = None,
        applied: int = -1,
        lineage: int = 0,
    ) -> None:
        """What is trained; a restored state says how many steps it has seen, of which lineage.

        `update` applies gradients at a step, and does the same with the same gradients on every
        member; `optimizer.step()` when it is not given. `keeper` keeps `state`, after the same
        steps whoever does it: where members differ, they then meet for it. `course` is where
        `update` finds the learning rate.
        """
        self.course = course or self.course
        self._model, self._optimizer = model, optimizer
        self.keeper = keeper
        self.applied, self._lineage = applied, lineage
        self.aggregation.attach(
            Trained(model=model, optimizer=optimizer, update=update or (lambda _: optimizer.step()))
        )

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        found: Restored | None,
        *,
        update: Callable[[int], object] | None = None,
        keeper: Keeper | None = None,
        course: Course | None = None,
    ) -> None:
        """Train on from what `state` gave and somebody kept; from the beginning without that."""
        if found is None:
            self.train(model, optimizer, update=update, keeper=keeper, course=course)
            return
        state = found.tree
        assert isinstance(state, dict)
        try:
            model.load_state_dict(state["model"])
        except RuntimeError as error:
            # It lists every tensor; the first of them says enough.
            first = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
            what = f"the checkpoint '{found.where}' is of another model: {first.rstrip('.')}"
            fix = "train in another folder (--out), or with the model that the checkpoint is of"
            raise InputError(what, fix=fix) from None
        names = parameter_names(model, optimizer)
        optimizer.load_state_dict(by_number(state["optimizer"], optimizer, names))
        self.train(
            model,
            optimizer,
            update=update,
            keeper=keeper,
            course=course,
            applied=found.about.step,
            lineage=state["lineage"],
        )
        self._position, self._safe = found.about.position, found.about.step
        self.course.load(state.get("course", {}))
        # Older checkpoints have none, and other aggregations have others.
        if state.get("aggregation", {}).get("name") == self.aggregation.name:
            self.aggregation.load(state["aggregation"])

    def state(self) -> dict[str, object]:
        """Everything that a worker needs to go on from here; see `keeper` of `train`."""
        assert self._model is not None
        assert self._optimizer is not None
        state = self.aggregation.kept(self._own_state())
        moments = state["optimizer"]
        assert isinstance(moments, dict)
        names = parameter_names(self._model, self._optimizer)
        return {**state, "optimizer": by_name(moments, names)}

    def _own_state(self) -> dict[str, object]:
        assert self._model is not None
        assert self._optimizer is not None
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "lineage": self._lineage,
            "course": self.course.state(),
            "aggregation": {"name": self.aggregation.name, **self.aggregation.state()},
        }

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """Those that want a gradient, in the model's order."""
        assert self._model is not None
        return [one for one in self._model.parameters() if one.requires_grad]

    def note(self, text: str) -> None:
        """Tell people something that does not stop the training: in the log and in the journal."""
        logging.getLogger("modelyard.train").warning(text)
        self._member.note(text)

    def leave(self) -> None:
        """Take part in the step in flight, and in no other; `steps` ends then."""
        self._member.leave()

    @property
    def ended(self) -> bool:
        """Whether nobody counts on this worker any more."""
        return self._member.ended

    @property
    def parting(self) -> bool:
        """Whether this worker leaves after this step, and has everything that it takes to go on.

        Then it may keep `state` also where nobody was told before that it would.
        """
        return self._let_go and self.aggregation.name in WHOLE

    def steps(self) -> Iterator[Step]:
        """Every step in turn, until the job is done; one that failed comes again."""
        assert self._model is not None, "say what is trained first"
        self._member.__enter__()
        while True:
            try:
                generation, group = self._joined()
            except Dismissal:
                return
            except NoConductor:
                if self._all_done:
                    # It has ended before this worker could be told.
                    return
                raise
            try:
                if generation.done:
                    self.aggregation.gather(group)
                    self._finish(group, generation.number, generation.position)
                else:
                    yield from self._generation(generation, group)
            except Disturbed as error:
                self._member.trouble(str(error))

    def _generation(self, generation: Generation, group: Group) -> Iterator[Step]:
        number, position = generation.step, generation.position
        while True:
            step = Step(self, group, generation.number, number, position, generation.batch)
            yield step
            if step.outcome is None:
                raise Disturbed("the step was not committed")
            if step.outcome is Next.STOP:
                self._all_done = True
                undisturbed = not self._member.disturbed.is_set()
                if not agreed(self.inside, Word(step.generation, self.applied, undisturbed)):
                    # A member was lost after the step: another generation is about to finish it.
                    return
                self._finish(group, generation.number, step.stop)
            if step.outcome is not Next.GO_ON:
                return
            number, position = number + 1, step.stop

    def _finish(self, group: Group, generation: int, position: int) -> None:
        """All steps are done: the first member keeps them, and the others stay until it has."""
        if self.keeper is None or group.rank:
            return
        self._keeping = True
        self._member.enter(Phase.KEEPING)
        if self.keeper.for_certain(self, generation=generation, position=position):
            self._safe = self.applied
            self._member.kept(self.applied)

    def _joined(self) -> tuple[Generation, Group]:
        """The next generation that all processes of this worker have joined."""
        while True:
            generation, group = self._member.next_generation(), None
            if generation.done and self._safe >= generation.step:
                # It has said so, and is about to be dismissed.
                continue
            self._all_done, self._keeping, self._safe = generation.done, False, -1
            try:
                group = self._join(generation)
            except Disturbed as error:
                self._member.trouble(str(error))
            everybody = self._everybody_at(Word(generation.number, JOINING, group is not None))
            if everybody and group is not None:
                return generation, group

    def _everybody_at(self, word: Word) -> bool:
        """Whether all places have joined as well; false when a newer generation has to be."""
        while True:
            words = self.inside.words(word)
            if all(other == word for other in words):
                return word.fine
            newest = max(other.generation for other in words)
            same = [other for other in words if other.generation == word.generation]
            if newest > word.generation or not all(other.fine for other in same):
                return False
            # Some are still at what this place has left behind: they are about to come.

    def _join(self, generation: Generation) -> Group:
        """Connect to the others and bring everyone to the generation's step."""
        member = self._member
        known = generation.peers[self._rank(generation)].applied
        if 0 <= self._pending == self.applied == known - 1:
            # The step was committed, and the word of it was lost with the conductor.
            self._apply(self._pending)
        self._pending = -1
        self.aggregation.discard()
        self.course.discard()
        group = connect(
            generation,
            self.settings.worker,
            self._store,
            member.disturbed,
            place=self.inside.place,
        )
        member.on_disturbance = group.wake
        self._heal(generation, group)
        self._group = group
        return group

    def _heal(self, generation: Generation, group: Group) -> None:
        assert self._model is not None
        assert self._optimizer is not None
        source = generation.source
        if source < 0:
            # Nobody has trained yet: all take what the first one begins with.
            behind, source = list(range(1, group.size)), 0
        else:
            behind = [
                rank
                for rank, peer in enumerate(generation.peers)
                if peer.applied != generation.step
            ]
        if group.rank == source:
            state = self._own_state()
            for rank in behind:
                group.patiently(partial(send_state, group, rank, state))
        elif group.rank in behind:
            received = group.patiently(partial(receive_state, group, source, self.inside.mesh))
            self._model.load_state_dict(received["model"])
            self._optimizer.load_state_dict(received["optimizer"])
            self.aggregation.load(received["aggregation"])
            self.course.load(received["course"])
        self.aggregation.meet(group, behind)
        self.applied, self._lineage = generation.step, generation.lineage
        self._position = generation.position

    def _rank(self, generation: Generation) -> int:
        return [peer.worker for peer in generation.peers].index(self.settings.worker)

    def _apply(self, step: int) -> None:
        # The update is made with what held before the step.
        self.aggregation.apply()
        self.course.apply()
        self.applied, self._pending = step + 1, -1
