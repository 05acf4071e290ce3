"""Workers that start at once: a process that has imported torch already and forks at a word.

    python -m modelyard.train.nursery [MODULE …]

imports what children will need, reads one request a line from standard input, forks a child for
each, and answers with lines about births and deaths on standard output. Importing torch takes
seconds; a fork takes milliseconds, and shares the memory of what was imported. When standard input
closes, because whoever asked is gone, it ends its children and itself: nothing is left running that
nobody watches.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from modelyard.train.happenings import UNKEPT, Unkept
from modelyard.train.heap import keep_freed_memory


class Birth(msgspec.Struct, frozen=True, tag="birth"):
    """Fork a child that calls `entry` ("package.module:function") with a text."""

    name: str
    entry: str
    argument: str
    #: its standard output and error
    log: str
    environment: dict[str, str] = {}


class Born(msgspec.Struct, frozen=True, tag="born"):
    name: str
    pid: int


class Died(msgspec.Struct, frozen=True, tag="died"):
    name: str
    pid: int
    #: exit status, or minus the signal that ended it
    status: int


Answer = Born | Died

_births = msgspec.json.Decoder(Birth)
_encoder = msgspec.json.Encoder()


def main() -> None:
    """Serve until standard input closes."""
    keep_freed_memory()
    _import_slow_parts(sys.argv[1:])
    children: dict[int, str] = {}
    # The loop sleeps in select; a child's death has to wake it, so signals write to a pipe.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    waiting.register(reader, selectors.EVENT_READ)
    buffer = b""
    _answer(Born("nursery", os.getpid()))
    while True:
        ready = {key.fd for key, _ in waiting.select()}
        if reader in ready:
            os.read(reader, 4096)
            _report_deaths(children)
        if sys.stdin.fileno() in ready:
            text = os.read(sys.stdin.fileno(), 1 << 16)
            if not text:
                break
            buffer += text
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                birth = _births.decode(line)
                children[_fork(birth)] = birth.name
    _end(children)


def _import_slow_parts(modules: Sequence[str]) -> None:
    """What takes seconds, and what children find done."""
    import torch

    import modelyard.train.run  # noqa: F401

    for module in modules:
        # Whoever cannot be imported will be told by the child that needs it.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # The first optimizer imports torch's compiler. No backward pass: that would start threads,
    # which a fork does not copy.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


def _fork(birth: Birth) -> int:
    """The child's process number; never returns in the child."""
    pid = os.fork()
    if pid:
        _answer(Born(birth.name, pid))
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # A group of its own: Ctrl-C reaches the one who watches, who then asks politely.
        os.setpgid(0, 0)
        log = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        os.environ.update(birth.environment)
        module, _, function = birth.entry.partition(":")
        getattr(importlib.import_module(module), function)(birth.argument)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except Unkept:
        traceback.print_exc()
        status = UNKEPT
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of groups left behind must not hold up the end.
        os._exit(status)


def _report_deaths(children: dict[int, str]) -> None:
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in children:
            _answer(Died(children.pop(pid), pid, os.waitstatus_to_exitcode(status)))


def _end(children: dict[int, str]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _answer(answer: Answer) -> None:
    os.write(1, _encoder.encode(answer) + b"\n")


def read_log(path: Path, most: int = 4_096) -> str:
    """The end of a child's log, for messages about its death."""
    try:
        return path.read_bytes()[-most:].decode(errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
