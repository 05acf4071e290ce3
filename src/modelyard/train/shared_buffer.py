"""Memory that two processes share and no file system knows: it ends with the last of them.

The first write to a page costs far more than the copy itself, so pages are touched beforehand, by
a thread, while training goes on. The copy itself is a few plain threads that move memory: torch's
own would wait for all of its threads after each tensor, which takes long on a busy machine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from modelyard.errors import YardError
from modelyard.units import format_bytes

PAGE_BYTES = mmap.PAGESIZE
#: Touched at a time: short enough that other threads hardly wait for Python's lock.
TOUCH_BYTES = 16 << 20
#: Left to others when memory is asked for.
SPARE_BYTES = 256 << 20
#: One thread cannot use all of the memory's bandwidth, and a few can.
COPIERS = max(1, min(4, len(os.sched_getaffinity(0))))
#: What one of them moves at a time.
MOVE_BYTES = 8 << 20


class SharedBuffer:
    """Shared memory of a fixed size, as a tensor of bytes and as an open file for the other."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-max(size_bytes, 1) // PAGE_BYTES) * PAGE_BYTES
        _check_available(self.size_bytes)
        self.file = os.memfd_create("modelyard-snapshot", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.file, self.size_bytes)
            self._memory = mmap.mmap(self.file, self.size_bytes)
        except OSError as error:
            os.close(self.file)
            raise _too_little(self.size_bytes) from error
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._touched = threading.Event()
        self._touching = threading.Lock()

    def touch(self) -> None:
        """Have every page ready; a second call waits for the first."""
        with self._touching:
            if self._touched.is_set():
                return
            view = np.frombuffer(self._memory, dtype=np.uint8)
            for start in range(0, self.size_bytes, TOUCH_BYTES):
                view[start : start + TOUCH_BYTES : PAGE_BYTES] = 0
            self._touched.set()

    def fill(self, tensors: Iterable[tuple[int, torch.Tensor]], pool: ThreadPoolExecutor) -> None:
        """Copy tensors to their offsets, with the threads of `pool`."""
        base = self.bytes.data_ptr()
        moves: list[tuple[int, int, int]] = []
        for offset, tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            if tensor.device.type == "cpu" and tensor.is_contiguous():
                source = tensor.data_ptr()
                moves.extend(
                    (base + offset + at, source + at, min(MOVE_BYTES, size - at))
                    for at in range(0, size, MOVE_BYTES)
                )
            elif size:
                place = self.bytes[offset : offset + size].view(tensor.dtype)
                place.view(tensor.shape).copy_(tensor)
        # Whoever is done takes the next: a thread that has to wait for a processor delays nobody.
        waiting = iter(moves)
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    move = next(waiting, None)
                if move is None:
                    return
                ctypes.memmove(*move)

        helpers = [pool.submit(work) for _ in range(COPIERS - 1)]
        work()
        for helper in helpers:
            # One that has not even begun need not be waited for.
            if not helper.cancel():
                helper.result()

    def close(self) -> None:
        """Let go of it; views that are still in use keep their memory."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def _check_available(size_bytes: int) -> None:
    """Asking for more than there is would have the system kill somebody, later."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("MemAvailable:"):
            if int(line.split()[1]) * 1024 < size_bytes + SPARE_BYTES:
                raise _too_little(size_bytes)
            return


def _too_little(size_bytes: int) -> YardError:
    return YardError(
        f"there is too little memory for a snapshot of {format_bytes(size_bytes)}",
        fix="divide it over more workers, or give this one more memory",
    )
