"""What the import contracts cannot see: built-in I/O and unseeded luck in the pure packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import modelyard

PACKAGE = Path(modelyard.__file__).parent
PURE = [
    path
    for name in ("plan", "schedule", "speed")
    for path in sorted((PACKAGE / name).rglob("*.py"))
]

BUILT_IN_IO = {"breakpoint", "input", "open", "print"}
#: numpy functions that touch files
ARRAY_IO = {"fromfile", "genfromtxt", "loadtxt", "memmap", "save", "savetxt", "savez", "tofile"}


def impurities(tree: ast.AST) -> Iterator[str]:
    """Calls that reach outside, as `line: what`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if called in BUILT_IN_IO or ("." in called and last in ARRAY_IO):
            yield f"{node.lineno}: {called} does I/O"
        elif last == "default_rng" and not (node.args or node.keywords):
            yield f"{node.lineno}: {called}() seeds itself; take a generator or a seed"


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_packages_reach_nothing_outside(path: Path) -> None:
    assert list(impurities(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "line",
    ["open('x')", "print(1)", "np.loadtxt('x')", "array.tofile('x')", "np.random.default_rng()"],
)
def test_an_impure_line_is_caught(line: str) -> None:
    assert list(impurities(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["np.random.default_rng(seed)", "self.open(job)", "queue.load()", "reprint(x)"]
)
def test_a_pure_line_is_let_through(line: str) -> None:
    assert not list(impurities(ast.parse(line)))
