"""What can be foreseen of a job at its submission: the planner's curve, or an assumption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pydantic import TypeAdapter

from modelyard.control.knowledge import Estimate
from modelyard.errors import InputError
from modelyard.spec.devices import find_device
from modelyard.spec.job import JobSpec
from modelyard.speed.amdahl import AmdahlSpeed

if TYPE_CHECKING:
    from modelyard.planner.options import Options

#: The speed-up that is assumed of an elastic job of which the planner knows nothing.
ASSUMED_SPEEDUP = AmdahlSpeed(serial=0.05)
#: Larger jobs are planned at these many sizes at most.
MOST_SIZES = 64
#: Where the data says how many tokens there are, nobody has to write it.
ASSUMED_VOCABULARY = 32_000
#: Words of a job's model options that the planner understands as well.
SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "longest")

_ESTIMATES: TypeAdapter[Estimate] = TypeAdapter(Estimate)


def estimate(spec: JobSpec, kinds: Sequence[str]) -> Estimate:
    """What is known of a job before it has run on one of these kinds."""
    if spec.command is not None or spec.steps is None:
        return Estimate(seconds=spec.duration)
    steps = float(spec.steps)
    for kind in kinds:
        if points := _planned(spec, kind):
            return Estimate(steps=steps, curve=points, seconds=spec.duration, planned=True)
    sizes = range(spec.devices.min, min(spec.devices.max, spec.devices.min + MOST_SIZES) + 1)
    assumed = tuple((size, ASSUMED_SPEEDUP.speedup(size)) for size in sizes)
    return Estimate(steps=steps, curve=assumed, seconds=spec.duration)


def _planned(spec: JobSpec, kind: str) -> tuple[tuple[int, float], ...]:
    """The planner's steps per second by devices; nothing where it cannot say."""
    if spec.model is None or spec.train is None or spec.batch is None:
        return ()
    if find_device(kind) is None:
        return ()
    # The planner is a second's work, and a server that takes commands only never needs it.
    from modelyard.planner.door import plan

    options: dict[str, object] = {
        "devices": f"{spec.devices.min}..{spec.devices.max}x{kind}",
        "batch": spec.batch,
        "sequence": spec.train.sequence,
        "tokens": spec.batch * spec.train.sequence * (spec.steps or 1),
    }
    shape = {name: value for name, value in spec.train.model_options.items() if name in SHAPE}
    if shape:
        options |= {"vocab": ASSUMED_VOCABULARY, **shape}
    try:
        answer = plan("" if shape else spec.model, **cast("Options", options))
    except InputError:
        return ()
    rising: dict[int, float] = {}
    for point in answer.curve:
        if point.devices >= 1 and point.step_seconds > 0.0:
            rising[point.devices] = 1.0 / point.step_seconds
    return tuple(sorted(rising.items()))


def estimate_text(found: Estimate) -> dict[str, object]:
    return dict(_ESTIMATES.dump_python(found, mode="json"))


def estimate_of(written: object) -> Estimate:
    return _ESTIMATES.validate_python(written)
