"""Real processes: whether one survives, dies or runs twice is what these tests are about.

Every engine that a test makes is checked at its end: nothing that it started may be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelyard.engines.local.engine import LocalEngine

from .real_yard import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path, LocalEngine(tmp_path / "engine"))
    try:
        yield yard
    finally:
        yard.end_all()
    assert yard.processes() == []
