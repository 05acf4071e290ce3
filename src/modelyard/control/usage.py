"""Who used how much: device-seconds of tenants in a window, from the log alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Engine, or_, select

from modelyard.control.store.tables import entries, jobs


def device_seconds(
    lines: Iterable[tuple[str, str, float, int]], *, start: float, end: float
) -> dict[str, float]:
    """By tenant; lines are job, tenant, time and devices from then on, in the order of the log."""
    used: dict[str, float] = defaultdict(float)
    last: dict[str, tuple[str, float, int]] = {}
    for job, tenant, at, devices in lines:
        _count(used, last.get(job), start, min(at, end))
        last[job] = tenant, max(at, start), devices
    for held in last.values():
        _count(used, held, start, end)
    return dict(used)


def _count(
    used: dict[str, float], held: tuple[str, float, int] | None, start: float, until: float
) -> None:
    if held is not None:
        tenant, since, devices = held
        used[tenant] += devices * max(until - max(since, start), 0.0)


def used_by_tenant(
    database: Engine, *, start: float, end: float, tenant: str | None = None
) -> dict[str, float]:
    """Device-seconds since `start`: only jobs that were not over then can have had any."""
    asked = (
        select(entries.c.job, entries.c.tenant, entries.c.at, entries.c.held)
        .join(jobs, jobs.c.id == entries.c.job)
        .where(or_(jobs.c.ended.is_(None), jobs.c.ended >= start))
        .order_by(entries.c.number)
    )
    if tenant is not None:
        asked = asked.where(entries.c.tenant == tenant)
    with database.connect().execution_options(reads=True) as connection:
        rows = connection.execute(asked).all()
    lines = ((row.job, row.tenant, row.at, _devices(row.held)) for row in rows)
    return device_seconds(lines, start=start, end=end)


def _devices(held: str) -> int:
    return sum(len(devices) for _, devices in json.loads(held)) if held != "[]" else 0
