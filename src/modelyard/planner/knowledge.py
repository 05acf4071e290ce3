"""What the planner knows: what comes with Modelyard, made better by the user's own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelyard.plan.knowledge import Knowledge

#: A table of measured runs rather than the outcome of `yard calibrate`.
TABLE = ".csv"


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge, with what should be said about where it comes from."""

    knowledge: Knowledge
    notes: tuple[str, ...] = ()


def known_of(pilots: str | None = None, calibration: str | None = None) -> Known:
    """The shipped knowledge, refitted on pilot runs and on measurements where there are any."""
    from modelyard.plan.knowledge import shipped_knowledge

    known = Known(shipped_knowledge())
    if calibration is not None:
        known = _calibrated(known, calibration)
    return known if pilots is None else _piloted(known, pilots)


def _piloted(known: Known, path: str) -> Known:
    from modelyard.measure.loss_rows import read_pilots
    from modelyard.plan.loss.fitting import refit_law

    runs = read_pilots(path)
    law = refit_law(runs)
    note = f"the law of loss is fitted to the {len(runs)} pilot runs of {path}"
    return Known(replace(known.knowledge, loss=law), (*known.notes, note))


def is_table(path: str) -> bool:
    """Whether a calibration is a table of measured runs, and not what `yard calibrate` wrote."""
    return path.casefold().endswith(TABLE)


def _calibrated(known: Known, path: str) -> Known:
    if is_table(path):
        return _measured(known, path)
    from modelyard.measure.calibration import read_calibration

    found = read_calibration(path)
    note = f"step times and memory are those of {found.hardware}, measured {found.made}"
    knowledge = replace(known.knowledge, steps=found.steps, memory=found.memory)
    return Known(knowledge, (*known.notes, note))


def _measured(known: Known, path: str) -> Known:
    """Step times of runs on the same cluster, in the columns of `yard plan score`."""
    from modelyard.measure.rows import read_rows
    from modelyard.speed.physical.fitting import refit

    rows = read_rows(path)
    steps = refit(known.knowledge.steps, rows.columns, rows.seconds)
    notes = [f"step times are fitted to {rows.size} measured runs of {path}"]
    if rows.skipped:
        first = rows.skipped[0]
        notes.append(
            f"{len(rows.skipped)} runs of {path} could not be used: {first.id}: {first.reason}"
        )
    return Known(replace(known.knowledge, steps=steps), (*known.notes, *notes))
