"""The pipeline on Beam's own direct runner: the same outcomes as the sweep in process."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="Apache Beam is missing: pip install 'modelyard[beam]'")

from modelyard.bulk.beam import run_pipeline
from modelyard.bulk.order import Outcome, Planner, PlannerFactory, Record, Tag, bad
from modelyard.bulk.planner import make_planner
from modelyard.bulk.sweeps import sweep
from modelyard.errors import InputError, YardError
from modelyard.plan.knowledge import shipped_knowledge

# Beam and its libraries warn of their own future.
pytestmark = pytest.mark.filterwarnings("ignore")

REQUESTS = [
    {"id": "fits", "model": "gpt2", "devices": "8xA100", "tokens": "1B"},
    {"id": "late", "model": "gpt2", "devices": "8xA100", "tokens": "1B", "deadline": "1s"},
    {"id": "wrong", "model": "gpt2", "devices": "8xA100", "tokens": "many"},
    {"id": "other", "model": "bert-base-uncased", "devices": "8xA100", "tokens": "1B"},
]


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    lines = [json.dumps(record) for record in REQUESTS]
    path.write_text("\n".join([*lines, "nonsense"]), encoding="utf-8")
    return path


def factory() -> PlannerFactory:
    return partial(make_planner, shipped_knowledge())


def refuse(record: Record) -> Outcome:
    return bad(record, record.problems)


def refusing() -> Planner:
    return refuse


def lines(folder: Path, tag: Tag) -> list[dict[str, object]]:
    """All outcomes of a sort in the order of the records, without the file they are from."""
    texts = [file.read_text(encoding="utf-8") for file in folder.glob(f"{tag.value}*.jsonl")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    kept = [{name: value for name, value in item.items() if name != "file"} for item in found]
    return sorted(kept, key=lambda item: int(item["number"]))


def test_the_direct_runner_gives_what_the_sweep_gives(requests: Path, tmp_path: Path) -> None:
    done = run_pipeline(str(requests), str(tmp_path / "beam"), factory())
    assert done.state == "DONE"
    assert done.counts == {Tag.RESULT: 2, Tag.NO_SOLUTION: 1, Tag.BAD: 2}
    sweep(requests, tmp_path / "here", factory(), workers=1)
    for tag in Tag:
        assert lines(tmp_path / "beam", tag) == lines(tmp_path / "here", tag)


def test_earlier_results_are_kept_unless_asked(requests: Path, tmp_path: Path) -> None:
    out = tmp_path / "beam"
    out.mkdir()
    old = out / "result-00000-of-00001.jsonl"
    old.write_text("precious\n", encoding="utf-8")
    with pytest.raises(InputError, match="another sweep"):
        run_pipeline(str(requests), str(out), factory())
    assert old.read_text(encoding="utf-8") == "precious\n"
    assert run_pipeline(str(requests), str(out), factory(), fresh=True).state == "DONE"
    assert [item["id"] for item in lines(out, Tag.RESULT)] == ["fits", "other"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("no,such,column\n1,2,3\n", encoding="utf-8")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.csv").write_text("model\n?\n", encoding="utf-8")
    done = run_pipeline(str(tmp_path / "*.csv"), str(tmp_path / "out"), refusing)
    assert done.counts == {Tag.RESULT: 0, Tag.NO_SOLUTION: 0, Tag.BAD: 3}
    files = [file.read_text(encoding="utf-8") for file in (tmp_path / "out").glob("bad*")]
    named = {json.loads(line)["file"] for text in files for line in text.splitlines()}
    assert named == {str(tmp_path / f"{name}.csv") for name in "abc"}


def test_a_runner_that_cannot_run_says_why(requests: Path, tmp_path: Path) -> None:
    with pytest.raises(YardError, match=r"DataflowRunner did not run the pipeline.*project"):
        run_pipeline(str(requests), str(tmp_path / "out"), refusing, runner="DataflowRunner")


def test_options_are_handed_to_beam(requests: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="direct_num_workers"):
        run_pipeline(
            *(str(requests), str(tmp_path / "out"), refusing),
            options=["--direct_num_workers", "many"],
        )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"requests": "nowhere-*.jsonl"}, "no file matches"),
        ({"runner": "NoSuchRunner"}, "NoSuchRunner"),
        ({"requests": "nosuch://bucket/requests.jsonl"}, "nosuch"),
    ],
)
def test_what_beam_cannot_do_is_said_before_it_starts(
    requests: Path, tmp_path: Path, words: dict[str, str], reason: str
) -> None:
    asked = {"requests": str(requests), "runner": "DirectRunner", **words}
    with pytest.raises(InputError, match=reason):
        run_pipeline(asked["requests"], str(tmp_path / "out"), refusing, runner=asked["runner"])
