"""What the pages say is so: links resolve, commands exist, marked code runs, reference is true.

Two comments make a code block count:

`<!-- run -->` before it: Python is executed, all blocks of a page in one namespace; of a shell
block, every line that begins with `yard` must succeed.
`<!-- file: NAME -->` before it: its text is written to that file.

Both happen in an empty folder with a copy of the project's `examples`.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from modelyard.cli.main import VERBS, yard
from modelyard.cli.plan import SUBCOMMANDS

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]

#: Marker, language and text of a fenced block.
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.S)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|<img[^>]*src=\"(?P<image>[^\"]+)\"")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.M)
INDENTED_COMMAND = re.compile(r"^    (?P<line>(?:make|yard) .*)$", re.M)
INLINE_COMMAND = re.compile(r"`(?P<line>(?:make|yard) [^`\n]*)`")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    #: "run", "file: NAME" or nothing
    mark: str


def blocks(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["text"], match["mark"] or "") for match in found]


def commands(page: Path) -> Iterator[list[str]]:
    """Every `make` and `yard` line of a page, split as a shell would, comments left out."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [match["line"] for match in INDENTED_COMMAND.finditer(text)]
    lines += [match["line"] for match in INLINE_COMMAND.finditer(text)]
    for block in blocks(page):
        if block.language in ("sh", "shell", "console"):
            joined = block.text.replace("\\\n", " ").splitlines()
            lines += [line.strip() for line in joined if line.startswith(("make ", "yard "))]
    for line in lines:
        yield shlex.split(line, comments=True)


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_resolve(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for match in LINK.finditer(text):
        link = match["target"] or match["image"]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = target.is_file() and (not anchor or anchor in anchors(target))
        if not known and not (target.is_dir() and not anchor):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_their_options_exist(page: Path) -> None:
    unknown = [words for words in commands(page) if not exists(words)]
    assert unknown == []


def exists(words: list[str]) -> bool:
    program, *arguments = words
    if program == "make":
        goals = [word for word in arguments if "=" not in word]
        return all(goal in make_targets() for goal in goals)
    if not arguments or arguments[0] in ("--help", "--version", "COMMAND"):
        return True
    options = verb_options().get(" ".join(arguments[:2])) or verb_options().get(arguments[0])
    # What follows `--` is for another program.
    own = takewhile(lambda word: word != "--", arguments[1:])
    used = {word.split("=")[0] for word in own if re.match(r"--?[a-zA-Z]", word)}
    return options is not None and used <= options


@cache
def make_targets() -> set[str]:
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.M))


@cache
def verb_options() -> dict[str, set[str]]:
    """Options by command, with the commands below a verb as `verb command`."""
    verbs = {name: verb.load() for name, verb in VERBS.items()}
    found = {name: options_of(verb) for name, verb in verbs.items()}
    found |= {f"plan {name}": options_of(verb.load()) for name, verb in SUBCOMMANDS.items()}
    for name, verb in verbs.items():
        if isinstance(verb, click.Group):
            found |= {f"{name} {below}": options_of(one) for below, one in verb.commands.items()}
    return found


def options_of(command: click.Command) -> set[str]:
    return {"-h", "--help"}.union(*(_spellings(parameter) for parameter in command.params))


def _spellings(parameter: click.Parameter) -> set[str]:
    return {*parameter.opts, *parameter.secondary_opts}


RUNNABLE = [page for page in PAGES if any(block.mark == "run" for block in blocks(page))]


@pytest.mark.parametrize("page", RUNNABLE, ids=named)
def test_marked_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "state"))
    namespace: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.mark.startswith("file: "):
            target = tmp_path / block.mark.removeprefix("file: ")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.mark == "run" and block.language == "python":
            exec(compile(block.text, f"{named(page)} (code block)", "exec"), namespace)
        elif block.mark == "run":
            run_lines(block.text)


def run_lines(text: str) -> None:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("yard ")]
    assert lines, "a block that is marked to run has no yard command"
    for line in lines:
        # What a shell would do with the output is not what is tested here.
        words = shlex.split(line.partition(" > ")[0], comments=True)
        done = CliRunner().invoke(yard, words[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"


def test_every_guide_has_something_that_runs() -> None:
    guides = {page for page in PAGES if page.parent.name == "guides"}
    assert guides <= set(RUNNABLE)


@cache
def reference() -> ModuleType:
    """The generator, which is a script and no part of the package."""
    path = REPOSITORY / "scripts" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "cli.md",
        "policies.md",
        "metrics.md",
        "reasons.md",
        "states.md",
        "formats.md",
        "plan-json.md",
        "models.md",
        "api.md",
    ],
)
def test_reference_is_what_the_code_says(name: str) -> None:
    written = (REPOSITORY / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == reference().PAGES[name](), "run .venv/bin/python scripts/reference.py"


def test_every_policy_has_a_section_that_explains_it() -> None:
    text = (REPOSITORY / "docs" / "concepts" / "policies.md").read_text(encoding="utf-8")
    headings = " ".join(HEADING.findall(text)).replace(",", " ").split()
    own = re.findall(
        r"^## (\S+)$", (REPOSITORY / "docs/reference/policies.md").read_text(encoding="utf-8"), re.M
    )
    assert set(own) <= set(headings)


@pytest.mark.parametrize("word", ["simply", "just"])
def test_no_page_makes_light_of_what_it_asks(word: str) -> None:
    pattern = re.compile(rf"\b{word}\b", re.I)
    assert [named(page) for page in PAGES if pattern.search(page.read_text(encoding="utf-8"))] == []
