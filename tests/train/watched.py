"""A toy job that trains on and on, watched by a process that a test may kill."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from tests.train.toy import BATCH, Toy

from modelyard.train.conductor.progress import Settings
from modelyard.train.supervisor import Supervisor


def main(folder: Path) -> None:
    supervisor = Supervisor(
        folder,
        Settings(batch=BATCH, steps=1_000_000, most=2),
        workers=2,
        entry="tests.train.toy:work",
        argument=lambda address, worker: msgspec.json.encode(
            Toy(address, worker, str(folder))
        ).decode(),
    )
    with supervisor:
        for _ in supervisor.run():
            pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
