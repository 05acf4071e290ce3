"""A real yard for `fidelity.py`: what its starts, stops and resizes cost, and jobs run on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from fidelity_jobs import Piece
from modelyard.control.client import Client
from modelyard.control.leading import PACE
from modelyard.control.workload import step_times
from modelyard.errors import YardError

CLUSTER, ROUND = "1x4", "2s"
#: Longer than this nothing takes here, on however slow a machine.
PATIENCE_SECONDS = 600.0
#: commands of one second, one after another, of which the costs are medians
CALIBRATED = 6
#: steps at each size of the training job whose sizes are timed
TIMED_STEPS = 12
#: and of training jobs beside it that are started, stopped, and started again
SHORT_TRAININGS = 2

#: where no job trains
NO_TRAINING: dict[str, Any] = {
    "training_start": 0.0,
    "training_end": 0.0,
    "training_stop": 0.0,
    "grow": 0.0,
    "shrink": 0.0,
    "step_seconds": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a yard on this machine adds to the work of jobs, in seconds."""

    #: from a submission to the decision that places the job, where there is room
    reaction: float
    #: of a command: from its placement to its first line, and from its last one to its end
    command_start: float
    command_end: float
    #: from a wish to stop it until its devices are free
    command_stop: float
    #: of a training job: from its placement to its first step, and from its last one to its end
    training_start: float
    training_end: float
    training_stop: float
    #: steps that a change of size costs, as time at the new size
    grow: float
    shrink: float
    #: of a step, by the number of workers
    step_seconds: dict[int, float]


@dataclass(frozen=True, slots=True)
class Lived:
    """One job as it was."""

    piece: Piece
    submitted: float
    first_start: float
    ended: float
    attempts: int

    @property
    def jct(self) -> float:
        return self.ended - self.submitted


@dataclass
class RealYard:
    """A server in a process of its own; everything is gone when it is left."""

    #: where scripts of jobs and tenants are
    folder: Path
    policy: str
    name: str = ""
    process: subprocess.Popen[bytes] | None = None
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.folder / (self.name or self.policy.partition(":")[0])
        self.jobs = self.state / "jobs"
        self.recording = self.state / "decisions.jsonl"
        self.client = Client(folder=self.state, patience_seconds=60.0)

    def __enter__(self) -> Self:
        self.jobs.mkdir(parents=True)
        words = ["up", "--foreground", "--folder", str(self.state), "--cluster", CLUSTER]
        words += ["--round", ROUND, "--policy", self.policy, "--record", str(self.recording)]
        words += ["--tenants", str(self.folder / "tenants.yaml")]
        with (self.state / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "modelyard", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._until(self._leads, "the yard does not lead")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            for job in self.client.jobs()["jobs"]:
                self.client.cancel(job["id"])
            self._until(lambda: not self.client.jobs()["jobs"], "jobs do not end")
        self.process.terminate()
        self.process.wait()

    def _rest(self) -> None:
        """Soon after a decision there is no other one: let the next news be decided on at once."""
        time.sleep(2 * PACE.decide_after_news)

    def submit(self, piece: Piece) -> None:
        text = piece.text(self.jobs)
        self.client.submit_text(text, folder=str(self.folder), id=piece.id)

    def run(self, pieces: Sequence[Piece]) -> list[Lived]:
        """Submit every job when it is due, and wait for all of them."""
        self._rest()
        began = time.monotonic()
        for piece in pieces:
            time.sleep(max(began + piece.submitted - time.monotonic(), 0.0))
            self.submit(piece)
        return [self.ended(piece) for piece in pieces]

    def ended(self, piece: Piece) -> Lived:
        found = self.client.wait(piece.id, seconds=PATIENCE_SECONDS)
        if found["state"] != "succeeded":
            said = self.client.log(piece.id)[0].decode(errors="replace")
            raise SystemExit(f"job {piece.id} {found['state']}: {found['detail']}\n{said[-2000:]}")
        return Lived(
            piece, found["submitted"], found["first_start"], found["ended"], found["attempt"]
        )

    # What things cost.

    def calibrate(self, *, training: bool = True) -> Costs:
        """Some commands and one training job on an empty yard that grows jobs when it can."""
        commands = [self._command(number) for number in range(CALIBRATED)]
        trained = self._training() if training else NO_TRAINING
        return Costs(
            reaction=median(one[0] for one in commands),
            command_start=median(one[1] for one in commands),
            command_end=median(one[2] for one in commands),
            command_stop=median(self._stop(number) for number in range(CALIBRATED // 2)),
            **trained,
        )

    def _command(self, number: int) -> tuple[float, float, float]:
        """Reaction, start and end of a command."""
        piece = _calibrating(number, seconds=1.0)
        self._rest()
        self.submit(piece)
        lived = self.ended(piece)
        times = dict(
            line.split() for line in (self.jobs / f"{piece.id}.times").read_text().splitlines()
        )
        return (
            lived.first_start - lived.submitted,
            float(times["start"]) - lived.first_start,
            lived.ended - float(times["end"]),
        )

    def _stop(self, number: int) -> float:
        piece = _calibrating(100 + number, seconds=600.0)
        self.submit(piece)
        self._until(lambda: (self.jobs / f"{piece.id}.times").exists(), "a command does not start")
        seconds = self._paused(piece)
        self.client.cancel(piece.id)
        return seconds

    def _paused(self, piece: Piece) -> float:
        """How long a job takes to stop."""
        self.client.pause(piece.id)
        self._until(lambda: self.client.job(piece.id)["state"] == "paused", "it does not stop")
        events = self.client.events(piece.id)
        asked = next(one["at"] for one in events if one["state"] == "stopping")
        return float(events[-1]["at"]) - float(asked)

    def _training(self) -> dict[str, Any]:
        """One training job on two devices, then on one, then on two again."""
        piece = _calibrating(200, steps=4 * TIMED_STEPS, most=2)
        self.submit(piece)
        self._until_steps(piece, TIMED_STEPS)
        self.client.scale(piece.id, max_devices=1)
        self._until_steps(piece, 2 * TIMED_STEPS)
        self.client.scale(piece.id, max_devices=2)
        lived = self.ended(piece)
        commits = self._commits(piece)
        times = step_times(self.state / "runs" / piece.id / "journal.jsonl")
        resized = [one["at"] for one in self.client.events(piece.id) if "resized" in one["what"]]
        if len(resized) < 2:
            raise SystemExit("the training job was not given its second worker back")
        shrink, grow = resized[0], resized[-1]
        starts, ends = [commits[0] - times[2] - lived.first_start], [lived.ended - commits[-1]]
        stops = []
        for number in range(SHORT_TRAININGS):
            start, end, stop = self._short_training(201 + number, times[2])
            starts.append(start)
            ends.append(end)
            stops.append(stop)
        return {
            "training_start": median(starts),
            "training_end": median(ends),
            "training_stop": median(stops),
            "shrink": _lost(commits, shrink, grow, times[1]),
            "grow": _lost(commits, grow, commits[-1], times[2]),
            "step_seconds": times,
        }

    def _short_training(self, number: int, step_seconds: float) -> tuple[float, float, float]:
        """Start and end of a short training job, and in between its stop."""
        piece = _calibrating(number, steps=8, most=2)
        self.submit(piece)
        self._until_steps(piece, 3)
        stop = self._paused(piece)
        self.client.resume(piece.id)
        lived, commits = self.ended(piece), self._commits(piece)
        return commits[0] - step_seconds - lived.first_start, lived.ended - commits[-1], stop

    def _commits(self, piece: Piece) -> list[float]:
        """When each step was committed."""
        path = self.state / "runs" / piece.id / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = (json.loads(line) for line in lines)
        return [one["at"] for one in found if one["kind"] == "commit"]

    def _until_steps(self, piece: Piece, steps: int) -> None:
        self._until(lambda: len(self._commits(piece)) >= steps, f"{steps} steps are not reached")

    def _leads(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise SystemExit((self.state / "server.log").read_text()[-2_000:])
        try:
            return bool(Client(folder=self.state, patience_seconds=0.0).status()["leads"])
        except YardError:
            return False

    def _until(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if time.monotonic() > until:
                raise SystemExit(f"{what}\n{(self.state / 'server.log').read_text()[-2_000:]}")
            time.sleep(0.02)


def _calibrating(number: int, *, seconds: float = 0.0, steps: int = 0, most: int = 1) -> Piece:
    return Piece(
        id=f"ca11b{number:03x}",
        submitted=0.0,
        tenant="vision",
        priority=0,
        min_devices=1,
        max_devices=most,
        seconds=seconds,
        steps=steps,
    )


def _lost(commits: Sequence[float], since: float, until: float, step_seconds: float) -> float:
    """Time between two moments in which no step at the new size was made."""
    within = [at for at in commits if since < at <= until]
    return within[-1] - since - len(within) * step_seconds if within else 0.0
