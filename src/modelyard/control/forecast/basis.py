"""On what it rests how long a job takes: a closed vocabulary, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Basis(StrEnum):
    """On what it rests how long a job takes, the best first."""

    #: its file has the number of steps, and its own steps were timed
    MEASURED = "measured"
    #: its file has the number of steps, and the planner foresaw how long each takes
    PLANNED = "planned"
    #: its file has a duration
    SAID = "said"
    #: one or more jobs of its model and size have succeeded here
    ALIKE = "alike"
    #: nothing: others wait for it as if it took an hour, or as long again as it has run, and nobody
    #: is told when it ends
    UNKNOWN = "unknown"


#: The same behind a time that is foreseen; behind what is not known nobody says one.
IN_WORDS: Mapping[str, str] = {
    Basis.MEASURED: "by its steps and their measured speed",
    Basis.PLANNED: "by its steps and the speed that the planner foresees",
    Basis.SAID: "as its file says",
    Basis.ALIKE: "as jobs like it took",
}
