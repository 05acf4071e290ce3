"""What will happen on the yard, over HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from modelyard.control.api.calls import Call
from modelyard.control.api.shapes import moment_shape, prediction_shape
from modelyard.control.api.time_answers import ForecastShape, OutlookShape
from modelyard.control.estimating import estimate_of
from modelyard.control.forecast.forecasts import Forecast, Forecasts, Outlook, nothing_yet
from modelyard.control.forecast.present import Newcomer
from modelyard.control.forecast.replay import Prediction
from modelyard.control.leading import Leading
from modelyard.control.lifecycle.job import Job
from modelyard.control.store.callers import Caller
from modelyard.control.submission import new_id, submission
from modelyard.spec.cluster import Cluster
from modelyard.spec.prices import shipped_prices

#: of a file's name in what is said of it
MOST_LETTERS = 100
#: Those who are delayed most are named.
MOST_DELAYS = 10
#: milliseconds for which anybody waits for a forecast
MOST_WAIT = 20_000


@dataclass(frozen=True, slots=True)
class Future:
    """The calls about what will happen."""

    forecasts: Forecasts
    leading: Leading
    cluster: Cluster

    async def forecast(self, call: Call) -> Response:
        """GET: when every unfinished job that is to be seen starts and ends, and on what.

        Whoever cannot wait says for how many milliseconds with `wait`: what is not foreseen by
        then is left out, and is there when they ask again.
        """
        wait = call.number("wait", MOST_WAIT, most=MOST_WAIT) / 1000.0
        asked = asyncio.ensure_future(run_in_threadpool(self.forecasts.current))
        try:
            found = await asyncio.wait_for(asyncio.shield(asked), wait)
        except TimeoutError:
            asked.add_done_callback(_heard)
            found = self.forecasts.latest() or nothing_yet(self.leading.now)
        return JSONResponse(forecast_shape(found, call.caller))

    async def outlook(self, call: Call) -> Response:
        """POST: what a job that is not submitted would find, cost, and do to others.

        It is checked as a submission is, and nothing of it is kept.
        """
        text = (await call.body()).decode("utf-8", errors="replace")
        query = call.request.query_params
        folder, file = query.get("folder", ""), query.get("file", "job")
        return JSONResponse(
            await run_in_threadpool(
                lambda: self.foreseen(call.caller, text, folder=folder, file=file)
            )
        )

    def foreseen(
        self, caller: Caller, text: str, *, folder: str = "", file: str = "job"
    ) -> OutlookShape:
        """The same for whoever sends it in another way."""
        job, kept = submission(
            text,
            id=new_id(),
            caller=caller,
            folder=folder,
            cluster=self.cluster,
            at=self.leading.now,
            file=file[:MOST_LETTERS],
        )
        estimate = estimate_of(json.loads(kept)["estimate"])
        found = self.forecasts.outlook(Newcomer(job, estimate))
        return outlook_shape(found, job, caller, at=self.leading.now)


def _heard(asked: asyncio.Future[Forecast]) -> None:
    """Whoever asked has left; what went wrong is told to the next one who asks."""
    if not asked.cancelled():
        asked.exception()


def forecast_shape(found: Forecast, caller: Caller) -> ForecastShape:
    """A forecast for somebody: how many of whose jobs are beyond it is nobody else's business."""
    seen = [one for one in found.predictions.values() if caller.may_see(one.tenant)]
    return {
        "at": found.at,
        "worlds": found.worlds,
        "jobs": [prediction_shape(one) for one in seen],
        "beyond": len(found.beyond),
    }


def outlook_shape(found: Outlook, job: Job, caller: Caller, *, at: float) -> OutlookShape:
    """What a job would find, and do to others."""
    prediction = found.prediction
    own = [one for one in found.delays if caller.may_see(one.tenant)]
    return {
        "at": at,
        "name": job.facts.name,
        "tenant": job.facts.tenant,
        "min_devices": job.min_devices,
        "max_devices": job.max_devices,
        "priority": job.priority,
        "start": moment_shape(prediction.start),
        "end": moment_shape(prediction.end),
        "devices": prediction.devices,
        "nodes": list(prediction.parts),
        "basis": prediction.basis,
        "hangs": prediction.hangs,
        "waiting": found.waiting,
        "beyond": found.beyond,
        "device_hours": sum(prediction.service.values()) / 3600.0 if prediction.end else None,
        "usd": _price(prediction),
        "delays": [{"job": one.job, "seconds": one.seconds} for one in own[:MOST_DELAYS]],
        "delayed": len(own),
        "delayed_others": len(found.delays) - len(own),
    }


def _price(found: Prediction) -> float | None:
    """What the devices cost by the catalogue; None where one of them has no price."""
    prices = shipped_prices()
    each = [prices[kind].usd_per_hour for kind in found.service if kind in prices]
    if found.end is None or not found.service or len(each) < len(found.service):
        return None
    total = 0.0
    for price, seconds in zip(each, found.service.values(), strict=True):
        if price is None:
            return None
        total += price * seconds / 3600.0
    return total
