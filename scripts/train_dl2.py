"""Train the dl2 weights that come with the package, from nothing.

    python scripts/train_dl2.py [--out FOLDER] [--resume] [--install]

Minutes on one core; the same numbers every time on the same versions. `--install` puts the weights
where the package looks for them and the picture where docs/concepts/dl2.md shows it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from modelyard.learn import course, stored
from modelyard.learn.plan import Plan

REPOSITORY = Path(__file__).resolve().parents[1]
WEIGHTS = REPOSITORY / "src" / "modelyard" / "learn" / stored.SHIPPED
PICTURE = REPOSITORY / "docs" / "pictures" / "dl2-curve.svg"


def tell(stage: str, share: float) -> None:
    """One line that is written over, so that a log of it stays short."""
    sys.stderr.write(f"\r{stage}: {share:4.0%} ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/dl2"), help="folder of the training")
    parser.add_argument("--resume", action="store_true", help="go on after an interruption")
    parser.add_argument("--install", action="store_true", help="replace what is shipped")
    chosen = parser.parse_args()
    began, spent = time.perf_counter(), time.process_time()
    if chosen.resume:
        done = course.resume(chosen.out, tell=tell)
    else:
        done = course.begin(Plan(), chosen.out, tell=tell)
    took, cpu = time.perf_counter() - began, time.process_time() - spent
    sys.stderr.write("\n")
    others = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in done.yardsticks.items())
    sys.stdout.write(
        f"dl2 {done.seconds:,.0f} s, {others} (mean JCT of the workloads that chose the weights)\n"
        f"{done.plan.rounds} rounds in {took:,.0f} s, {cpu:,.0f} s of CPU\n"
    )
    if chosen.install:
        shutil.copyfile(chosen.out / course.WEIGHTS_NAME, WEIGHTS)
        shutil.copyfile(chosen.out / course.PICTURE_NAME, PICTURE)
        sys.stdout.write(f"installed {WEIGHTS} and {PICTURE}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
