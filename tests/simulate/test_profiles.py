"""Reading measured applications from files, and what is said of broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelyard.errors import InputError
from modelyard.simulate.profiles import read_profile, read_profiles
from modelyard.speed.profile import POLLUX_APPLICATIONS

RUN_HEADER = "progress,iteration,metric,grad_sqr,grad_var\n"
FILES = {
    "placements.csv": "placement,local_bsz,step_time,sync_time\n1,8,0.2,0.01\n1,16,0.3,0.01\n"
    "12,8,0.4,0.1\n",
    "scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,8,0.5,0.2\n",
    "validation-16.csv": RUN_HEADER + "10,10,0.5,1,2\n20,20,0.6,1,2\n",
    "validation-64.csv": RUN_HEADER + "11,5,0.5,1,2\n21,9,0.6,1,2\n",
}


def write(folder: Path, **changed: str | None) -> Path:
    """A small application; a file given as None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (FILES | changed).items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def test_an_application_nobody_knows_trains_for_its_shortest_run(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path / "mine"))
    assert (profile.name, profile.max_epochs) == ("mine", 2)
    assert profile.step_time((1,), 12) == pytest.approx((0.25, 0.01))
    assert profile.step_time((2, 1), 8) == pytest.approx((0.4, 0.1))
    assert profile.progress_after.tolist() == [0.0, 10.0, 20.0]
    assert (profile.limits.init_batch, profile.limits.max_batch) == (16, 64)


def test_all_public_applications_are_read(data_folder: Path) -> None:
    profiles = read_profiles(data_folder / "traces/pollux/profiles")
    assert profiles.keys() == POLLUX_APPLICATIONS.keys()
    assert {name: profile.max_epochs for name, profile in profiles.items()} == {
        name: rules.max_epochs for name, rules in POLLUX_APPLICATIONS.items()
    }
    yolo = profiles["yolov3"].limits
    assert (yolo.init_batch, yolo.max_batch, yolo.min_local, yolo.max_local) == (8, 512, 4, 8)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("placements.csv", "placement,local_bsz\n1,8\n", "lacks step_time, sync_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n", "no row"),
        ("placements.csv", "", "empty"),
        ("scalability.csv", None, "no such file"),
        ("validation-16.csv", "progress,iteration\n1,2\n", "lacks grad_sqr, grad_var"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, text: str | None, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_profile(write(tmp_path / "mine", **{file: text}))
    assert file in str(caught.value)


@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("placements.csv", "0,8,0.2,0.1", "'0' is not a placement"),
        ("placements.csv", "1,0,0.2,0.1", "0 is not a batch size"),
        ("placements.csv", "1,8,fast,0.1", "'fast' is not a number"),
        ("placements.csv", "1,8,nan,0.1", "not finite"),
        ("placements.csv", "1,8,0.2,0.2", "sync_time < step_time"),
        ("placements.csv", "1,8,0.2", "columns"),
        ("scalability.csv", "0,6,8,0.2,0.1", "num_nodes"),
        ("validation-16.csv", "15,30,0.7,1,2", "does not rise"),
    ],
)
def test_a_broken_row_is_told_with_its_line(tmp_path: Path, file: str, row: str, said: str) -> None:
    text = FILES[file] + row + "\n"
    with pytest.raises(InputError, match=said) as caught:
        read_profile(write(tmp_path / "mine", **{file: text}))
    [problem] = caught.value.problems
    assert problem.line == text.count("\n")
    assert problem.fix


def test_problems_of_all_applications_are_told_at_once(tmp_path: Path) -> None:
    bad = FILES["placements.csv"] + "1,8,fast,0.1\n1,8,0.2,slow\n"
    write(tmp_path / "first", **{"placements.csv": bad})
    write(tmp_path / "second", **{"scalability.csv": None})
    write(tmp_path / "third")
    with pytest.raises(InputError) as caught:
        read_profiles(tmp_path)
    assert [Path(problem.file).parent.name for problem in caught.value.problems] == [
        "first",
        "first",
        "second",
    ]


def test_a_known_application_needs_all_its_epochs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cifar10 trains for 100 epochs; a run has 2 only"):
        read_profile(write(tmp_path / "cifar10"))


def test_runs_are_needed(tmp_path: Path) -> None:
    no_runs = {"validation-16.csv": None, "validation-64.csv": None}
    with pytest.raises(InputError, match=r"no validation-<batch size>\.csv"):
        read_profile(write(tmp_path / "mine", **no_runs))


def test_a_folder_without_applications_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no application here"):
        read_profiles(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_profiles(tmp_path / "absent")
