"""How a job really advances, as the simulator plays it.

A policy sees estimates (`SpeedModel`); the simulator needs the truth. `Work` describes a job's
whole truth and is shared and frozen; `Progress` is one run of it and moves.
"""

from __future__ import annotations

from typing import Protocol

from modelyard.spec.allocation import Footprint
from modelyard.speed.model import SpeedModel
from modelyard.speed.notebook import Notebook


class Progress(Protocol):
    """One job under way. Time is handed in; nothing here reads a clock."""

    @property
    def finished(self) -> bool: ...

    @property
    def fraction(self) -> float:
        """Share of the work done, 0 to 1."""
        ...

    @property
    def done(self) -> float:
        """Work done, in the units of which goodput counts so many per second."""
        ...

    @property
    def left(self) -> float:
        """Work left in the same units: for whoever was told the job's length."""
        ...

    @property
    def told(self) -> bool:
        """Whether everybody may know what is left: it was said, and its speed is known."""
        ...

    @property
    def belief(self) -> SpeedModel:
        """What a scheduler may know of the job's speed after what has been observed so far."""
        ...

    @property
    def truth(self) -> SpeedModel:
        """What an oracle would know: for policies that declare that they use one."""
        ...

    def place(self, at: Footprint | None) -> None:
        """Continue on another footprint from now on; None stops the job."""
        ...

    def horizon(self) -> float:
        """Seconds until the job ends or its rate changes by itself; infinite when stopped."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass; never more than `horizon()` (plus rounding) at once."""
        ...

    def remaining(self, at: Footprint) -> float:
        """Oracle: seconds of work left if the job ran on `at` from now on; 0 when finished."""
        ...

    def largest_tried(self) -> int:
        """The most devices on which the job has run so far; 0 before its first start."""
        ...


class Work(Protocol):
    """A job's whole truth."""

    def begin(self, *, adapt_batch: bool, notebook: Notebook | None = None) -> Progress:
        """A fresh run.

        `adapt_batch` lets the job choose its batch size as it is resized; with a `notebook` it
        shares what it measures with the other jobs of its model.
        """
        ...
