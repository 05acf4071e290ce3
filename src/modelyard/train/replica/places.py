"""Where a process stands in its replica, and how one process becomes all of them.

Whoever starts workers starts one process for each replica, its lead. The lead forks the others
before it does anything else, so they are there as fast as a fork is, and they end with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from dataclasses import dataclass

from modelyard.engines.local.environment import VISIBLE_DEVICES
from modelyard.errors import InputError
from modelyard.spec.training_parallel import ParallelSpec, PipelineSchedule

#: dimensions of the mesh, the slowest first: those who talk most are neighbours
PIPELINE, FSDP, TENSOR = "pipeline", "fsdp", "tensor"
#: Linux's PR_SET_PDEATHSIG
_DEATH_SIGNAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a replica is divided over its places."""

    pipeline: int = 1
    fsdp: int = 1
    tensor: int = 1
    #: of the whole pipeline; more than its places when they take turns (interleaved)
    stages: int = 1
    interleaved: bool = False

    @property
    def places(self) -> int:
        return self.pipeline * self.fsdp * self.tensor


@dataclass(frozen=True, slots=True)
class Place:
    """One process of a replica, by its coordinates."""

    division: Division
    index: int

    @property
    def pipeline(self) -> int:
        return self.index // (self.division.fsdp * self.division.tensor)

    @property
    def fsdp(self) -> int:
        return self.index // self.division.tensor % self.division.fsdp

    @property
    def tensor(self) -> int:
        return self.index % self.division.tensor

    @property
    def stages(self) -> tuple[int, ...]:
        """Those of the pipeline that this place computes."""
        return tuple(range(self.pipeline, self.division.stages, self.division.pipeline))


def division_of(wanted: ParallelSpec) -> Division:
    """What people wrote, with what they did not; `InputError` when stages do not go round."""
    interleaved = wanted.schedule is PipelineSchedule.INTERLEAVED
    stages = wanted.stages or wanted.pipeline * (2 if interleaved else 1)
    if interleaved and wanted.pipeline == 1:
        what = "'schedule: interleaved' needs a pipeline of two places or more"
        raise InputError(what, fix="write 'pipeline: 2', or leave 'schedule' out")
    if interleaved and (stages % wanted.pipeline or stages == wanted.pipeline):
        what = f"{stages} stages do not take turns on a pipeline of {wanted.pipeline}"
        fix = f"write a multiple of it, as 'stages: {2 * wanted.pipeline}'"
        raise InputError(what, fix=fix)
    if not interleaved and stages != wanted.pipeline:
        what = f"with 'schedule: 1f1b' a pipeline of {wanted.pipeline} has as many stages"
        raise InputError(f"{what}, not {stages}", fix="write 'schedule: interleaved'")
    return Division(
        pipeline=wanted.pipeline,
        fsdp=wanted.fsdp,
        tensor=wanted.tensor,
        stages=stages,
        interleaved=interleaved,
    )


def replicas_of(workers: int, division: Division) -> int:
    """How many replicas so many processes make; `InputError` when some would be left over."""
    count, rest = divmod(workers, division.places)
    if rest or not count:
        product = f"{division.pipeline} × {division.fsdp} × {division.tensor}"
        nearest = max(1, count) * division.places
        raise InputError(
            f"{workers} processes do not make whole replicas of {division.places} "
            f"(pipeline × fsdp × tensor = {product})",
            fix=f"write '--workers {nearest}', or another multiple of {division.places}",
        )
    return count


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the places of a replica find each other: sockets that were bound before the fork."""

    host: str
    relay: socket.socket
    store: socket.socket
    relay_port: int
    store_port: int


class Family:
    """The other places, as their lead sees them; empty on those."""

    def __init__(self, children: list[int]) -> None:
        self._threads = [
            threading.Thread(target=_watch, args=(pid,), name=f"place-{pid}", daemon=True)
            for pid in children
        ]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Until all of them have ended well; one that does not takes this process along."""
        for thread in self._threads:
            thread.join()


def spread(division: Division, host: str) -> tuple[Place, Meeting, Family]:
    """Become all places of a replica: returns in each of them. Only before there are threads."""
    relay, store = _bound(host), _bound(host)
    meeting = Meeting(host, relay, store, relay.getsockname()[1], store.getsockname()[1])
    lead, children = os.getpid(), list[int]()
    for index in range(1, division.places):
        pid = os.fork()
        if not pid:
            _end_with(lead)
            return _settled(Place(division, index)), meeting, Family([])
        children.append(pid)
    return _settled(Place(division, 0)), meeting, Family(children)


def own_device(visible: str, place: Place) -> str:
    """What a place sees of its worker's devices: its own where there is one for each, else all."""
    devices = visible.split(",")
    return devices[place.index] if len(devices) == place.division.places else visible


def _settled(place: Place) -> Place:
    """Have the libraries that will look for devices in this process find its own."""
    for name in VISIBLE_DEVICES:
        if name in os.environ:
            os.environ[name] = own_device(os.environ[name], place)
    return place


def _bound(host: str) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, 0))
    found.listen()
    return found


def _end_with(lead: int) -> None:
    """Have the system kill this process when its lead is gone, even while it is stopped."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != lead:
        os._exit(1)


def _watch(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    if status:
        # A replica that has lost a process can compute nothing any more.
        os._exit(1)
