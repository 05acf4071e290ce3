"""Grids of policies, clusters and loads, and the drawing of them."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from modelyard.errors import InputError
from modelyard.schedule.registry import policy
from modelyard.simulate.charts import mean_axis, number_axis
from modelyard.simulate.engine import simulate
from modelyard.simulate.generate import generate
from modelyard.simulate.result import Metrics
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.sweep import Point, Sweep, cells, points_csv, sweep
from modelyard.simulate.sweep_chart import sweep_svg
from modelyard.simulate.what_if import denser
from modelyard.spec.cluster import uniform_cluster

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario(generate(20, seed=5, load=1.2, cluster_devices=16), uniform_cluster(2, 8))


@pytest.fixture(scope="module")
def swept(scenario: Scenario) -> Sweep:
    return sweep(scenario, ("fifo", "las"), clusters=("2x8", "3x8"), loads=(0.5, 1.0), workers=1)


def timeless(metrics: Metrics) -> Metrics:
    return replace(metrics, decision_ms_mean=0.0, decision_ms_p99=0.0)


def test_points_come_cluster_by_cluster_load_by_load_policy_by_policy(swept: Sweep) -> None:
    assert [(point.cluster, point.load, point.policy) for point in swept.points] == [
        (cluster, load, text)
        for cluster in ("2x8", "3x8")
        for load in (0.5, 1.0)
        for text in ("fifo", "las")
    ]
    assert [(point.nodes, point.devices) for point in swept.points[::4]] == [(2, 16), (3, 24)]


def test_a_point_is_what_a_run_of_its_own_gives(scenario: Scenario, swept: Sweep) -> None:
    world = replace(
        scenario, cluster=uniform_cluster(3, 8), workload=denser(scenario.workload, 0.5)
    )
    alone = simulate(world, policy("las")).metrics
    (point,) = (p for p in swept.points if (p.cluster, p.load, p.policy) == ("3x8", 0.5, "las"))
    assert timeless(point.metrics) == timeless(alone)


def test_without_clusters_the_scenario_s_own_is_played(scenario: Scenario) -> None:
    (point,) = sweep(scenario, ["fifo", "fifo"], workers=1).points
    assert (point.cluster, point.load) == ("2x8", 1.0)


def test_clusters_share_their_jobs(scenario: Scenario) -> None:
    larger = replace(scenario, cluster=uniform_cluster(3, 8))
    grid = cells([scenario, larger], ["fifo", "las"], [1.0, 2.0, 2.0])
    assert len(grid) == 8
    assert len({id(cell.scenario.workload) for cell in grid}) == 2


def test_two_clusters_of_one_name_are_refused(scenario: Scenario) -> None:
    other = replace(scenario, cluster=replace(uniform_cluster(3, 8), name="2x8"))
    with pytest.raises(InputError, match="two different clusters are called '2x8'"):
        cells([scenario, other], ["fifo"], [1.0])


def test_the_smallest_cluster_that_is_enough() -> None:
    points = tuple(made(devices, mean) for devices, mean in ((64, 50.0), (16, 200.0), (32, 90.0)))
    known = Sweep(points)
    assert known.smallest(100.0) == {("fifo", 1.0): points[2]}
    assert known.smallest(90.0) == {("fifo", 1.0): points[2]}
    assert known.smallest(10.0) == {("fifo", 1.0): None}


def test_an_interrupted_sweep_keeps_what_has_finished(scenario: Scenario) -> None:
    def interrupt(name: str, outcome: object) -> None:
        raise KeyboardInterrupt

    known = sweep(scenario, ("fifo", "las"), loads=(1.0, 2.0), workers=1, on_done=interrupt)
    assert [point.policy for point in known.points] == ["fifo"]
    assert known.unfinished == (
        "las on 2x8 at load 1",
        "fifo on 2x8 at load 2",
        "las on 2x8 at load 2",
    )


def test_csv_has_every_figure_of_every_point(swept: Sweep) -> None:
    rows = list(csv.DictReader(io.StringIO(points_csv(swept.points))))
    assert [float(row["jct_mean"]) for row in rows] == [p.metrics.jct_mean for p in swept.points]
    assert rows[0]["cluster"] == "2x8"


def test_the_drawing_has_a_line_per_policy_in_each_panel(swept: Sweep) -> None:
    drawing = ElementTree.fromstring(sweep_svg(swept.points, "jobs <&> more"))
    assert "jobs <&> more" in "".join(drawing.itertext())
    panels = drawing.findall(f"{SVG}g")
    # Two loads and two clusters: loads go along the axis, clusters beside each other.
    titles = [panel.findtext(f"{SVG}text") for panel in panels]
    assert titles == ["2x8 (16 devices)", "3x8 (24 devices)"]
    for panel in panels:
        lines = [path for path in panel.iter(f"{SVG}path") if "line" in path.get("class", "")]
        assert len(lines) == 2
        assert len(list(panel.iter(f"{SVG}circle"))) == 4


def test_what_varies_more_goes_along_the_axis() -> None:
    points = [made(devices, 100.0) for devices in (16, 32, 64)]
    drawing = ElementTree.fromstring(sweep_svg(points, "t"))
    (panel,) = drawing.findall(f"{SVG}g")
    assert panel.findtext(f"{SVG}text") == "load 1"
    assert {"16", "32", "64"} <= {text.text for text in panel.iter(f"{SVG}text")}


def test_one_point_can_be_drawn() -> None:
    ElementTree.fromstring(sweep_svg([made(16, 100.0)], "t"))


def test_more_policies_than_colours_are_told_apart_by_dashes() -> None:
    points = [replace(made(16, 100.0 + at), policy=f"policy-{at}") for at in range(10)]
    drawing = ElementTree.fromstring(sweep_svg(points, "t"))
    styles = {path.get("class") for path in drawing.findall(f"{SVG}path")}
    assert len(styles) == 10


def test_means_far_apart_get_a_logarithmic_axis() -> None:
    near, far = mean_axis([3_600.0, 7_200.0]), mean_axis([60.0, 86_400.0])
    assert not near.logarithmic
    assert near.low == 0.0
    assert far.logarithmic
    for axis in (near, far):
        places = [tick.at for tick in axis.ticks]
        assert places == sorted(places)
        assert 2 <= len(places) <= 8
        assert 0.0 <= places[0] <= places[-1] <= 100.0


def test_an_axis_of_numbers_labels_those_that_were_chosen() -> None:
    axis = number_axis([2.0, 0.5, 1.0, 1.0])
    assert [tick.label for tick in axis.ticks] == ["0.5", "1", "2"]
    assert [round(tick.at) for tick in axis.ticks] == [0, 33, 100]
    assert number_axis([3.0]).place(3.0) == 0.5
    assert len(number_axis([float(step) for step in range(40)]).ticks) <= 7


def made(devices: int, jct_mean: float) -> Point:
    figures = dict.fromkeys(Metrics.__dataclass_fields__, 0)
    metrics = Metrics(**{**figures, "jct_mean": jct_mean})
    return Point("fifo", f"{devices // 8}x8", devices // 8, devices, 1.0, metrics)
