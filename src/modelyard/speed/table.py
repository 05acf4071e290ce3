"""Speed from a table of measurements, in the format of Gavel (OSDI'20).

The table gives steps per second by device kind, job type, number of devices and placement, alone
and beside a second job on the same devices. Where it has no entry, these rules hold:

- Between two measured scales, log(steps/s) is linear in log(devices); 0 if either end is 0.
- Above the largest measured scale more devices bring nothing; below the smallest the job cannot
  run.
- A spread placement that was not measured at a scale where the consolidated one was gives 0; a
  kind without any spread measurement is taken not to care.
- A pair at a scale where it was not measured keeps the share of speed that the same rules give
  between its measured scales. A pair that was never measured gives 0, like one that did not fit.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from modelyard.errors import one_of, suggest
from modelyard.spec.allocation import Footprint
from modelyard.speed.interference import undisturbed_rate
from modelyard.speed.model import Observation

#: Key of a job alone on its devices.
ALONE = "null"
#: Ending of the device kinds whose measurements were made over more nodes than needed.
SPREAD_SUFFIX = "_unconsolidated"
#: Problems listed in one error: enough to see a pattern, few enough to read.
PROBLEMS_SHOWN = 8
#: Weight of the expectation against one observation in the correction of a cell. An observation
#: is the mean of many steps of this very job, so it counts twice the table's word.
PRIOR_OBSERVATIONS = 0.5

#: Steps per second by number of devices.
Curve = Mapping[int, float]
#: Kind, consolidated or not, job type.
_Place = tuple[str, bool, str]
#: What one correction is for: kind, devices, consolidated or not, partner.
_Cell = tuple[str, int, bool, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputTable:
    """Measured curves; build one with `throughput_table`."""

    alone: Mapping[_Place, Curve]
    #: as `alone`, with the partner's job type as the second key
    paired: Mapping[tuple[_Place, str], Curve]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Device kinds, in the order of the table."""
        return tuple(dict.fromkeys(kind for kind, _, _ in self.alone))

    @property
    def job_types(self) -> tuple[str, ...]:
        """Job types measured on any kind, in the order of the table."""
        return tuple(dict.fromkeys(job_type for _, _, job_type in self.alone))

    def scales(self, kind: str, job_type: str) -> tuple[int, ...]:
        """Numbers of devices at which the job type was measured, rising."""
        return tuple(self.alone.get((kind, True, job_type), ()))

    def steps_per_second(
        self,
        kind: str,
        job_type: str,
        devices: int,
        consolidated: bool,
        partner: str | None = None,
    ) -> float:
        """Steps per second by the rules above; 0 for a kind or type that was not measured."""
        place = (kind, consolidated, job_type)
        curve = self.alone.get(place)
        if curve is None:
            return 0.0
        alone = _at_scale(curve, devices)
        if partner is None or alone == 0.0:
            return alone
        pair = self.paired.get((place, partner))
        if pair is None:
            return 0.0
        if devices in pair:
            return pair[devices]
        return alone * _at_scale({n: pair[n] / curve[n] for n in pair if curve[n] > 0.0}, devices)


def _at_scale(curve: Curve, devices: int) -> float:
    if devices in curve:
        return curve[devices]
    below = max((scale for scale in curve if scale < devices), default=0)
    if below == 0:
        return 0.0
    above = min((scale for scale in curve if scale > devices), default=0)
    if above == 0:
        return curve[below]
    low, high = curve[below], curve[above]
    if low <= 0.0 or high <= 0.0:
        return 0.0
    share = math.log(devices / below) / math.log(above / below)
    return math.exp((1.0 - share) * math.log(low) + share * math.log(high))


def throughput_table(measured: Mapping[str, Any]) -> ThroughputTable:
    """The table in Gavel's parsed JSON: kind → "('job type', devices)" → partner → steps/s.

    The entry under "null" is the speed alone; the others are pairs [own, partner's]. Raises
    ValueError with every malformed entry named.
    """
    reading = _Reading()
    for kind, rows in measured.items():
        reading.kind(kind, rows)
    if reading.problems:
        shown = "\n  ".join(reading.problems[:PROBLEMS_SHOWN])
        more = len(reading.problems) - PROBLEMS_SHOWN
        rest = f"\n  and {more} more" if more > 0 else ""
        raise ValueError(f"the throughput table has entries that make no sense:\n  {shown}{rest}")
    _complete_spread(reading.alone)
    return ThroughputTable(
        alone=MappingProxyType({key: _sorted(curve) for key, curve in reading.alone.items()}),
        paired=MappingProxyType({key: _sorted(curve) for key, curve in reading.paired.items()}),
    )


class _Reading:
    """The curves read so far, and what was wrong with the rest."""

    def __init__(self) -> None:
        self.alone: dict[_Place, dict[int, float]] = {}
        self.paired: dict[tuple[_Place, str], dict[int, float]] = {}
        self.problems: list[str] = []

    def kind(self, named: str, rows: object) -> None:
        kind, consolidated = named.removesuffix(SPREAD_SUFFIX), not named.endswith(SPREAD_SUFFIX)
        if not isinstance(rows, Mapping):
            self.problems.append(f"{named}: expected a mapping from job types to speeds")
            return
        for key, row in rows.items():
            parsed = _parse_key(key)
            if parsed is None or not isinstance(row, Mapping) or ALONE not in row:
                self.problems.append(
                    f"{named}, {key}: expected a key like \"('ResNet-18', 2)\" and a row with "
                    f'the speed alone under "{ALONE}"'
                )
                continue
            job_type, devices = parsed
            place = (kind, consolidated, job_type)
            for partner, value in row.items():
                self._entry(f"{named}, {key}, {partner}", place, devices, partner, value)

    def _entry(self, where: str, place: _Place, devices: int, partner: str, value: object) -> None:
        if partner == ALONE:
            speed = _speed(value)
            if speed is None:
                self.problems.append(f"{where}: {value!r} is not a number of steps per second")
            else:
                self.alone.setdefault(place, {})[devices] = speed
            return
        other = _parse_key(partner)
        if other is None or other[1] != devices:
            self.problems.append(f"{where}: a partner is a job type on the same {devices} devices")
            return
        own = _speed(value[0]) if isinstance(value, list) and len(value) == 2 else None
        if own is None:
            self.problems.append(f"{where}: {value!r} is not a pair of steps per second")
        else:
            # The partner's half stands in the partner's own row.
            self.paired.setdefault((place, other[0]), {})[devices] = own


def _speed(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 <= value < math.inf else None


@lru_cache(maxsize=1024)
def _parse_key(key: str) -> tuple[str, int] | None:
    """Job type and devices of a key; None for anything else. Each key stands in many rows."""
    try:
        value = ast.literal_eval(key)
    except (SyntaxError, ValueError):
        return None
    match value:
        case (str(job_type), int(devices)) if devices >= 1:
            return job_type, devices
    return None


def _complete_spread(alone: dict[_Place, dict[int, float]]) -> None:
    """Give every consolidated curve a spread one; see the rules at the top."""
    spread_kinds = {kind for kind, consolidated, _ in alone if not consolidated}
    for (kind, consolidated, job_type), curve in list(alone.items()):
        if not consolidated:
            continue
        spread = alone.setdefault((kind, False, job_type), {})
        for devices, speed in curve.items():
            spread.setdefault(devices, 0.0 if kind in spread_kinds else speed)


def _sorted(curve: dict[int, float]) -> Curve:
    return MappingProxyType(dict(sorted(curve.items())))


@dataclass(frozen=True, slots=True, eq=False)
class Corrections:
    """How much faster a job runs than its table says, learnt from its own steps.

    Each cell's correction is shrunk towards the mean over all cells, and that towards none. The
    mean matters: were a slow job corrected only where it has run, every other place would look
    better, and a scheduler would move it round the cluster for nothing.
    """

    #: by cell, the sum of log(measured / table) and the number of observations in it
    evidence: Mapping[_Cell, tuple[float, int]] = field(default_factory=dict)
    #: log of the correction of a cell that was never observed
    overall: float = 0.0

    def factor(self, cell: _Cell) -> float:
        if not self.evidence:
            return 1.0
        total, count = self.evidence.get(cell, (0.0, 0))
        shrunk = total + PRIOR_OBSERVATIONS * self.overall
        return math.exp(shrunk / (count + PRIOR_OBSERVATIONS))

    def including(self, log_ratios: Sequence[tuple[_Cell, float]]) -> Corrections:
        evidence = dict(self.evidence)
        for cell, log_ratio in log_ratios:
            total, count = evidence.get(cell, (0.0, 0))
            evidence[cell] = (total + log_ratio, count + 1)
        totals = sum(total for total, _ in evidence.values())
        counts = sum(count for _, count in evidence.values())
        return Corrections(MappingProxyType(evidence), totals / (counts + PRIOR_OBSERVATIONS))


_NO_CORRECTIONS = Corrections()


@dataclass(frozen=True, slots=True)
class TableSpeed:
    """The speed of one job type by a table; a unit of work is one step.

    A footprint is consolidated when it uses the fewest nodes of `devices_per_node` that hold its
    devices. Devices of several kinds run at the speed of the slowest.
    """

    table: ThroughputTable
    job_type: str
    devices_per_node: int
    corrections: Corrections = _NO_CORRECTIONS

    def __post_init__(self) -> None:
        if self.devices_per_node < 1:
            raise ValueError(f"devices_per_node is {self.devices_per_node}: give 1 or more")
        if self.job_type not in self.table.job_types:
            near = suggest(self.job_type, self.table.job_types)
            known = f"did you mean '{near}'" if near else f"it has {one_of(self.table.job_types)}"
            raise ValueError(f"the throughput table has no job type {self.job_type!r}; {known}")

    def goodput(self, at: Footprint) -> float:
        measured = self._table_speed(at)
        if measured <= 0.0:
            return 0.0
        return measured * self.corrections.factor(self._cell(at)) * max(0.0, 1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0.0 else math.inf

    def refit(self, observations: Sequence[Observation]) -> TableSpeed:
        """Corrected by the measured steps; earlier corrections are kept and added to.

        Steps where the table says that the job cannot run have no ratio and are left out.
        """
        log_ratios: list[tuple[_Cell, float]] = []
        for seen in observations:
            rate, expected = undisturbed_rate(seen), self._table_speed(seen.at)
            if rate is not None and expected > 0.0:
                log_ratios.append((self._cell(seen.at), math.log(rate / expected)))
        if not log_ratios:
            return self
        return replace(self, corrections=self.corrections.including(log_ratios))

    def _consolidated(self, at: Footprint) -> bool:
        return at.nodes <= -(-at.devices // self.devices_per_node)

    def _cell(self, at: Footprint) -> _Cell:
        return at.kind, at.devices, self._consolidated(at), at.partner

    def _table_speed(self, at: Footprint) -> float:
        together, devices = self._consolidated(at), at.devices
        return min(
            self.table.steps_per_second(kind, self.job_type, devices, together, at.partner)
            for kind in at.kind.split("+")
        )
