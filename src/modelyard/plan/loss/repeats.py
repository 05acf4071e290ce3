"""What tokens are worth that were seen before.

Muennighoff et al., 2023 ("Scaling data-constrained language models", equation 5): of `R` repeats of
`U` unique tokens, `U · R* · (1 - exp(-R / R*))` count as new, with `R* = 15.4`. Four epochs are
worth nearly as much as new data, and after about sixteen there is little left to gain. Their law
discounts surplus parameters as well, which is left out here.
"""

from __future__ import annotations

import math

#: repeats after which 1/e of the worth of another one is left
_LASTING_REPEATS = 15.387756


def effective_tokens(tokens: float, unique_tokens: float | None) -> float:
    """The new tokens that `tokens` drawn from `unique_tokens` are worth."""
    if unique_tokens is None or tokens <= unique_tokens:
        return tokens
    repeats = tokens / unique_tokens - 1.0
    return unique_tokens * (1.0 - _LASTING_REPEATS * math.expm1(-repeats / _LASTING_REPEATS))
