"""Memory that a step frees stays with its worker: the next step takes the same again.

By itself the C library hands large pieces back to the system when they are freed, and gets them
again as empty pages, one page fault for each 4 KB. Every step frees and takes as much as its
activations and gradients are, and without accelerators that is thousands of faults a step. What
a worker has grown to it therefore keeps until its end.
"""

from __future__ import annotations

import ctypes
import os

#: of glibc's `mallopt`
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = -1
#: The most that glibc takes from its heap. Larger tensors still come and go as mappings of their
#: own, so a heap with holes costs little.
_MOST_BYTES = 32 * 1024 * 1024
#: With one of these somebody has decided for themselves.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """From now on, and in children that are forked; false where it is not so.

    Other C libraries do not know the setting, and other allocators ignore it.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MOST_BYTES) and mallopt(_TRIM_THRESHOLD, _NEVER))
