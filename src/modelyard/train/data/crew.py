"""Parts on several cores: processes that write shards, and end when their parent ends."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from modelyard.errors import InputError, YardError, cause_of
from modelyard.train.data.shards import Part, write_part
from modelyard.train.data.tokenizer import ByteTokenizer, Tokenizer, load_bpe
from modelyard.units import format_bytes

#: Below this, a process takes longer to start than to be of use.
BYTES_WORTH_A_PROCESS = 8 << 20
POLL_SECONDS = 0.1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every process knows; the tokenizer lies in the folder unless it is that of bytes."""

    folder: Path
    tokenizer: str
    end_token: str
    field: str
    validation: float
    label: str = ""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_parts(
    work: Work, parts: Sequence[Part], workers: int, watch: Callable[[int], None]
) -> None:
    """Turn all parts into shards; `watch` hears the bytes of input done, now and then."""
    most = 1 + sum(part.size_bytes for part in parts) // BYTES_WORTH_A_PROCESS
    workers = min(workers, len(parts), most)
    if workers <= 1:
        _in_this_process(work, parts, watch)
    else:
        _in_processes(work, parts, workers, watch)


def tokenizer_of(work: Work) -> Tokenizer:
    if work.tokenizer == "bytes":
        return ByteTokenizer()
    return load_bpe(work.folder, end=work.end_token)


def unwritable(folder: Path, error: OSError) -> InputError:
    """What to say when the disk did not take a file."""
    if error.errno in _FULL:
        usage = os.statvfs(folder)
        free = format_bytes(usage.f_bavail * usage.f_frsize)
        what = f"no space left on the device ({free} free), or a file larger than is allowed"
        fix = "free some space and run the same command again: what is done is kept"
        return InputError(what, fix=fix, where=str(folder))
    what = f"cannot be written: {cause_of(error)}"
    return InputError(what, fix="check the folder and its permissions", where=str(folder))


def _in_this_process(work: Work, parts: Sequence[Part], watch: Callable[[int], None]) -> None:
    tokenizer, done = tokenizer_of(work), 0

    def tell(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        watch(done)

    for part in parts:
        _write(work, part, tokenizer, tell)


def _in_processes(
    work: Work, parts: Sequence[Part], workers: int, watch: Callable[[int], None]
) -> None:
    context = multiprocessing.get_context("spawn")
    counter: Synchronized[int] = context.Value("q", 0)
    strangers = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(workers, context, initializer=_enter, initargs=(work, counter))
    finished = False
    try:
        # Processes start while work is handed in, and inherit that Ctrl-C is not for them.
        with _interrupts_deferred():
            left = {executor.submit(_write_here, part) for part in parts}
        while left:
            done, left = wait(left, POLL_SECONDS, FIRST_EXCEPTION)
            watch(counter.value)
            for future in done:
                future.result()
        finished = True
    except BrokenProcessPool as error:
        what = "a process was ended from outside, most likely for want of memory"
        fix = "run the same command with fewer --workers: what is done is kept"
        raise YardError(what, fix=fix) from error
    finally:
        with _interrupts_deferred():
            if not finished:
                for process in set(multiprocessing.active_children()) - strangers:
                    process.terminate()
            executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(work: Work, part: Part, tokenizer: Tokenizer, tell: Callable[[int], None]) -> None:
    try:
        write_part(
            work.folder,
            part,
            tokenizer,
            field=work.field,
            label=work.label,
            validation=work.validation,
            tell=tell,
        )
    except OSError as error:
        raise unwritable(work.folder, error) from error


# -- inside a process ---------------------------------------------------------------------------

_work: Work
_tokenizer: Tokenizer
_counter: Synchronized[int]


def _enter(work: Work, counter: Synchronized[int]) -> None:
    global _work, _tokenizer, _counter
    # Each process has a core; the library would start threads on all of them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _work, _tokenizer, _counter = work, tokenizer_of(work), counter
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_here(part: Part) -> None:
    _write(_work, part, _tokenizer, _tell)


def _tell(size_bytes: int) -> None:
    with _counter.get_lock():
        _counter.value += size_bytes
