"""What a server is made of, for whoever adds routes to it from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import BaseRoute

from modelyard.control.api.app import Calls
from modelyard.control.api.jobs import Jobs
from modelyard.control.api.yard import Yard


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One server's parts."""

    #: everything that programs may ask; they hold the store, the engine and whoever leads
    calls: Calls
    #: the folder of a job's run: its journal and its checkpoints
    run: Callable[[str], Path]
    #: what only this yard knows; nothing of it may be shown
    secret: bytes

    @property
    def jobs(self) -> Jobs:
        return self.calls.jobs

    @property
    def yard(self) -> Yard:
        return self.calls.yard


#: Makes the routes of what is served beside the API.
Pages = Callable[[Parts], Sequence[BaseRoute]]


def no_pages(_: Parts) -> Sequence[BaseRoute]:
    return ()
