"""Colours that stay the same: of a job by its id, of a tenant by its name.

Hues are spread by a hash, so that nobody has to remember who has which. Three tones tell those
apart whose hues happen to be close. All can be told from light and from dark paper.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

#: lightness and chroma in OKLCH
TONES = ((0.64, 0.16), (0.77, 0.12), (0.52, 0.13))
HUES = 360


@lru_cache(maxsize=20_000)
def colour(name: str) -> str:
    """The colour of a job or of a tenant, as CSS and SVG write it."""
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big")
    lightness, chroma = TONES[number // HUES % len(TONES)]
    return f"oklch({lightness} {chroma} {number % HUES})"
