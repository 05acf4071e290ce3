"""Pins that contradict the model, the devices, the batch or each other, and how to mend them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from modelyard.errors import Problem
from modelyard.plan.request import Pins, Request
from modelyard.plan.space import divisors, pipeline_choices, stage_layers, tensor_divides
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import Model, ModelKind


def pin_problems(request: Request) -> list[Problem]:
    """All contradictions; none when a layout with these pins could exist."""
    found = list(_ranges(request.pins))
    if not found:
        found += [
            *_model(request.model, request.pins),
            *_sequence(request),
            *_batch(request),
            *_devices(request),
            *_together(request),
        ]
    return found


def _ranges(pins: Pins) -> Iterator[Problem]:
    for field in fields(Pins):
        value = getattr(pins, field.name)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        least = 0 if field.name == "servers" else 1
        if value < least:
            name = field.name.replace("_", "-")
            yield Problem(f"--{name} {value} is not possible", f"write {least} or more")


def _model(model: Model, pins: Pins) -> Iterator[Problem]:
    if pins.tensor is not None and not tensor_divides(model, pins.tensor):
        able = [t for t in divisors(model.heads) if tensor_divides(model, t)]
        widths = f"{model.heads} heads, {model.kv_heads} of keys, and a width of {model.ffn:,}"
        what = f"--tensor {pins.tensor} does not divide {model.name} ({widths})"
        yield Problem(what, f"use {_some(able)}")
    stages = pipeline_choices(model)
    if pins.pipeline is not None and pins.pipeline not in stages:
        what = f"--pipeline {pins.pipeline} does not divide {model.name}"
        if stages == [1]:
            what += ", whose blocks are of two sorts or repeated"
        else:
            what += f" ({model.layers} layers)"
        yield Problem(what, f"use {_some(stages)}")
    if pins.recompute_layers is not None and pins.recompute_layers > model.layers:
        what = f"--recompute-layers {pins.recompute_layers:,} is more than the {model.layers:,} of"
        yield Problem(f"{what} {model.name}", f"use 1 to {model.layers:,}")
    if pins.expert is not None and max(model.experts, 1) % pins.expert:
        if model.experts:
            what = f"--expert {pins.expert} does not divide {model.experts} experts"
            yield Problem(what, f"use {_some(divisors(model.experts))}")
        else:
            yield Problem(f"--expert {pins.expert}: {model.name} has no experts", "leave it out")
    if pins.virtual is not None and pins.virtual > 1:
        yield from _virtual(model, pins, pins.virtual)


def _virtual(model: Model, pins: Pins, virtual: int) -> Iterator[Problem]:
    if pins.pipeline == 1:
        what = f"--virtual {virtual} divides stages, and --pipeline 1 has none"
        yield Problem(what, "use --virtual 1, or more stages")
    elif stage_layers(model, pins.pipeline or 1) % (virtual * (pins.pipeline or 1)):
        chunks = f"{virtual} chunks of {pins.pipeline or 'each'} stages"
        what = f"--virtual {virtual}: {model.layers} layers do not divide into {chunks}"
        yield Problem(what, f"use {_some(_chunks(model, pins.pipeline or 1))}")


def _chunks(model: Model, pipeline: int) -> list[int]:
    return divisors(max(1, stage_layers(model, pipeline) // pipeline))


def _sequence(request: Request) -> Iterator[Problem]:
    context, sequence = request.pins.context, request.sequence
    if context is None or context == 1:
        return
    if request.model.kind is ModelKind.ENCODER_DECODER:
        what = f"--context {context}: sequences of an encoder and a decoder are not divided"
        yield Problem(what, "leave it out")
    elif sequence % (2 * context):
        what = f"--context {context} needs two equal pieces of a sequence on each device, and "
        what += f"{sequence:,} tokens cannot be cut into {2 * context}"
        yield Problem(what, "use a sequence that can, or another number")


def _batch(request: Request) -> Iterator[Problem]:
    pins, batch = request.pins, request.global_batch
    if batch is None:
        return
    named = [
        (name, value)
        for name, value in (
            ("data", pins.data),
            ("micro-batch", pins.micro_batch),
            ("accumulation", pins.accumulation),
        )
        if value is not None
    ]
    product = 1
    for _, value in named:
        product *= value
    told = " × ".join(f"--{name} {value}" for name, value in named)
    # With all three there is one batch; with fewer, the nearest multiple.
    near = product if len(named) == 3 else max(1, round(batch / product)) * product
    if abs(near - batch) <= batch * request.batch_tolerance:
        return
    if batch % product:
        what = f"{told} does not divide a batch of {batch:,}"
        yield Problem(what, f"use --batch {near}")
    elif len(named) == 3 and product != batch:
        what = f"{told} makes a batch of {product:,}, not {batch:,}"
        yield Problem(what, f"use --batch {product}, or leave one of them out")


def _devices(request: Request) -> Iterator[Problem]:
    pins = request.pins
    named = [
        (name, value)
        for name, value in (
            ("tensor", pins.tensor),
            ("pipeline", pins.pipeline),
            ("context", pins.context),
            ("data", pins.data),
        )
        if value is not None and value > 1
    ]
    product = 1
    for _, value in named:
        product *= value
    most = max(pool.most for pool in request.pools)
    told = " × ".join(f"--{name} {value}" for name, value in named)
    if request.mixed:
        most = sum(pool.most for pool in request.pools)
    if product > most:
        what = f"{told} takes {product:,} devices, and there are {most:,}"
        yield Problem(what, "ask for more devices or divide less")
    elif None not in (pins.tensor, pins.pipeline, pins.context, pins.data):
        fewest = min(pool.fewest for pool in request.pools)
        if product < fewest:
            what = f"{told or 'the pins'} takes {product:,} devices of at least {fewest:,}"
            yield Problem(what, "ask for fewer devices or divide more")


def _together(request: Request) -> Iterator[Problem]:
    pins = request.pins
    if pins.sequence_parallel and pins.tensor == 1:
        what = "--sequence-parallel divides norms over tensor-parallel devices, and --tensor 1 "
        yield Problem(what + "has none", "leave one of them out")
    if pins.expert is not None and pins.data is not None and pins.context is not None:
        group = pins.data * pins.context
        if group % pins.expert:
            what = f"--expert {pins.expert} needs replicas to divide experts over, and --data "
            what += f"{pins.data} × --context {pins.context} is not a multiple of it"
            yield Problem(what, f"use {_some(divisors(group))}")
    if pins.sharding not in (None, Sharding.NONE) and pins.data == 1 and pins.context in (None, 1):
        what = f"--sharding {pins.sharding} divides states over replicas, and --data 1 has none"
        yield Problem(what, "leave one of them out")
    if pins.recompute is Recompute.SELECTIVE and pins.flash:
        what = "--recompute selective computes scores again that --flash never stores"
        yield Problem(what, "leave one of them out")
    if pins.recompute_layers is not None and pins.recompute not in (None, Recompute.FULL):
        what = f"--recompute-layers {pins.recompute_layers} computes whole blocks again, and "
        yield Problem(what + f"--recompute {pins.recompute} does not", "write --recompute full")
    if pins.virtual in (None, 1) or pins.pipeline is None or pins.accumulation is None:
        return
    if pins.accumulation % pins.pipeline:
        what = f"--virtual {pins.virtual} takes micro-batches in groups of {pins.pipeline}, "
        what += f"and --accumulation {pins.accumulation} is not a multiple of it"
        yield Problem(what, f"use --accumulation {pins.pipeline}")


def _some(numbers: list[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    if len(numbers) > 8:
        shown = [*shown[:7], "…", str(numbers[-1])]
    return ", ".join(shown[:-1]) + f" or {shown[-1]}" if len(shown) > 1 else shown[0]
