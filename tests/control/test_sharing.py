"""Who gets devices when there are too few, with real processes: priorities, rights, exclusivity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .live import LiveYard, command_job
from .test_yard import other, until

TENANTS = """
tenants:
  - name: red
    maximum: 1
  - name: blue
    guaranteed: 1
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LiveYard]]:
    yards: list[LiveYard] = []

    def make(*options: str) -> LiveYard:
        yard = LiveYard(tmp_path / f"state{len(yards)}", cluster="1x2", options=options)
        yards.append(yard)
        yard.start()
        return yard

    yield make
    for yard in yards:
        yard.end()


def test_a_higher_priority_takes_the_devices_and_the_lower_one_comes_back(
    start: Callable[..., LiveYard], tmp_path: Path
) -> None:
    yard, journal = start(), tmp_path / "journal"
    # It keeps what it has done, as a good command does, and goes on from there.
    script = (
        f"trap 'exit 1' TERM; n=$(cat {tmp_path}/kept 2>/dev/null || echo 0); "
        f"while [ $n -lt 40 ]; do n=$((n+1)); echo $n >> {journal}; echo $n > {tmp_path}/kept; "
        "sleep 0.1; done"
    )
    low = yard.client.submit_text(command_job("low", script, devices=2))["id"]
    until(yard.client, low, "running")
    high = yard.client.submit_text(command_job("high", "sleep 1", devices=2, more="priority: 5\n"))[
        "id"
    ]
    until(yard.client, high, "running")
    assert yard.client.job(low)["state"] in ("stopping", "waiting")
    assert yard.client.wait(high, seconds=60.0)["state"] == "succeeded"
    ended = yard.client.wait(low, seconds=120.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    assert any(event["reason"] == "preempted" for event in yard.client.events(low))
    assert [int(word) for word in journal.read_text().split()] == list(range(1, 41))


def test_nobody_is_beside_an_exclusive_job(start: Callable[..., LiveYard]) -> None:
    yard = start()
    jobs = [
        yard.client.submit_text(command_job(f"j{number}", "sleep 1", more=more))["id"]
        for number, more in enumerate(["exclusive: true\n", "", "exclusive: true\n", ""])
    ]
    for job in jobs:
        assert yard.client.wait(job, seconds=60.0)["state"] == "succeeded"
    holding: dict[str, frozenset[int]] = {}
    for event in yard.client.events():
        if event["job"]:
            held = frozenset(one for _, devices in event["held"] for one in devices)
            holding[event["job"]] = (
                held if event["state"] in ("starting", "running") else frozenset()
            )
        every = [device for held in holding.values() for device in held]
        assert len(every) == len(set(every)), event


def test_a_tenant_with_many_jobs_does_not_starve_another(
    start: Callable[..., LiveYard], tmp_path: Path
) -> None:
    rights = tmp_path / "tenants.yaml"
    rights.write_text(TENANTS)
    yard = start("--tenants", str(rights))
    red, blue = other(yard, tenant="red"), other(yard, tenant="blue")
    many = [red.submit_text(command_job(f"red{number}", "sleep 2"))["id"] for number in range(8)]
    until(red, many[0], "running", "succeeded")
    few = blue.submit_text(command_job("blue", "true"))["id"]
    assert blue.wait(few, seconds=60.0)["state"] == "succeeded"
    waiting = [job for job in many if red.job(job)["state"] == "waiting"]
    assert len(waiting) >= 5, "a whole queue of red was before it"
    assert "red" in red.why(waiting[-1])["sentence"] or red.why(waiting[-1])["reasons"]
    # At no moment had red more than its maximum.
    holding: dict[str, int] = {}
    for event in yard.client.events():
        if event["tenant"] == "red":
            placed = event["state"] in ("starting", "running", "stopping")
            holding[event["job"]] = sum(len(one) for _, one in event["held"]) if placed else 0
        assert sum(holding.values()) <= 1, event
