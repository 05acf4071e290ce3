"""Rules that hold for every policy, checked on what it decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from modelyard.schedule.jobs import JobCard
from modelyard.schedule.view import Decision, View
from modelyard.spec.allocation import Allocation


def broken_rules(view: View, decisions: list[Decision]) -> list[str]:
    """Every rule that these decisions would break, in words; empty when all hold.

    Checked: known jobs, one decision each; gangs whole and within the sizes the job allows, and
    each of their workers on one node; no node over its devices in service; device kinds as asked;
    no tenant over its maximum; co-location only with a running, willing partner.
    """
    jobs = view.jobs
    problems: list[str] = []
    seen: set[str] = set()
    free = view.free.copy()
    riders = _riders(view)
    decided = {decision.job for decision in decisions}
    growth: Counter[str] = Counter()
    for decision in decisions:
        at = jobs.find(decision.job)
        if at is None:
            problems.append(f"job {decision.job} is not among the unfinished jobs")
            continue
        if decision.job in seen:
            problems.append(f"job {decision.job} has two decisions")
            continue
        seen.add(decision.job)
        card, before, after = jobs.card(at), jobs.allocation(at), decision.allocation
        if before is not None and before.host is None:
            growth[card.tenant] -= before.devices
            heir = riders.get(card.id)
            if heir is not None and heir.id not in decided:
                growth[heir.tenant] += before.devices  # A rider inherits its host's devices.
            else:
                for node, count in before.parts:
                    free[node] += count if view.available[node] else 0
        if after is None:
            continue
        if not card.min_devices <= after.devices <= card.max_devices:
            problems.append(
                f"job {card.id} gets {after.devices} devices but allows "
                f"{card.min_devices} to {card.max_devices}"
            )
        if any(count % card.worker_devices for count in after.counts):
            problems.append(
                f"job {card.id} gets workers of {card.worker_devices} devices across nodes"
            )
        if card.kinds and any(
            view.cluster.nodes[node].kind not in card.kinds for node in after.nodes
        ):
            problems.append(f"job {card.id} gets a device kind that it does not allow")
        if after.host is None:
            growth[card.tenant] += after.devices
            for node, count in after.parts:
                free[node] -= count
        else:
            problems += _sharing_problems(view, decisions, card.id, after.host)
    for node in np.flatnonzero(free < 0).tolist():
        problems.append(
            f"node {view.cluster.nodes[node].name} is {-int(free[node])} devices over its capacity"
        )
    return problems + _quota_problems(view, growth)


def _owners(view: View) -> Iterator[tuple[JobCard, Allocation]]:
    """Running jobs that hold devices of their own, with what they hold."""
    for at in np.flatnonzero(view.jobs.running).tolist():
        held = view.jobs.allocation(at)
        if held is not None and held.host is None:
            yield view.jobs.card(at), held


def _riders(view: View) -> dict[str, JobCard]:
    """Host → the job that runs on its devices."""
    running = np.flatnonzero(view.jobs.running).tolist()
    return {
        held.host: view.jobs.card(at)
        for at in running
        if (held := view.jobs.allocation(at)) is not None and held.host is not None
    }


def _quota_problems(view: View, growth: Counter[str]) -> list[str]:
    """Tenants that these decisions carry over their maximum."""
    problems = []
    for name, change in growth.items():
        limit = view.tenant(name).maximum
        if limit is None or change <= 0:
            continue
        used = change + sum(held.devices for job, held in _owners(view) if job.tenant == name)
        if used > limit:
            problems.append(f"tenant {name} would hold {used} devices of at most {limit}")
    return problems


def _sharing_problems(view: View, decisions: list[Decision], rider: str, host: str) -> list[str]:
    jobs = view.jobs
    at, own = jobs.find(host), jobs.find(rider)
    if at is None or own is None:
        return [f"job {rider} would share devices with job {host}, which is not running"]
    if jobs.card(at).exclusive or jobs.card(own).exclusive:
        return [f"jobs {rider} and {host} would share devices although one is exclusive"]
    chosen = {decision.job: decision.allocation for decision in decisions}
    if chosen.get(host, jobs.allocation(at)) is None:
        return [f"job {rider} would share devices with job {host}, which is not running"]
    return []
