"""Smallest jobs first, until somebody has waited too long: a policy that is an order."""

from __future__ import annotations

from modelyard.schedule.ranked import Candidate, Rank, RankedPolicy
from modelyard.schedule.view import Traits

HOUR_SECONDS = 3600.0


def patient(*, hours: float = 24.0) -> RankedPolicy:
    """Few devices first; a job submitted `hours` ago comes before all that are younger."""
    patience_seconds = hours * HOUR_SECONDS

    def rank(job: Candidate) -> Rank:
        patient_until = job.submitted + patience_seconds
        if job.now >= patient_until:
            return Rank((0, job.submitted))
        # From that moment on this rank is wrong, and a decision is due: the rank says both.
        return Rank((1, job.devices), stale_at=patient_until, wake_at=patient_until)

    return RankedPolicy(
        name="patient",
        traits=Traits("smallest first, with limited patience", starvation_free=True),
        rank=rank,
    )
