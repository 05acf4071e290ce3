"""The devices of a question: from a shorthand, a cluster file, or a calibrated machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from modelyard.errors import InputError
from modelyard.planner.knowledge import is_table

if TYPE_CHECKING:
    from modelyard.measure.calibration import Calibration
    from modelyard.spec.pool import Pool, Prices

#: More processes of one machine than anybody has.
MOST_HERE = 100_000


def pools_of(
    devices: str, cluster: str, prices: Prices, measured: Calibration | None
) -> tuple[Pool, ...]:
    """The pools of what was written; measured devices stand in for those of the catalogue."""
    from modelyard.spec.pool_source import load_pools, pools_of_cluster
    from modelyard.spec.shorthand import load_cluster

    if cluster:
        found = pools_of_cluster(load_cluster(cluster), prices)
    elif measured is not None and not devices:
        found = (_machine(measured, measured.platform.devices),)
    elif measured is not None and (here := _only(devices, measured.device.name)) is not None:
        found = (_machine(measured, here),)
    else:
        found = load_pools(devices, prices)
    return found if measured is None else tuple(_as_measured(pool, measured) for pool in found)


def calibration_of(path: str | None) -> Calibration | None:
    """What `yard calibrate` measured; None for a table of runs, which says nothing of devices."""
    if path is None or is_table(path):
        return None
    from modelyard.measure.calibration import read_calibration

    return read_calibration(path)


def _machine(measured: Calibration, devices: int) -> Pool:
    from modelyard.spec.pool import Pool

    return Pool(platform=replace(measured.platform, devices=devices))


def _only(devices: str, kind: str) -> int | None:
    """How many, where these are devices of a calibrated machine that no catalogue has."""
    match = re.fullmatch(rf"\s*(\d{{1,9}})\s*[xX×*]\s*{re.escape(kind)}\s*", devices, re.I)
    if match is None:
        return None
    number = int(match.group(1))
    if not 1 <= number <= MOST_HERE:
        fix = f"write 1 to {MOST_HERE:,}, as in '2x{kind}'"
        raise InputError(f"'{devices.strip()}' is not possible", fix=fix)
    return number


def _as_measured(pool: Pool, measured: Calibration) -> Pool:
    """The pool with the measured device and links, where it is of that kind."""
    if pool.kind != measured.device.name:
        return pool
    machine = replace(pool.platform, device=measured.device)
    if measured.platform.devices > 1:
        machine = replace(
            machine,
            inside_bandwidth=measured.platform.inside_bandwidth,
            inside_latency=measured.platform.inside_latency,
        )
    return replace(pool, platform=machine)
