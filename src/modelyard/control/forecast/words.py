"""What is foreseen of jobs, in words: when they start and end, what they cost, whom they delay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from modelyard.control.forecast.basis import IN_WORDS, Basis
from modelyard.units import counted, format_duration

#: A start within this time is called now: the next decision brings it.
NOW_SECONDS = 2.0
#: Of those who are delayed, so many are named.
NAMES_SHOWN = 3


def plan_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The plan of a job that is not submitted yet."""
    yield f"{found['name']} of tenant {found['tenant']}: {where_words(found)}"
    for verb, words in outlook_words(found):
        yield f"  {verb:<6}  {words}"


def outlook_words(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a job that is not submitted yet would do, as a verb and the rest of the sentence."""
    yield "starts", _start(found)
    yield "ends", _end(found)
    if found["device_hours"] is not None:
        price = f", ${found['usd']:,.2f}" if found["usd"] is not None else ""
        yield "costs", f"{found['device_hours']:.3g} device-hours{price}"
    if delays := _delays(found):
        yield "delays", delays


def moment_words(moment: Mapping[str, Any] | None, now: float) -> str:
    """A time that is foreseen: `in 3m (80 %: 2m to 5m)`."""
    if moment is None:
        return ""
    if moment["at"] - now < NOW_SECONDS and (moment["high"] or 0.0) - now < NOW_SECONDS:
        return "now"
    said = f"in {format_duration(max(moment['at'] - now, 0.0))}"
    if moment["low"] is None:
        return said
    low = format_duration(max(moment["low"] - now, 0.0))
    if moment["high"] is None:
        return f"{said} (90 %: not before {low})"
    high = format_duration(max(moment["high"] - now, 0.0))
    return said if low == high else f"{said} (80 %: {low} to {high})"


def short_moment(moment: Mapping[str, Any] | None, now: float) -> str:
    """The same in a table: the time alone."""
    if moment is None:
        return ""
    return f"in {format_duration(moment['at'] - now)}" if moment["at"] > now else "now"


def where_words(found: Mapping[str, Any]) -> str:
    """Devices that it would get, or asks for."""
    if found["nodes"]:
        return ", ".join(f"{counted(count, 'device')} of {node}" for node, count in found["nodes"])
    low, high = found["min_devices"], found["max_devices"]
    return counted(low, "device") if low == high else f"{low} to {high} devices"


def _start(found: Mapping[str, Any]) -> str:
    verb = "waits" if found["waiting"] == 1 else "wait"
    waiting = f"; {counted(found['waiting'], 'job')} {verb} already" if found["waiting"] else ""
    if found["beyond"]:
        return f"nobody can say when{waiting}"
    if found["hangs"]:
        what = "it waits for jobs of which nobody knows how long they take"
        return f"nobody can say when: {what}{waiting}"
    if found["start"] is None:
        return f"not as things stand: 'yard why' says more once it is submitted{waiting}"
    return moment_words(found["start"], found["at"]) + waiting


def _end(found: Mapping[str, Any]) -> str:
    if found["basis"] == Basis.UNKNOWN:
        return "nobody can say: its file has no 'duration', and none like it has succeeded here"
    if found["end"] is None:
        return "nobody can say when"
    return f"{moment_words(found['end'], found['at'])}, {IN_WORDS[found['basis']]}"


def _delays(found: Mapping[str, Any]) -> str:
    named = [
        f"{one['job']} by {format_duration(one['seconds'])}"
        for one in found["delays"][:NAMES_SHOWN]
    ]
    if found["delayed"] > len(named):
        named.append(f"{found['delayed'] - len(named):,} more")
    if found["delayed_others"]:
        named.append(f"{counted(found['delayed_others'], 'job')} of other tenants")
    return ", ".join(named)
