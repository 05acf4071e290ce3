"""The process that plays a comparison for a page: `python -m modelyard.web.comparing`.

It reads one request from its input, a line of JSON, and answers with lines of JSON: how far each
policy is, and at the end tables and charts, or what is wrong. It ends when its input is closed, so
that it never outlives the server. A trace is somebody's upload: it is read here, where memory and
time are bounded, and nothing but words and numbers comes back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelyard.control.replayed import cluster_of, scenario_of
from modelyard.errors import InputError, YardError
from modelyard.simulate.bundled import bundled_workload
from modelyard.simulate.columns import COLUMNS
from modelyard.simulate.compare import check_policies, compare
from modelyard.simulate.generate import generate
from modelyard.simulate.misfits import left_out_note, misfits
from modelyard.simulate.readers import read_workload
from modelyard.simulate.report import Setting, figures
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import Workload
from modelyard.spec.cluster import Cluster
from modelyard.spec.shorthand import parse_cluster_shorthand

MOST_JOBS = 20_000
#: What a comparison of so many jobs needs several times over.
MOST_MEMORY_BYTES = 4 * 2**30
#: The yard itself comes first.
NICENESS = 10


def main() -> None:
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()
    _bound(request["seconds"])
    try:
        scenario, notes = _world(request)
        _say(result=_played(scenario, notes, request["policies"]))
    except YardError as error:
        problems = error.problems if isinstance(error, InputError) else ()
        told = [(one.what, one.fix, one.line) for one in problems]
        _say(problems=told or [(error.message, error.fix, 0)])
    except MemoryError:
        _say(problems=[("this needs too much memory", "compare fewer jobs", 0)])


def _bound(seconds: float) -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_server() -> None:
    sys.stdin.read()
    os._exit(1)


def _say(**told: object) -> None:
    sys.stdout.write(json.dumps(told, default=_plain) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(type(value).__name__)


def _world(request: Mapping[str, Any]) -> tuple[Scenario, list[str]]:
    """The scenario that was asked for, without jobs that could never run in it."""
    chosen = parse_cluster_shorthand(request["cluster"]) if request["cluster"] else None
    if request["source"] == "history":
        past = scenario_of(request["yard"])
        scenario = replace(past, cluster=chosen or past.cluster)
    else:
        cluster = chosen or cluster_of(request["yard"])
        scenario = Scenario(workload=_workload(request, cluster), cluster=cluster)
    workload, cluster = scenario.workload, scenario.cluster
    if len(workload.jobs) > MOST_JOBS:
        what = f"{len(workload.jobs):,} jobs are too many for a page"
        raise InputError(what, fix=f"send {MOST_JOBS:,} or fewer, or use 'yard simulate'")
    left_out = misfits(workload, cluster, scenario.tenants)
    notes = left_out_note(left_out, len(workload.jobs), cluster, strict=False)
    kept = tuple(job for job in workload.jobs if job.id not in left_out)
    return replace(scenario, workload=replace(workload, jobs=kept)), [*workload.notes, *notes]


def _workload(request: Mapping[str, Any], cluster: Cluster) -> Workload:
    if request["source"] == "bundled":
        return bundled_workload()
    if request["source"] == "synthetic":
        return generate(
            request["jobs"],
            seed=request["seed"],
            load=request["load"],
            cluster_devices=cluster.devices,
        )
    try:
        # A plain table alone: the other formats name files beside them.
        return replace(read_workload(Path(request["trace"]), format="csv"), name="your trace")
    except InputError as error:
        # Where it lies here is nobody's business.
        problems = [replace(one, file="") for one in error.problems]
        raise InputError("the trace cannot be read", problems=problems) from None


def _played(scenario: Scenario, notes: list[str], policies: list[str]) -> dict[str, object]:
    made = check_policies(policies)
    oracles = {text for text, one in zip(policies, made, strict=True) if one.traits.oracle}

    def progress(name: str, share: float) -> None:
        _say(policy=name, share=round(share, 3))

    found = compare(
        scenario,
        policies,
        workers=1,
        on_progress=progress,
        on_done=lambda name, _: progress(name, 1.0),
    )
    if not found.results:
        first = found.failures[0]
        raise InputError(f"{first.policy}: {first.message}", fix=first.fix or "choose others")
    shown = figures(found, Setting(scenario.cluster, oracles=oracles))
    return {
        **shown,
        "columns": [(column.title, column.meaning) for column in COLUMNS],
        "failures": [(one.policy, one.message) for one in found.failures],
        "notes": notes,
    }


if __name__ == "__main__":
    main()
