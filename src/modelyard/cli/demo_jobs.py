"""The jobs of `yard demo`: who wants what, and how long each is on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import Enum

#: A device slot for each of two cores: what the smallest machine of today has.
CLUSTER = "1x2"
SLOTS = 2
ROUND = "1s"
DATA_FOLDER, TENANTS_FILE = "data", "tenants.yaml"
SEQUENCE, BATCH, MICRO_BATCH = 64, 16, 4

#: Two teams; blue may have one device at a time, so that it cannot crowd red out.
TENANTS = """\
tenants:
  - name: red
  - name: blue
    maximum: 1
"""

#: A run should be long enough to be resized, and end on a machine of any speed.
FEWEST_STEPS, MOST_STEPS = 20, 20_000


class Shape(Enum):
    """Models of two sizes, both small: a step of the larger one takes a tenth of a second."""

    SMALL = "{layers: 2, hidden: 96, heads: 4, longest: 64}"
    LARGE = "{layers: 4, hidden: 128, heads: 4, longest: 64}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One job of the demo."""

    name: str
    tenant: str
    #: who submits it
    user: str
    least: int = 1
    most: int = 1
    priority: int = 0
    #: a language model of this shape, or else a command
    shape: Shape | None = None
    #: seconds that one device takes for all of its steps
    work_seconds: float = 0.0

    @property
    def devices(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least}–{self.most}"

    def steps(self, step_seconds: float) -> int:
        """As many as keep one device busy for its time."""
        return min(max(round(self.work_seconds / step_seconds), FEWEST_STEPS), MOST_STEPS)


#: A long job comes first and takes all there is; four that could be over soon come later.
NOVEL = Piece(name="novel", tenant="red", user="ann", most=2, shape=Shape.LARGE, work_seconds=90.0)
HAIKU = Piece(name="haiku", tenant="blue", user="bob", shape=Shape.SMALL, work_seconds=8.0)
COUPLET = Piece(name="couplet", tenant="blue", user="bob", shape=Shape.SMALL, work_seconds=6.0)
URGENT = Piece(
    name="urgent",
    tenant="red",
    user="ann",
    least=2,
    most=2,
    priority=10,
    shape=Shape.LARGE,
    work_seconds=10.0,
)
BASELINE = Piece(name="baseline", tenant="blue", user="bob")
PIECES = (NOVEL, HAIKU, COUPLET, URGENT, BASELINE)

#: The command: what the loss of the language models should be compared with.
SCRIPT_FILE, TEXT_FILE = "ngrams.py", "text.txt"
SCRIPT = """\
# The loss of counting: how well the last few bytes predict the next one, in nats per byte.
import collections, math

text = open("text.txt", "rb").read()
kept = len(text) * 99 // 100
share = [1 / 256] * len(text)
for order in range(12):
    seen = collections.Counter(text[at : at + order + 1] for at in range(kept))
    before = collections.Counter(text[at : at + order] for at in range(kept))
    # Each order mixes what it has counted with the word of the order below.
    for at in range(kept, len(text)):
        context = text[at - order : at]
        found = seen[context + text[at : at + 1]] + 2 * share[at]
        share[at] = found / (before[context] + 2)
    loss = sum(-math.log(share[at]) for at in range(kept, len(text))) / (len(text) - kept)
    print(f"{order} bytes of context: loss {loss:.4f}", flush=True)
"""


def job_text(piece: Piece, steps: int) -> str:
    """The job file of a piece."""
    devices = f"{{min: {piece.least}, max: {piece.most}}}"
    lines = [f"name: {piece.name}", f"tenant: {piece.tenant}", f"devices: {devices}"]
    if piece.priority:
        lines.append(f"priority: {piece.priority}")
    if piece.shape is None:
        return "\n".join((*lines, f"command: [{json.dumps(sys.executable)}, {SCRIPT_FILE}]", ""))
    lines += [
        "model: gpt",
        f"batch: {BATCH}",
        f"steps: {steps}",
        "train:",
        f"  data: {DATA_FOLDER}",
        f"  sequence: {SEQUENCE}",
        f"  micro_batch: {MICRO_BATCH}",
        f"  model_options: {piece.shape.value}",
        f"  optimizer: {{learning_rate: 2.0e-3, warmup: {min(10, steps // 2)}}}",
        "  checkpoints: {every: 200, keep: 2}",
        "",
    ]
    return "\n".join(lines)
