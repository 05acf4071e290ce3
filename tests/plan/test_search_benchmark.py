"""The benchmark of the search starts and measures; what it measures is not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_quick_run_prints_its_promises():
    script = REPOSITORY / "benchmarks" / "planner_search.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, check=False
    )
    # A busy machine may miss an aim, which ends with 1; anything else is a fault.
    assert done.returncode in (0, 1), done.stderr
    assert "layouts/s, aim" in done.stdout
    assert "behind enumeration" in done.stdout
