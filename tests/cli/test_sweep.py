"""`yard sweep`: the grid, its files, and everything that can be wrong on the way."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.grid import KEPT_NAME, read_kept
from modelyard.cli.main import yard

TRACE = """id,submitted,devices,duration,tenant
a,0,4,600,red
b,60,1,60,blue
c,120,8,300,red
d,180,2,120,blue
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def run(
    trace: Path,
    *arguments: object,
    policy: str = "fifo,srtf",
    cluster: str = "1x8,2x8",
    load: str = "1,2",
) -> Result:
    grid = ("--policy", policy, "--cluster", cluster, "--load", load)
    base = ("sweep", trace, *grid, "--out", trace.parent / "out", "--workers", 1)
    return CliRunner().invoke(yard, [*map(str, (*base, *arguments))])


def refusal(shown: Result) -> str:
    assert shown.exit_code == 2, shown.output
    assert all("Fix: " in line for line in shown.stderr.splitlines())
    assert "Traceback" not in shown.stderr
    return shown.stderr


def test_prints_the_grid_and_writes_table_and_plot(trace: Path) -> None:
    shown = run(trace)
    assert shown.exit_code == 0, shown.stderr
    assert "jobs: 4 jobs; 2 policies × 2 clusters × 2 loads" in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert sum("fifo" in row for row in rows) == 4
    assert "yardstick" in shown.stdout
    out = trace.parent / "out"
    assert f"Plot:   {out / 'sweep.svg'}" in shown.stdout
    assert {path.name for path in out.iterdir()} == {
        "sweep.svg",
        "sweep.csv",
        "sweep.json",
        KEPT_NAME,
    }


def test_json_and_csv_are_all_there_is_on_stdout(trace: Path) -> None:
    written = json.loads(run(trace, "-o", "json").stdout)
    assert len(written["points"]) == 8
    rows = list(csv.DictReader(io.StringIO(run(trace, "-o", "csv").stdout)))
    assert [float(row["jct_mean"]) for row in rows] == [p["jct_mean"] for p in written["points"]]


def test_options_may_be_written_in_the_plural_and_several_times(trace: Path) -> None:
    words = ("--policies", "fifo", "--clusters", "1x8", "--clusters", "2x8", "--loads", "2")
    out = ("--out", trace.parent / "out", "--workers", 1, "-o", "json")
    shown = CliRunner().invoke(yard, [*map(str, ("sweep", trace, *words, *out))])
    points = json.loads(shown.stdout)["points"]
    assert [(point["cluster"], point["load"]) for point in points] == [("1x8", 2.0), ("2x8", 2.0)]


def test_a_point_is_what_simulate_says(trace: Path) -> None:
    (point,) = json.loads(run(trace, "-o", "json", policy="las", cluster="2x8", load="2").stdout)[
        "points"
    ]
    words = ("simulate", trace, "--policy", "las", "--cluster", "2x8", "--load", 2, "-o", "json")
    out = ("--out", trace.parent / "one", "--workers", 1)
    alone = json.loads(CliRunner().invoke(yard, [*map(str, (*words, *out))]).stdout)["runs"][0]
    assert point["jct_mean"] == alone["jct_mean"]


def test_points_are_taken_up_again_unless_anything_changed(trace: Path) -> None:
    run(trace)
    assert "8 of 8 points taken from" in run(trace).stderr
    assert "4 of 8 points taken from" in run(trace, load="1,3").stderr
    assert "taken" not in run(trace, "--fresh").stderr
    assert "taken" not in run(trace, "--restart", "31s").stderr
    # Other grids in the same folder are not forgotten.
    assert len(read_kept(trace.parent / "out")) == 8 + 4 + 8
    trace.write_text(TRACE.replace("600", "601"))
    assert "taken" not in run(trace).stderr


def test_a_smaller_cluster_beside_it_makes_another_point(trace: Path) -> None:
    # 1x4 cannot run job c, so it is missing from 2x8 as well: not the point it was before.
    run(trace, cluster="2x8")
    shown = run(trace, cluster="1x4,2x8")
    assert "note: left out 1 job that can never run on 1x4: c (8 devices)" in shown.stdout
    assert "taken" not in shown.stderr
    backwards = json.loads(run(trace, "-o", "json", cluster="2x8,1x4").stdout)
    assert {point["jobs"] for point in backwards["points"]} == {3}
    assert "1 job can never run on 1x4" in refusal(run(trace, "--strict", cluster="2x8,1x4"))


def test_damaged_points_are_played_again(trace: Path) -> None:
    run(trace)
    kept = trace.parent / "out" / KEPT_NAME
    kept.write_text("{")
    assert "taken" not in run(trace).stderr
    assert len(read_kept(trace.parent / "out")) == 8


def test_the_smallest_cluster_that_is_enough_is_named(trace: Path) -> None:
    shown = run(trace, "--target", "6m", policy="fifo", cluster="1x8,2x8,4x8", load="1")
    assert "The smallest cluster with a mean JCT of at most 6m:" in shown.stdout
    said = shown.stdout.partition("The smallest")[2].splitlines()
    assert any(line.split()[:3] == ["fifo", "1", "2x8"] for line in said)
    none = run(trace, "--target", "1s", policy="fifo", load="1")
    assert "none of these" in none.stdout
    written = json.loads(run(trace, "--target", "1s", "-o", "json", load="1").stdout)
    assert {entry["cluster"] for entry in written["smallest"]} == {None}


@pytest.mark.parametrize(
    ("option", "value", "complaints"),
    [
        ("cluster", "1x8,many,0x8", ("'many' is neither a cluster", "0 nodes")),
        ("cluster", "1x8,", ("neither a cluster",)),
        ("load", "1,none,-2", ("'none' is not a load", "'-2' is not a load")),
        ("policy", "fivo,fifo:speed=9", ("unknown policy 'fivo'", "no option 'speed'")),
    ],
)
def test_bad_grids_are_refused_with_all_their_fixes(
    trace: Path, option: str, value: str, complaints: tuple[str, ...]
) -> None:
    grid = {"policy": "fifo", "cluster": "1x8", "load": "1", option: value}
    told = refusal(run(trace, policy=grid["policy"], cluster=grid["cluster"], load=grid["load"]))
    assert all(complaint in told for complaint in complaints)
    assert not (trace.parent / "out").exists()


def test_a_bad_target_is_refused(trace: Path) -> None:
    assert "'soon' is not a duration" in refusal(run(trace, "--target", "soon"))


def test_ctrl_c_keeps_finished_points_and_exits_130(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    # The display speaks when a point has ended: nothing else happens at so certain a moment.
    monkeypatch.setattr("modelyard.cli.progress.words", interrupt)
    shown = run(trace)
    assert shown.exit_code == 130
    assert "interrupted; not played to the end: srtf on 1x8 at load 1" in shown.stderr
    assert f"--out {trace.parent / 'out'}" in shown.stderr
    assert "fifo" in shown.stdout
    monkeypatch.undo()
    assert "1 of 8 points taken" in run(trace).stderr
