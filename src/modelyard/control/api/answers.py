"""What calls take and give, as types.

mypy holds the code that answers to them, and `/v1/openapi.json` is made of them.

Times are seconds since 1970 by the server's clock; whatever is not known is null.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config

# pydantic, which brings it, reads no other before Python 3.12.
from typing_extensions import TypedDict

from modelyard.control.forecast.basis import Basis
from modelyard.control.lifecycle.job import Held
from modelyard.control.lifecycle.node import Health
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.store.callers import Role

#: nothing is answered that is not described
CLOSED = with_config(ConfigDict(extra="forbid"))


@CLOSED
class ProblemShape(TypedDict):
    """Why a call was refused or failed."""

    error: str
    fix: Annotated[str, Field(description="what to do about it; empty where nobody knows")]


@CLOSED
class JobShape(TypedDict):
    """A job in a list, with what it has had until now."""

    id: str
    name: str
    tenant: str
    owner: str
    state: State
    reason: Reason
    detail: Annotated[str, Field(description="beside the reason: an exit code, a node, who asked")]
    since: Annotated[float, Field(description="when it came to this state")]
    submitted: float
    first_start: Annotated[float | None, Field(description="when it first had devices")]
    ended: float | None
    priority: Annotated[int, Field(description="who has more goes first")]
    min_devices: int
    max_devices: int
    devices: Annotated[int, Field(description="that it holds now")]
    attempt: Annotated[int, Field(description="starts so far")]
    steps: Annotated[int, Field(description="that it has committed")]
    step_seconds: Annotated[
        float | None, Field(description="between two of its latest steps, while it runs")
    ]
    device_seconds: float
    run_seconds: float


@CLOSED
class TaskShape(TypedDict):
    """One process of a job."""

    role: Annotated[str, Field(description="such as worker-0 or conductor")]
    node: str
    devices: list[int]
    incarnation: Annotated[int, Field(description="how many it replaces")]
    up: Annotated[bool, Field(description="whether it was seen running")]


@CLOSED
class EstimateShape(TypedDict, total=False):
    """What was foreseen at the submission."""

    steps: float | None
    curve: Annotated[
        list[tuple[int, float]], Field(description="devices and steps per second, rising")
    ]
    seconds: Annotated[float | None, Field(description="that it runs, as its owner said")]
    planned: Annotated[bool, Field(description="whether the curve is the planner's")]


@CLOSED
class MomentShape(TypedDict):
    """A time that is foreseen, and the interval in which it lies with 80 %."""

    at: float
    low: float | None
    high: Annotated[float | None, Field(description="null where it has no bound")]


@CLOSED
class PredictionShape(TypedDict):
    """What is foreseen of a job, if nobody comes and nothing fails."""

    job: str
    start: Annotated[
        MomentShape | None, Field(description="the start to come, or the last one if it runs")
    ]
    end: Annotated[MomentShape | None, Field(description="null where nobody knows its length")]
    devices: Annotated[int, Field(description="that it has, or gets first")]
    nodes: Annotated[list[tuple[str, int]], Field(description="and how many of which node")]
    basis: Annotated[Basis, Field(description="on what it rests how long the job takes")]
    hangs: Annotated[
        bool, Field(description="its start waits for jobs of which nobody knows how long they take")
    ]


@CLOSED
class FullJobShape(JobShape):
    """A job with its tasks, what its owner wrote, and what was foreseen."""

    tasks: list[TaskShape]
    spec: Annotated[
        dict[str, object], Field(description="what was submitted; see `yard schema job`")
    ]
    estimate: EstimateShape
    forecast: Annotated[
        PredictionShape | None, Field(description="the last one, if it is not too old")
    ]
    last_lines: Annotated[
        list[str], Field(description="of the log of the task whose death mattered last")
    ]


@CLOSED
class JobsShape(TypedDict):
    """A page of jobs, the newest first."""

    jobs: list[JobShape]
    counts: Annotated[dict[State, int], Field(description="jobs in each state, over or not")]


@CLOSED
class WhyShape(TypedDict):
    """Why a job is where it is; what the policy says is there of a waiting one only."""

    job: JobShape
    sentence: str
    last_lines: Annotated[
        list[str], Field(description="of the log of the task whose death mattered last")
    ]
    reasons: NotRequired[Annotated[list[str], Field(description="see the reference of reasons")]]
    unblocked_by: NotRequired[
        Annotated[list[str], Field(description="jobs whose end would let it start")]
    ]
    predicted_start: NotRequired[float | None]
    forecast: NotRequired[PredictionShape]


@CLOSED
class RescopeShape(TypedDict, total=False):
    """Other numbers of devices, or another priority; what is left out stays."""

    min_devices: int
    max_devices: int
    priority: int


@CLOSED
class EventShape(TypedDict):
    """One line of the log: what happened, and how things were afterwards."""

    number: Annotated[int, Field(description="only grows; send the last one as `after`")]
    at: float
    job: Annotated[str, Field(description="empty for what concerns no job")]
    tenant: str
    node: str
    attempt: int
    state: State | None
    reason: Reason | None
    held: Annotated[Held, Field(description="nodes, each with numbers of its devices")]
    what: str
    who: Annotated[str, Field(description="whoever wanted it; empty for the yard itself")]


@CLOSED
class EventsShape(TypedDict):
    """Lines of the log, the oldest first."""

    events: list[EventShape]


@CLOSED
class DeviceShape(TypedDict):
    """One device slot of a node."""

    number: int
    job: Annotated[str | None, Field(description="whose it is; other tenants' have no names")]
    out: Annotated[str | None, Field(description="why it is out of service")]
    next_probe: Annotated[float | None, Field(description="not probed before that, if at all")]


@CLOSED
class NodeShape(TypedDict):
    """A node and who has which of its devices."""

    name: str
    kind: str
    health: Health
    detail: str
    since: float
    devices: list[DeviceShape]


@CLOSED
class NodesShape(TypedDict):
    """All nodes."""

    nodes: list[NodeShape]


@CLOSED
class DrainShape(TypedDict, total=False):
    """For others to read."""

    why: str


@CLOSED
class BackupShape(TypedDict):
    """How backups are doing."""

    place: str
    last: Annotated[str, Field(description="the name of the newest backup")]
    last_at: float | None
    drill_at: float | None
    drill_ok: bool | None
    problem: Annotated[str, Field(description="what went wrong last; empty when all is well")]


@CLOSED
class StatusShape(TypedDict):
    """Who leads, who asks, how many jobs are where."""

    leads: Annotated[bool, Field(description="whether this server does")]
    leader: Annotated[str | None, Field(description="the address of the server that leads")]
    term: int | None
    user: str
    tenant: str
    role: Role
    jobs: dict[State, int]
    backup: Annotated[BackupShape | None, Field(description="from the leader, for admins")]


@CLOSED
class TokenShape(TypedDict):
    """A token that is valid; itself it was shown once and never again."""

    hint: Annotated[str, Field(description="its first letters")]
    user: str
    tenant: str
    role: Role
    made: float


@CLOSED
class TokensShape(TypedDict):
    """All valid tokens, the oldest first."""

    tokens: list[TokenShape]


@CLOSED
class IssueShape(TypedDict):
    """For whom a token is."""

    user: str
    tenant: str
    role: NotRequired[Role]


@CLOSED
class IssuedShape(TypedDict):
    """A new token: this answer is the only place where it can ever be read."""

    token: str


@CLOSED
class RevokedShape(TypedDict):
    """How many tokens are invalid from now on."""

    revoked: int


@CLOSED
class TenantShape(TypedDict):
    """A tenant: its rights in devices, and what it has of them."""

    name: str
    guaranteed: Annotated[int, Field(description="devices it gets whenever it asks")]
    maximum: Annotated[int | None, Field(description="the most it may hold; none: no limit")]
    weight: Annotated[float, Field(description="its part of what nobody is guaranteed")]
    band: Literal["production", "batch"]
    source: Annotated[
        Literal["set", "file", "none"], Field(description="where its rights come from")
    ]
    set_by: str | None
    set_at: float | None
    running: Annotated[int, Field(description="jobs that hold devices")]
    waiting: Annotated[int, Field(description="jobs that want devices")]
    devices: Annotated[int, Field(description="that its jobs hold now")]
    share: Annotated[float, Field(description="of all devices in service, 0 to 1")]
    device_seconds: Annotated[float, Field(description="used in the window")]


@CLOSED
class TenantsShape(TypedDict):
    """Tenants by name; only their own to those who are no admins."""

    tenants: list[TenantShape]
    window_seconds: int


@CLOSED
class RightsShape(TypedDict, total=False):
    """Rights of a tenant, in the words of a tenants file; null takes one away."""

    guaranteed: int | float | str | None
    maximum: int | float | str | None
    weight: float | None
    band: Literal["production", "batch"] | None


@CLOSED
class CallShape(TypedDict):
    """A call that changed something or was refused."""

    number: int
    at: float
    user: Annotated[str, Field(description="empty where nobody knows who it was")]
    tenant: str
    call: Annotated[str, Field(description="method and path")]
    status: int
    detail: Annotated[str, Field(description="why it was refused")]


@CLOSED
class AuditShape(TypedDict):
    """Calls, the oldest first."""

    calls: list[CallShape]


@CLOSED
class InsideShape(TypedDict):
    """What a server finds when it looks at itself."""

    database: Annotated[str, Field(description="sqlite or postgresql")]
    revision: Annotated[str | None, Field(description="of the tables")]
    integrity: Annotated[list[str], Field(description="what SQLite's quick_check found")]
    clock_skew_seconds: Annotated[float, Field(description="of the database's clock to this one")]
    now: float
    decided: Annotated[float | None, Field(description="when the policy was last asked")]
    violations: Annotated[list[str], Field(description="invariants of records that do not hold")]
    orphans: Annotated[list[str], Field(description="tasks that run and belong to no job")]


@CLOSED
class AliveShape(TypedDict):
    """That this server answers, and whether it leads."""

    alive: bool
    leads: bool
