"""What a worker frees, it keeps; asked of the system, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from modelyard.train.heap import keep_freed_memory

#: Takes and frees 16 MB again and again, in pieces that were mappings of their own, and counts the
#: pages that the system had to give for it.
PAGES = """
import ctypes, resource, sys
from modelyard.train.heap import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def step():
    pieces = [libc.malloc(8 << 20) for _ in range(2)]
    for piece in pieces:
        ctypes.memset(piece, 1, 8 << 20)
    for piece in pieces:
        libc.free(piece)
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def kept_and_pages(how: str, **environment: str) -> tuple[bool, int]:
    ended = subprocess.run(
        [sys.executable, "-c", PAGES, how],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, pages = map(int, ended.stdout.split())
    return bool(kept), pages


def test_the_next_step_finds_the_memory_of_the_one_before() -> None:
    kept, pages = kept_and_pages("keep")
    if not kept:
        pytest.skip("this C library has no mallopt")
    # 10 steps touch 40,960 pages; what Python itself takes meanwhile is a handful.
    assert pages < 400


def test_who_has_decided_is_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_freed_memory()
