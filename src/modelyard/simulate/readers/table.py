"""Rows of a delimited text file, and cells as the values that jobs are made of.

A cell that is not what its column promises is recorded with its line, and reading goes on with a
stand-in value: one pass finds every problem. `Row.sound` says whether to trust the values.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from modelyard.errors import InputError
from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.source import Source, unreadable
from modelyard.units import parse_duration

#: Larger than any cluster known to train one model: a bigger number is another column's value.
MOST_DEVICES = 1_000_000

#: Without a zone, as most timestamps are: shifting eighty thousand of them would be noticed.
EPOCH = datetime(1970, 1, 1)

TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(slots=True)
class Row:
    """One line of a table."""

    line: int
    written: str
    cells: list[str]
    positions: dict[str, int]
    faults: Faults
    sound: bool = True

    def has(self, column: str) -> bool:
        """Whether the table has the column and this row says something in it."""
        position = self.positions.get(column)
        return position is not None and bool(self.cells[position].strip())

    def text(self, column: str) -> str:
        """A name; never empty."""
        value = self.cells[self.positions[column]].strip()
        if not value:
            self.fault(column, "nothing is written here", "fill it in or remove the line")
        return value

    def seconds(self, column: str, *, unit_seconds: float = 1.0) -> float:
        """A time from zero up: a number in the column's unit, or text such as `1h30m`."""
        cell = self.cells[self.positions[column]]
        try:
            value = float(cell) * unit_seconds
        except ValueError:
            try:
                value = parse_duration(cell.strip())
            except InputError:
                fix = "write a number of seconds or a duration such as 90m"
                return self._stand_in(column, f"{_shown(cell)} is not a time", fix)
        if not math.isfinite(value):
            return self._stand_in(column, f"{_shown(cell)} is not finite", "write a finite number")
        if value < 0.0:
            fix = "correct it or remove the line"
            return self._stand_in(column, f"{_shown(cell)} is negative", fix)
        return value

    def number(self, column: str) -> float:
        """A finite number from zero up."""
        cell = self.cells[self.positions[column]]
        try:
            value = float(cell)
        except ValueError:
            return self._stand_in(column, f"{_shown(cell)} is not a number", "write a number")
        if not (math.isfinite(value) and value >= 0.0):
            fix = "write a finite number from 0 up"
            return self._stand_in(column, f"{_shown(cell)} is negative or not finite", fix)
        return value

    def devices(self, column: str) -> int:
        """A number of devices, at least one."""
        value = self.whole(column)
        if not 1 <= value <= MOST_DEVICES:
            what = f"{value:,} is not a number of devices"
            self.fault(column, what, f"write a whole number from 1 to {MOST_DEVICES:,}")
        return value

    def whole(self, column: str) -> int:
        """A whole number, also when a spreadsheet has written it as `8.0`."""
        cell = self.cells[self.positions[column]]
        try:
            return int(cell)
        except ValueError:
            pass
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not value.is_integer():
            self.fault(column, f"{_shown(cell)} is not a whole number", "write one such as 8")
            return 1
        return int(value)

    def moment(self, column: str) -> float:
        """Seconds since 1970 of a date and time; without a zone it is taken as UTC."""
        cell = self.cells[self.positions[column]].strip()
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            fix = "write it as 2017-10-09 07:01:55"
            return self._stand_in(column, f"{_shown(cell)} is not a date and time", fix)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return (moment - EPOCH).total_seconds()

    def flag(self, column: str) -> bool:
        cell = self.cells[self.positions[column]].strip()
        value = TRUTH.get(cell.lower())
        if value is None:
            self.fault(column, f"{_shown(cell)} is neither true nor false", "write true or false")
        return bool(value)

    def fault(self, column: str, what: str, fix: str) -> None:
        """Record that the cell is wrong; the row is not sound from now on."""
        self.sound = False
        before = self.cells[: self.positions[column]]
        # quotes are gone from the cells, so that their lengths do not add up where there are any
        place = 0 if '"' in self.written else sum(map(len, before)) + len(before) + 1
        self.faults.add(f"{column}: {what}", fix, line=self.line, column=place)

    def _stand_in(self, column: str, what: str, fix: str) -> float:
        self.fault(column, what, fix)
        return 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a file and where its rows begin."""

    source: Source
    columns: tuple[str, ...]
    #: index in `source.lines` of the first row
    start: int
    delimiter: str = ","

    def rows(self, faults: Faults) -> Iterator[Row]:
        """Rows with the right number of cells; other lines are recorded unless they are blank."""
        positions = {name: position for position, name in enumerate(self.columns)}
        width = len(self.columns)
        lines = self.source.lines
        for line, text in enumerate(islice(lines, self.start, None), self.start + 1):
            try:
                cells = split_line(text, self.delimiter)
            except csv.Error as error:
                what = f"the quotes do not match ({error})"
                faults.add(what, 'write a quote inside a name as ""', line=line)
                continue
            if len(cells) == width:
                yield Row(line, text, cells, positions, faults)
            elif text.strip():
                faults.add(*self._wrong_width(line, len(cells)), line=line)

    def _wrong_width(self, line: int, found: int) -> tuple[str, str]:
        last = line == len(self.source.lines)
        counted = f"{found} of {len(self.columns)} columns"
        if last and not self.source.ends_cleanly and found < len(self.columns):
            return f"the last line is cut off: {counted}", "copy or download the file again"
        return f"{counted} expected ({', '.join(self.columns)})", "correct or remove the line"


def header(source: Source) -> tuple[int, tuple[str, ...]]:
    """Index of the first line with anything on it, and that line read as column names."""
    start = next(index for index, text in enumerate(source.lines) if text.strip())
    try:
        cells = split_line(source.lines[start], ",")
    except csv.Error:
        cells = source.lines[start].split(",")
    return start, tuple(cell.strip().lower() for cell in cells)


def table_with_header(source: Source, required: Sequence[str]) -> Table:
    """The table whose first line names its columns; they must include all that are required."""
    start, columns = header(source)
    missing = [name for name in required if name not in columns]
    if missing:
        what = f"the header lacks {', '.join(missing)}; it has {_shown(', '.join(columns))}"
        fix = f"name the columns {','.join(required)}, or choose another --format"
        raise unreadable(source.path, what, fix, line=start + 1)
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        what = f"the header names {', '.join(map(_shown, repeated))} more than once"
        raise unreadable(source.path, what, "give every column its own name", line=start + 1)
    return Table(source, columns, start + 1)


def split_line(text: str, delimiter: str) -> list[str]:
    """The cells of one line; `csv.Error` when quotes do not match.

    Lines are split one by one because no format here has line breaks inside a cell: a forgotten
    quote then spoils one line and not the rest of the file.
    """
    if '"' not in text or delimiter != ",":
        return text.split(delimiter)
    return next(csv.reader([text], strict=True, skipinitialspace=True))


def _shown(cell: str, *, most: int = 60) -> str:
    """A cell in quotes, shortened so that one broken cell does not fill the screen."""
    cell = cell.strip()
    return repr(cell if len(cell) <= most else cell[: most - 1] + "…")
