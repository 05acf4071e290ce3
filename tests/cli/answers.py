"""Answers made by hand, so that what is printed can be tested without a search."""

from __future__ import annotations

from dataclasses import replace

from modelyard.plan.answer import (
    Answer,
    Binding,
    CurvePoint,
    Interval,
    Loser,
    Plan,
    Refusal,
    Relaxation,
    Searched,
    Share,
)
from modelyard.plan.request import Limits, Pins, Request
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, Parameters
from modelyard.spec.platform import platform
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Tuning

DAY = 86_400.0
GIBIBYTE = 1024.0**3

#: Markup that must not survive into a page, and brackets that rich would take for a style.
NASTY_NAME = '<script>alert(1)</script> [bold]x[/] & "y"'


def interval(value: float, spread: float = 0.15) -> Interval:
    return Interval(value, value * (1 - spread), value * (1 + spread))


def model(name: str = "tiny-7b") -> Model:
    return Model(
        name=name,
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        head_size=128,
        value_size=128,
        ffn=11008,
        gated=True,
        vocab=32000,
        tied=False,
        longest=4096,
        parameters=Parameters(
            embedding=131_072_000,
            attention=2_147_749_888,
            mlp=4_328_521_728,
            head=131_076_096,
        ),
    )


def pool(kind: str = "H100", devices: int = 64, usd: float | None = 2.5) -> Pool:
    return Pool(platform=platform(kind, devices), usd_per_hour=usd, spot_usd_per_hour=1.0)


def request(name: str = "tiny-7b", **parts: object) -> Request:
    found = model(name)
    made = Request(
        model=found,
        tuning=Tuning(trainable=found.parameters.total),
        pools=(pool(),),
        tokens=300e9,
        sequence=4096,
        limits=Limits(deadline_seconds=10 * DAY),
        pins=Pins(tensor=2),
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def plan(days: float = 3.2, usd: float | None = 12_400.0, **parts: object) -> Plan:
    layout = parts.pop("layout", None) or Layout(
        tensor=2,
        data=32,
        sharding=Sharding.ZERO1,
        micro_batch=2,
        accumulation=16,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
    )
    assert isinstance(layout, Layout)
    made = Plan(
        pool=pool(),
        layout=layout,
        step_seconds=interval(3.87),
        step_parts={"matmul": 2.6, "memory_traffic": 0.6, "tensor_inside": 0.5, "optimizer": 0.17},
        memory_bytes=interval(61.3 * GIBIBYTE, 0.1),
        memory_parts={
            "weights": 12.5 * GIBIBYTE,
            "gradients": 12.5 * GIBIBYTE,
            "optimizer": 5.0 * GIBIBYTE,
            "activations": 31.2 * GIBIBYTE,
            "buffers": 0.1 * GIBIBYTE,
        },
        memory_risk=0.021,
        steps=71_525.0,
        tokens=300e9,
        goodput=0.985,
        checkpoint_interval_seconds=9_486.0,
        run_seconds=interval(days * DAY),
        usd=None if usd is None else interval(usd),
        loss=interval(2.05, 0.02),
        model_flops_share=0.43,
        binding=Binding.DEVICES,
        why="all 64 H100 are in use; 8 more would save 8 hours",
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def mixed() -> Plan:
    """Two kinds that divide the data of a step."""
    shares = tuple(
        Share(
            pool=pool(kind, devices),
            devices=devices,
            layout=Layout(data=devices),
            layers=32,
            sequences=sequences,
            memory_bytes=30 * GIBIBYTE,
            memory_risk=0.01,
        )
        for kind, devices, sequences in (("H100", 8, 384), ("A100", 16, 128))
    )
    return plan(shares=shares, layout=Layout(data=8))


def answer(**parts: object) -> Answer:
    best, second = plan(), plan(3.5, 13_600.0, layout=Layout(tensor=4, data=16, micro_batch=4))
    few = plan(12.1, 11_700.0, layout=Layout(tensor=2, data=8, accumulation=64))
    made = Answer(
        request=request(),
        plans=(best, second, few),
        runner_up=Loser(second, "it would take 7 hours longer and cost $1,200 more"),
        front=(best, few),
        refusal=None,
        curve=tuple(
            CurvePoint("H100", devices, 3.87 * 64 / devices, 16_930.0 * devices)
            for devices in (8, 16, 32, 64)
        ),
        searched=Searched(enumerated=12_345, fitting=4_567, kept=1_234),
        notes=("the loss is extrapolated threefold",),
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def refused() -> Answer:
    relaxed = Relaxation(Binding.DEADLINE, "--deadline 4d", "64 × H100 would need 3.2 days", plan())
    refusal = Refusal(
        binding=Binding.DEADLINE,
        why="the fastest plan takes 3.2 days, 1.2 more than the deadline",
        relaxations=(relaxed,),
    )
    return answer(plans=(), runner_up=None, front=(), refusal=refusal)
