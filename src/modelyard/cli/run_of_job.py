"""Where a job of this machine's yard keeps what it trained."""

from __future__ import annotations

from glob import escape as glob_escape
from pathlib import Path

from modelyard.errors import InputError


def run_of_job(name: str) -> str | None:
    """The folder of a job's run in this machine's yard; None where that is not what was named."""
    # A slash is in no id and no name of a job, and in every address and path elsewhere.
    if "/" in name or Path(name).exists():
        return None
    from modelyard.control.client import CallRefused, Client, NoYard, yard_folder

    runs = yard_folder() / "runs"
    try:
        job = str(Client(patience_seconds=0.0).job(name)["id"])
    except CallRefused as refused:
        if refused.status != 409:
            return None
        raise
    except (NoYard, InputError):
        # What was kept is there also while the yard is down.
        here = [one for one in runs.glob(f"{glob_escape(name)}*") if one.is_dir()]
        return str(here[0]) if len(here) == 1 else None
    return str(runs / job)
