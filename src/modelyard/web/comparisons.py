"""Comparisons that pages asked for: each played in a process of its own, with an end in sight."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelyard.control.api.calls import Refused
from modelyard.control.store.callers import Caller
from modelyard.errors import Problem

#: of a trace; the largest public ones are larger, and are for the command line
MOST_TRACE_BYTES = 8 * 2**20
#: Nobody waits longer for a page.
MOST_SECONDS = 300.0
#: played at the same time, whoever asks; one for each caller
AT_ONCE = 2
#: comparisons that are remembered, the oldest forgotten first
MOST_KEPT = 32
#: uploads that nobody has used yet
MOST_TRACES = 8
#: of one line that the process says: all tables and charts
MOST_LINE_BYTES = 8 * 2**20


@dataclass(slots=True)
class Played:
    """One comparison, from its start to what came of it."""

    id: str
    owner: Caller
    title: str
    policies: tuple[str, ...]
    started: float
    #: how far each policy is, from 0 to 1
    shares: dict[str, float] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    problems: tuple[Problem, ...] = ()
    ended: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def share(self) -> float:
        return sum(self.shares.values()) / len(self.policies)

    def seen_by(self, caller: Caller) -> bool:
        """Admins see all; what an admin's holds of others is not for their tenant to see."""
        if caller.scope is None:
            return True
        return self.owner.scope == caller.scope


class Comparisons:
    """What is played now, and what was."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Played] = OrderedDict()
        self._traces: OrderedDict[str, tuple[Caller, Path]] = OrderedDict()
        self._folder = tempfile.TemporaryDirectory(prefix="yard-traces-")

    def seen_by(self, caller: Caller) -> list[Played]:
        """The newest first."""
        return [one for one in reversed(self._kept.values()) if one.seen_by(caller)]

    def found(self, name: str, caller: Caller) -> Played:
        one = self._kept.get(name)
        if one is None or not one.seen_by(caller):
            fix = "comparisons are kept in memory, a few of them: start it again"
            raise Refused(404, "there is no such comparison", fix=fix)
        return one

    async def keep_trace(self, caller: Caller, pieces: AsyncIterator[bytes]) -> str:
        """Somebody's file, written down as it comes; its name is ours."""
        name = secrets.token_hex(16)
        path, size = Path(self._folder.name) / name, 0
        try:
            with path.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > MOST_TRACE_BYTES:
                        what = f"the trace is larger than {MOST_TRACE_BYTES >> 20} MiB"
                        raise Refused(413, what, fix="use 'yard simulate' for it")
                    file.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._traces[name] = (caller, path)
        while len(self._traces) > MOST_TRACES:
            self._drop(next(iter(self._traces)))
        return name

    def start(self, caller: Caller, request: dict[str, Any], *, title: str, at: float) -> Played:
        """Play it; `Refused` while the caller's last one goes on, or too many others do."""
        running = [one for one in self._kept.values() if one.ended is None]
        if any(one.owner == caller for one in running):
            fix = "wait for it, or cancel it"
            raise Refused(409, "another comparison of yours is being played", fix=fix)
        if len(running) >= AT_ONCE:
            raise Refused(503, "others compare at this moment", fix="try again in a moment")
        trace = request.get("trace", "")
        if request["source"] == "trace":
            owner, path = self._traces.get(trace, (None, None))
            if owner != caller or path is None:
                raise Refused(400, "there is no such trace", fix="upload it again")
            request = {**request, "trace": str(path)}
        policies = tuple(request["policies"])
        one = Played(secrets.token_hex(8), caller, title, policies, at)
        one.task = asyncio.create_task(self._run(one, request, trace))
        self._kept[one.id] = one
        for name in [name for name, old in self._kept.items() if old.ended is not None]:
            if len(self._kept) <= MOST_KEPT:
                break
            del self._kept[name]
        return one

    def cancel(self, one: Played) -> None:
        if one.task is not None and one.ended is None:
            one.task.cancel()

    async def _run(self, one: Played, request: dict[str, Any], trace: str) -> None:
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await _play(one, {**request, "seconds": MOST_SECONDS})
        except asyncio.CancelledError:
            one.problems = (Problem("it was cancelled", ""),)
        except TimeoutError:
            fix = "compare fewer jobs or policies, or use 'yard simulate'"
            one.problems = (Problem(f"it took longer than {MOST_SECONDS:.0f} s", fix),)
        finally:
            one.ended = one.started + asyncio.get_running_loop().time() - begun
            self._drop(trace)

    def _drop(self, name: str) -> None:
        if name in self._traces:
            self._traces.pop(name)[1].unlink(missing_ok=True)


async def _play(one: Played, request: dict[str, Any]) -> None:
    """The process, listened to until it has said everything; it never outlives this call."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "modelyard.web.comparing"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=MOST_LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        await process.stdin.drain()
        async for line in process.stdout:
            told = json.loads(line)
            if "policy" in told:
                one.shares[told["policy"]] = told["share"]
            elif "result" in told:
                one.result = told["result"]
            else:
                one.problems = tuple(
                    Problem(what, fix, "", at) for what, fix, at in told["problems"]
                )
        if one.result is None and not one.problems:
            fix = "compare fewer jobs or policies, or use 'yard simulate'"
            one.problems = (Problem("its process needed too much time or memory", fix),)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
