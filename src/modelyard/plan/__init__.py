"""Will it fit, on how many of which devices, how long, for how much, and at what loss?

The package can be called: `modelyard.plan("llama2-7b", devices="64xH100", tokens="300B")` is
`modelyard.planner.door.plan`, which reads files and names and hands this package a `Request`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package and a function of one name, because people look for both under it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # Named rather than imported: the door reads files, and this package must not.
        return import_module("modelyard.planner.door").plan(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
