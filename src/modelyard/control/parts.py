"""What a server is made of, for whoever adds routes to it from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import BaseRoute

from modelyard.control.api.jobs import Jobs
from modelyard.control.api.yard import Yard
from modelyard.schedule.view import TenantView


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One server's parts. `jobs` and `yard` hold the store, the engine and whoever leads."""

    jobs: Jobs
    yard: Yard
    tenants: Mapping[str, TenantView]
    #: the folder of a job's run: its journal and its checkpoints
    run: Callable[[str], Path]
    #: what only this yard knows; nothing of it may be shown
    secret: bytes


#: Makes the routes of what is served beside the API.
Pages = Callable[[Parts], Sequence[BaseRoute]]


def no_pages(_: Parts) -> Sequence[BaseRoute]:
    return ()
