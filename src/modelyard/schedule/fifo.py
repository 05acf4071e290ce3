"""First in, first out: the yardstick of every cluster."""

from __future__ import annotations

from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Candidate, Rank, RankedPolicy, Rules
from modelyard.schedule.view import Traits


def _by_submission(job: Candidate) -> Rank:
    return Rank((job.submitted,))


def fifo(*, strategy: str = "consolidated") -> RankedPolicy:
    """In order of submission; whoever does not fit makes everyone behind wait."""
    return RankedPolicy(
        name="fifo",
        traits=Traits(
            "by priority, then in order of submission", preempts=False, starvation_free=True
        ),
        rank=_by_submission,
        rules=Rules(preempt=False, backfill=False, strategy=Strategy(strategy)),
    )


def fifo_backfill(*, strategy: str = "consolidated") -> RankedPolicy:
    """In order of submission, but whoever fits may pass those who do not."""
    return RankedPolicy(
        name="fifo-backfill",
        traits=Traits("by priority, then in order of submission, filling gaps", preempts=False),
        rank=_by_submission,
        rules=Rules(preempt=False, backfill=True, strategy=Strategy(strategy)),
    )
