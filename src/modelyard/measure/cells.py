"""One row of a table of measured runs: its cells as values, and the model that they describe."""

from __future__ import annotations

from collections.abc import Mapping

from modelyard.errors import InputError
from modelyard.measure.row_model import Shape
from modelyard.measure.words import empty

Record = Mapping[str, str]

#: whole numbers above this are mistakes, and would only overflow later
MOST_WHOLE = 1e9


class Cells:
    """Values by column; None where a cell is empty or the column is not there."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    def text(self, name: str) -> str:
        return self._record.get(name, "").strip()

    def number(self, name: str) -> float | None:
        cell = self.text(name)
        return None if empty(cell) else float(cell)

    def whole(self, name: str) -> int | None:
        value = self.number(name)
        if value is None:
            return None
        if round(value) < 1:
            raise InputError(f"{name} is {value:g}, less than one")
        if value > MOST_WHOLE:
            raise InputError(f"{name} is {value:g}, more than any run has")
        return round(value)

    def sequence(self) -> int:
        """Tokens of a sample, without which nothing can be predicted."""
        found = self.whole("seq_len")
        if found is None:
            raise InputError("seq_len is missing")
        return found

    def shape(self, sequence: int) -> Shape:
        """What the row says of its model."""
        return Shape(
            name=self.text("model"),
            arch=self.text("arch"),
            layers=self.whole("layers"),
            hidden=self.whole("hidden"),
            heads=self.whole("heads"),
            kv_heads=self.whole("kv_heads"),
            ffn=self.whole("ffn"),
            vocab=self.whole("vocab"),
            params_b=self.number("params_b"),
            active_params_b=self.number("active_params_b"),
            sequence=sequence,
        )
