"""Compare policies: a workload, a cluster, and what the simulator makes of them, side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from modelyard.control.api.calls import Call, Refused, failure_of
from modelyard.control.leading import NotNow
from modelyard.control.parts import Parts
from modelyard.errors import InputError, Problem, YardError
from modelyard.schedule.registry import policies
from modelyard.spec.shorthand import is_shorthand
from modelyard.units import counted
from modelyard.web.answers import HEADERS, sent_elsewhere
from modelyard.web.comparisons import MOST_SECONDS, MOST_TRACE_BYTES, Comparisons
from modelyard.web.site import Site, form

MOST_POLICIES = 8
MOST_JOBS = 5_000
#: chosen where nobody has chosen yet
USUAL_POLICIES = ("fifo", "srtf", "tiresias-las", "yard")
#: of the yard's own past that can be played again
WINDOWS: Mapping[str, float] = {"1h": 3_600.0, "1d": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
MOST_LETTERS = 100
SOURCES: Mapping[str, str] = {
    "bundled": "A small team: 120 jobs of a day",
    "synthetic": "Synthetic, like a shared cluster's",
    "history": "This yard's own past",
    "trace": "A trace of yours",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The form as it was written."""

    source: str = "bundled"
    policies: tuple[str, ...] = USUAL_POLICIES
    cluster: str = ""
    jobs: str = "300"
    load: str = "1"
    seed: str = "1"
    window: str = "1d"
    trace: str = ""
    csv: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Asked:
        chosen = tuple(name for name in policies() if fields.get(f"policy-{name}"))
        words = {
            name: fields[name].strip()[:MOST_LETTERS]
            for name in ("source", "cluster", "jobs", "load", "seed", "window", "trace")
            if name in fields
        }
        return cls(**words, policies=chosen, csv=fields.get("csv", ""))


class ComparePage:
    """The form, and the pages of comparisons."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.comparisons = Comparisons()

    async def context(self, call: Call) -> dict[str, object]:
        return self._form(call, Asked())

    def _form(
        self, call: Call, asked: Asked, failure: YardError | None = None
    ) -> dict[str, object]:
        problems = list(failure.problems) if isinstance(failure, InputError) else []
        if failure is not None and not problems:
            problems = [Problem(failure.message, failure.fix)]
        return {
            "asked": asked,
            "problems": problems,
            "sources": SOURCES,
            "windows": tuple(WINDOWS),
            "policies": list(policies()),
            "own": self.site.parts.jobs.cluster.name,
            "past": self.comparisons.seen_by(call.caller),
            "most_mebibytes": MOST_TRACE_BYTES >> 20,
        }

    async def start(self, call: Call) -> Response:
        """POST: play what was chosen, and look at its page."""
        asked = Asked.of(await form(call))
        try:
            if asked.source == "trace" and not asked.trace and asked.csv.strip():
                trace = await self.comparisons.keep_trace(call.caller, _piece(asked.csv))
                asked = Asked(**{**asdict(asked), "trace": trace})
            request = await run_in_threadpool(request_of, asked, call, self.site.parts)
            title = _title(asked, self.site.parts)
            at = self.site.clock()
            one = self.comparisons.start(call.caller, request, title=title, at=at)
        except NotNow:
            raise
        except YardError as error:
            context = self._form(call, asked, error)
            status = failure_of(error).status
            return await self.site.shown(call, "compare/page.html", context, status=status)
        return sent_elsewhere(f"/compare/{one.id}")

    async def upload(self, call: Call) -> Response:
        """POST: a file as it is; its name among those that the form can send."""
        trace = await self.comparisons.keep_trace(call.caller, call.request.stream())
        return JSONResponse({"trace": trace}, status_code=201, headers=HEADERS)

    async def played(self, call: Call) -> dict[str, object]:
        one = self.comparisons.found(call.request.path_params["id"], call.caller)
        return {"one": one, "most_seconds": MOST_SECONDS}

    async def cancel(self, call: Call) -> Response:
        one = self.comparisons.found(call.request.path_params["id"], call.caller)
        if one.owner != call.caller and call.caller.scope is not None:
            raise Refused(403, "this comparison is somebody else's")
        self.comparisons.cancel(one)
        return sent_elsewhere(f"/compare/{one.id}")


def request_of(asked: Asked, call: Call, parts: Parts) -> dict[str, Any]:
    """What the process is asked for; one `InputError` with everything that is wrong."""
    problems: list[Problem] = []
    if asked.source not in SOURCES:
        problems.append(Problem("this is no workload", "choose one of the list"))
    if not 1 <= len(asked.policies) <= MOST_POLICIES:
        problems.append(Problem("nobody chose policies", f"choose 1 to {MOST_POLICIES} of them"))
    problems += _wrong_cluster(asked.cluster)
    numbers: dict[str, float] = {}
    if asked.source == "synthetic":
        for name, low, high in (("jobs", 1, MOST_JOBS), ("load", 0.01, 10), ("seed", 0, 10**9)):
            try:
                numbers[name] = _number(name, getattr(asked, name), low, high)
            except InputError as error:
                problems += error.problems
    if asked.source == "history" and asked.window not in WINDOWS:
        problems.append(Problem("this is no time", f"choose one of {', '.join(WINDOWS)}"))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return {
        "source": asked.source,
        "policies": list(asked.policies),
        "cluster": asked.cluster,
        "yard": _yard(asked, call, parts),
        "jobs": int(numbers.get("jobs", 0)),
        "seed": int(numbers.get("seed", 0)),
        "load": numbers.get("load", 1.0),
        "trace": asked.trace,
    }


def _yard(asked: Asked, call: Call, parts: Parts) -> Mapping[str, Any]:
    """The yard's machines, and its past where that is what is played."""
    if asked.source == "history":
        now = parts.yard.leading.now
        found = parts.calls.past.played(call.caller, now - WINDOWS[asked.window], now)
        if not found["jobs"]:
            what = f"no job has come to this yard in the last {asked.window}"
            raise InputError(what, fix="choose more of its past, or another workload")
        return found
    cluster = parts.jobs.cluster
    return {
        "cluster": cluster.name,
        "nodes": [asdict(node) for node in cluster.nodes],
        "level_bandwidth": list(cluster.level_bandwidth),
    }


def _wrong_cluster(text: str) -> list[Problem]:
    """A shorthand alone: what would be a file on a command line is nothing here."""
    fix = "write nodes x devices x kind, as in '4x8xA100', or leave it out"
    return [] if not text or is_shorthand(text) else [Problem("this is no cluster", fix)]


def _number(name: str, text: str, low: float, high: float) -> float:
    fix = f"write a number from {low:,} to {high:,}"
    try:
        found = float(text)
    except ValueError:
        raise InputError(f"{name}: this is no number", fix=fix) from None
    if not low <= found <= high:
        raise InputError(f"{name}: {found:g} is out of range", fix=fix)
    return found


def _title(asked: Asked, parts: Parts) -> str:
    what = {
        "bundled": "A small team",
        "synthetic": f"Synthetic, {asked.jobs} jobs, load {asked.load}",
        "history": f"The last {asked.window} of this yard",
        "trace": "A trace",
    }[asked.source]
    count = counted(len(asked.policies), "policy").replace("policys", "policies")
    return f"{what} on {asked.cluster or parts.jobs.cluster.name}, {count}"


async def _piece(text: str) -> AsyncIterator[bytes]:
    yield text.encode("utf-8", errors="replace")


def routes(site: Site) -> list[BaseRoute]:
    page = ComparePage(site)
    return [
        *site.page("/compare", "compare", page.context),
        site.action("/compare", page.start),
        site.action("/compare/trace", page.upload),
        *site.page("/compare/{id}", "compared", page.played, live=("outcome",)),
        site.action("/compare/{id}/cancel", page.cancel),
    ]
