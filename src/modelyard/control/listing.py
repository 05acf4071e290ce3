"""Which jobs somebody wants to see, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.control.lifecycle.job import Facts
from modelyard.control.lifecycle.states import State


class Order(StrEnum):
    """What comes first in a list of jobs."""

    #: the last submitted
    NEWEST = "newest"
    #: the first submitted
    OLDEST = "oldest"
    #: by name, those of one name as submitted
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A piece of a list of jobs. What is empty or None does not restrict it."""

    tenant: str | None = None
    states: frozenset[State] = frozenset()
    owner: str = ""
    #: letters that are somewhere in the name, small or large
    search: str = ""
    #: also those that are over
    over: bool = False
    order: Order = Order.NEWEST
    most: int = 100
    skip: int = 0

    @property
    def reaches_over(self) -> bool:
        """Whether a job that is over may be among those asked for."""
        return any(state.over for state in self.states) if self.states else self.over

    @property
    def picks(self) -> bool:
        """Whether single jobs have to be looked at."""
        return bool(self.owner or self.search)

    def picks_out(self, facts: Facts) -> bool:
        """Whether a job's owner and name are those asked for."""
        return (not self.owner or facts.owner == self.owner) and (
            self.search.lower() in facts.name.lower()
        )
