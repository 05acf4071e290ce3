"""What a job wants of its conductor, and what is committed of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a job wants of its conductor."""

    #: samples of a step, whoever takes part
    batch: int
    #: samples of each member of a step, instead; 0 where the batch does not follow the members
    per_worker: int = 0
    #: committed steps after which the job is done
    steps: int
    #: whether members validate what they have trained, after the last step as well
    validates: bool = False
    #: whether the job is done only when somebody says that what was trained is kept
    keeps: bool = False
    #: with fewer workers training waits
    fewest: int = 1
    #: more than this wait as spares
    most: int = 1_000
    #: how long the start waits for workers beyond the fewest
    patience_seconds: float = 2.0
    #: the longest acceptable pause after a failure; every other time-out derives from it
    stall_seconds: float = 1.0
    #: generations are numbered from the one after this: no number is used twice where
    #: checkpoints of an earlier job are kept
    after_generation: int = 0

    def batch_of(self, members: int) -> int:
        """Samples of a step of so many."""
        return self.per_worker * members or self.batch

    @property
    def beat_seconds(self) -> float:
        """How often workers say that they live."""
        return self.stall_seconds / 10.0

    @property
    def silence_seconds(self) -> float:
        """How long nothing may be heard of a worker; a busy machine needs some of it."""
        return self.stall_seconds * 0.6


class Stretch(NamedTuple):
    """Steps of one size: the first of them, where its samples begin, and how many they are."""

    step: int
    position: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is committed. Everything that survives the conductor follows from it."""

    step: int = 0
    #: samples used so far, over all epochs
    position: int = 0
    generation: int = 0
    #: in which the newest step was committed
    committed_in: int = 0
    #: the steps to which training went back, because everyone who knew later ones was gone
    forks: tuple[int, ...] = ()
    #: of committed steps, in their order
    stretches: tuple[Stretch, ...] = ()
    #: whether what all steps have trained is kept
    kept: bool = False

    @property
    def lineage(self) -> int:
        return len(self.forks)

    @property
    def blank(self) -> bool:
        """Whether nothing was ever committed."""
        return not self.step and not self.forks

    def knows(self, step: int, lineage: int) -> bool:
        """Whether a state is one that this training has gone through."""
        return step <= min((*self.forks[lineage:], self.step))

    def position_of(self, step: int) -> int | None:
        """Samples that were used before a step that is committed, or is the next one.

        None where it is one of those before the journal.
        """
        for stretch in reversed(self.stretches):
            if stretch.step <= step:
                return stretch.position + (step - stretch.step) * stretch.batch
        return None if step else 0

    def picked_up(self, *, step: int, position: int, lineage: int) -> Progress:
        """With so many steps, of the last of which there is no journal, only what they trained."""
        unknown = (step,) * (lineage - self.lineage)
        return replace(self, step=step, position=position, forks=(*self.forks, *unknown))

    def after_commit(self, *, step: int, start: int, stop: int, generation: int) -> Progress:
        """With one step more."""
        stretches = self.stretches
        if not stretches or stretches[-1].batch != stop - start:
            stretches = (*stretches, Stretch(step, start, stop - start))
        return replace(
            self,
            step=step + 1,
            position=stop,
            generation=generation,
            committed_in=generation,
            stretches=stretches,
            kept=False,
        )

    def after_back(self, *, step: int, position: int) -> Progress:
        """Without all steps from that one on."""
        return replace(
            self,
            step=step,
            position=position,
            forks=(*self.forks, step),
            stretches=tuple(stretch for stretch in self.stretches if stretch.step < step),
            kept=False,
        )
