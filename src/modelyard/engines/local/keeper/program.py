"""Starting the program: everything between fork and exec."""

from __future__ import annotations

import os
import signal

from modelyard.engines.local.keeper import kernel

#: how far tasks come before the yard itself when the machine's memory runs out (the highest is
#: 1000, which the kernel always takes first)
MEMORY_KILL_PREFERENCE = 500

#: what shells use for a program that is not there, or cannot be run
NOT_FOUND = 127
NOT_RUNNABLE = 126

_OPEN_GATE = b"g"


class Program:
    """A process that waits at a gate, until its limits are on it and its pid is written down."""

    def __init__(self, pid: int, gate: int, trouble: int) -> None:
        self.pid = pid
        self._gate = gate
        self._trouble = trouble

    def let_go(self) -> OSError | None:
        """Have it run the program; the reason when that cannot be run."""
        os.write(self._gate, _OPEN_GATE)
        os.close(self._gate)
        number = b""
        # The other end closes by itself when the program runs.
        while piece := os.read(self._trouble, 16):
            number += piece
        os.close(self._trouble)
        return OSError(int(number), os.strerror(int(number))) if number else None


def fork_program(
    argv: list[bytes], environment: dict[bytes, bytes], folder: bytes, output: int, umask: int
) -> Program:
    gate_read, gate_write = os.pipe()
    trouble_read, trouble_write = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        os.close(gate_read)
        os.close(trouble_write)
        return Program(pid, gate_write, trouble_read)
    try:
        os.setsid()
        kernel.die_with_parent()
        os.close(gate_write)
        # The gate stays shut when the keeper died before it could be asked to take us along.
        if os.getppid() != keeper or os.read(gate_read, 1) != _OPEN_GATE:
            os._exit(NOT_RUNNABLE)
        _settle(folder, output, umask)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(trouble_write, str(error.errno or 0).encode())
    finally:
        os._exit(NOT_RUNNABLE)


def _settle(folder: bytes, output: int, umask: int) -> None:
    _prefer_for_memory_kills()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.umask(umask)
    os.chdir(folder)


def _prefer_for_memory_kills() -> None:
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            present = int(file.read())
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(max(present, MEMORY_KILL_PREFERENCE)))
    except OSError:
        return
