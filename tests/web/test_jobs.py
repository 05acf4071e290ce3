"""The list of jobs: how far each is."""

from __future__ import annotations

import json
from dataclasses import replace

from modelyard.control.store.store import Kept
from modelyard.web.jobs import row_of

from .test_cluster import picture


def test_a_job_that_runs_for_longer_than_was_said_has_no_share_of_its_work_done() -> None:
    now = picture(4)
    job = replace(now.active[0], run_seconds=1.0, counted=5.0)
    spec = json.dumps({"estimate": {"seconds": 24.0}})
    assert row_of(Kept(job, spec, None), now).fraction == 6.0 / 24.0
    late = replace(now, at=60.0)
    assert row_of(Kept(job, spec, None), late).fraction is None
