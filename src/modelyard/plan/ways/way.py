"""One way to make a run fit, in figures that compare with those of any other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.plan.answer import Interval
from modelyard.plan.request import Limits
from modelyard.spec.layout import Layout
from modelyard.spec.model import Model


class WayName(StrEnum):
    """All ways, in the order in which they are shown."""

    #: nothing is changed; the best configuration of all
    AS_ASKED = "as asked"
    #: a configuration found by changing one choice at a time
    TUNE = "tune"
    NARROWER = "shrink width"
    SHALLOWER = "shrink depth"
    #: a smaller model that trains on more tokens to the same loss
    LONGER = "shrink, train longer"
    STAGE = "stage"
    FP8 = "train in fp8"
    PRUNE = "prune"
    DISTIL = "distil"
    QUANTISE = "quantise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Times in seconds, money in US dollars. Figures are None where nothing is known of them."""

    name: WayName
    #: what the run leaves behind
    model: Model
    #: how many it trains on, all phases together
    tokens: float
    #: None when it fits on none of the devices
    seconds: Interval | None
    usd: Interval | None
    #: None for models without a law of loss (encoders, adapters)
    loss: Interval | None
    #: of its longest phase
    kind: str = ""
    devices: int = 0
    layout: Layout | None = None
    #: whether it keeps every limit that was set, by the middle of its intervals
    keeps: bool
    #: what is different from the run that was asked for
    changes: str
    #: why these figures, with numbers
    why: str
    #: where disputed gains come from
    source: str = ""
    #: what must be there before it can begin
    needs: str = ""


def keeps_limits(
    limits: Limits, seconds: Interval | None, usd: Interval | None, loss: Interval | None
) -> bool:
    """Whether figures keep the limits; a figure that is not known keeps none."""
    pairs = (
        (limits.deadline_seconds, seconds),
        (limits.budget_usd, usd),
        (limits.most_loss, loss),
    )
    return seconds is not None and all(
        limit is None or (figure is not None and figure.value <= limit) for limit, figure in pairs
    )


def scaled_by(interval: Interval, factor: float) -> Interval:
    """All of an interval times a factor."""
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def widened(interval: Interval, least: float, most: float) -> Interval:
    """An interval whose truth is multiplied by something between `least` and `most`."""
    middle = (least * most) ** 0.5
    return Interval(interval.value * middle, interval.low * least, interval.high * most)


def added(first: Interval, second: Interval) -> Interval:
    """The sum of two figures that are wrong in the same direction, being of one machine."""
    return Interval(first.value + second.value, first.low + second.low, first.high + second.high)
