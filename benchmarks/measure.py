"""Each measurement in a process of its own, so that none pays for the memory of another."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

POLL_SECONDS = 0.2
#: Reports of progress more frequent than this share of a run would cost more than they tell.
SMALLEST_STEP = 0.01
#: A second BLAS thread would be charged to the run without making it faster.
ONE_THREAD_EACH = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: `ru_maxrss` counts kibibytes, except on macOS.
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024

_updates: Queue[tuple[str, float]] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement: `function(*arguments)`, which must be importable by name."""

    label: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def run_each(tasks: Sequence[Task], *, workers: int) -> Iterator[tuple[int, Any]]:
    """The position and the value of each task, as they come, with a display of what is under way.

    A task that raises ends everything: a benchmark with a hole in it is no benchmark.
    """
    for name in ONE_THREAD_EACH:
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("spawn")
    updates: Queue[tuple[str, float]] = context.Queue()
    with (
        _display() as display,
        ProcessPoolExecutor(
            workers, context, initializer=_enter, initargs=(updates,), max_tasks_per_child=1
        ) as executor,
    ):
        whole = display.add_task("all", total=len(tasks))
        bars: dict[str, TaskID] = {}
        places = {executor.submit(_perform, task): place for place, task in enumerate(tasks)}
        pending = set(places)
        while pending:
            ended, pending = wait(pending, POLL_SECONDS, return_when=FIRST_COMPLETED)
            _show(display, bars, updates)
            for future in sorted(ended, key=places.__getitem__):
                label = tasks[places[future]].label
                if label in bars:
                    display.remove_task(bars.pop(label))
                display.advance(whole)
                yield places[future], future.result()


def report(share: float) -> None:
    """Tell the display how much of the current task is done; nothing happens outside of one."""
    global _shown
    if _updates is not None and share - _shown >= SMALLEST_STEP:
        _shown = share
        _updates.put((_label, share))


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES


def _display() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Rows go to a file unharmed, and above the bars when both share a terminal.
        redirect_stdout=sys.stdout.isatty(),
    )


def _show(display: Progress, bars: dict[str, TaskID], updates: Queue[tuple[str, float]]) -> None:
    while True:
        try:
            label, share = updates.get_nowait()
        except Empty:
            return
        if label not in bars:
            bars[label] = display.add_task(label, total=1.0)
        display.update(bars[label], completed=share)


# -- inside a process -------------------------------------------------------------------------

_label = ""
_shown = 0.0


def _enter(updates: Queue[tuple[str, float]]) -> None:
    global _updates
    _updates = updates
    # Progress that nobody reads any more must not keep the process from ending.
    updates.cancel_join_thread()


def _perform(task: Task) -> Any:
    global _label, _shown
    _label, _shown = task.label, 0.0
    return task.function(*task.arguments)
