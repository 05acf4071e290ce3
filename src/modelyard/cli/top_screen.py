"""A yard on one screen. Everything reads without colour: a job is a letter wherever it is."""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelyard.cli.top_feed import Found, Pace, Snapshot
from modelyard.units import format_duration

LETTERS = string.ascii_lowercase + string.ascii_uppercase
#: tell neighbours apart on dark and on light terminals
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
FREE, OUT, STRANGER, UNNAMED = "·", "x", "#", "+"
BAR_LETTERS = 12
#: Terminals of fewer columns do without what is least missed.
NARROW = 96
#: Of an id, which is enough to name a job on the command line.
SHORT_ID = 6
#: What a heading, the names of columns and the space below take of a part's lines.
FRAME_LINES = 3


@dataclass(slots=True)
class Letters:
    """A letter for every job that holds devices; it keeps it for as long as it does."""

    by_job: dict[str, str] = field(default_factory=dict)

    def follow(self, jobs: Sequence[str]) -> None:
        """Give letters to new jobs, and take back those of jobs that are gone."""
        for gone in self.by_job.keys() - set(jobs):
            del self.by_job[gone]
        for job in jobs:
            if job not in self.by_job:
                free = [one for one in LETTERS if one not in self.by_job.values()]
                self.by_job[job] = free[0] if free else UNNAMED

    def text(self, job: str) -> Text:
        letter = self.by_job.get(job, STRANGER)
        at = LETTERS.find(letter)
        return Text(letter, style=f"bold {COLOURS[at % len(COLOURS)]}" if at >= 0 else "dim")


def screen(
    seen: Snapshot, letters: Letters, *, width: int, height: int | None = None
) -> RenderableType:
    """Everything, in so many lines at most; what does not fit is counted."""
    narrow = width < NARROW
    letters.follow([job["id"] for job in seen.running])
    parts: list[tuple[str, Callable[[int], RenderableType], int, int]] = [
        # name, what draws it, lines that it would like, and how many it gets before others
        ("nodes", lambda most: _nodes(seen, letters, most), len(seen.nodes), 8),
        ("running", lambda most: _running(seen, letters, most, narrow), len(seen.running), 10),
        ("queue", lambda most: _queue(seen, most, narrow), len(seen.waiting), 5),
        ("tenants", lambda most: _tenants(seen, most), len(seen.tenants), 4),
        ("events", lambda most: _events(seen, most), len(seen.events), 6),
    ]
    shown = [part for part in parts if part[2]]
    room = None if height is None else height - 2
    granted = _granted({name: (wish, least) for name, _, wish, least in shown}, room)
    drawn = [draw(granted[name]) for name, draw, _, _ in shown if granted[name] > 0]
    return Group(_header(seen), *drawn)


def _granted(wishes: Mapping[str, tuple[int, int]], room: int | None) -> dict[str, int]:
    """Rows for every part: first what it needs to be of use, then what is left, from the top."""
    if room is None:
        return {name: wish if name != "events" else least for name, (wish, least) in wishes.items()}
    given: dict[str, int] = {}
    for name, (wish, least) in wishes.items():
        given[name] = max(min(wish, least, room - FRAME_LINES), 0)
        room -= given[name] + FRAME_LINES if given[name] else 0
    for name, (wish, _) in wishes.items():
        if given[name]:
            more = max(min(wish - given[name], room), 0)
            given[name] += more
            room -= more
    return given


def _header(seen: Snapshot) -> Text:
    jobs = seen.status["jobs"]
    devices = [one for node in seen.nodes for one in node["devices"]]
    used = sum(1 for one in devices if one["job"])
    words = [
        f"yard {seen.status['leader'] or ''}",
        f"term {seen.status['term']}",
        f"{used} of {len(devices)} devices in use",
        " ".join(f"{jobs[state]:,} {state}" for state in ("running", "waiting") if state in jobs),
        time.strftime("%H:%M:%S", time.localtime(seen.at)),
    ]
    text = Text(" · ".join(word for word in words if word), style="bold", no_wrap=True)
    if seen.trouble:
        text.append(f"\nreconnecting: {seen.trouble}", style="bold red")
    else:
        text.append("\n")
    return text


def _table(title: str, headings: Sequence[str], *, last: str = "", more: int = 0) -> Table:
    said = f"{title} ({more:,} more)" if more > 0 else title
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=said, expand=True)
    table.title_justify, table.title_style = "left", "bold underline"
    for heading in headings:
        table.add_column(
            heading, no_wrap=True, overflow="ellipsis", ratio=1 if heading == last else None
        )
    return table


def _nodes(seen: Snapshot, letters: Letters, most: int) -> Table:
    more = len(seen.nodes) - most
    table = _table("nodes", ("node", "kind", "devices", "health"), last="devices", more=more)
    for node in seen.nodes[:most]:
        slots = Text(" ").join(_slot(one, letters) for one in node["devices"])
        note = ": ".join(word for word in (node["health"], node["detail"]) if word)
        table.add_row(Text(node["name"]), Text(node["kind"]), slots, Text(note))
    return table


def _slot(device: Found, letters: Letters) -> Text:
    if device["job"]:
        return letters.text(device["job"])
    return Text(OUT, style="red") if device["out"] else Text(FREE, style="dim")


def _running(seen: Snapshot, letters: Letters, most: int, narrow: bool) -> Table:
    headings = ("", "job", "name", "tenant", "state", "devices", "progress", "speed", "left")
    dropped = ("tenant", "state") if narrow else ()
    shown = [heading for heading in headings if heading not in dropped]
    table = _table("running", shown, last="name", more=len(seen.running) - most)
    for job in seen.running[:most]:
        pace = seen.paces.get(job["id"], Pace())
        asked = f"{job['min_devices']}"
        if job["max_devices"] != job["min_devices"]:
            asked += f"–{job['max_devices']}"
        cells = {
            "": letters.text(job["id"]),
            "job": Text(job["id"][:SHORT_ID] if narrow else job["id"]),
            "name": Text(job["name"]),
            "tenant": Text(job["tenant"]),
            "state": Text(job["state"]),
            "devices": Text(f"{job['devices']} of {asked}"),
            "progress": _progress(job, pace),
            "speed": Text(f"{pace.speed:,.3g} steps/s" if pace.speed else ""),
            "left": Text(_time(pace.left) if pace.left is not None else ""),
        }
        table.add_row(*(cells[heading] for heading in shown))
    return table


def _time(seconds: float) -> str:
    return format_duration(float(round(seconds)))


def _progress(job: Found, pace: Pace) -> Text:
    if pace.part is None:
        return Text(f"ran {_time(job['run_seconds'])}")
    full = round(pace.part * BAR_LETTERS)
    done = f"{job['steps']:,}/{pace.steps:,.0f}" if pace.steps else f"{pace.part:.0%}"
    return Text(f"{'█' * full}{'░' * (BAR_LETTERS - full)} {done}")


def _queue(seen: Snapshot, most: int, narrow: bool) -> Table:
    headings = ("job", "name", "tenant", "state", "devices", "waits", "why")
    dropped = ("tenant", "devices") if narrow else ()
    shown = [heading for heading in headings if heading not in dropped]
    table = _table("queue", shown, last="why", more=len(seen.waiting) - most)
    for job in seen.waiting[:most]:
        plain = ": ".join(word for word in (job["reason"], job["detail"]) if word)
        cells = {
            "job": job["id"][:SHORT_ID] if narrow else job["id"],
            "name": job["name"],
            "tenant": job["tenant"],
            "state": job["state"],
            "devices": f"{job['min_devices']}",
            "waits": _time(max(seen.at - job["since"], 0.0)),
            "why": seen.whys.get(job["id"], plain),
        }
        table.add_row(*(Text(cells[heading]) for heading in shown))
    return table


def _tenants(seen: Snapshot, most: int) -> Table:
    headings = ("tenant", "share", "devices", "guaranteed", "at most", "running", "waiting")
    table = _table("tenants", headings, last="share", more=len(seen.tenants) - most)
    by_share = sorted(seen.tenants, key=lambda one: (-one["share"], one["name"]))
    for one in by_share[:most]:
        full = round(one["share"] * BAR_LETTERS)
        bar = f"{'█' * full}{'░' * (BAR_LETTERS - full)} {one['share']:.0%}"
        limit = "" if one["maximum"] is None else f"{one['maximum']}"
        cells: tuple[Any, ...] = (
            one["name"],
            bar,
            one["devices"],
            one["guaranteed"],
            limit,
            one["running"],
            one["waiting"],
        )
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table


def _events(seen: Snapshot, most: int) -> Table:
    table = _table("events", ("at", "job", "state", "what"), last="what")
    for one in seen.events[-most:] if most else ():
        table.add_row(
            Text(time.strftime("%H:%M:%S", time.localtime(one["at"]))),
            Text(one["job"] or one["node"]),
            Text(one["state"] or ""),
            Text(one["what"] + (f" ({one['who']})" if one["who"] else "")),
        )
    return table
