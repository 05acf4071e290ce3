"""Which jobs somebody wants to see, and in which order: the words of the API, of `yard ps` and of
the pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.control.lifecycle.job import Facts
from modelyard.control.lifecycle.states import State

#: What has devices comes before what needs some, and that before what is over.
LIVELINESS = {
    State.RUNNING: 4,
    State.STARTING: 4,
    State.STOPPING: 3,
    State.WAITING: 2,
    State.PAUSED: 1,
}


class Order(StrEnum):
    """What comes first in a list of jobs; of those that are equal, the last submitted."""

    #: the last submitted
    SUBMITTED = "submitted"
    #: what has devices, then what waits, then the others
    LIVELY = "lively"
    #: what ended last; what is not over comes after that
    ENDED = "ended"
    #: names, from a to z
    NAME = "name"
    TENANT = "tenant"
    OWNER = "owner"

    @property
    def falls(self) -> bool:
        """Whether it begins with the largest where nobody wants it the other way round."""
        return self in (Order.SUBMITTED, Order.LIVELY, Order.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A piece of a list of jobs. What is empty or None does not restrict it."""

    tenant: str | None = None
    states: frozenset[State] = frozenset()
    owner: str = ""
    #: words, each of them in the name, the owner or the tenant, small or large, or the id's start
    search: str = ""
    #: also those that are over
    over: bool = False
    order: Order = Order.SUBMITTED
    #: the other way round
    reverse: bool = False
    most: int = 100
    skip: int = 0

    @property
    def falls(self) -> bool:
        """Whether the largest comes first."""
        return self.order.falls is not self.reverse

    @property
    def reaches_over(self) -> bool:
        """Whether a job that is over may be among those asked for."""
        return any(state.over for state in self.states) if self.states else self.over

    @property
    def picks(self) -> bool:
        """Whether single jobs have to be looked at."""
        return bool(self.owner or self.search)

    def picks_out(self, facts: Facts) -> bool:
        """Whether a job is one of its owner's and has all the words."""
        said = (facts.name.lower(), facts.owner.lower(), facts.tenant.lower())
        return (not self.owner or facts.owner == self.owner) and all(
            facts.id.startswith(word) or any(word.lower() in one for one in said)
            for word in self.search.split()
        )
