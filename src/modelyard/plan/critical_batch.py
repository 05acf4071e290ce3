"""How large a batch may be before it wastes tokens.

To reach the same loss, a run with batches of `B` tokens needs `1 + B / B_crit` times the tokens of
one with tiny batches, and `1 + B_crit / B` times the steps of one with huge ones (McCandlish et
al., 2018, equation 5.1). Two laws say how `B_crit` grows, and neither knows the user's data:

    Kaplan et al., 2020:  B_crit = 2e8 / L^(1 / 0.21)          from the loss, per token, in nats
    Zhang et al., 2024:   B_20 % = 512 · 22.91 · (D / 1e6)^0.47  from the tokens of the run

Zhang's is the batch at which a fifth of the tokens is wasted, hence a fifth of `B_crit` as it is
meant here. For GPT-3 (300 B tokens, loss 1.73) the two say 15 and 22 million tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_KAPLAN_TOKENS = 2e8
_KAPLAN_EXPONENT = 0.21
#: sequences of 512 tokens on C4, by millions of tokens trained on
_ZHANG_SEQUENCE = 512
_ZHANG_FACTOR = 22.91
_ZHANG_EXPONENT = 0.47
#: what is wasted at Zhang's critical batch, and a usual limit of what is worth the time saved
USEFUL_WASTE = 0.2
#: how far either law may be off on other data: published estimates differ by about as much
_SPREAD = 2.0

Amount = TypeVar("Amount", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """The batch in tokens at which a run needs twice the tokens, and the range it may lie in."""

    tokens: float
    low: float
    high: float

    @property
    def useful_tokens(self) -> float:
        """The largest batch that wastes no more than a fifth of its tokens."""
        return USEFUL_WASTE * self.tokens


def critical_batch(tokens: float, loss: float | None = None) -> CriticalBatch:
    """For a run on `tokens` that ends at `loss`; by tokens alone where no loss is known."""
    _require_positive("tokens", tokens)
    by_tokens = _ZHANG_SEQUENCE * _ZHANG_FACTOR * (tokens / 1e6) ** _ZHANG_EXPONENT / USEFUL_WASTE
    found = [by_tokens]
    if loss is not None:
        _require_positive("loss", loss)
        found.append(_KAPLAN_TOKENS / loss ** (1.0 / _KAPLAN_EXPONENT))
    middle = math.exp(sum(math.log(each) for each in found) / len(found))
    return CriticalBatch(middle, min(found) / _SPREAD, max(found) * _SPREAD)


def token_multiplier(batch_tokens: Amount, critical_tokens: float) -> Amount:
    """Tokens needed with this batch over those needed with a tiny one."""
    return 1.0 + batch_tokens / critical_tokens


def step_multiplier(batch_tokens: Amount, critical_tokens: float) -> Amount:
    """Steps needed with this batch over the fewest that any batch needs."""
    return 1.0 + critical_tokens / batch_tokens


def largest_batch(critical_tokens: float, waste: float = USEFUL_WASTE) -> float:
    """The largest batch in tokens that wastes no more than this share of the tokens needed."""
    _require_positive("waste", waste)
    return waste * critical_tokens


def useful_replicas(critical_tokens: float, replica_tokens: float) -> int:
    """Data-parallel replicas worth having when each adds `replica_tokens` to the batch."""
    _require_positive("replica_tokens", replica_tokens)
    return max(1, math.floor(largest_batch(critical_tokens) / replica_tokens))


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be a positive number, found {value}")
