"""Modelyard: plan, schedule, train, keep and serve language models on one shared cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["__version__", "plan"]

if TYPE_CHECKING:
    # `plan` is a package that can be called, which types cannot express: they see the function.
    from modelyard.planner.door import plan as plan
else:

    def __getattr__(name: str) -> object:
        """`modelyard.plan` without `import modelyard.plan`; nothing is loaded before that."""
        if name != "plan":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return import_module("modelyard.plan")
