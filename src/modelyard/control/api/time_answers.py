"""What calls about the past and the future give, as types; see `answers.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from modelyard.control.api.answers import CLOSED, MomentShape, PredictionShape
from modelyard.control.forecast.basis import Basis
from modelyard.control.lifecycle.job import Held
from modelyard.control.lifecycle.states import Reason, State


@CLOSED
class SpanShape(TypedDict):
    """A stretch of time in which nothing changed for a job."""

    job: str
    start: float
    end: float
    state: State
    reason: Reason
    attempt: int
    held: Annotated[Held, Field(description="nodes, each with numbers of its devices")]
    began_before: Annotated[bool, Field(description="whether the window cuts its beginning")]
    goes_on: Annotated[bool, Field(description="whether it was so still when the window ended")]


@CLOSED
class UseShape(TypedDict):
    """Who had a device, from when to when."""

    start: float
    end: float
    job: Annotated[str, Field(description="other tenants' have no names")]
    tenant: str


@CLOSED
class DeviceUsesShape(TypedDict):
    """A device and who had it."""

    node: str
    device: int
    uses: list[UseShape]


@CLOSED
class KnownShape(TypedDict):
    """What people call a job, whose it is, and when it came."""

    id: str
    name: str
    tenant: str
    submitted: float


@CLOSED
class TurnedShape(TypedDict):
    """Something that happened to a node."""

    at: float
    node: str
    what: str


@CLOSED
class CurvesShape(TypedDict):
    """Means over stretches of time of equal length."""

    at: Annotated[list[float], Field(description="when each stretch begins")]
    seconds: Annotated[float, Field(description="how long each is")]
    waiting: Annotated[list[float], Field(description="jobs without devices that want some")]
    running: Annotated[list[float], Field(description="jobs that hold devices")]
    devices: Annotated[list[float], Field(description="devices that are held, by anybody")]
    devices_by_tenant: dict[str, list[float]]
    started: Annotated[list[int], Field(description="jobs that got their first devices")]
    ended: list[int]
    waited_seconds: Annotated[
        list[float | None], Field(description="how long those who started had waited")
    ]


@CLOSED
class HistoryShape(TypedDict):
    """What happened between two moments."""

    since: float
    until: float
    jobs: Annotated[dict[str, KnownShape], Field(description="those in spans, by id")]
    spans: list[SpanShape]
    left_out: Annotated[int, Field(description="spans that were too many, the earliest ones")]
    devices: list[DeviceUsesShape]
    nodes: list[TurnedShape]
    curves: CurvesShape


@CLOSED
class ForecastShape(TypedDict):
    """What is foreseen of all unfinished jobs that are to be seen."""

    at: Annotated[float, Field(description="when it was made")]
    worlds: Annotated[int, Field(description="simulations behind the intervals")]
    jobs: list[PredictionShape]
    beyond: Annotated[int, Field(description="waiting jobs that are too far back in the queue")]


@CLOSED
class DelayShape(TypedDict):
    """A job that would end later."""

    job: str
    seconds: float


@CLOSED
class OutlookShape(TypedDict):
    """What would become of a job if it were submitted now."""

    at: float
    name: str
    tenant: str
    min_devices: int
    max_devices: int
    priority: int
    start: MomentShape | None
    end: MomentShape | None
    devices: int
    nodes: list[tuple[str, int]]
    basis: Basis
    hangs: Annotated[
        bool, Field(description="its start waits for jobs of which nobody knows how long they take")
    ]
    waiting: Annotated[int, Field(description="jobs that wait already")]
    beyond: Annotated[bool, Field(description="whether too many of them do to say anything")]
    device_hours: float | None
    usd: Annotated[float | None, Field(description="by the catalogue; null without a price")]
    delays: Annotated[list[DelayShape], Field(description="who would end later, the most first")]
    delayed: Annotated[int, Field(description="how many would, of those to be seen")]
    delayed_others: Annotated[int, Field(description="how many of other tenants")]


@CLOSED
class RecordedShape(TypedDict):
    """A job as it was, in the words of the simulator's plain format."""

    id: str
    submitted: float
    devices: Annotated[int, Field(description="that it asks for")]
    duration: Annotated[float, Field(description="seconds that it takes with them")]
    tenant: str
    priority: int
    exclusive: bool
    min_devices: int
    max_devices: int
    model: str
    kinds: list[str]
    serial: Annotated[float | None, Field(description="Amdahl's share, if it can be resized")]
    crossing: float | None
    start_seconds: Annotated[float, Field(description="what a start costs")]
    resize_seconds: Annotated[
        float | None, Field(description="what a change of size costs, if it can be resized")
    ]
    measured: Annotated[bool, Field(description="whether the duration is; believed otherwise")]
    completion_seconds: Annotated[
        float | None, Field(description="from its submission to its good end, as it was")
    ]


@CLOSED
class ClusterNodeShape(TypedDict):
    """A node as policies see it."""

    name: str
    kind: str
    devices: int
    path: list[str]
    inner_bandwidth: float
    outer_bandwidth: float


@CLOSED
class TenantRightsShape(TypedDict):
    """A tenant's rights in devices."""

    name: str
    guaranteed: int
    maximum: int | None
    weight: float
    band: int


@CLOSED
class WorkloadShape(TypedDict):
    """Jobs of a stretch of time and the world in which they ran."""

    since: float
    until: float
    jobs: list[RecordedShape]
    notes: Annotated[list[str], Field(description="what is assumed, or left out")]
    cluster: str
    nodes: list[ClusterNodeShape]
    level_bandwidth: list[float]
    tenants: list[TenantRightsShape]
    policy: str
    restart_seconds: Annotated[float, Field(description="what the policy takes a start to cost")]
    round_seconds: Annotated[float, Field(description="between decisions when nothing happens")]
    reaction_seconds: Annotated[float, Field(description="the least between decisions on news")]
