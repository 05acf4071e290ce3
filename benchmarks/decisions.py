"""How long one decision of each policy takes, from 64 to 10,000 devices with as many jobs.

    python benchmarks/decisions.py [--only POLICY] [--quick] [--write]

The state is that of a busy cluster: the older half of the jobs runs, the others wait. Sizes are
mixed; half of the jobs are elastic where the policy resizes. The largest of the repetitions is
mostly the first, in which speed models compute what they keep for the next.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from dataclasses import dataclass

from measure import Task, report, run_each
from modelyard.schedule.registry import policies, policy
from moments import moment
from table import Table, write_section

SIZES = (64, 512, 2_048, 10_000)
QUICK_SIZES = (16, 64)
#: The size for which there are aims.
AIM_DEVICES = 2_048
AIM_SECONDS = 0.05
#: Sia's aim is the time of the paper; the others that search or solve have none yet.
OTHER_AIMS = {
    "sia": 1.0,
    "yard": 1.0,
    "dl2": None,
    "gavel": None,
    "gavel-throughput": None,
    "optimus": None,
    "pollux": None,
}

REPETITIONS = 7
#: Repetitions end when a policy has used this much, but there are always two.
BUDGET_SECONDS = 10.0
#: A decision that would take longer by extrapolation is left out.
LONGEST_SECONDS = 60.0
#: Growth assumed from the smallest size to the next.
FIRST_EXPONENT = 2.0

PUBLISHED = (
    "Published for comparison: Sia 96 ms on 64 devices and about 1 s on 2,048; Pollux 2.2 s on 64 "
    "and minutes on 2,048."
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one decision; of a size that was left out, only the estimate is known."""

    median_seconds: float
    longest_seconds: float
    left_out: bool = False

    def __str__(self) -> str:
        if self.left_out:
            return f"left out (≈ {self.median_seconds:,.0f} s)"
        return f"{_milliseconds(self.median_seconds)} ({_milliseconds(self.longest_seconds)})"


def time_policy(name: str, sizes: tuple[int, ...], repetitions: int) -> dict[int, Timing]:
    """All sizes of one policy, the smallest first."""
    timings: dict[int, Timing] = {}
    for done, devices in enumerate(sizes):
        estimate = _estimate(timings, devices)
        if estimate > LONGEST_SECONDS:
            timings[devices] = Timing(estimate, estimate, left_out=True)
            break
        timings[devices] = _time(name, devices, repetitions)
        report((done + 1) / len(sizes))
    return timings


def _time(name: str, devices: int, repetitions: int) -> Timing:
    made = policy(name)
    view = moment(devices, elastic=made.traits.elastic, oracle=made.traits.oracle)
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < repetitions and sum(seconds) < BUDGET_SECONDS):
        gc.collect()
        began = time.process_time()
        made.decide(view)
        seconds.append(time.process_time() - began)
    return Timing(statistics.median(seconds), max(seconds))


def _estimate(timings: dict[int, Timing], devices: int) -> float:
    """Seconds by the growth between the last two sizes; 0 when nothing was measured yet."""
    if not timings:
        return 0.0
    *earlier, last = timings
    exponent = FIRST_EXPONENT
    if earlier:
        ratio = timings[last].median_seconds / max(timings[earlier[-1]].median_seconds, 1e-9)
        exponent = math.log(max(ratio, 1.0)) / math.log(last / earlier[-1])
    return timings[last].median_seconds * math.pow(devices / last, exponent)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _verdict(name: str, timings: dict[int, Timing]) -> tuple[str, str]:
    """The aim and whether it was met."""
    aim = OTHER_AIMS.get(name, AIM_SECONDS)
    timing = timings.get(AIM_DEVICES)
    if aim is None:
        return "none", ""
    if timing is None:
        return f"{_milliseconds(aim)} ms", "not measured"
    met = not timing.left_out and timing.median_seconds <= aim
    return f"{_milliseconds(aim)} ms", "ok" if met else "MISS"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(policies()), help="one policy instead of all")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    sizes = QUICK_SIZES if chosen.quick else SIZES
    repetitions = 2 if chosen.quick else REPETITIONS
    names = [chosen.only] if chosen.only else list(policies())
    headings = [f"{devices:,} devices" for devices in sizes]
    table = Table(
        "One decision: CPU milliseconds, median (longest)",
        {"policy": 16} | dict.fromkeys(headings, 22) | {"aim": 9, "": 4},
        words=("policy", ""),
    )
    table.begin()
    tasks = [Task(name, time_policy, (name, sizes, repetitions)) for name in names]
    # One at a time: two would slow each other down.
    for place, timings in run_each(tasks, workers=1):
        cells = [str(timings.get(devices, "left out")) for devices in sizes]
        table.add(names[place], *cells, *_verdict(names[place], timings))
    print(f"\nThe aim is for {AIM_DEVICES:,} devices. {PUBLISHED}")
    if chosen.write:
        write_section("decisions", [table.markdown(), PUBLISHED])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
