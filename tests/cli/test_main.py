"""The shell around all verbs: what loads when, and how failures reach the person."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result

from modelyard import __version__
from modelyard.cli.main import SECTIONS, VERBS, LazyGroup, Verb, yard
from modelyard.errors import InputError, Problem, YardError

#: What makes a start slow; `yard --help` needs none of it.
HEAVY = ("jinja2", "matplotlib", "numpy", "pydantic", "rich", "scipy", "yaml")

Run = Callable[[Callable[[], None]], Result]


@pytest.fixture
def run_verb(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a function as the only verb of a group."""

    def run(body: Callable[[], None]) -> Result:
        module = ModuleType("verb_under_test")
        module.act = click.command("act")(body)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        group = LazyGroup(
            name="yard", sections={"Verbs": {"act": Verb("verb_under_test:act", "Act.")}}
        )
        return CliRunner().invoke(group, ["act"])

    return run


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_help_lists_the_verbs_in_the_order_of_the_table() -> None:
    shown = CliRunner().invoke(yard, ["--help"])
    assert shown.exit_code == 0
    rest = shown.stdout
    for title, verbs in SECTIONS.items():
        before, _, rest = rest.partition(f"\n{title}:\n")
        assert rest, f"{title} is not below {before[-200:]}"
        rows = [line.split(maxsplit=1) for line in rest.splitlines()[: len(verbs)]]
        assert rows == [[name, verb.summary] for name, verb in verbs.items()]


def test_help_loads_nothing_heavy() -> None:
    # A process of its own, because this one has loaded everything already.
    script = (
        "import sys\n"
        "from modelyard.cli.main import yard\n"
        "yard(['--help'], standalone_mode=False)\n"
        f"print('loaded:', *[name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = python("-c", script)
    assert done.stdout.splitlines()[-1].strip() == "loaded:", done.stderr


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_in_the_table_loads_and_explains_itself(name: str) -> None:
    command = VERBS[name].load()
    assert command.name == name
    assert command.help
    assert CliRunner().invoke(yard, [name, "--help"]).exit_code == 0


def test_version_is_the_package_s() -> None:
    shown = CliRunner().invoke(yard, ["--version"])
    assert shown.stdout == f"yard {__version__}\n"


def test_module_runs_as_the_program() -> None:
    # A process, because what is tested is that `python -m` finds its way in.
    assert python("-m", "modelyard", "--version").stdout == f"yard {__version__}\n"


def test_misspelt_verb_names_the_nearest_one() -> None:
    shown = CliRunner().invoke(yard, ["devicse"])
    assert shown.exit_code == 2
    assert "devices" in shown.stderr


def test_mistake_prints_its_fix_on_stderr_and_exits_2(run_verb: Run) -> None:
    def act() -> None:
        raise YardError("the barn is locked", fix="unlock it first")

    shown = run_verb(act)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert shown.stderr.startswith("error: the barn is locked")
    assert "unlock it first" in shown.stderr


def test_interrupt_prints_one_line_and_exits_130(run_verb: Run) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    shown = run_verb(act)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (130, "", "interrupted\n")


def test_fault_of_ours_keeps_its_traceback(run_verb: Run) -> None:
    def act() -> None:
        raise ZeroDivisionError

    assert isinstance(run_verb(act).exception, ZeroDivisionError)


def test_verb_may_choose_its_exit_code(run_verb: Run) -> None:
    def act() -> None:
        click.get_current_context().exit(3)

    assert run_verb(act).exit_code == 3


@pytest.mark.parametrize("arguments", [["--help"], ["schema", "cluster"], ["devices"]])
def test_reader_that_goes_away_is_no_drama(arguments: list[str]) -> None:
    # A process, because only a real pipe can break.
    with subprocess.Popen(
        [sys.executable, "-m", "modelyard", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
    assert complaint == ""
    assert process.returncode == 1


def test_a_full_disk_is_one_line_and_no_traceback() -> None:
    # A process, because the failure comes when buffers are flushed. The device is only written to.
    for arguments in (["--help"], ["devices"], ["plan", "--help"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [sys.executable, "-m", "modelyard", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == 1
        assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "2>&-", "<&-"])
def test_closed_streams_are_no_drama(redirection: str) -> None:
    # A shell, because it can start a program without a stream.
    command = f'"{sys.executable}" -m modelyard devices {redirection}'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_output_that_knows_few_characters_still_gets_an_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "modelyard", "plan", "--help"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 0, done.stderr
    assert b"encoder?decoders" in done.stdout


def test_a_fix_of_several_lines_stands_below_its_mistake(run_verb: Run) -> None:
    def act() -> None:
        problems = (Problem("the barn is locked", fix="write\nopen: yes"), Problem("it rains"))
        raise InputError("the barn is locked", problems=problems)

    lines = run_verb(act).stderr.splitlines()
    assert lines == [
        "error: the barn is locked. Fix: write",
        "       open: yes",
        "error: it rains",
    ]


def test_interrupt_while_loading_is_one_line_too(tmp_path: Path) -> None:
    # A module of click that is interrupted stands for a person who is quick.
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "modelyard", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
