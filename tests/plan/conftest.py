"""Requests and knowledge for tests of the planner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from modelyard.plan.knowledge import Knowledge
from modelyard.plan.loss.prior import PRIOR
from modelyard.plan.request import Request
from modelyard.spec.adapters import full_training
from modelyard.spec.pool import parse_pools
from modelyard.spec.prices import shipped_prices
from modelyard.spec.zoo import find_model
from modelyard.speed.physical.coefficients import prior
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients

Asked = Callable[..., Request]


@pytest.fixture(scope="session")
def knowledge() -> Knowledge:
    """What is believed before anything was measured, so that a new fit changes no test."""
    return Knowledge(prior(), MemoryCoefficients.prior(), PRIOR)


@pytest.fixture(scope="session")
def asked() -> Asked:
    """A request for a model of the zoo on devices with their prices."""

    def make(model: str, devices: str, tokens: float = 1e10, **options: Any) -> Request:
        found = find_model(model)
        settings: dict[str, Any] = {
            "tuning": full_training(found),
            "sequence": min(found.longest or 512, 2_048),
            **options,
        }
        pools = parse_pools(devices, shipped_prices())
        return Request(model=found, pools=pools, tokens=tokens, **settings)

    return make
