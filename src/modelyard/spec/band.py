"""The two bands of priority, after Borg: work that must not be interrupted, and the rest."""

from __future__ import annotations

from enum import StrEnum


class Band(StrEnum):
    """Which jobs may take devices from which others."""

    #: may preempt batch jobs; is never preempted by a policy, not even by its own band
    PRODUCTION = "production"
    #: runs on what is left and may be resized, stopped and started again
    BATCH = "batch"
