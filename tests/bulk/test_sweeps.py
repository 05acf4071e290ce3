"""A sweep in steps: every record gets one outcome, whatever interrupts it and however often."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.bulk import sweeps
from modelyard.bulk.order import Outcome, Planner, PlannerFactory, Record, Tag, bad
from modelyard.bulk.planner import fingerprint, make_planner
from modelyard.bulk.readers import Format
from modelyard.bulk.results import NOTE_NAME
from modelyard.bulk.sweeps import CHUNK_RECORDS, Summary, chunks_by_model, sweep, windows
from modelyard.errors import InputError
from modelyard.plan.knowledge import shipped_knowledge
from modelyard.spec.pool import Price


def echo(record: Record) -> Outcome:
    """A planner that finds a plan for everything readable."""
    if record.problems:
        return bad(record, record.problems)
    tag = Tag.NO_SOLUTION if record.model == "huge" else Tag.RESULT
    fields = {"number": record.number, "id": record.id, "binding": "memory"}
    return Outcome(tag, record.number, fields)


def echoing() -> Planner:
    return echo


def stopping_at(number: int, error: type[BaseException]) -> PlannerFactory:
    def planner(record: Record) -> Outcome:
        if record.number == number:
            raise error
        return echo(record)

    return lambda: planner


def write_requests(path: Path, count: int) -> Path:
    lines = [json.dumps({"id": f"r{index}", "model": f"m{index % 3}"}) for index in range(count)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def outcomes(folder: Path) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    for tag in Tag:
        for line in (folder / f"{tag.value}.jsonl").read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            assert fields["number"] not in found, "a record has two outcomes"
            found[fields["number"]] = (tag.value, fields["id"])
    return found


def run(requests: Path, out: Path, factory: PlannerFactory = echoing) -> Summary:
    return sweep(requests, out, factory, workers=1)


def test_every_record_has_one_outcome(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    lines = ['{"id": "a", "model": "m"}', "nonsense", '{"model": "huge"}', '{"id": NaN}', "[]"]
    requests.write_text("\n".join(lines), encoding="utf-8")
    summary = run(requests, tmp_path / "out")
    assert outcomes(tmp_path / "out") == {
        1: ("result", "a"),
        2: ("bad", "record-2"),
        3: ("no_solution", "record-3"),
        4: ("bad", "record-4"),
        5: ("bad", "record-5"),
    }
    assert summary.counts == {Tag.RESULT: 1, Tag.NO_SOLUTION: 1, Tag.BAD: 3}
    assert summary.bindings == {"memory": 1}
    assert [fields["number"] for fields in summary.bad] == [2, 4, 5]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_an_interruption_left_is_done_by_the_same_call(
    tmp_path: Path, error: type[BaseException]
) -> None:
    requests = write_requests(tmp_path / "requests.jsonl", 4 * CHUNK_RECORDS)
    out = tmp_path / "out"
    factory = stopping_at(2 * CHUNK_RECORDS, error)
    if error is KeyboardInterrupt:
        assert run(requests, out, factory).interrupted
    else:
        with pytest.raises(error):
            run(requests, out, factory)
    done = len(outcomes(out))
    assert 0 < done < 4 * CHUNK_RECORDS
    summary = run(requests, out)
    assert summary.reused == done
    assert not summary.interrupted
    assert sorted(outcomes(out)) == list(range(1, 4 * CHUNK_RECORDS + 1))
    assert json.loads((out / NOTE_NAME).read_bytes())["finished"] is True


def test_what_is_done_is_not_planned_again(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "requests.jsonl", 10)
    run(requests, tmp_path / "out")
    before = outcomes(tmp_path / "out")
    summary = run(requests, tmp_path / "out", stopping_at(1, AssertionError))
    assert summary.reused == 10
    assert outcomes(tmp_path / "out") == before


def test_other_requests_or_another_knowledge_are_another_sweep(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "requests.jsonl", 3)
    out = tmp_path / "out"
    run(requests, out)
    with pytest.raises(InputError, match="other knowledge"):
        sweep(requests, out, echoing, workers=1, knowledge="mine")
    write_requests(requests, 4)
    with pytest.raises(InputError, match="other requests"):
        run(requests, out)
    assert len(outcomes(out)) == 3
    assert sweep(requests, out, echoing, workers=1, fresh=True).records == 4
    assert len(outcomes(out)) == 4


@pytest.mark.parametrize("name", ["requests.jsonl", "requests.csv", "requests.tfrecord"])
def test_an_empty_file_is_an_empty_sweep(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    summary = run(tmp_path / name, tmp_path / "out")
    assert summary.records == 0
    assert outcomes(tmp_path / "out") == {}


def test_a_file_of_which_nothing_can_be_read_is_named(tmp_path: Path) -> None:
    requests = tmp_path / "requests.csv"
    requests.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"requests\.csv: the first line"):
        run(requests, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "requests.jsonl", 3 * CHUNK_RECORDS + 1)
    told: list[tuple[int, int]] = []
    sweep(requests, tmp_path / "out", echoing, workers=1, tell=lambda *step: told.append(step))
    assert told[-1] == (3 * CHUNK_RECORDS + 1,) * 2
    assert told == sorted(told)


@given(st.lists(st.sampled_from("abc"), max_size=100))
def test_chunks_hold_one_model_each_and_every_record_once(models: list[str]) -> None:
    records = [
        Record(number=number, id="", words={"model": model}) for number, model in enumerate(models)
    ]
    chunks = chunks_by_model(records)
    assert sorted(record.number for chunk in chunks for record in chunk) == list(range(len(models)))
    assert all(len({record.model for record in chunk}) == 1 for chunk in chunks)
    assert all(len(chunk) <= CHUNK_RECORDS for chunk in chunks)


def test_windows_bound_what_is_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "WINDOW_RECORDS", 4)
    taken = 0

    def endless() -> Iterator[Record]:
        nonlocal taken
        while True:
            taken += 1
            yield Record(number=taken, id="")

    assert len(next(windows(endless()))) == 4
    assert taken == 4


def test_another_knowledge_has_another_name() -> None:
    knowledge = shipped_knowledge()
    assert fingerprint(knowledge, None) == fingerprint(knowledge, None)
    assert fingerprint(knowledge, None) != fingerprint(knowledge, {"H100": Price(usd_per_hour=1.0)})


def test_real_plans_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    requests = tmp_path / "requests.csv"
    cases = [(1, ""), (8, "1000d"), (8, "1s"), (0, "")] * 5
    rows = [f"r{i},gpt2,{count}xA100,1B,{limit}" for i, (count, limit) in enumerate(cases)]
    requests.write_text("\n".join(["id,model,devices,tokens,deadline", *rows]), encoding="utf-8")
    factory = partial(make_planner, shipped_knowledge())
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        summary = sweep(requests, out, factory, workers=workers, kind=Format.CSV)
        assert summary.counts == {Tag.RESULT: 10, Tag.NO_SOLUTION: 5, Tag.BAD: 5}
        assert summary.bindings == {"deadline": 5}
    for tag in Tag:
        name = f"{tag.value}.jsonl"
        assert (tmp_path / "out-1" / name).read_bytes() == (tmp_path / "out-2" / name).read_bytes()
    fields = json.loads((tmp_path / "out-1" / "result.jsonl").read_bytes().splitlines()[0])
    assert fields["id"] == "r0"
    assert fields["devices"] == 1
    seconds = fields["run_seconds"]
    assert 0 < seconds["low"] < seconds["value"] < seconds["high"]


def test_the_example_shows_every_outcome(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "requests.jsonl"
    summary = run(example, tmp_path / "out", partial(make_planner, shipped_knowledge()))
    assert summary.counts == {Tag.RESULT: 4, Tag.NO_SOLUTION: 1, Tag.BAD: 1}
    assert [fields["id"] for fields in summary.bad] == ["misspelt"]
