"""Every way to train together on the same text: the loss that a small GPT ends at.

    python benchmarks/aggregations.py [--steps 150] [--workers 2] [--write] [--quick]

Each way trains the model of `examples/train.yaml`, made smaller, on `examples/sonnets.txt` by bytes
with `yard train`, from the same first weights and with as many samples. Learning rates were set
by hand and not searched, and the aims after a first run, a little above what it gave: the figures
say that each way learns, not which is best.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import yaml

from modelyard.train.conductor.journal import CommitLine, JournalReader
from promises import Promise, listed, told
from table import Table, write_section

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "concepts" / "aggregation.md"
#: the mean over the last of these steps is what a way ends at
LAST_STEPS = 20


@dataclass(frozen=True, slots=True)
class Way:
    """One aggregation, and the loss that it has to end below after 150 steps."""

    text: str
    name: str
    options: dict[str, object]
    rate: float = 3e-3
    below: float = 3.0


WAYS = (
    Way("all-reduce", "all-reduce", {}, below=2.7),
    Way("all-reduce, fp16", "all-reduce", {"compress": "fp16"}, below=2.7),
    Way("all-reduce, int8", "all-reduce", {"compress": "int8"}, below=2.7),
    Way("all-reduce, PowerSGD of rank 4", "all-reduce", {"compress": "power-sgd"}, below=3.3),
    Way(
        "all-reduce, top 5 %",
        "all-reduce",
        {"compress": {"name": "top-k", "share": 0.05}},
        below=3.3,
    ),
    Way("all-reduce, one bit", "all-reduce", {"compress": "one-bit"}, below=3.3),
    Way("servers", "servers", {}, below=2.7),
    Way("local SGD, 4 updates a round", "local-sgd", {"updates": 4}, below=2.7),
    Way("DiLoCo, 4 updates a round", "diloco", {"updates": 4}, rate=1e-3, below=3.3),
    Way("decentralised, exponential graph", "decentralised", {}, below=2.7),
    Way("servers, asynchronous", "servers-async", {}, rate=2e-2, below=3.3),
    Way("servers, staleness 3", "servers-stale", {}, rate=2e-2, below=3.3),
    Way("Downpour, 2 and 2", "downpour", {"fetch": 2, "push": 2}, rate=2e-2, below=3.4),
)


def losses(way: Way, folder: Path, steps: int, workers: int) -> list[float]:
    """Of all steps, from the journal."""
    job = yaml.safe_load((REPOSITORY / "examples" / "train.yaml").read_text(encoding="utf-8"))
    name = f"way-{WAYS.index(way)}"
    job.update({"name": name, "steps": steps})
    job["train"].update(
        {
            "sequence": 64,
            "micro_batch": 8,
            "model_options": {"layers": 2, "hidden": 64, "heads": 4, "longest": 64},
            "optimizer": {"learning_rate": way.rate, "warmup": 10},
            "aggregate": {"name": way.name, "options": way.options},
        }
    )
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    yard("train", str(path), "--workers", str(workers), "--threads", "1", "-o", "json")
    lines = JournalReader(folder / f"{name}-run" / "journal.jsonl").new()
    return [line.loss for line in lines if isinstance(line, CommitLine) and line.loss is not None]


def yard(*words: str) -> None:
    """Run a command; its own message says what went wrong."""
    command = [sys.executable, "-m", "modelyard", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Print the table; 1 when a way does not learn as it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="some ways and steps, to see it work")
    parser.add_argument("--write", action="store_true", help="update docs/concepts/aggregation.md")
    chosen = parser.parse_args()
    ways, steps = (WAYS[::6], 12) if chosen.quick else (WAYS, chosen.steps)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = Table(
        f"Loss (nats per byte) of a small GPT after {steps} steps or rounds of 16 samples, "
        f"{chosen.workers} workers",
        {"way": 34, "first 5": 8, f"last {LAST_STEPS}": 8, "aim": 6},
        words=("way",),
    )
    table.begin()
    promises = []
    with tempfile.TemporaryDirectory() as scratch:
        text = REPOSITORY / "examples" / "sonnets.txt"
        yard("data", "prepare", str(text), "--out", f"{scratch}/data", "--tokenizer", "bytes")
        for way in ways:
            found = losses(way, Path(scratch), steps, chosen.workers)
            last = fmean(found[-LAST_STEPS:])
            table.add(way.text, f"{fmean(found[:5]):.3f}", f"{last:.3f}", f"{way.below:.1f}")
            promises.append(Promise(f"{way.text} ends below {way.below:.1f}", last < way.below))
    kept = told(promises)
    if chosen.write:
        write_section("aggregations", [table.markdown(), listed(promises)], PAGE)
    return 0 if kept or chosen.quick else 1


if __name__ == "__main__":
    raise SystemExit(main())
