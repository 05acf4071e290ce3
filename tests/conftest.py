"""What all tests share: where public data lives, and how hard Hypothesis tries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parents[1]
DATA_VARIABLE = "MODELYARD_DATA"
DATA_BESIDE_REPOSITORY = REPOSITORY.parent / "shared" / "data"

# No deadline anywhere: a slow machine is not a failing property. In continuous integration the
# draws are the same every time, so that a red build is the fault of the change that it names.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public traces and facts that the project does not contain."""
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DATA_BESIDE_REPOSITORY
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}: set {DATA_VARIABLE} to the folder that holds traces/")
    return folder


@pytest.fixture(autouse=True)
def _no_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners of tests may set it, and tables heed it."""
    monkeypatch.delenv("COLUMNS", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for the data, so that `-m 'not data'` leaves exactly those out."""
    for item in items:
        if "data_folder" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
