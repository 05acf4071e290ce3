"""A small workload that comes with the package, so that a first simulation needs no download.

It was made by `made_bundled_workload` and is kept as a file, because numpy may change its draws
from one release to the next and published figures should not move with it. To make it anew:

    write_csv(made_bundled_workload(), Path("src/modelyard/simulate/bundled/small-team.csv"))
"""

from __future__ import annotations

from importlib.resources import as_file, files

from modelyard.simulate.generate import Mix, generate
from modelyard.simulate.readers import read_workload
from modelyard.simulate.workload import Workload

__all__ = ["BUNDLED_DEVICES", "bundled_workload", "made_bundled_workload"]

BUNDLED_NAME = "small-team"
BUNDLED_JOBS = 120
BUNDLED_SEED = 6

#: The cluster that the workload was made for: four nodes of eight devices.
BUNDLED_DEVICES = 32
#: A little more than fits while jobs arrive, so that policies have something to decide.
BUNDLED_LOAD = 1.1
#: Philly's longest job takes 53 days and would be all that a run of 120 jobs shows; here the
#: longest takes half a day, a typical one half an hour, and none wants more than half the cluster.
BUNDLED_MIX = Mix(
    median_seconds=1_800.0,
    log_deviation=1.3,
    tail_seconds=14_400.0,
    shortest_seconds=60.0,
    longest_seconds=43_200.0,
    size_weights=(0.5, 0.15, 0.15, 0.15, 0.05),
    elastic_share=1 / 3,
)


def bundled_workload() -> Workload:
    """Most of a day of a team with 32 devices: 120 jobs, 31 of them elastic."""
    with as_file(files(__name__) / f"{BUNDLED_NAME}.csv") as path:
        return read_workload(path, format="csv")


def made_bundled_workload() -> Workload:
    """What the bundled file was written from."""
    return generate(
        BUNDLED_JOBS,
        seed=BUNDLED_SEED,
        load=BUNDLED_LOAD,
        cluster_devices=BUNDLED_DEVICES,
        mix=BUNDLED_MIX,
    )
