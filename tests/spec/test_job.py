"""Job files: what is accepted, and every problem of a bad one at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from modelyard.errors import InputError
from modelyard.spec.band import Band
from modelyard.spec.job import JobSpec, parse_job, read_job

MINIMAL = "name: a\ndevices: 4\nmodel: gpt2\n"


def complaints(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_job(text, "job.yaml")
    return str(caught.value).splitlines()


def test_minimal_job_is_rigid_batch_work() -> None:
    job = parse_job(MINIMAL)
    assert (job.devices.min, job.devices.max) == (4, 4)
    assert (job.tenant, job.priority, job.band) == ("default", 0, Band.BATCH)
    assert job.gang
    assert not job.exclusive


def test_elastic_job_with_units() -> None:
    job = parse_job(
        "name: a\ndevices: {min: 2, max: 16}\ncommand: [python, t.py]\n"
        "batch: 1k\nsteps: 100k\nduration: 2h30m\nkinds: [a100, Tesla T4, MyChip]\n"
        "band: production\npriority: -5\nexclusive: yes\n"
    )
    assert (job.devices.min, job.devices.max) == (2, 16)
    assert (job.batch, job.steps, job.duration) == (1000, 100_000, 9000.0)
    # Known kinds get the catalogue's spelling; a cluster may define others.
    assert job.kinds == ("A100", "T4", "MyChip")
    assert job.command == ("python", "t.py")
    assert job.band is Band.PRODUCTION


def test_all_problems_come_at_once_in_order_of_lines() -> None:
    text = """\
name: no
devics: 4
devices: x
batch: 1.5
duration: 1:30
priority: '4'
kinds: A100
band: prod
command: [python, 0.1]
gang: false
name: b
"""
    assert [line.split(". Fix:")[0] for line in complaints(text)] == [
        "job.yaml:1:7: 'name' must be text, found 'no', which YAML reads as true or false",
        "job.yaml:2:1: unknown key 'devics'",
        "job.yaml:3:10: 'devices': 'x' is not a number of devices",
        "job.yaml:4:8: 'batch': '1.5' is not a whole number",
        "job.yaml:5:11: 'duration': '1:30' could mean hours or minutes",
        "job.yaml:6:11: 'priority' must be a whole number, found '4', which YAML reads as text",
        "job.yaml:7:8: 'kinds' must be a list, found 'A100', which YAML reads as text",
        "job.yaml:8:7: 'band' must be 'production' or 'batch', found 'prod'",
        "job.yaml:9:19: 'command[1]' must be text, found '0.1', which YAML reads as a number",
        "job.yaml:10:7: 'gang': a job always gets all of its devices at once",
        "job.yaml:11:1: the key 'name' is already on line 1",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "job.yaml:1:1: the file is empty. Fix: start with 'name: …', 'devices: …'"),
        (
            "- a\n",
            "job.yaml:1:1: expected keys, found a list. Fix: start with 'name: …', 'devices: …'",
        ),
        (
            "name: a\nmodel: m\n",
            "job.yaml:1:1: 'devices' is missing. Fix: add 'devices: …' "
            "(how many devices: a number, or {min, max} for an elastic job)",
        ),
        (
            "name: a\ndevices: {min: 8, max: 4}\nmodel: m\n",
            "job.yaml:2:16: 'min' (8) is more than 'max' (4). Fix: exchange the two",
        ),
        (
            "name: a\ndevices: 4\n",
            "job.yaml:1:1: the job does not say what to run. "
            "Fix: add 'command: [python, train.py]', 'script: train.py' or 'model: …'",
        ),
        (
            MINIMAL + "tenant:\n",
            "job.yaml:4:8: 'tenant' has no value. Fix: write one, or remove the key",
        ),
        (
            "name: a\ndevices: 0\nmodel: m\n",
            "job.yaml:2:10: 'devices': 0 devices are too few. Fix: ask for 1 or more",
        ),
        (
            "name: a\ndevices: {min: 1, mx: 4}\nmodel: m\n",
            "job.yaml:2:10: 'devices.max' is missing. "
            "Fix: add 'max: …' (the most devices that the job can use)",
        ),
    ],
)
def test_each_problem_has_its_own_words(text: str, line: str) -> None:
    assert complaints(text)[0] == line


def test_unknown_keys_far_from_all_list_what_there_is() -> None:
    (line,) = complaints("name: a\ndevices: {min: 1, max: 2, q: 4}\nmodel: m\n")
    assert line == "job.yaml:2:27: unknown key 'q'. Fix: use 'min' or 'max'"


@pytest.mark.parametrize("name", ["A", "a b", "-a", "a-", "ä", "a_b", "x" * 64, "''"])
def test_names_become_labels_so_odd_ones_are_refused(name: str) -> None:
    (line,) = complaints(f"name: {name}\ndevices: 1\nmodel: m\n")
    assert "'name'" in line


def test_wrong_values_of_every_sort() -> None:
    text = "name: a\nmodel: m\ndevices: true\ncommand: []\nsteps: 0\npriority: 5000\nexclusive: 1\n"
    words = " ".join(complaints(text))
    for expected in ("true or false is not a number of devices", "'command' is empty"):
        assert expected in words
    for expected in ("'steps' must be at least 1", "at most 1000", "must be true or false"):
        assert expected in words


def test_files_and_text_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    assert read_job(path) == parse_job(MINIMAL)
    path.write_text("name: a\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"job\.yaml:1:1: 'devices' is missing"):
        read_job(str(path))


def test_specs_never_change() -> None:
    with pytest.raises(ValidationError):
        parse_job(MINIMAL).priority = 3


@given(st.text("abdevicsnm: {}[]-\n'&*#1", max_size=120))
def test_no_text_gets_past_the_reader_with_another_error(text: str) -> None:
    try:
        outcome: object = parse_job(text)
    except InputError as error:
        outcome = error.problems
    assert isinstance(outcome, JobSpec) or outcome


def test_a_script_is_something_to_run_and_brings_its_own_data() -> None:
    job = parse_job(
        "name: a\ndevices: 2\nscript: train.py\nargs: [--rate, '0.1']\nbatch: 8\nsteps: 10\n"
        "train: {checkpoints: {every: 5}}\n"
    )
    assert (job.script, job.args) == ("train.py", ("--rate", "0.1"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("script: t.py\ncommand: [python, t.py]\n", "both 'command' and 'script' say what to run"),
        ("model: gpt2\nargs: [x]\n", "'args' are for a script, and there is none"),
        ("model: gpt2\ntrain: {sequence: 8}\n", "'train.data' is missing"),
    ],
)
def test_scripts_do_not_mix_with_other_things_to_run(text: str, complaint: str) -> None:
    (found,) = complaints(f"name: a\ndevices: 2\n{text}")
    assert complaint in found


def test_half_a_letter_is_a_problem_with_its_place() -> None:
    with pytest.raises(InputError) as refused:
        parse_job('name: x\ncommand: ["\\ud83d"]\ndevices: 1\n')
    assert "half a letter" in str(refused.value)
    assert refused.value.problems[0].line == 2
