"""What a worker of a job that was written as a file is told when it is started."""

from __future__ import annotations

from pathlib import Path

import msgspec

#: In the environment of a script that is a worker: a `Post` as JSON.
POST_VARIABLE = "MODELYARD_POST"


class Post(msgspec.Struct, frozen=True):
    """Its job's file, its name, and where the conductor is."""

    job: str
    worker: str
    address: str
    beat_seconds: float
    threads: int
    steps: int
    #: where checkpoints go when the job does not say
    checkpoints: str
    #: from where paths in the job are meant; the folder of its file when empty
    folder: str = ""

    @property
    def base(self) -> Path:
        return Path(self.folder) if self.folder else Path(self.job).parent
