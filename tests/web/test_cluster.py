"""The map and the figures above it: what is free and in how many pieces, and who was named."""

from __future__ import annotations

from dataclasses import replace

from modelyard.control.lifecycle.job import Facts, Form, Job, Slot
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.store.callers import Caller, Role
from modelyard.spec.cluster import Cluster, Node
from modelyard.web.cluster import figures, place_of
from modelyard.web.picture import Picture

from ..control.live import LiveYard
from .conftest import Visitor
from .test_pages import job_of

ADMIN = Caller("admin", "default", Role.ADMIN)


def picture(*used: int, devices: int = 4) -> Picture:
    """Nodes of which so many devices are in use, each by a job of its own."""
    jobs = tuple(
        Job(
            facts=Facts(
                id=f"id{at}",
                name=f"job{at}",
                tenant="red",
                owner="ann",
                submitted=1.0,
                form=Form.COMMAND,
            ),
            min_devices=count,
            max_devices=count,
            state=State.RUNNING,
            reason=Reason.UP,
            since=5.0,
            slots=(Slot(number=0, node=f"n{at}", devices=tuple(range(count))),),
        )
        for at, count in enumerate(used)
        if count
    )
    nodes = tuple(
        NodeRecord(name=f"n{at}", kind="H100", devices=devices) for at in range(len(used))
    )
    return Picture(at=10.0, jobs=jobs, active=jobs, nodes=nodes, progress={}, foreseen={})


def test_what_is_free_on_one_node_is_not_scattered() -> None:
    found = figures(picture(4, 2, 4))
    assert (found.free, found.free_nodes, found.largest, found.scattered) == (2, 1, 2, 0)


def test_what_is_left_of_several_nodes_is_scattered_and_whole_nodes_are_not() -> None:
    found = figures(picture(3, 2, 0, 0))
    assert (found.free, found.free_nodes, found.largest, found.scattered) == (11, 4, 4, 3)


def test_nodes_that_take_no_work_are_counted_by_their_health() -> None:
    taken = picture(1, 0, 0)
    short, gone = (
        replace(taken.nodes[1], health=Health.OVERLOADED),
        replace(taken.nodes[2], health=Health.SILENT),
    )
    found = figures(replace(taken, nodes=(taken.nodes[0], short, gone)))
    assert found.health == {Health.IN_SERVICE: 1, Health.OVERLOADED: 1, Health.SILENT: 1}
    assert found.in_service == 8


def test_a_switch_with_one_switch_below_it_is_one_place() -> None:
    paths = (("pod-a", "rack-0"), ("pod-a", "rack-0"), ("pod-b", "rack-1"), ("pod-b", "rack-2"))
    nodes = tuple(Node(f"n{at}", "H100", 4, path) for at, path in enumerate(paths))
    cluster = Cluster(nodes, level_bandwidth=(50e9, 100e9))
    whole = place_of(cluster, picture(4, 0, 1, 0), ADMIN, "job")
    first, second = whole.places.values()
    assert (first.name, first.bandwidth, len(first.nodes)) == ("pod-a · rack-0", 50e9, 2)
    assert (second.name, list(second.places)) == ("pod-b", ["rack-1", "rack-2"])
    assert (whole.used, whole.devices) == (5, 16)


def test_devices_say_since_when_they_are_in_use() -> None:
    cluster = Cluster((Node("n0", "H100", 4, outer_bandwidth=50e9),))
    (node,) = place_of(cluster, picture(3), ADMIN, "job").nodes
    held, free = node.runs
    assert (held.label, held.since) == ("job0 of red, running: n0, devices 0–2", 5.0)
    assert (free.sort, free.since) == ("free", 0.0)
    assert node.built == "H100, 50 GB/s to others"


def test_jobs_that_are_over_keep_their_names(yard: LiveYard, admin: Visitor) -> None:
    job = job_of(yard, "over-by-now", script="true")
    yard.client.wait(job, seconds=60)
    page = admin.get("/").text
    assert f'<a href="/jobs/{job}">over-by-now</a>' in page
    assert f">{job}</a>" not in page
