"""Trace readers: the public formats, and everything that can be wrong with a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.simulate.readers import FORMATS, read_workload
from modelyard.simulate.readers.faults import MOST_PROBLEMS_TOLD
from modelyard.simulate.readers.muri import MURI_ITERATION_OVERHEAD
from modelyard.simulate.readers.plain import USUAL_CROSSING, USUAL_SERIAL
from modelyard.simulate.workload import Workload
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ITP = "job_id,submission_time,duration,num_gpu\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,iteration_time,priority\n"
PLAIN = "id,submitted,devices,duration\n"
GAVEL_ROW = "Net\tpython3 main.py\tfolder\t--steps\t1\t{steps}\t{devices}\t1\t-1.0\t{arrival}\n"
TABLE = {"v100": {"('Net', 1)": {"null": 4.0}, "('Net', 2)": {"null": 6.0}}}


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def problems_of(path: Path, **options: object) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read_workload(path, **options)  # type: ignore[arg-type]
    assert all(problem.fix and problem.file for problem in caught.value.problems)
    return caught.value.problems


def test_philly_counts_from_the_first_submission_and_names_tenants(tmp_path: Path) -> None:
    rows = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:55+00:00,10,8,80,6214e9\n\n"
    workload = read_workload(written(tmp_path, PHILLY + rows))
    first, second = workload.jobs
    assert (first.id, first.submitted, first.devices, first.tenant) == ("line-3", 0.0, 8, "6214e9")
    assert (second.id, second.submitted, second.work) == ("line-2", 60.0, FixedWork(66.0, 1))
    assert any("not in order" in note for note in workload.notes)


def test_itp(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, ITP + "a,16566,3890,4\nb,16567,1,8"))
    assert [(job.id, job.submitted, job.work) for job in workload.jobs] == [
        ("a", 16566.0, FixedWork(3890.0, 4)),
        ("b", 16567.0, FixedWork(1.0, 8)),
    ]
    assert workload.name == "trace"
    assert workload.notes == ()


def test_tiresias_counts_in_seconds(tmp_path: Path) -> None:
    (job,) = read_workload(written(tmp_path, TIRESIAS + "1,8,30,133,vgg11,147,23\r\n")).jobs
    assert (job.submitted, job.devices, job.model) == (30.0, 8, "vgg11")
    assert job.work == FixedWork(147.0, 8)


def test_muri_counts_in_milliseconds_of_iterations(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, MURI + "1,8,201694000,1000,dqn,128,509,0\n"))
    (job,) = workload.jobs
    assert job.submitted == pytest.approx(201_694.0)
    assert isinstance(job.work, FixedWork)
    assert job.work.seconds == pytest.approx(1000 * 0.509 * MURI_ITERATION_OVERHEAD)
    assert any("priority" in note for note in workload.notes)


def test_gavel_counts_in_steps_of_a_table(tmp_path: Path) -> None:
    tables = written(tmp_path, gzip.compress(json.dumps(TABLE).encode()), "table.json")
    rows = GAVEL_ROW.format(steps=60, devices=2, arrival=5) + GAVEL_ROW.format(
        steps=4, devices=1, arrival=0
    )
    late, early = reversed(read_workload(written(tmp_path, rows), tables=tables).jobs)
    assert (early.id, early.submitted, early.kinds) == ("1", 0.0, ("V100",))
    assert (late.id, late.devices, late.model) == ("0", 2, "Net")
    assert isinstance(late.work, StepsWork)
    assert late.work.steps == 60


def test_gavel_rows_that_the_table_cannot_play(tmp_path: Path) -> None:
    tables = written(tmp_path, json.dumps({"v100": {"('Net', 2)": {"null": 6.0}}}), "table.json")
    rows = "Other" + GAVEL_ROW.format(steps=1, devices=1, arrival=0)[3:]
    rows += GAVEL_ROW.format(steps=1, devices=1, arrival=0)
    unknown, too_small = problems_of(written(tmp_path, rows), tables=tables)
    assert "no job type 'Other'" in unknown.what
    assert "no device kind at 1 devices" in too_small.what
    (missing,) = problems_of(written(tmp_path, rows))
    assert "--tables" in missing.fix
    for broken in ("[]", "{", '{"v100": 3}', "[" * 100_000):
        (problem,) = problems_of(
            written(tmp_path, rows), tables=written(tmp_path, broken, "table.json")
        )
        assert problem.file.endswith("table.json")


def test_pollux_needs_profiles(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, POLLUX + "a,0,bert,1,12\n"))
    assert "--profiles" in problem.fix


def test_plain_with_every_column_and_units(tmp_path: Path) -> None:
    header = "duration,id,submitted,devices,tenant,priority,exclusive,min_devices,max_devices"
    text = f'{header},model,serial,crossing\n1h30m,"a, b",2m,4,red,3,yes,1,8,net,0.1,0.2\n'
    workload = read_workload(written(tmp_path, text))
    (job,) = workload.jobs
    assert (job.id, job.submitted, job.devices) == ("a, b", 120.0, 4)
    assert (job.tenant, job.priority, job.exclusive, job.model) == ("red", 3, True, "net")
    assert (job.min_devices, job.max_devices) == (1, 8)
    assert job.work == StepsWork(5400.0, AmdahlSpeed(0.1, 0.2, reference=4))
    assert workload.notes == ()


def test_plain_says_what_it_assumed_and_did_not_read(tmp_path: Path) -> None:
    text = "id,submitted,devices,duration,max_device,max_devices\na,0,4,60,8,8\nb,0,4,60,8,\n"
    workload = read_workload(written(tmp_path, text))
    law = AmdahlSpeed(USUAL_SERIAL, USUAL_CROSSING, reference=4)
    assert [job.work for job in workload.jobs] == [StepsWork(60.0, law), FixedWork(60.0, 4)]
    assert [job.max_devices for job in workload.jobs] == [8, 4]
    assert "max_device (did you mean max_devices?)" in workload.notes[0]
    assert "1 elastic jobs" in workload.notes[1]


def test_usual_law_is_what_its_comment_says() -> None:
    law = AmdahlSpeed(USUAL_SERIAL, USUAL_CROSSING)
    assert law.speedup(8) == pytest.approx(7.0, abs=0.05)
    assert law.speedup(16, nodes=2) == pytest.approx(9.1, abs=0.05)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("a,0,1", "3 of 4 columns"),
        ("a,0,1,2,3", "5 of 4 columns"),
        ("a,0,1,soon", "duration: 'soon' is not a time"),
        ("a,0,1,", "duration: '' is not a time"),
        ("a,0,1,nan", "duration: 'nan' is not finite"),
        ("a,0,1,inf", "duration: 'inf' is not finite"),
        ("a,0,1,1e999", "duration: '1e999' is not finite"),
        ("a,0,1,-5", "duration: '-5' is negative"),
        ("a,-1,1,5", "submitted: '-1' is negative"),
        ("a,0,0,5", "devices: 0 is not a number of devices"),
        ("a,0,-8,5", "devices: -8 is not a number of devices"),
        ("a,0,1e9,5", "devices: 1,000,000,000 is not a number of devices"),
        ("a,0,1.5,5", "devices: '1.5' is not a whole number"),
        ("a,0,nan,5", "devices: 'nan' is not a whole number"),
        ("a,0,inf,5", "devices: 'inf' is not a whole number"),
        ("a,0,two,5", "devices: 'two' is not a whole number"),
        (" ,0,1,5", "id: nothing is written here"),
        ('"a,0,1,5', "the quotes do not match"),
        ("ok,0,1,5", "job 'ok' is already on line 2"),
    ],
)
def test_a_wrong_row_is_told_with_its_line(tmp_path: Path, row: str, what: str) -> None:
    (problem,) = problems_of(written(tmp_path, f"{PLAIN}ok,0,8.0,5\n\n{row}\n"))
    assert problem.line == 4
    assert what in problem.what


@pytest.mark.parametrize(
    ("extra", "cell", "what"),
    [
        ("exclusive", "perhaps", "neither true nor false"),
        ("priority", "high", "not a whole number"),
        ("min_devices", "5", "5 to 4 allowed"),
        ("max_devices", "3", "4 to 3 allowed"),
        ("serial", "1.5", "shares of one job's work"),
        ("crossing", "-0.5", "negative or not finite"),
        ("serial", "much", "not a number"),
    ],
)
def test_a_wrong_optional_cell_is_told(tmp_path: Path, extra: str, cell: str, what: str) -> None:
    text = f"id,submitted,devices,duration,{extra}\na,0,4,60,{cell}\n"
    (problem,) = problems_of(written(tmp_path, text))
    assert what in problem.what


def test_all_problems_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    rows = "".join(f"job{number},0,0,x\n" for number in range(15))
    problems = problems_of(written(tmp_path, PLAIN + rows))
    assert len(problems) == MOST_PROBLEMS_TOLD + 1
    assert [problem.line for problem in problems[:4]] == [2, 2, 3, 3]
    assert problems[0].column == len("job0,0,0,") + 1
    assert problems[-1].what == "and 10 more"


def test_philly_timestamps(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, PHILLY + "yesterday,1,1,1,x\n"))
    assert "timestamp: 'yesterday' is not a date and time" in problem.what


def test_jobs_without_duration_are_left_out_by_name(tmp_path: Path) -> None:
    rows = "".join(f"z{number},0,1,0\n" for number in range(5))
    workload = read_workload(written(tmp_path, PLAIN + rows + "a,0,1,5\n"))
    assert [job.id for job in workload.jobs] == ["a"]
    (note,) = workload.notes
    assert "left out 5" in note
    assert "z0, z1, z2, …" in note
    (problem,) = problems_of(written(tmp_path, PLAIN + rows))
    assert "no job in the file needs any time" in problem.what


def test_jobs_of_one_moment_keep_the_order_of_the_file(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, PLAIN + "c,5,1,1\nb,0,1,1\na,5,1,1\n"))
    assert [job.id for job in workload.jobs] == ["b", "c", "a"]
    assert "1 of 3 jobs" in workload.notes[0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"\n \r\n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (PLAIN.encode(), "no jobs"),
        (b"\x00\x01\x02" + PLAIN.encode(), "binary file"),
        (b"PK\x03\x04rest", "zip archive"),
        (PLAIN.encode("utf-16"), "UTF-16"),
        (PLAIN.encode() + b"caf\xe9,0,1,5\n", "byte 0xe9 is not UTF-8"),
        (b"duration\n121\n", "fits no known format"),
        (b"id,submitted,devices,duration,id\na,0,1,5,b\n", "'id' more than once"),
        (b'"id,submitted\n1,2\n', "fits no known format"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes, what: str) -> None:
    (problem,) = problems_of(written(tmp_path, content))
    assert what in problem.what


def test_wrong_encoding_names_the_line(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + PLAIN.encode() + b"a,0,1,5\ncaf\xe9,0,1,5\n"
    (problem,) = problems_of(written(tmp_path, content))
    assert problem.line == 3


def test_a_cut_off_last_line_is_called_that(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, PLAIN + "a,0,1,5\nb,0"))
    assert (problem.line, problem.what) == (3, "the last line is cut off: 2 of 4 columns")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no such file" in problems_of(tmp_path / "nothing.csv")[0].what
    assert "folder" in problems_of(tmp_path)[0].what


def test_unknown_format_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="'philly'"):
        read_workload(tmp_path / "nothing.csv", format="phily")


def test_unrecognised_files_list_the_formats(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "a,b\n1,2\n"))
    assert problem.fix.endswith("--format philly|itp|pollux|gavel|muri|csv")


def test_a_header_that_fits_two_formats_is_not_guessed(tmp_path: Path) -> None:
    both = "id,submitted,devices,duration,job_id,submission_time,num_gpu\na,0,1,5,b,1,2\n"
    (problem,) = problems_of(written(tmp_path, both))
    assert "fits itp and csv" in problem.what
    assert read_workload(written(tmp_path, both), format="itp").jobs[0].id == "b"


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "gavel"])
def test_a_named_format_without_its_columns(tmp_path: Path, format: str) -> None:
    (problem,) = problems_of(written(tmp_path, "a,b\n1,2\n"), format=format)
    assert "the header lacks" in problem.what


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_line_ends_marks_and_gzip_make_no_difference(
    tmp_path: Path, end: str, mark: bytes, pack: type[bytes]
) -> None:
    content = mark + f"{PLAIN}ä,0,1,5\nb,1,2,6\n".replace("\n", end).encode()
    workload = read_workload(written(tmp_path, pack(content), "renamed.txt"))
    assert [job.id for job in workload.jobs] == ["ä", "b"]


@given(cut=st.integers(2, 60), flip=st.integers(2, 60))
def test_damaged_gzip_is_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int
) -> None:
    packed = gzip.compress((PLAIN + "a,0,1,5\nb,1,2,6\n").encode(), mtime=0)
    folder = tmp_path_factory.mktemp("damaged")
    problems_of(written(folder, packed[: min(cut, len(packed) - 1)]))
    # the ten bytes of the header hold a time and the name of a system, which nobody checks
    place = min(max(flip, 10), len(packed) - 1)
    spoilt = bytes(byte ^ (0x55 if at == place else 0) for at, byte in enumerate(packed))
    problems_of(written(folder, spoilt))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.sampled_from([PHILLY, ITP, TIRESIAS, MURI, PLAIN, ""]),
    body=st.one_of(
        st.binary(max_size=200),
        st.text('0123456789.,-"\n\r\t eInaxh:', max_size=200).map(str.encode),
    ),
    format=st.sampled_from([None, *FORMATS]),
)
def test_any_bytes_give_a_workload_or_a_reason(
    tmp_path: Path, header: str, body: bytes, format: str | None
) -> None:
    path = written(tmp_path, header.encode() + body)
    tables = written(tmp_path, json.dumps(TABLE), "table.json")
    try:
        workload = read_workload(path, format=format, tables=tables)
    except InputError as refused:
        told = refused.problems
    else:
        check(workload)
        return
    assert told
    assert all(problem.what and problem.fix for problem in told)


def check(workload: Workload) -> None:
    """What every reader promises."""
    times = [job.submitted for job in workload.jobs]
    assert workload.jobs
    assert times == sorted(times)
    assert len({job.id for job in workload.jobs}) == len(workload.jobs)
    assert all(1 <= job.min_devices <= job.devices <= job.max_devices for job in workload.jobs)


@pytest.mark.parametrize(
    ("trace", "jobs", "devices"),
    [
        # rows: the README of the data; devices asked for: summed with awk from the same files
        ("philly.csv.gz", 82_247, 107_235),
        ("itp/cluster06.csv.gz", 2_396, 12_429),
        ("muri/trace1.csv.gz", 1_494, 7_398),
        ("muri/trace2.csv.gz", 5_755, 29_825),
        ("tiresias/60_job.csv", 60, 170),
    ],
)
def test_public_traces(data_folder: Path, trace: str, jobs: int, devices: int) -> None:
    workload = read_workload(data_folder / "traces" / trace)
    check(workload)
    assert len(workload.jobs) == jobs
    assert sum(job.devices for job in workload.jobs) == devices


@pytest.mark.parametrize(("trace", "jobs"), [("artifact_evaluation", 15), ("small_test", 20)])
def test_public_gavel_traces(data_folder: Path, trace: str, jobs: int) -> None:
    folder = data_folder / "traces" / "gavel"
    tables = folder / "simulation_throughputs.json.gz"
    workload = read_workload(folder / f"{trace}.trace", tables=tables)
    check(workload)
    assert len(workload.jobs) == jobs
    assert all(set(job.kinds) <= {"K80", "P100", "V100"} for job in workload.jobs)


def test_public_pollux_workload(data_folder: Path) -> None:
    folder = data_folder / "traces" / "pollux"
    workload = read_workload(folder / "workloads" / "workload-1.csv", profiles=folder / "profiles")
    check(workload)
    assert len(workload.jobs) == 160
    # NCF is never distributed in Pollux's evaluation
    assert {job.max_devices for job in workload.jobs if job.model == "ncf"} == {1}
    assert {job.min_devices for job in workload.jobs} == {1}
