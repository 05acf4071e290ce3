"""What of a model is trained: all of it, or low-rank adapters beside frozen weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Method(StrEnum):
    """The three ways to train that the planner knows."""

    FULL = "full"
    #: adapters beside frozen 16-bit weights (Hu et al., 2021)
    LORA = "lora"
    #: adapters beside weights in four bits, unpacked for each product (Dettmers et al., 2023)
    QLORA = "qlora"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A method with its adapters: `trainable` parameters are learnt, the others are frozen."""

    method: Method = Method.FULL
    #: inner width of the adapters; 0 for full training
    rank: int = 0
    #: the matrices that have adapters
    targets: tuple[str, ...] = ()
    trainable: int
    #: bytes that each frozen parameter takes, with the constants of its quantisation
    frozen_bytes: float = 2.0


#: nf4 with double quantisation: 4 bits, and 0.127 for the constants of blocks of 64
QUANTISED_BYTES = (4.0 + 0.127) / 8.0
