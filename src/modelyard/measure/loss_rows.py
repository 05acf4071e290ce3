"""Measured losses: tables of finished runs to score the law on, and the user's own pilot runs.

A table has the columns of `COLUMNS`; losses compare only within one dataset and one evaluation,
which together are a group. Pilots are all of one group, so their file needs only three facts a run:
parameters (or a model to count them in), tokens and loss, as CSV or as one JSON object per line.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from modelyard.errors import InputError, Problem
from modelyard.measure.rows import MOST_BYTES, MOST_PROBLEMS, MOST_ROWS, Skipped, read_table
from modelyard.measure.words import empty
from modelyard.plan.loss.fitting import Pilot
from modelyard.spec.model_source import load_model
from modelyard.spec.text_file import read_text
from modelyard.units import describe, parse_count

#: names for the number of parameters, the first that is filled in holds
PARAMETERS = ("parameters", "params", "params_total")
COLUMNS = ("id", "source", "model", *PARAMETERS, "tokens", "dataset", "eval", "loss")
PILOTS_FIX = "write parameters (or model), tokens and loss, for example '410M,8B,2.64'"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """One finished run and how it did on one evaluation."""

    id: str
    source: str
    dataset: str
    evaluation: str
    model: str
    pilot: Pilot

    @property
    def group(self) -> tuple[str, str, str]:
        """Losses of one group obey one law."""
        return (self.source, self.dataset, self.evaluation)


@dataclass(frozen=True, slots=True)
class LossRows:
    """Rows that can be predicted, and those that cannot."""

    rows: tuple[LossRow, ...]
    skipped: tuple[Skipped, ...]


def read_loss_rows(path: str | os.PathLike[str]) -> LossRows:
    """All rows of a file; `InputError` where it is not such a table."""
    return parse_loss_rows(read_text(path, MOST_BYTES), os.fspath(path))


def parse_loss_rows(text: str, where: str = "") -> LossRows:
    """Like `read_loss_rows`, of text at hand."""
    records = read_table(
        text,
        where,
        required=("tokens", "loss"),
        one_of=(*PARAMETERS, "model"),
        numbers=("tokens", "loss", *PARAMETERS),
    )
    rows: list[LossRow] = []
    skipped: list[Skipped] = []
    for line, record in records:
        name = record.get("id", "").strip() or f"line {line}"
        source = record.get("source", "").strip()
        try:
            pilot = _pilot(record)
        except InputError as error:
            skipped.append(Skipped(id=name, source=source, line=line, reason=error.message))
            continue
        rows.append(
            LossRow(
                id=name,
                source=source,
                dataset=record.get("dataset", "").strip(),
                evaluation=record.get("eval", "").strip(),
                model=record.get("model", "").strip(),
                pilot=pilot,
            )
        )
    if not rows:
        why = f": {skipped[0].reason}" if skipped else ""
        raise InputError(f"no row can be predicted{why}", fix=PILOTS_FIX, where=where)
    return LossRows(tuple(rows), tuple(skipped))


def read_pilots(path: str | os.PathLike[str]) -> tuple[Pilot, ...]:
    """The user's pilot runs; every row that cannot be used is an error that names its line."""
    return parse_pilots(read_text(path, MOST_BYTES), os.fspath(path))


def parse_pilots(text: str, where: str = "") -> tuple[Pilot, ...]:
    """Like `read_pilots`, of text at hand."""
    problems: list[Problem] = []
    pilots: list[Pilot] = []
    for line, record in _records(text, where, problems):
        try:
            pilots.append(_pilot(record))
        except InputError as error:
            problems.append(Problem(error.message, error.fix or PILOTS_FIX, where, line))
    if problems:
        count = len(problems)
        raise InputError(
            f"{count} problem{'s' if count != 1 else ''} in the pilots",
            where=where,
            problems=problems[:MOST_PROBLEMS],
        )
    if not pilots:
        raise InputError("there are no pilot runs in it", fix=PILOTS_FIX, where=where)
    return tuple(pilots)


def _records(
    text: str, where: str, problems: list[Problem]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    if not text.lstrip().startswith("{"):
        yield from read_table(
            text, where, required=("tokens", "loss"), one_of=(*PARAMETERS, "model"), numbers=()
        )
        return
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > MOST_ROWS:
        raise InputError(f"more than {MOST_ROWS:,} rows", fix="split the file", where=where)
    for number, line in lines:
        try:
            yield number, _object(line)
        except InputError as error:
            problems.append(Problem(error.message, error.fix, where, number))


def _object(line: str) -> dict[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a ValueError too, though not one of JSON's grammar.
        raise InputError(
            "the line is not a JSON object", fix="write one {…} object on each line"
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            f"expected a JSON object, found {describe(value)}",
            fix="write one {…} object on each line",
        )
    cells: dict[str, str] = {}
    for name, cell in value.items():
        if isinstance(cell, bool) or not isinstance(cell, (str, int, float, type(None))):
            if name in COLUMNS:
                raise InputError(
                    f"{name}: expected a number, found {describe(cell)}", fix=PILOTS_FIX
                )
            continue
        cells[name] = "" if cell is None else str(cell)
    return cells


def _pilot(record: Mapping[str, str]) -> Pilot:
    return Pilot(_parameters(record), _amount(record, "tokens"), _loss(record))


def _parameters(record: Mapping[str, str]) -> float:
    for name in PARAMETERS:
        if not empty(record.get(name, "")):
            return _amount(record, name)
    model = record.get("model", "").strip()
    if empty(model):
        raise InputError("neither parameters nor model says how large the run was", fix=PILOTS_FIX)
    return float(load_model(model).parameters.total)


def _amount(record: Mapping[str, str], name: str) -> float:
    cell = record.get(name, "").strip()
    if empty(cell):
        raise InputError(f"{name} is missing", fix=PILOTS_FIX)
    try:
        # Published tables have digitised amounts, which are not whole.
        value = float(cell)
    except ValueError:
        value = float(_counted(cell, name))
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(f"{name}: '{cell[:40]}' is not a positive number", fix=PILOTS_FIX)
    return value


def _counted(cell: str, name: str) -> int:
    try:
        return parse_count(cell)
    except InputError as error:
        raise InputError(f"{name}: '{cell[:40]}' is not a number", fix=PILOTS_FIX) from error


def _loss(record: Mapping[str, str]) -> float:
    cell = record.get("loss", "").strip()
    if empty(cell):
        raise InputError("loss is missing", fix=PILOTS_FIX)
    try:
        return float(cell)
    except ValueError as error:
        raise InputError(f"loss: '{cell[:40]}' is not a number", fix=PILOTS_FIX) from error
