"""Backups of both kinds of database, into a folder and into a real S3 server, and back."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, select

from modelyard.cli.main import yard
from modelyard.control.backup import cipher, schedule, writing
from modelyard.control.backup.cipher import Passphrase, passphrase_from
from modelyard.control.backup.drill import drill_of, rehearse
from modelyard.control.backup.manifest import Manifest
from modelyard.control.backup.place import MANIFEST, Place, chosen, complete, new_name
from modelyard.control.backup.reading import Backup, backup_problems
from modelyard.control.backup.restoring import restore
from modelyard.control.backup.retention import DAY_SECONDS, Keep, prune
from modelyard.control.backup.schedule import BackupPlan, Schedule
from modelyard.control.backup.schedule import Condition as Doing
from modelyard.control.backup.writing import What, back_up
from modelyard.control.lifecycle.events import Decided, NodeSeen, Submitted, TaskUp, Wish, Wished
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.store.callers import Caller, Role, issue, note_call, recognise
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.lease import leader, take
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from modelyard.control.store.tables import metadata
from modelyard.errors import InputError, YardError
from modelyard.keep.checkpoint import write_checkpoint
from modelyard.keep.folder import Folder
from modelyard.keep.listing import Condition, listed
from modelyard.keep.manifest import About
from modelyard.keep.parts import Piece
from modelyard.keep.problems import Damaged
from modelyard.keep.slices import whole
from modelyard.keep.store import open_store
from modelyard.keep.tree import describe

KEY = Passphrase(b"a key that nobody guesses")
NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody guesses passphrases here: making a key of one may be fast."""
    monkeypatch.setattr(cipher, "COST", 2**10)


def _s3_fixture():
    """The S3 server of the tests of stores; tests here live in another folder."""
    path = Path(__file__).parents[1] / "keep" / "conftest.py"
    spec = importlib.util.spec_from_file_location("keep_conftest", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["keep_conftest"] = module
    spec.loader.exec_module(module)
    return module.s3


s3 = _s3_fixture()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(str(tmp_path / "kept"))
    server = request.getfixturevalue("s3")
    return Place(f"s3://{server.bucket}/{uuid.uuid4().hex}", server.options())


@pytest.fixture
def kept(tmp_path: Path) -> Place:
    """A folder: for what does not depend on the kind of place."""
    return Place(str(tmp_path / "kept"))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(sqlite_url(tmp_path / "small.db"))
    upgrade(engine)
    fill(engine)
    yield engine
    engine.dispose()


def fill(database: Engine, *, jobs: int = 6) -> Lifecycle:
    """A yard in the middle of its work: jobs that run, stop, wait and are over."""
    store, lifecycle = Store(database), Lifecycle()
    term = take(database, holder="old", address="http://old")
    events = [
        NodeSeen(1.0, NodeRecord(name=name, kind="cpu", devices=4, out={3: "hot"}))
        for name in ("a", "b")
    ]
    for number in range(jobs):
        form = Form.ELASTIC if number % 2 else Form.COMMAND
        facts = Facts(
            id=f"{number:08x}", name=f"näme\n{number}", tenant="red", owner="ann",
            submitted=float(number), form=form,
        )  # fmt: skip
        events.append(Submitted(2.0, Job(facts=facts, min_devices=1, max_devices=2, since=2.0)))
    events += [
        Decided(3.0, "00000000", (("a", 1),)),
        Decided(3.0, "00000001", (("a", 1), ("b", 1))),
        Decided(3.0, "00000002", (("b", 1),)),
        Wished(4.0, "00000003", Wish.CANCEL, "ann"),
    ]
    outcomes = []
    for event in events:
        outcomes.append(lifecycle.handle(event))
        lifecycle.apply(outcomes[-1])
    for job in list(lifecycle.active.values()):
        for task, _ in list(job.tasks()):
            outcomes.append(lifecycle.handle(TaskUp(5.0, task)))
            lifecycle.apply(outcomes[-1])
    outcomes.append(lifecycle.handle(Wished(6.0, "00000002", Wish.PAUSE, "ann")))
    lifecycle.apply(outcomes[-1])
    store.write(outcomes, term=term, specs={f"{n:08x}": '{"text": "ü"}' for n in range(jobs)})
    note_call(database, at=7.0, caller=None, call="GET /", status=403, detail="ß")
    return lifecycle


def rows_of(database: Engine) -> dict[str, list[tuple[object, ...]]]:
    with database.connect().execution_options(reads=True) as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in metadata.sorted_tables
        }


def back_up_to(place: Place, database: Engine, *, at: float = NOW, **options: object) -> Manifest:
    folder = Path(str(options.pop("folder", "/nonexistent")))
    what = What(database=database, folder=folder, **options)
    return back_up(what, place, at=at, warn=pytest.fail)


def opened(place: Place, manifest: Manifest, key: Passphrase | None = None) -> Backup:
    return Backup.open(place, manifest, key)


def test_a_yard_comes_back_on_another_machine(
    database: Engine, place: Place, tmp_path: Path
) -> None:
    old = fill(database)
    token = issue(database, Caller("ann", "red", Role.MEMBER), at=1.0)
    before = rows_of(database)
    manifest = back_up_to(place, database)
    assert manifest.tables == {name: len(rows) for name, rows in before.items()}
    assert complete(place.backups, pytest.fail) == [manifest]
    assert backup_problems(place, manifest, None) == []
    result = restore(opened(place, manifest), place, tmp_path / "new", at=NOW + 9)
    assert (result.unfinished, result.stopped) == (5, 3)
    engine = open_database(sqlite_url(tmp_path / "new" / "yard.db"))
    after, new = rows_of(engine), Store(engine).load()
    for table in ("nodes", "tokens", "audit"):
        assert after[table] == before[table]
    assert after["entries"][: len(before["entries"])] == before["entries"]
    assert list(violations(new.jobs, new.nodes)) == []
    assert new.active == {}
    assert new.nodes == old.nodes
    states = {name: (job.state, job.reason) for name, job in new.jobs.items()}
    assert states == {
        "00000000": (State.WAITING, Reason.NODE_LOST),
        "00000001": (State.WAITING, Reason.NODE_LOST),
        "00000002": (State.PAUSED, Reason.PAUSED),
        "00000004": (State.WAITING, Reason.SUBMITTED),
        "00000005": (State.WAITING, Reason.SUBMITTED),
    }
    assert new.jobs["00000004"] == old.jobs["00000004"]
    assert recognise(engine, token) == Caller("ann", "red", Role.MEMBER)
    # Terms go on, so that nobody who led the old yard can be taken for the new leader.
    assert leader(engine).term > leader(database).term
    assert take(engine, holder="new", address="http://new") is not None
    engine.dispose()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_sqlite_moves_to_postgresql(small: Engine, kept: Place, url: str, tmp_path: Path) -> None:
    manifest = back_up_to(kept, small)
    restore(opened(kept, manifest), kept, tmp_path / "new", database_url=url, at=NOW)
    engine = open_database(url)
    assert rows_of(engine)["nodes"] == rows_of(small)["nodes"]
    assert not (tmp_path / "new" / "yard.db").exists()
    # Numbers of the log go on where they were.
    highest = rows_of(engine)["entries"][-1][0]
    term = take(engine, holder="x", address="")
    lifecycle = Store(engine).load()
    Store(engine).write([lifecycle.handle(Wished(9.0, "00000004", Wish.CANCEL, "ann"))], term=term)
    assert rows_of(engine)["entries"][-1][0] > highest
    with pytest.raises(InputError, match="not empty"):
        restore(opened(kept, manifest), kept, tmp_path / "more", database_url=url, at=NOW)
    assert not (tmp_path / "more").exists()
    engine.dispose()


def test_large_tables_are_split(
    small: Engine, kept: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PART_BYTES", 500)
    manifest = back_up_to(kept, small)
    assert len(manifest.parts) > 10
    restore(opened(kept, manifest), kept, tmp_path / "new", at=NOW)
    engine = open_database(sqlite_url(tmp_path / "new" / "yard.db"))
    assert rows_of(engine)["jobs"][3] == rows_of(small)["jobs"][3]
    engine.dispose()


def test_what_is_written_meanwhile_is_in_all_tables_or_in_none(
    database: Engine, kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    before = {name: len(rows) for name, rows in rows_of(database).items()}
    add = writing._add_rows

    def slowly(parts, connection, table):
        done = add(parts, connection, table)
        note_call(database, at=8.0, caller=None, call="GET /late", status=403)
        return done

    monkeypatch.setattr(writing, "_add_rows", slowly)
    assert back_up_to(kept, database).tables == before


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_any_change_of_any_object_is_noticed(
    small: Engine, kept: Place, tmp_path: Path, key: Passphrase | None
) -> None:
    manifest = back_up_to(kept, small, passphrase=key)
    luck = random.Random(7)
    folder = Path(kept.address) / "backups" / manifest.name
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        turned = bytearray(good)
        turned[luck.randrange(len(good))] ^= 1 << luck.randrange(8)
        for bad in (bytes(turned), good[:-1], good + b"x", b"", None):
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)
            if path.name == MANIFEST:
                warnings: list[str] = []
                assert complete(kept.backups, warnings.append) == []
                assert bool(warnings) == (bad is not None)
            else:
                assert backup_problems(kept, manifest, key) != []
                assert backup_problems(kept, manifest, None) != []
                with pytest.raises(Damaged):
                    restore(opened(kept, manifest, key), kept, tmp_path / "new", at=NOW)
                assert not (tmp_path / "new").exists()
            path.write_bytes(good)
    assert backup_problems(kept, manifest, key) == []


def test_an_encrypted_backup_holds_secrets_and_shows_none(
    small: Engine, place: Place, tmp_path: Path
) -> None:
    home = tmp_path / "old"
    home.mkdir()
    (home / "secret").write_text("the yard's secret")
    (home / "admin.token").write_text("yard_admin")
    plain = back_up_to(place, small, folder=home)
    assert not any(part.file for part in plain.parts)
    hidden = back_up_to(place, small, folder=home, passphrase=KEY, at=NOW + 1)
    store = place.backups
    for part in hidden.parts:
        stored = store.get(f"{hidden.name}/{part.name}")
        assert b"yard" not in stored
        assert not stored.startswith(b"\x1f\x8b")
    with pytest.raises(InputError, match="is encrypted"):
        opened(place, hidden)
    with pytest.raises(Damaged, match="cannot be read with this key"):
        opened(place, hidden, Passphrase(b"another passphrase"))
    assert backup_problems(place, hidden, None) == []
    assert backup_problems(place, hidden, KEY) == []
    restore(opened(place, hidden, KEY), place, tmp_path / "new", at=NOW)
    assert (tmp_path / "new" / "secret").read_text() == "the yard's secret"
    assert (tmp_path / "new" / "admin.token").stat().st_mode & 0o077 == 0


def test_a_manifest_that_leaves_rows_out_is_refused_without_the_key(
    small: Engine, kept: Place
) -> None:
    manifest = back_up_to(kept, small, passphrase=KEY)
    fewer = replace(manifest, parts=manifest.parts[1:])
    with pytest.raises(Damaged, match="cannot be read with this key"):
        opened(kept, fewer, KEY)


def test_nothing_is_restored_over_something_else(
    small: Engine, kept: Place, tmp_path: Path
) -> None:
    manifest = back_up_to(kept, small)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(InputError, match="never restored over"):
        restore(opened(kept, manifest), kept, tmp_path / "used", at=NOW)
    assert (tmp_path / "used" / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    restore(opened(kept, manifest), kept, tmp_path / "empty", at=NOW)
    assert (tmp_path / "empty" / "yard.db").is_file()
    assert [path.name for path in tmp_path.iterdir() if "restoring" in path.name] == []


def test_retention_keeps_the_last_and_one_of_each_day(kept: Place, small: Engine) -> None:
    blank = back_up_to(kept, small)
    kept.backups.clear(blank.name)
    made = [back_up_to(kept, small, at=NOW - hours * 3_600.0) for hours in (0, 1, 2, 30, 31, 80)]
    left_over = new_name(NOW - 2 * DAY_SECONDS)
    kept.backups.put(f"{left_over}/jobs-00000.gz", b"half")
    begun = new_name(NOW - 60.0)
    kept.backups.put(f"{begun}/jobs-00000.gz", b"half")
    gone = prune(kept, Keep(last=2, days=3), now=NOW, warn=pytest.fail)
    assert set(gone) == {made[2].name, made[4].name, made[5].name, left_over}
    assert kept.backups.folders() == sorted({begun, made[0].name, made[1].name, made[3].name})
    assert prune(kept, Keep(last=1, days=0), now=NOW + 1e7, warn=pytest.fail) != []
    assert complete(kept.backups, pytest.fail) == [made[0]]


def test_a_drill_says_how_it_went(small: Engine, place: Place) -> None:
    manifest = back_up_to(place, small)
    assert drill_of(place, manifest.name) is None
    drill = rehearse(place, manifest, None, at=NOW)
    assert drill.ok
    assert drill.unfinished_jobs == 5
    assert drill_of(place, manifest.name) == drill
    place.backups.put(f"{manifest.name}/{manifest.parts[0].name}", b"rot")
    assert "has changed" in rehearse(place, manifest, None, at=NOW).problems[0]


def test_damaged_and_unfinished_backups_are_passed_over(small: Engine, place: Place) -> None:
    good = back_up_to(place, small)
    bad = back_up_to(place, small, at=NOW + 1)
    place.backups.put(f"{bad.name}/{MANIFEST}", b"rot")
    place.backups.put(f"{new_name(NOW + 2)}/jobs-00000.gz", b"half")
    warnings: list[str] = []
    assert chosen(place.backups, "", warnings.append) == good
    assert len(warnings) == 1
    with pytest.raises(YardError, match="unknown backup"):
        chosen(place.backups, "2000", warnings.append)


KILLED = """
import sys, time
from pathlib import Path
from modelyard.control.backup import writing
from modelyard.control.backup.place import Place
from modelyard.control.store.connection import open_database
from modelyard.keep.folder import Folder

put = Folder.put
def slowly(self, name, data, *, only_if_new=False):
    time.sleep(0.005)
    put(self, name, data, only_if_new=only_if_new)
Folder.put = slowly
writing.PART_BYTES = 400
database = open_database(sys.argv[1])
what = writing.What(database=database, folder=Path("/nonexistent"))
print("ready", flush=True)
while True:
    writing.back_up(what, Place(sys.argv[2]), at=time.time(), warn=print)
"""


def test_whoever_is_killed_while_writing_leaves_only_backups_that_restore(
    small: Engine, kept: Place, tmp_path: Path
) -> None:
    """A real process, because only that can die between any two system calls."""
    luck, unfinished = random.Random(3), 0
    for number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(small.url), kept.address], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.15 + 0.3 * luck.random())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store = kept.backups
        found = complete(store, pytest.fail)
        unfinished = len(store.folders()) - len(found)
        if found:
            assert chosen(store, "", pytest.fail) == found[0]
            assert backup_problems(kept, found[0], None) == []
            restore(opened(kept, found[0]), kept, tmp_path / f"new-{number}", at=NOW)
    assert unfinished > 0
    assert complete(kept.backups, pytest.fail)


def test_checkpoints_are_sent_once_and_come_back(
    small: Engine, place: Place, tmp_path: Path
) -> None:
    home = tmp_path / "old"
    run = home / "runs" / "00000001"
    for step in (5, 10):
        write_some_checkpoint(run / "checkpoints", step)
    (run / "journal.jsonl").write_text('{"commit"}\n')
    first = back_up_to(place, small, folder=home, checkpoints=True)
    assert [copy.job for copy in first.checkpoints] == ["00000001"]
    copies = place.checkpoints("00000001")
    sent = {entry.name: entry.written_at for entry in copies.entries()}
    second = back_up_to(place, small, folder=home, checkpoints=True, at=NOW + 1)
    assert {entry.name: entry.written_at for entry in copies.entries()} == sent
    assert second.checkpoints == first.checkpoints
    restore(opened(place, second), place, tmp_path / "new", at=NOW)
    back = tmp_path / "new" / "runs" / "00000001"
    assert (back / "journal.jsonl").read_text() == '{"commit"}\n'
    restored = listed(open_store(back / "checkpoints"), verify=True)
    assert [(one.version.step, one.condition) for one in restored] == [(10, Condition.VERIFIED)]
    assert backup_problems(place, second, None) == []
    name = next(name for name in sorted(sent) if not name.endswith(MANIFEST))
    copies.put(name, b"rot" + bytes(copies.get(name))[3:])
    assert backup_problems(place, second, None) != []
    assert not rehearse(place, second, None, at=NOW).ok


def test_copies_that_no_backup_needs_any_more_go(
    small: Engine, kept: Place, tmp_path: Path
) -> None:
    home = tmp_path / "old"
    checkpoints = home / "runs" / "00000001" / "checkpoints"
    write_some_checkpoint(checkpoints, 5)
    back_up_to(kept, small, folder=home, checkpoints=True)
    write_some_checkpoint(checkpoints, 10)
    newest = back_up_to(kept, small, folder=home, checkpoints=True, at=NOW + 1)
    assert len(kept.checkpoints("00000001").folders()) == 2
    later = time.time() + 10 * DAY_SECONDS
    assert len(prune(kept, Keep(last=1, days=0), now=later, warn=pytest.fail)) == 1
    assert len(kept.checkpoints("00000001").folders()) == 1
    assert backup_problems(kept, newest, None) == []


def write_some_checkpoint(folder: Path, step: int) -> None:
    weights = np.arange(1000, dtype=np.float32) * step
    piece = Piece(
        tensor="weights",
        dtype="F32",
        shape=weights.shape,
        box=whole(weights.shape),
        data=memoryview(weights.tobytes()),
    )
    about = About(job="j", step=step, generation=1, position=step)
    node, _ = describe({"weights": weights}, lambda value: isinstance(value, np.ndarray))
    write_checkpoint(Folder(folder), about, node, [piece])


def test_what_cannot_be_asked_for_is_refused(small: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be encrypted"):
        What(database=small, folder=tmp_path, checkpoints=True, passphrase=KEY)
    (tmp_path / "key").write_text("short")
    with pytest.raises(InputError, match="12 letters"):
        passphrase_from(tmp_path / "key")
    with pytest.raises(InputError, match="no such file"):
        passphrase_from(tmp_path)
    with pytest.raises(InputError, match="cannot keep"):
        Keep(last=0)
    with pytest.raises(InputError, match="no tables"):
        back_up_to(Place(str(tmp_path / "k")), open_database("sqlite://"))


class Schedules:
    """A schedule whose clock and leadership are the test's."""

    def __init__(self, database: Engine, place: Place) -> None:
        self.now, self.leads, self.told = NOW, True, list[str]()
        plan = BackupPlan(place=place, every_seconds=60.0, drill_seconds=600.0)
        self.schedule = Schedule(
            plan,
            database=database,
            folder=Path("/nonexistent"),
            leads=lambda: self.leads,
            clock=lambda: self.now,
            tell=self.told.append,
        )

    def at(self, seconds: float) -> Doing:
        self.now = NOW + seconds
        self.schedule.round(self.now)
        return self.schedule.condition


def test_backups_and_drills_are_made_when_they_are_due(small: Engine, kept: Place) -> None:
    world = Schedules(small, kept)
    condition = world.at(0.0)
    assert (condition.last_at, condition.drill_at, condition.drill_ok) == (NOW, NOW, True)
    world.at(30.0)
    assert len(kept.backups.folders()) == 1
    assert world.at(60.0).last_at == NOW + 60.0
    assert world.schedule.condition.drill_at == NOW
    # Another server finds what this one did.
    other = Schedules(small, kept)
    assert other.at(90.0).last_at == NOW + 60.0
    assert other.told == []
    assert other.at(660.0).drill_at == NOW + 660.0


def test_a_failure_is_told_and_tried_again(
    small: Engine, kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(schedule, "FIRST_PAUSE_SECONDS", 0.0)
    Path(kept.address).write_text("a file is in the way")
    world = Schedules(small, kept)
    world.leads = False
    world.schedule.start()
    time.sleep(0.1)
    assert world.told == []
    world.leads = True
    until = time.monotonic() + 20.0
    while not world.told and time.monotonic() < until:
        time.sleep(0.01)
    assert world.told[0].startswith("no backup: ")
    assert world.schedule.condition.problem
    Path(kept.address).unlink()
    while not world.schedule.condition.drill_ok and time.monotonic() < until:
        time.sleep(0.01)
    world.schedule.stop()
    time.sleep(0.05)
    assert world.schedule.condition.problem == ""
    assert len(kept.backups.folders()) == 1


def test_encryption_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    (tmp_path / "key").write_text("long enough to be a key")
    with pytest.raises(InputError, match=r"modelyard\[backup\]"):
        passphrase_from(tmp_path / "key")


def test_the_command_line_on_a_bucket(
    small: Engine, s3: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("YARD_BACKUP", f"s3://{s3.bucket}/{uuid.uuid4().hex}")
    (tmp_path / "key").write_text("long enough to be a key")
    key = ("--key-file", str(tmp_path / "key"))

    def run(*words: str) -> Result:
        return CliRunner().invoke(yard, list(words))

    database = ("--folder", str(tmp_path), "--database", str(small.url))
    assert run("backup", *database).exit_code == 0
    made = json.loads(run("backup", *database, *key, "-o", "json").output)
    assert made["encrypted"]
    assert made["tables"]["jobs"] == 6
    listed = json.loads(run("backup", "--list", "-o", "json").output)["backups"]
    assert [one["encrypted"] for one in listed] == [True, False]
    assert "hashes fit" in run("backup", "verify").output
    assert run("backup", "verify", made["name"], *key).output == f"{made['name']}: whole\n"
    assert run("backup", "drill", *key).exit_code == 0
    without = run("restore", "--folder", str(tmp_path / "new"))
    assert without.exit_code == 2
    assert "--key-file" in without.output
    done = run("restore", *key, "--folder", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    assert "5 unfinished jobs" in done.output
    again = run("restore", *key, "--folder", str(tmp_path / "new"))
    assert "never restored over" in again.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["backup"], "no place"),
        (["up", "--foreground", "--backup", "ftp://x"], "no kind of store"),
        (["up", "--foreground", "--backup", "kept", "--backup-every", "0s"], "1s or more"),
        (["backup", "--list", "--to", "ftp://x"], "no kind of store"),
        (["backup", "--to", "kept", "--folder", "nowhere"], "there is no yard here"),
        (["backup", "verify", "--to", "kept"], "no complete backup"),
        (["restore", "--from", "kept"], "no complete backup"),
        (["backup", "--to", "kept", "--database", "mysql://x"], "cannot live in"),
        (
            ["backup", "--to", "k", "--database", "postgresql://nobody@127.0.0.1:1/x"],
            "cannot be read",
        ),
    ],
)
def test_mistakes_are_explained(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "none"))
    done = CliRunner().invoke(yard, words)
    assert done.exit_code == 2
    assert said in done.output
