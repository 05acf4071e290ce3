"""The parameter-server setting of DL² (TPDS'21): eight job types on a small shared cluster.

A job trains with asynchronous parameter servers, whose speed is Optimus' law (`speed/servers.py`)

    f(p, w) = w / (a + b·w/p + c·w + d·p)   batches per second.

The numbers are facts that DL²'s authors publish with their simulator. Six fits of the law to their
testbed give the shapes (the parts that a, b, c and d have in a step): four that gain from many
devices and two that hardly gain from more than four. The length of a step with one server and one
worker is the time to compute a batch and to send the model there and back, 2 × size / bandwidth.
The fits carry no names: they go to the types in the order in which both are listed, and the two
text models left over take that of the first text model.

Batches per epoch, epochs by type, slots of 20 minutes, the window of 20 jobs, 60 jobs a workload,
at most 16 servers and 16 workers and epochs within 10 % of the type's are theirs too. Ours are the
cluster, which is smaller, the longest job, and a rate of arrivals that keeps it crowded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.dl2 import Encoding
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.servers import ServersMode, ServersSpeed
from modelyard.speed.steps import StepsWork

WINDOW = 20
#: A start or a change of size costs a job half a minute, as everywhere in the simulator; DL²
#: resizes in seconds.
RESTART_SECONDS = 30.0
DAY_SECONDS = 86_400.0
#: One server and one worker; 16 of each are the most in the published simulator.
SMALLEST_DEVICES, LARGEST_DEVICES = 2, 32
#: Fits of (a, b, c, d) to ResNet-50, VGG-16, ResNeXt-110, Inception-BN, seq2seq and a text CNN.
FITS = (
    (2.8335, 3.9188, 0.0, 0.505),
    (1.8432, 3.8148, 0.0331, 0.3584),
    (1.0203, 2.7765, 4.9247, 0.0016),
    (4.0933, 3.6790, 0.0, 0.6471),
    (1.188, 3.7519, 0.071, 0.028),
    (1.1826, 0.5554, 5.1176, 0.045),
)
#: What users ask for, for policies that do not resize.
ASKED_DEVICES = (4, 6, 8, 10, 12)
EPOCH_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class JobType:
    """One model as it is trained with parameter servers."""

    name: str
    batch_seconds: float
    model_megabytes: float
    megabytes_per_second: float
    batches_per_epoch: int
    #: of the longest that a job may be
    epochs_share: float
    #: a, b, c and d up to a common factor
    shape: tuple[float, ...]

    def speed(self) -> ServersSpeed:
        step_seconds = self.batch_seconds + 2.0 * self.model_megabytes / self.megabytes_per_second
        factor = step_seconds / sum(self.shape)
        coefficients = tuple(factor * part for part in self.shape)
        # A step of asynchronous training is one worker's batch, so a unit of work is a batch.
        return ServersSpeed(ServersMode.ASYNCHRONOUS, coefficients, global_batch=1.0)


TYPES = (
    JobType("resnet-50", 0.449, 102.2, 91.875, 115, 0.30, FITS[0]),
    JobType("vgg-16", 0.535, 553.4, 233.0, 115, 0.96, FITS[1]),
    JobType("resnext-110", 0.226, 6.92, 59.5, 390, 0.05, FITS[2]),
    JobType("inception-bn", 0.815, 42.1, 145.875, 120, 0.54, FITS[3]),
    JobType("seq2seq", 0.075, 36.5, 120.125, 780, 0.95, FITS[4]),
    JobType("cnn-text", 0.585, 24.0, 60.75, 193, 0.46, FITS[5]),
    JobType("dssm", 0.567, 6.0, 92.125, 349, 0.33, FITS[4]),
    JobType("wlm", 0.154, 19.2, 10.375, 165, 0.23, FITS[4]),
)


#: Fewer arrivals take thousands of slots for a job, more come all at once.
ARRIVALS_RANGE = (0.001, 10_000.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """A family of workloads: each seed is one of them."""

    nodes: int = 4
    devices_per_node: int = 8
    jobs: int = 60
    #: mean arrivals in a slot; they swing over the day
    arrivals_per_slot: float = 0.7
    daily_swing: float = 0.5
    longest_epochs: float = 100.0
    slot_seconds: float = 1_200.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.devices_per_node * self.nodes < SMALLEST_DEVICES or self.jobs < 1:
            raise ValueError("a setting has at least one job, and two devices to run it on")
        for name in ("arrivals_per_slot", "longest_epochs", "slot_seconds"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is positive and finite, not {getattr(self, name)}")
        fewest, most = ARRIVALS_RANGE
        if not fewest <= self.arrivals_per_slot <= most:
            raise ValueError(
                f"arrivals_per_slot is {self.arrivals_per_slot}: give {fewest:g} to {most:,.0f}"
            )
        if not 0.0 <= self.daily_swing <= 1.0:
            raise ValueError(f"daily_swing is a share from 0 to 1, not {self.daily_swing}")

    def encoding(self) -> Encoding:
        return Encoding(tuple(kind.name for kind in TYPES), WINDOW, self.slot_seconds)

    def scenario(self, seed: int) -> Scenario:
        """The workload of a seed on the cluster of the setting."""
        return Scenario(
            self._workload(seed),
            uniform_cluster(self.nodes, self.devices_per_node),
            round_seconds=self.slot_seconds,
            restart_seconds=RESTART_SECONDS,
        )

    def _workload(self, seed: int) -> Workload:
        draw = np.random.default_rng(seed)
        arrivals = self._arrivals(draw)
        kinds = draw.integers(len(TYPES), size=self.jobs)
        asked = draw.choice(ASKED_DEVICES, size=self.jobs)
        stretch = draw.uniform(1.0 - EPOCH_SPREAD, 1.0 + EPOCH_SPREAD, size=self.jobs)
        speeds = [kind.speed() for kind in TYPES]
        most = self.nodes * self.devices_per_node
        jobs = []
        for index, submitted in enumerate(arrivals):
            kind = TYPES[kinds[index]]
            epochs = kind.epochs_share * self.longest_epochs * float(stretch[index])
            jobs.append(
                TraceJob(
                    id=f"job-{index:03d}",
                    submitted=submitted,
                    devices=min(int(asked[index]), most),
                    work=StepsWork(epochs * kind.batches_per_epoch, speeds[kinds[index]]),
                    min_devices=SMALLEST_DEVICES,
                    max_devices=min(LARGEST_DEVICES, most),
                    model=kind.name,
                )
            )
        return Workload(f"servers-seed-{seed}", tuple(jobs))

    def _arrivals(self, draw: np.random.Generator) -> list[float]:
        """Poisson arrivals, slot by slot, with more by day than by night.

        Jobs come inside their slot, not at its beginning, as people send them.
        """
        times: list[float] = []
        slot = 0
        phase = float(draw.uniform(0.0, 2.0 * math.pi))
        while len(times) < self.jobs:
            angle = phase + 2.0 * math.pi * slot * self.slot_seconds / DAY_SECONDS
            rate = self.arrivals_per_slot * (1.0 + self.daily_swing * math.sin(angle))
            inside = draw.uniform(0.0, self.slot_seconds, size=int(draw.poisson(rate)))
            times += sorted((slot * self.slot_seconds + inside).round(1).tolist())
            slot += 1
        return times[: self.jobs]
