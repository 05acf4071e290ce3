"""The environment of a task: a little of the server's, what the job wants, and its devices."""

from __future__ import annotations

import os
from collections.abc import Mapping

from modelyard.engines.interface import Task

#: what tasks get of the server's own environment. Everything else stays behind: the password of a
#: database is none of a task's business.
INHERITED = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
)

#: where libraries look up how many threads to start; each would take all cores of the machine
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

#: which devices exist, for CUDA and for ROCm
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def environment_of(task: Task, marker: str, server: Mapping[str, str]) -> dict[str, str]:
    """What the program of a task finds in its environment.

    The job's own wishes replace what is inherited and the numbers of threads, but not the devices:
    those belong to others as well.
    """
    devices = ",".join(str(device) for device in task.devices)
    threads = {}
    if task.limits.cores is not None:
        threads = dict.fromkeys(THREAD_COUNTS, str(max(1, int(task.limits.cores))))
    return {
        **{name: server[name] for name in INHERITED if name in server},
        # What a program printed before it was killed is in the log, not in a buffer.
        "PYTHONUNBUFFERED": "1",
        **threads,
        **task.environment,
        **dict.fromkeys(VISIBLE_DEVICES, devices),
        # The numbers that other tools show, not the fastest first.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "YARD_DEVICES": devices,
        "YARD_TASK": marker,
    }


def in_bytes(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
