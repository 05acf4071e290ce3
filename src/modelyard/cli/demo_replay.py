"""The jobs of `yard demo` once more, for real, under another policy; nobody is killed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from modelyard.cli.demo_jobs import PIECES
from modelyard.cli.demo_result import Fared
from modelyard.cli.demo_screen import Lines
from modelyard.cli.demo_watch import OVER
from modelyard.cli.demo_yard import DemoYard
from modelyard.errors import YardError

LOOK_SECONDS = 0.1
#: Longer than this no replay takes on a machine on which the demo itself came to its end.
MOST_SECONDS = 900.0


def replay(
    yard: DemoYard, jobs_folder: Path, outcome: Sequence[Fared], screen: Lines
) -> dict[str, float]:
    """Submit every job when it was submitted before; completion times by name."""
    yard.start()
    began = time.time()
    offset = min(one.submitted for one in outcome)
    due = sorted(outcome, key=lambda one: one.submitted)
    ids: dict[str, str] = {}
    told: set[str] = set()
    found: dict[str, float] = {}
    while len(found) < len(due):
        now = time.time() - began
        for one in due:
            if one.name not in ids and now >= one.submitted - offset:
                ids[one.name] = yard.client.submit(jobs_folder / f"{one.name}.yaml")["id"]
        for name, job in ids.items():
            record = yard.client.job(job)
            if record["first_start"] is not None and name not in told:
                told.add(name)
                waited = record["first_start"] - record["submitted"]
                screen.say(f"{name} starts, {waited:.1f} s after it was submitted")
            if record["state"] in OVER and name not in found:
                found[name] = record["ended"] - record["submitted"]
                screen.say(f"{name} is done, {found[name]:.1f} s after it was submitted")
        if now > MOST_SECONDS:
            raise YardError(f"under {yard.policy} the same jobs take over {MOST_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
    assert set(found) == {piece.name for piece in PIECES}
    return found
