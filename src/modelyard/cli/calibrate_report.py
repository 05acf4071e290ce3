"""What `yard calibrate` prints: the rates it found, and how well they predict."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import counted, print_table, some_of
from modelyard.units import format_bandwidth, format_bytes, format_duration, format_flops

if TYPE_CHECKING:
    from modelyard.measure.calibration import Calibration, Errors
    from modelyard.measure.calibration_fit import Check
    from modelyard.measure.refine import Refined
    from modelyard.measure.survey import Survey

#: When others had more of the cores than this, the figures are worse than the machine is.
BUSY_SHARE = 0.05
#: A fit that is worse by less than this is as good: medians of few runs vary by more.
WORSE = 0.02
MEASURE_MORE = (
    "measure again in full, without --quick and on a quiet machine, or plan without --calibration"
)
GIVE_MORE = "give more runs, or go on without --runs"
NUMBERS = ("step", "before", "after", "peak memory", "before ", "after ")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A calibration with what it was made from; nothing of that when it was read from a file."""

    calibration: Calibration
    survey: Survey | None = None
    times: Check | None = None
    peaks: Check | None = None

    def with_calibration(self, calibration: Calibration) -> Outcome:
        return replace(self, calibration=calibration)


def print_report(outcome: Outcome, known: Refined | None, out: Path) -> None:
    """Rates, runs, errors before and after, and the next command."""
    if outcome.survey is not None:
        _print_rates(outcome.calibration, outcome.survey)
    if outcome.times is not None and outcome.peaks is not None:
        _print_runs(outcome.times, outcome.peaks)
    if outcome.survey is not None and outcome.survey.waited_share > BUSY_SHARE:
        share = f"{outcome.survey.waited_share:.0%}"
        click.echo(
            f"\nOther programs had the cores {share} of the time. That was left out where it could "
            "be;\nmeasure again on a quiet machine to be sure."
        )
    if known is not None:
        _print_refined(known)
    for warning in warnings_of(outcome.calibration, known):
        click.echo(f"\nwarning: {warning}")
    click.echo(f"\nWritten: {out}")
    click.echo(f"Next:    {next_command(outcome.calibration, out)}")


def as_json(outcome: Outcome, known: Refined | None, out: Path) -> dict[str, Any]:
    """The outcome for programs."""
    calibration = outcome.calibration
    machine = calibration.platform
    return {
        "file": str(out),
        "hardware": calibration.hardware,
        "torch": calibration.torch,
        "device": calibration.device.name,
        "processes": machine.devices,
        "threads": calibration.threads,
        "matmul_flops": {str(name): rate for name, rate in calibration.device.matmul_flops},
        "memory_bandwidth": calibration.device.memory_bandwidth,
        "link_bandwidth": machine.inside_bandwidth,
        "link_latency": machine.inside_latency,
        "waited_share": outcome.survey.waited_share if outcome.survey else None,
        "time_errors": _errors(calibration.time_errors),
        "memory_errors": _errors(calibration.memory_errors),
        "runs": _runs(outcome),
        "refined": None
        if known is None
        else {
            "runs": known.runs,
            "time_errors": _errors(known.times),
            "memory_errors": _errors(known.peaks),
            "skipped": [asdict(one) for one in known.skipped],
        },
        "warnings": warnings_of(calibration, known),
        "next": next_command(calibration, out),
    }


def warnings_of(calibration: Calibration, known: Refined | None) -> list[str]:
    """Where the fit predicts runs that it has not seen worse than the factors it began with."""
    checked = [
        ("step times", calibration.time_errors, MEASURE_MORE),
        ("peak memory", calibration.memory_errors, MEASURE_MORE),
    ]
    if known is not None:
        checked += [
            ("step times of your runs", known.times, GIVE_MORE),
            ("peak memory of your runs", known.peaks, GIVE_MORE),
        ]
    return [
        f"the fit makes {what} worse on runs that it has not seen: off by {errors.before:.1%} "
        f"before, {errors.after:.1%} after (median); {remedy}"
        for what, errors, remedy in checked
        if errors is not None and errors.after > errors.before + WORSE
    ]


def next_command(calibration: Calibration, out: Path) -> str:
    """A plan on this machine."""
    devices = f"{calibration.platform.devices}x{calibration.device.name}"
    words = ("yard", "plan", "gpt2", "--devices", devices, "--calibration", str(out))
    return shlex.join(words)


def _print_rates(calibration: Calibration, survey: Survey) -> None:
    machine = survey.machine
    processes = "1 process" if machine.processes == 1 else f"{machine.processes} processes"
    threads = counted(machine.threads, "thread")
    click.echo(f"{calibration.hardware}: {processes} of {threads}, torch {calibration.torch}\n")
    rows = [
        (f"matrix products, {name}", format_flops(rate))
        for name, rate in calibration.device.matmul_flops
    ]
    together = "" if machine.processes == 1 else ", all processes at once"
    rows.append((f"memory{together}", format_bandwidth(calibration.device.memory_bandwidth or 0.0)))
    if survey.exchanges:
        link = calibration.platform
        latency = format_duration(link.inside_latency)
        rows.append(("link", f"{format_bandwidth(link.inside_bandwidth)}, {latency} a message"))
    for block in survey.blocks:
        shape = block.shape
        name = f"{shape.kind} block, {shape.hidden} wide, {shape.micro_batch}×{shape.sequence}"
        forward, backward = block.forward.seconds, block.backward.seconds
        rows.append(
            (name, f"{format_duration(forward)} forward, {format_duration(backward)} backward")
        )
    print_table(("what", "measured"), rows)


def _print_runs(times: Check, peaks: Check) -> None:
    click.echo("")
    rows = [
        (
            str(run),
            format_duration(float(times.measured[place])),
            _off(times.before[place] / times.measured[place]),
            _off(times.after[place] / times.measured[place]),
            format_bytes(float(peaks.measured[place]), binary=True),
            _off(peaks.before[place] / peaks.measured[place]),
            _off(peaks.after[place] / peaks.measured[place]),
        )
        for place, run in enumerate(times.runs)
    ]
    print_table(("training run", *NUMBERS), rows, numbers=NUMBERS)
    click.echo(
        "\nBefore: the factors that come with Modelyard, at the rates above. After: fitted to the\n"
        "other runs of this machine, so that no run is predicted from itself."
    )
    click.echo(
        f"Median error: step time {times.error_before:.1%} before, {times.error_after:.1%} after; "
        f"peak memory {peaks.error_before:.1%} before, {peaks.error_after:.1%} after."
    )


def _print_refined(known: Refined) -> None:
    text = (
        f"\nYour {counted(known.runs, 'run')}: step time off by {known.times.before:.1%} before, "
        f"{known.times.after:.1%} after"
    )
    if known.peaks is not None:
        text += f"; peak memory {known.peaks.before:.1%} before, {known.peaks.after:.1%} after"
    click.echo(f"{text} (median, each predicted from the others).")
    if known.skipped:
        reasons = (f"{one.id} ({one.reason})" for one in known.skipped)
        click.echo(f"Not used: {some_of(reasons)}")


def _runs(outcome: Outcome) -> list[dict[str, Any]]:
    times, peaks = outcome.times, outcome.peaks
    if times is None or peaks is None:
        return []
    return [
        {
            "run": {**asdict(run), "kind": str(run.kind)},
            "step_seconds": float(times.measured[place]),
            "step_seconds_before": float(times.before[place]),
            "step_seconds_after": float(times.after[place]),
            "peak_bytes": float(peaks.measured[place]),
            "peak_bytes_before": float(peaks.before[place]),
            "peak_bytes_after": float(peaks.after[place]),
        }
        for place, run in enumerate(times.runs)
    ]


def _errors(errors: Errors | None) -> dict[str, float] | None:
    return None if errors is None else asdict(errors)


def _off(ratio: float) -> str:
    return f"{ratio - 1.0:+.0%}"
