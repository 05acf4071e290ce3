"""The factors that come with the package, fitted on published rows by `scripts/fit_planner.py`."""

from __future__ import annotations

from functools import cache

from modelyard.spec.bundled import bundled_text
from modelyard.speed.physical.coefficients import Coefficients, from_text

SHIPPED_FILE = "coefficients.json"


@cache
def shipped() -> Coefficients:
    """Read once; the same for every caller."""
    return from_text(bundled_text(SHIPPED_FILE, "modelyard.speed.physical"), SHIPPED_FILE)
