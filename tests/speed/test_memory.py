"""Peak memory: published counts, and what must hold whatever the coefficients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.adapters import full_training, lora
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.platform import platform
from modelyard.spec.tuning import QUANTISED_BYTES, Method, Tuning
from modelyard.spec.zoo import zoo_model
from modelyard.speed.physical.columns import Columns, LayoutColumns
from modelyard.speed.physical.families import Style
from modelyard.speed.physical.memory import (
    MemoryEstimate,
    peak_memory,
    shipped_memory,
    usable_bytes,
)
from modelyard.speed.physical.memory_activations import (
    activations,
    layer_activations,
    micro_batches_in_flight,
)
from modelyard.speed.physical.memory_coefficients import NAMES, TERMS, MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory
from modelyard.speed.physical.memory_states import stage_parameters, states

GIB = 2.0**30


def gpt(layers: int = 24, hidden: int = 1024, heads: int = 16, vocab: int = 51_200) -> Model:
    return Model(
        name="gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        value_size=hidden // heads,
        ffn=4 * hidden,
        vocab=vocab,
        parameters=Parameters(
            embedding=vocab * hidden,
            attention=layers * 4 * hidden * hidden,
            mlp=layers * 8 * hidden * hidden,
        ),
    )


def mixture() -> Model:
    dense = gpt(layers=8)
    counts = dense.parameters
    return replace(
        dense,
        experts=16,
        experts_per_token=2,
        expert_ffn=2048,
        gated=True,
        parameters=replace(counts, mlp=0, experts=8 * 16 * 3 * 1024 * 2048),
    )


def columns_of(
    *layouts: Layout,
    model: Model | None = None,
    tuning: Tuning | None = None,
    sequence: int = 2048,
    precision: Precision = Precision.BF16,
    style: Style = Style.UNKNOWN,
    kind: str = "A100",
) -> Columns:
    model = model or gpt()
    return Columns.of(
        model,
        tuning or Tuning(trainable=model.parameters.total),
        platform(kind, max(layout.devices for layout in layouts)),
        LayoutColumns.of(layouts),
        sequence=sequence,
        precision=precision,
        style=style,
    )


def estimated(columns: Columns) -> MemoryEstimate:
    return peak_memory(columns, shipped_memory())


# Korthikanti et al. 2022, figure 1, as read off by the authors of Calculon: GiB on the first stage.
# layers, hidden, heads, stages, chunks, micro-batch; states, activations: all, selective + sequence
PAPER = [
    pytest.param(48, 6144, 64, 1, 1, 4, 45.5625, 59.25, 9.5625, id="22B"),
    pytest.param(96, 12_288, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625, id="175B"),
    pytest.param(105, 20_480, 128, 35, 3, 1, 31.640625, 114.0234375, 23.076171875, id="530B"),
    pytest.param(128, 25_600, 160, 64, 1, 1, 32.958984375, 131.25, 26.5625, id="1T"),
]


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "stages", "chunks", "micro", "held", "all_kept", "selective"),
    PAPER,
)
def test_counts_of_korthikanti(
    layers: int,
    hidden: int,
    heads: int,
    stages: int,
    chunks: int,
    micro: int,
    held: float,
    all_kept: float,
    selective: float,
) -> None:
    plain = Layout(
        tensor=8,
        pipeline=stages,
        virtual=chunks,
        micro_batch=micro,
        accumulation=512,
        flash=False,
    )
    columns = columns_of(
        plain,
        replace(plain, recompute=Recompute.SELECTIVE, sequence_parallel=True),
        model=gpt(layers, hidden, heads),
        precision=Precision.FP16,
        style=Style.FUSED,
    )
    kept = activations(columns, last=False, operations_kept=0.5).kept / GIB
    assert kept == pytest.approx([all_kept, selective], rel=1e-3)
    # The figure leaves embeddings out.
    parameters = stage_parameters(columns, last=False)
    blocks = replace(parameters, dense=parameters.dense - parameters.ends)
    found = states(columns, blocks)
    total = (found.weights + found.gradients + found.optimizer) / GIB
    assert total == pytest.approx([held, held], rel=1e-3)


def test_a_layer_of_a_gpt_takes_34_bytes_and_its_scores_5() -> None:
    columns = columns_of(Layout(flash=False, micro_batch=3), style=Style.FUSED)
    layer = layer_activations(columns)
    base = 2048 * 3 * 1024
    assert layer.dense == pytest.approx(34 * base)
    assert layer.scores == pytest.approx(5 * 16 * 2048**2 * 3)
    assert layer.entry == pytest.approx(2 * base)


@pytest.mark.parametrize(
    ("sharding", "style", "expected"),
    [
        (Sharding.NONE, Style.FUSED, 18.0),
        (Sharding.ZERO1, Style.TUNED, 6.0 + 12.0 / 8),
        (Sharding.ZERO1, Style.EAGER, 4.0 + 12.0 / 8),
        (Sharding.ZERO2, Style.EAGER, 2.0 + 14.0 / 8),
        (Sharding.ZERO3, Style.UNKNOWN, 16.0 / 8),
    ],
)
def test_bytes_per_parameter_of_each_sharding_level(
    sharding: Sharding, style: Style, expected: float
) -> None:
    """Rajbhandari et al. 2020, figure 1; 18 and 6 + 12/dp are Megatron's, which sums in 32 bits."""
    columns = columns_of(Layout(data=8, sharding=sharding), style=style)
    found = states(columns, stage_parameters(columns, last=False))
    total = found.weights + found.gradients + found.optimizer
    assert total / gpt().parameters.total == pytest.approx(expected)


def test_software_that_nobody_named_is_between_deepspeed_and_megatron_and_less_sure() -> None:
    layout = Layout(data=8, sharding=Sharding.ZERO1)
    deepspeed, megatron, unsaid = (
        estimated(columns_of(layout, style=style))
        for style in (Style.EAGER, Style.FUSED, Style.UNKNOWN)
    )
    narrow, wide, between = (one.parts["gradients"] for one in (deepspeed, megatron, unsaid))
    assert narrow < between < wide
    assert unsaid.sigma > 1.2 * max(deepspeed.sigma, megatron.sigma)


def test_the_step_of_deepspeed_copies_gradients() -> None:
    """fp16 and fp32 arrays of the share under ZeRO, two fp32 ones without; 64 bits for the norm."""
    layouts = (Layout(data=8), Layout(data=8, sharding=Sharding.ZERO1))
    columns = columns_of(*layouts, style=Style.EAGER)
    found = states(columns, stage_parameters(columns, last=False))
    total = gpt().parameters.total
    assert found.step_copies / total == pytest.approx([8.0, 6.0 / 8])
    # The table of 51,200 by 1,024 has more than an eighth of all parameters.
    assert found.norm == pytest.approx([0.0, 8.0 * total / 8])
    assert found.bucket == pytest.approx([0.0, 2.0 * total])
    megatron = columns_of(*layouts, style=Style.FUSED)
    held = states(megatron, stage_parameters(megatron, last=False))
    assert not (held.step_copies + held.norm + held.bucket).any()


def test_an_embedding_on_two_stages_has_a_communicator() -> None:
    layout = Layout(pipeline=2, accumulation=4)
    tied, apart = (
        estimated(columns_of(layout, model=replace(gpt(), tied=tied))).parts["communicators"]
        for tied in (True, False)
    )
    assert tied == pytest.approx(2.0 * apart)


def test_training_in_32_bits_takes_16_bytes_per_parameter() -> None:
    columns = columns_of(Layout(), precision=Precision.FP32)
    found = states(columns, stage_parameters(columns, last=False))
    total = found.weights + found.gradients + found.optimizer
    assert total / gpt().parameters.total == pytest.approx(16.0)


@pytest.mark.parametrize(("frozen", "most"), [(2.0, 2.1), (QUANTISED_BYTES, 0.85)])
def test_adapters_keep_frozen_weights_and_little_else(frozen: float, most: float) -> None:
    model = gpt(layers=32, hidden=4096, heads=32, vocab=32_000)
    tuning = Tuning(
        method=Method.LORA, rank=16, trainable=model.parameters.total // 250, frozen_bytes=frozen
    )
    columns = columns_of(Layout(), model=model, tuning=tuning)
    found = states(columns, stage_parameters(columns, last=False))
    total = found.weights + found.gradients + found.optimizer
    assert frozen < total[0] / model.parameters.total < most


# LLaMA-Factory's README, "hardware requirement", GB for batch 1 and short sequences.
TUNING_GIGABYTES = [
    ("llama2-7b", None, 120),
    ("llama2-13b", None, 240),
    ("llama2-70b", None, 1200),
    ("llama2-7b", False, 16),
    ("llama2-13b", False, 32),
    ("llama2-70b", False, 160),
    ("llama2-7b", True, 6),
    ("llama2-13b", True, 12),
    ("llama2-70b", True, 48),
]


@pytest.mark.parametrize(("name", "quantised", "gigabytes"), TUNING_GIGABYTES)
def test_rules_of_thumb_for_tuning(name: str, quantised: bool | None, gigabytes: float) -> None:
    model = zoo_model(name)
    tuning = full_training(model) if quantised is None else lora(model, quantised=bool(quantised))
    columns = columns_of(Layout(recompute=Recompute.FULL), model=model, tuning=tuning, sequence=512)
    assert estimated(columns).bytes[0] / 1e9 == pytest.approx(gigabytes, rel=0.15)


def test_in_flight_micro_batches_of_both_schedules() -> None:
    layouts = (
        Layout(pipeline=8, accumulation=64),
        Layout(pipeline=8, virtual=2, accumulation=64),
        Layout(pipeline=8, accumulation=3),
    )
    columns = columns_of(*layouts)
    assert micro_batches_in_flight(columns, last=False).tolist() == [8.0, 8.0 + 7.0 / 2.0, 3.0]
    assert micro_batches_in_flight(columns, last=True).tolist() == [1.0, 4.5, 1.0]


def test_relative_positions_of_t5_leave_flash_kernels_aside() -> None:
    model = replace(gpt(layers=12), kind=ModelKind.ENCODER_DECODER, decoder_layers=12)
    with_flash, without = (
        layer_activations(columns_of(Layout(flash=flash), model=model)) for flash in (True, False)
    )
    assert with_flash.scores == pytest.approx(without.scores)


layouts = st.builds(
    Layout,
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4, 8]),
    virtual=st.sampled_from([1, 2]),
    context=st.sampled_from([1, 2]),
    expert=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 4, 16]),
    sharding=st.sampled_from(list(Sharding)),
    micro_batch=st.sampled_from([1, 2, 8]),
    accumulation=st.sampled_from([1, 4, 32]),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(list(Recompute)),
    flash=st.booleans(),
    compiled=st.booleans(),
)
styles = st.sampled_from(list(Style))
models = st.sampled_from([gpt(), gpt(layers=7, hidden=768, heads=12), mixture()])
precisions = st.sampled_from([Precision.BF16, Precision.FP32, Precision.FP8])


@given(st.lists(layouts, min_size=1, max_size=8), models, styles, precisions)
def test_parts_add_up_and_one_by_one_is_the_same(
    several: list[Layout], model: Model, style: Style, precision: Precision
) -> None:
    def predicted(*these: Layout) -> MemoryEstimate:
        columns = columns_of(*these, model=model, style=style, precision=precision, kind="H100")
        return estimated(columns)

    together = predicted(*several)
    assert sum(together.parts.values()) == pytest.approx(together.bytes)
    assert (together.bytes > 0.0).all()
    assert (together.low < together.bytes).all()
    assert (together.high > together.bytes).all()
    for place, layout in enumerate(several):
        alone = predicted(layout)
        assert alone.bytes[0] == pytest.approx(together.bytes[place])
        assert alone.sigma[0] == pytest.approx(together.sigma[place])


@given(layouts, models, styles)
def test_more_recomputation_never_takes_more(layout: Layout, model: Model, style: Style) -> None:
    levels = (replace(layout, recompute=level) for level in Recompute)
    columns = columns_of(*levels, model=model, style=style)
    held = activations(columns, last=False, operations_kept=0.5).kept
    assert held[2] <= held[1] <= held[0]


@given(layouts, models, styles)
def test_each_sharding_level_divides_more(layout: Layout, model: Model, style: Style) -> None:
    columns = columns_of(
        *(replace(layout, sharding=level) for level in Sharding), model=model, style=style
    )
    found = states(columns, stage_parameters(columns, last=False))
    total = found.weights + found.gradients + found.optimizer
    assert (np.diff(total) <= 1e-6 * total[0]).all()


@given(layouts, models, styles)
def test_more_of_any_division_never_takes_more(layout: Layout, model: Model, style: Style) -> None:
    # A run of one device has no communicators: compare runs that have them all.
    one = replace(layout, tensor=2, data=2, context=2, shard_group=0)
    more = (replace(one, tensor=4), replace(one, data=4), replace(one, context=4))
    found = estimated(columns_of(one, *more, model=model, style=style))
    assert (found.bytes[1:] <= found.bytes[0] * (1.0 + 1e-9)).all()


@given(layouts, st.floats(1e6, 1e13), st.floats(1.01, 10.0))
def test_probability_falls_with_the_memory_at_hand(
    layout: Layout, capacity: float, factor: float
) -> None:
    found = estimated(columns_of(layout))
    less, more = (found.probability_over(capacity * scale)[0] for scale in (1.0, factor))
    assert 0.0 <= more <= less <= 1.0
    assert found.probability_over(found.needed) == pytest.approx(0.5)
    assert found.probability_over(0.0) == pytest.approx(1.0)


@given(layouts, st.floats(0.3, 3.0))
def test_a_device_never_shows_more_than_it_has_where_that_suffices(
    layout: Layout, share: float
) -> None:
    found = estimated(columns_of(layout))
    capacity = found.needed * share
    seen = found.within(capacity)
    assert (seen.bytes <= found.bytes).all()
    assert (seen.bytes >= found.needed * (1.0 - 1e-9)).all()
    assert seen.bytes == pytest.approx(
        np.clip(found.bytes, found.needed, np.maximum(capacity, found.needed))
    )
    assert sum(seen.parts.values()) == pytest.approx(seen.bytes)
    assert all((part >= 0.0).all() for part in seen.parts.values())


def test_a_device_gives_less_than_its_name_says() -> None:
    small, large = (
        usable_bytes(columns_of(Layout(), precision=Precision.FP16, kind=kind))
        for kind in ("T4", "A100")
    )
    # A T4 shows 15,109 MiB, an A100 of 80 GB at least 79 GiB.
    assert small / GIB == pytest.approx(15_109 / 1024, rel=0.01)
    assert large / GIB == pytest.approx(79.0, rel=0.01)


def test_coefficients_survive_being_written_down() -> None:
    shipped = shipped_memory()
    again = MemoryCoefficients.parse(shipped.dump())
    assert again.values == pytest.approx(shipped.values, rel=1e-5)
    assert again.matrix == pytest.approx(shipped.matrix, abs=1e-8)
    for term, value in zip(TERMS, shipped.values, strict=True):
        assert term.lowest * 0.999 <= value <= term.highest * 1.001


def test_refit_finds_what_made_the_peaks_and_grows_surer() -> None:
    layouts = [
        Layout(data=8, micro_batch=size, recompute=Recompute.FULL, flash=False)
        for size in (1, 2, 4, 8, 16, 32)
    ]
    columns = columns_of(*layouts)
    before = MemoryCoefficients.prior()
    truth = np.array(before.logarithms)
    truth[NAMES.index("logit_bytes")] += 0.1
    measured = peak_memory(
        columns, MemoryCoefficients.of(truth, before.matrix, before.spread)
    ).bytes
    after = refit_memory(before, columns, measured)
    error = np.abs(peak_memory(columns, after).bytes / measured - 1.0)
    assert error.max() < 0.03
    assert after.spread < before.spread
    assert (peak_memory(columns, after).sigma < peak_memory(columns, before).sigma).all()


def test_outcomes_teach_too() -> None:
    layout = Layout(data=8, micro_batch=16, recompute=Recompute.FULL)
    columns = columns_of(layout)
    before = MemoryCoefficients.prior()
    first = peak_memory(columns, before)
    limit = first.needed * 0.8
    fitted = peak_memory(columns, refit_memory(before, columns, limit, bound=-1.0))
    failed = peak_memory(columns, refit_memory(before, columns, limit / 0.64, bound=1.0))
    assert fitted.bytes < first.bytes < failed.bytes


@pytest.mark.parametrize("wrong", [[np.nan], [0.0], [-1.0], [np.inf], [1e9, 1e9], []])
def test_refit_refuses_what_is_no_peak(wrong: list[float]) -> None:
    with pytest.raises(InputError):
        refit_memory(MemoryCoefficients.prior(), columns_of(Layout()), np.array(wrong))
