"""Tables that show each row as it comes, and keep it for the documentation."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from modelyard.simulate.compare import cores

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


class Table:
    """Rows of text under headings. Columns named in `words` align left, all others right."""

    def __init__(self, title: str, widths: Mapping[str, int], *, words: Sequence[str] = ()) -> None:
        self.title = title
        self._headings = list(widths)
        #: known before the first row, because rows that were printed cannot be made wider
        self._widths = [max(len(heading), width) for heading, width in widths.items()]
        self._words = frozenset(words)
        self._rows: dict[int, tuple[str, ...]] = {}

    def begin(self) -> None:
        """Print the title and the headings."""
        print(f"\n{self.title}\n", flush=True)
        self._print(self._headings)
        self._print(["-" * width for width in self._widths])

    def add(self, *cells: str, place: int | None = None) -> None:
        """Print a row now; in the documentation it stands at `place`, the end when left out."""
        self._rows[len(self._rows) if place is None else place] = cells
        self._print(cells)

    def markdown(self) -> str:
        """The title and all rows in the order of their places."""
        rule = ["---" if heading in self._words else "---:" for heading in self._headings]
        rows = [self._headings, rule, *(self._rows[place] for place in sorted(self._rows))]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([f"**{self.title}**", "", *lines])

    def _print(self, cells: Sequence[str]) -> None:
        padded = [
            cell.ljust(width) if heading in self._words else cell.rjust(width)
            for cell, heading, width in zip(cells, self._headings, self._widths, strict=True)
        ]
        print("  ".join(padded).rstrip(), flush=True)


def write_section(name: str, parts: Sequence[str], page: Path = PAGE) -> None:
    """Put what was measured between the two comments of the page that carry the name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no place for '{name}': add the lines {begin} and {end}")
    body = "\n\n".join([*parts, machine()])
    page.write_text(f"{before}{begin}\n{body}\n{end}{after}", encoding="utf-8")
    print(f"\nwritten to {page}")


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"Measured with Python {platform.python_version()}, numpy {version('numpy')}, "
        f"{cores()} cores ({platform.machine()})."
    )
