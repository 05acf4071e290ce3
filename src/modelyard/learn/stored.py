"""Weights in a file, and the policy `dl2` by the name of that file.

A file is numpy's archive of arrays (`.npz`), read without pickle, so that a file from a stranger
can be wrong but cannot run anything. No torch: using a trained policy needs none.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from modelyard.errors import InputError, cause_of
from modelyard.schedule.dl2 import ACTIONS_PER_JOB, Dl2, Encoding, Weights
from modelyard.schedule.placement import Strategy
from modelyard.simulate.export import write_atomically

SHIPPED = "dl2-servers.npz"
#: Written into every file; raise it when the network or its inputs change their meaning.
FORMAT = "modelyard-dl2-1"
_ARRAYS = ("first_FH", "first_H", "second_HH", "second_H", "job_HA", "job_A", "end_H")


def dl2(path: str = "", *, strategy: str = "roomiest") -> Dl2:
    """The policy of a file that `yard learn` wrote; without one, of the weights that come along.

    Those were trained on jobs with parameter servers (see `docs/concepts/dl2.md`). `strategy`
    places the jobs, smallest first.
    """
    return Dl2(read_weights(Path(path)) if path else shipped_weights(), Strategy(strategy))


@lru_cache(maxsize=1)
def shipped_weights() -> Weights:
    """The weights that come with the package, made by `scripts/train_dl2.py`."""
    return parse_weights(files("modelyard.learn").joinpath(SHIPPED).read_bytes(), SHIPPED)


def read_weights(path: Path) -> Weights:
    """The weights in a file; `InputError` when there are none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"weights cannot be read: {cause_of(error)}",
            fix="name a file that 'yard learn' wrote, such as dl2:out/weights.npz",
            where=str(path),
        ) from None
    return parse_weights(content, str(path))


def write_weights(path: Path, weights: Weights) -> None:
    write_atomically(path, pack_weights(weights))


def pack_weights(weights: Weights) -> bytes:
    """A file's content; arrays in single precision, which is what they were trained in."""
    about = {
        "format": FORMAT,
        "types": list(weights.encoding.types),
        "window": weights.encoding.window,
        "slot_seconds": weights.encoding.slot_seconds,
    }
    arrays = {name: getattr(weights, name).astype(np.float32) for name in _ARRAYS}
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        about=np.array(json.dumps(about)),
        end_bias=np.float32(weights.end_bias),
        **arrays,
    )
    return stream.getvalue()


def parse_weights(content: bytes, where: str) -> Weights:
    """The weights of a file's content; `InputError` when it is anything else."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        return _weights(found)
    # Whatever numpy stumbles over, and whatever is missing or misshapen, is one mistake to people.
    except (
        *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        *(RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise InputError(
            f"this is no file of dl2 weights ({_told(error)})",
            fix="name a file that 'yard learn' of this version wrote",
            where=where,
        ) from None


def _told(error: Exception) -> str:
    """What is wrong in words where there are some, not in those of numpy's inside."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error) if isinstance(error, ValueError) else type(error).__name__


def _weights(found: Mapping[str, Any]) -> Weights:
    about = json.loads(str(found["about"]))
    if about["format"] != FORMAT:
        raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
    encoding = Encoding(
        tuple(str(name) for name in about["types"]),
        int(about["window"]),
        float(about["slot_seconds"]),
    )
    arrays = {name: np.asarray(found[name], dtype=np.float64) for name in _ARRAYS}
    hidden = arrays["first_H"].shape[0]
    shapes = {
        "first_FH": (encoding.inputs, hidden),
        "first_H": (hidden,),
        "second_HH": (hidden, hidden),
        "second_H": (hidden,),
        "job_HA": (hidden, ACTIONS_PER_JOB),
        "job_A": (ACTIONS_PER_JOB,),
        "end_H": (hidden,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"'{name}' has the shape {arrays[name].shape}, not {shape}")
    end_bias = float(found["end_bias"])
    if not all(np.isfinite(array).all() for array in (*arrays.values(), np.array(end_bias))):
        raise ValueError("some weights are no finite numbers")
    return Weights(encoding=encoding, end_bias=end_bias, **arrays)
