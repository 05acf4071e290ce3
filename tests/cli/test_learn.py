"""`yard learn`: from a command to weights, and what happens when somebody interrupts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import yard
from modelyard.learn.plan import Plan
from modelyard.units import format_duration

TINY = ["--nodes", "1", "--jobs", "3", "--rounds", "1", "--episodes", "1", "--teacher", "fifo"]


def learn(*arguments: str) -> Result:
    return CliRunner().invoke(yard, ["learn", *arguments])


def test_without_torch_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    refused = learn("--out", str(tmp_path / "x"))
    assert refused.exit_code == 2
    assert "pip install 'modelyard[train]'" in refused.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--teacher", "optimos"], "did you mean 'optimus'"),
        (["--slot", "soon"], "soon"),
        (["--rounds", "100000"], "more than a training has"),
        (["--resume", "--seed", "3"], "without --seed"),
        (["--resume"], "no training to go on with"),
    ],
)
def test_mistakes_say_what_to_do(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    pytest.importorskip("torch", reason="training needs the extra 'train'")
    refused = learn("--out", str(tmp_path / "x"), *arguments)
    assert refused.exit_code == 2, refused.output
    assert complaint in refused.stderr
    assert "Fix:" in refused.stderr


def test_a_training_and_its_policy(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs the extra 'train'")
    out = tmp_path / "x"
    done = learn("--out", str(out), *TINY, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["others"]) == {"mesos", "optimus"}
    assert found["jct_mean"] > 0
    assert Path(found["picture"]).read_text().startswith("<svg")
    again = learn("--out", str(out), *TINY)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    further = learn("--out", str(out), "--resume", "--rounds", "2")
    assert further.exit_code == 0, further.stderr
    assert "Weights:" in further.stdout
    shown = CliRunner().invoke(yard, ["policies", "dl2"])
    assert shown.exit_code == 0


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="training needs the extra 'train'")
    from modelyard.learn.training import Trainer

    def interrupted(_self: Trainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "learn", interrupted)
    out = tmp_path / "x"
    cut = learn("--out", str(out), *TINY)
    assert cut.exit_code == 130
    assert f"learn --out {out} --resume" in cut.stderr
    monkeypatch.undo()
    assert learn("--out", str(out), "--resume").exit_code == 0


def test_help_names_the_defaults_of_the_plan() -> None:
    """The help is printed without loading what the defaults live in, so they are written there."""
    plan = Plan()
    told = " ".join(learn("--help").output.split())
    for option, value in (
        ("Rounds of actor and critic.", plan.rounds),
        ("Workloads in a round.", plan.episodes),
        ("Of everything that is drawn.", plan.seed),
        ("Nodes of the cluster.", plan.setting.nodes),
        ("Devices in each node.", plan.setting.devices_per_node),
        ("Jobs of a workload.", plan.setting.jobs),
        ("Jobs that arrive in a slot.", plan.setting.arrivals_per_slot),
        ("Time between decisions.", format_duration(plan.setting.slot_seconds)),
    ):
        assert f"{option} [default: {value}]" in told
