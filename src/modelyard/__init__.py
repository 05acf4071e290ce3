"""Modelyard: plan, schedule, train, keep and serve language models on one shared cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["Client", "__version__", "plan"]

if TYPE_CHECKING:
    from modelyard.control.client import Client as Client

    # `plan` is a package that can be called, which types cannot express: they see the function.
    from modelyard.planner.door import plan as plan
else:

    def __getattr__(name: str) -> object:
        """`modelyard.plan` and `modelyard.Client` without importing either before that."""
        from importlib import import_module

        if name == "plan":
            return import_module("modelyard.plan")
        if name == "Client":
            return import_module("modelyard.control.client").Client
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
