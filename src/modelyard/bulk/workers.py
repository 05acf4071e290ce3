"""Planners on several cores: processes that are there for a whole sweep.

They are spawned, ignore Ctrl-C, which is the parent's to handle, compute with one BLAS thread each,
and end when the parent ends, however that happens.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from modelyard.bulk.order import Outcome, Planner, PlannerFactory, Record
from modelyard.errors import YardError

#: Small matrices become many times slower when each worker uses every core for them.
ONE_THREAD_EACH = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Chunk = tuple[Record, ...]
#: Outcomes of chunks, chunk by chunk, in the order in which they were handed in.
RunChunks = Callable[[Sequence[Chunk]], Iterator[tuple[Outcome, ...]]]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def planners(factory: PlannerFactory, workers: int) -> Iterator[RunChunks]:
    """Something that plans chunks on so many processes; one stays in this process."""
    if workers <= 1:
        planner = factory()
        yield lambda chunks: (tuple(map(planner, chunk)) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    strangers = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(workers, context, initializer=_enter, initargs=(factory,))
    finished = False
    try:
        yield lambda chunks: _run(executor, chunks)
        finished = True
    finally:
        with _interrupts_deferred():
            if not finished:
                for worker in set(multiprocessing.active_children()) - strangers:
                    worker.terminate()
            executor.shutdown(cancel_futures=True)


def _run(executor: ProcessPoolExecutor, chunks: Sequence[Chunk]) -> Iterator[tuple[Outcome, ...]]:
    # Workers start while work is handed in, and inherit what holds meanwhile.
    with _interrupts_deferred(), _one_thread_each():
        futures = [executor.submit(_plan, chunk) for chunk in chunks]
    for future in futures:
        try:
            yield future.result()
        except BrokenProcessPool as error:
            what = "a worker was ended from outside, most likely for want of memory"
            fix = "run the same command with fewer --workers; what is done stays done"
            raise YardError(what, fix=fix) from error


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Hold Ctrl-C back; processes started meanwhile never see one, as they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Variables for processes that start meanwhile; what the user has set stays."""
    added = [name for name in ONE_THREAD_EACH if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


# -- inside a worker --------------------------------------------------------------------------

_planner: Planner


def _enter(factory: PlannerFactory) -> None:
    global _planner
    _planner = factory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _plan(chunk: Chunk) -> tuple[Outcome, ...]:
    return tuple(map(_planner, chunk))
