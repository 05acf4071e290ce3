"""`modelyard.plan` is a package and can be called; importing it stays light."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import modelyard
import modelyard.plan.request
from modelyard.errors import InputError

#: What makes an import slow.
HEAVY = ("click", "jinja2", "numpy", "pydantic", "rich", "scipy", "yaml")


def test_it_is_a_package_and_a_function() -> None:
    assert isinstance(modelyard.plan, ModuleType)
    assert callable(modelyard.plan)
    assert modelyard.plan.request.Request is not None


def test_a_mistake_comes_with_all_others_and_their_fixes() -> None:
    with pytest.raises(InputError) as caught:
        modelyard.plan("", devices="0xH100", tokens="many", devicez=3)  # type: ignore[call-arg]
    text = str(caught.value)
    assert "there is none" in text
    assert "devicez" in text
    assert "did you mean 'devices'?" in text
    assert "no devices" in text
    assert "'many' is not a count" in text
    assert text.count("Fix:") == len(text.splitlines())


def test_nothing_heavy_is_loaded_before_somebody_plans() -> None:
    # A process of its own, because this one has loaded everything already.
    script = (
        "import sys, modelyard\n"
        "assert callable(modelyard.plan)\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "", done.stderr
    assert done.returncode == 0


def test_an_unknown_attribute_is_still_an_error() -> None:
    with pytest.raises(AttributeError, match="'modelyard' has no attribute 'plane'"):
        modelyard.plane  # noqa: B018
