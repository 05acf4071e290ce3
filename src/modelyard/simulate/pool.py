"""Runs on several cores at once: worker processes that play one run after the other.

Processes are spawned, not forked, because the display of the parent has threads. They ignore
Ctrl-C, which is the parent's to handle, compute with one BLAS thread each, and end when the
parent ends, however that happens.
"""

from __future__ import annotations

import copyreg
import io
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from types import MappingProxyType
from typing import Any

from modelyard.simulate.play import Failure, OnDone, OnProgress, Outcome, Run, play
from modelyard.simulate.scenario import Scenario

#: How often finished runs and progress are looked for: smooth to the eye, nothing to the machine.
POLL_SECONDS = 0.1
#: A worker that SIGTERM does not end within this time is killed.
PATIENCE_SECONDS = 5.0
#: Small matrices become many times slower when each worker uses every core for them.
ONE_THREAD_EACH = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_Update = tuple[str, float]


def play_in_processes(
    runs: Mapping[str, Run],
    *,
    workers: int,
    on_progress: OnProgress,
    on_done: OnDone,
) -> None:
    """Play every run and report each outcome under its name. No worker outlives this call.

    KeyboardInterrupt passes through; the outcomes reported until then are good.
    """
    # Worlds go to the workers once and together, so that what they have in common stays so.
    worlds = {id(run.scenario): run.scenario for run in runs.values()}
    places = {world: place for place, world in enumerate(worlds)}
    context = multiprocessing.get_context("spawn")
    updates: Queue[_Update] = context.Queue()
    strangers = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        workers, context, initializer=_enter, initargs=(pickled(*worlds.values()), updates)
    )
    finished = False
    try:
        with _interrupts_deferred(), _environment(dict.fromkeys(ONE_THREAD_EACH, "1")):
            running = {
                executor.submit(_play, name, places[id(run.scenario)], run.policy): name
                for name, run in runs.items()
            }
        pending = set(running)
        while pending:
            ended, pending = wait(pending, POLL_SECONDS, return_when=FIRST_COMPLETED)
            for name, share in _arrived(updates):
                on_progress(name, share)
            for future in ended:
                name = running[future]
                on_done(name, _outcome(runs[name].policy, future))
        finished = True
    finally:
        with _interrupts_deferred():
            if not finished:
                _stop(set(multiprocessing.active_children()) - strangers)
            executor.shutdown(cancel_futures=True)
            updates.close()


def pickled(*scenarios: Scenario) -> bytes:
    """Scenarios for another process; frozen mappings, which pickle refuses, go as copies."""
    stream = io.BytesIO()
    _ScenarioPickler(stream, pickle.HIGHEST_PROTOCOL).dump(scenarios)
    return stream.getvalue()


def _frozen(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    # The type itself has no name by which another process could find it.
    return MappingProxyType(mapping)


class _ScenarioPickler(pickle.Pickler):
    dispatch_table = {  # noqa: RUF012 (pickle's interface)
        **copyreg.dispatch_table,
        MappingProxyType: lambda proxy: (_frozen, (dict(proxy),)),
    }


def _outcome(text: str, future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        what = "its process was ended from outside, most likely for want of memory"
        return Failure(text, what, fix="use fewer --workers")


def _arrived(updates: Queue[_Update]) -> Iterator[_Update]:
    while True:
        try:
            yield updates.get_nowait()
        except queue.Empty:
            return


def _stop(workers: set[BaseProcess]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
        if worker.is_alive():
            worker.kill()


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Hold Ctrl-C back; processes started meanwhile never see one, as they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables for processes that start meanwhile; what the user has set stays."""
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


# -- inside a worker --------------------------------------------------------------------------

_scenarios: tuple[Scenario, ...]
_tell: Callable[[_Update], Any]


def _enter(scenarios: bytes, updates: Queue[_Update]) -> None:
    global _scenarios, _tell
    _scenarios = pickle.loads(scenarios)
    # Progress that nobody reads any more must not keep the worker from ending.
    updates.cancel_join_thread()
    _tell = updates.put
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play(name: str, place: int, policy: str) -> Outcome:
    return play(_scenarios[place], policy, lambda share: _tell((name, share)))
