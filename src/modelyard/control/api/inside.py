"""What a server finds when it looks at itself; `yard doctor` makes findings of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from modelyard.control.api.answers import InsideShape
from modelyard.control.api.calls import Call
from modelyard.control.api.yard import only_admin
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.store.connection import clock
from modelyard.control.store.migrate import revision
from modelyard.engines.interface import Engine, Phase


@dataclass(frozen=True, slots=True)
class Inside:
    """The call of `yard doctor`."""

    database: Database
    leading: Leading
    engine: Engine

    async def look(self, call: Call) -> Response:
        """GET: whether database, records and tasks are as they should be."""
        only_admin(call)
        broken, strangers = await asyncio.wrap_future(self.leading.consult(self._records))
        integrity, skew, at = await run_in_threadpool(self._database)
        shape: InsideShape = {
            "database": self.database.dialect.name,
            "revision": at,
            "integrity": integrity,
            "clock_skew_seconds": skew,
            "now": self.leading.now,
            "decided": self.leading.decided,
            "violations": broken,
            "orphans": strangers,
        }
        return JSONResponse(shape)

    def _records(self, lifecycle: Lifecycle, _: float) -> tuple[list[str], list[str]]:
        known = {name for job in lifecycle.active.values() for name, _ in job.tasks()}
        strangers = [
            str(report.name)
            for report in self.engine.reports()
            if report.phase is Phase.RUNNING and report.name not in known
        ]
        return list(violations(lifecycle.jobs, lifecycle.nodes)), strangers

    def _database(self) -> tuple[list[str], float, str | None]:
        problems: list[str] = []
        with self.database.connect().execution_options(reads=True) as connection:
            skew = clock(connection) - time.time()
            if self.database.dialect.name == "sqlite":
                rows = connection.exec_driver_sql("PRAGMA quick_check(10)").scalars().all()
                problems = [str(row) for row in rows if row != "ok"]
        return problems, skew, revision(self.database)
