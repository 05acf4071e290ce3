"""Step times: properties that hold for any factors, and published figures with their source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, Parameters
from modelyard.spec.platform import platform
from modelyard.spec.tuning import Method, Tuning
from modelyard.speed.physical.coefficients import from_text, prior, to_text
from modelyard.speed.physical.columns import Columns, LayoutColumns
from modelyard.speed.physical.families import STYLE_CODE, Style
from modelyard.speed.physical.fitting import fit, refit
from modelyard.speed.physical.shipped import shipped
from modelyard.speed.physical.steps import step_times
from modelyard.speed.physical.terms import PARAMETERS, TERM_NAMES
from modelyard.speed.physical.traffic import traffic_of
from modelyard.speed.physical.work import work_of


def gpt(layers: int = 32, hidden: int = 4096, vocab: int = 51_200) -> Model:
    block = 12 * hidden * hidden
    return Model(
        name="gpt",
        layers=layers,
        hidden=hidden,
        heads=hidden // 128,
        kv_heads=hidden // 128,
        head_size=128,
        value_size=128,
        ffn=4 * hidden,
        vocab=vocab,
        parameters=Parameters(
            embedding=vocab * hidden,
            attention=layers * block // 3,
            mlp=layers * (block - block // 3),
        ),
    )


def columns(
    *layouts: Layout, model: Model | None = None, kind: str = "A100", devices: int = 64
) -> Columns:
    chosen = model or gpt()
    return Columns.of(
        chosen,
        Tuning(trainable=chosen.parameters.total),
        platform(kind, devices),
        LayoutColumns.of(layouts),
        sequence=2048,
        precision=Precision.BF16,
    )


layouts = st.builds(
    Layout,
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    virtual=st.sampled_from([1, 2]),
    context=st.sampled_from([1, 2]),
    data=st.sampled_from([1, 2, 8, 64]),
    sharding=st.sampled_from(list(Sharding)),
    micro_batch=st.sampled_from([1, 2, 8]),
    accumulation=st.sampled_from([1, 4, 16]),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(list(Recompute)),
    flash=st.booleans(),
    compiled=st.booleans(),
    servers=st.sampled_from([0, 0, 4]),
)


@given(st.lists(layouts, min_size=1, max_size=8))
def test_parts_sum_to_seconds_and_intervals_hold_them(some: list[Layout]) -> None:
    estimate = step_times(columns(*some), shipped())
    total = np.sum(list(estimate.parts.values()), axis=0)
    np.testing.assert_allclose(total, estimate.seconds, rtol=1e-12)
    assert all((part >= -1e-15).all() for part in estimate.parts.values())
    assert np.isfinite(estimate.sigma).all()
    assert (estimate.low < estimate.seconds).all()
    assert (estimate.seconds < estimate.high).all()


@given(st.lists(layouts, min_size=2, max_size=6))
def test_many_at_once_equal_one_by_one(some: list[Layout]) -> None:
    together = step_times(columns(*some), shipped())
    for place, layout in enumerate(some):
        alone = step_times(columns(layout), shipped())
        np.testing.assert_allclose(alone.seconds[0], together.seconds[place], rtol=1e-9)
        np.testing.assert_allclose(alone.sigma[0], together.sigma[place], rtol=1e-9)


@given(layouts)
def test_more_work_never_takes_less_time(layout: Layout) -> None:
    longer = replace(layout, accumulation=layout.accumulation * 2)
    again = replace(layout, recompute=Recompute.FULL)
    estimate = step_times(columns(layout, longer, again), shipped())
    assert estimate.seconds[1] > estimate.seconds[0]
    assert estimate.seconds[2] >= estimate.seconds[0] * (1.0 - 1e-12)
    deeper = step_times(columns(layout, model=gpt(layers=64)), shipped())
    assert deeper.seconds[0] > estimate.seconds[0]


@given(layouts, st.sampled_from([2, 4]))
def test_replicas_never_make_a_step_of_the_same_share_faster(layout: Layout, times: int) -> None:
    """Each replica has the same work; more of them only add traffic."""
    plain = replace(layout, sharding=Sharding.NONE, servers=0)
    more = replace(plain, data=plain.data * times)
    estimate = step_times(columns(plain, more), shipped())
    assert estimate.seconds[1] >= estimate.seconds[0] * (1.0 - 1e-12)


def test_products_agree_with_the_closed_form() -> None:
    """72·B·s·l·h²·(1 + s/6h + V/12lh): Narayanan et al., SC'21, without recomputation."""
    model, batch, length = gpt(), 4, 2048
    layout = Layout(micro_batch=batch, flash=False)
    at = columns(layout, model=model, devices=1)
    work = work_of(at)
    rate = float(at.peak) * 0.86924  # best measured product of an A100, 271.2 of 312 TFLOP/s
    counted = float((work.matmul + work.score_products + work.head)[0]) * rate
    hidden, layers, vocab = model.hidden, model.layers, model.vocab
    extra = length / (6 * hidden) + vocab / (12 * layers * hidden)
    closed = 72 * batch * length * layers * hidden**2 * (1 + extra)
    assert counted == pytest.approx(closed, rel=1e-3)


def test_full_recomputation_adds_a_third_forward_pass() -> None:
    """96·B·s·l·h² against 72·B·s·l·h² for the blocks (the same paper)."""
    work = work_of(columns(Layout(), Layout(recompute=Recompute.FULL)))
    assert work.matmul[1] / work.matmul[0] == pytest.approx(96 / 72)


def test_frozen_weights_need_two_thirds_of_the_products() -> None:
    model = gpt()
    tuning = Tuning(method=Method.LORA, rank=16, trainable=model.parameters.total // 1000)
    full = columns(Layout(data=8), model=model)
    adapted = Columns.of(
        model,
        tuning,
        platform("A100", 64),
        LayoutColumns.of([Layout(data=8)]),
        sequence=2048,
        precision=Precision.BF16,
    )
    ratio = work_of(adapted).matmul[0] / work_of(full).matmul[0]
    assert 2 / 3 < ratio < 0.68
    slow, fast = step_times(full, shipped()), step_times(adapted, shipped())
    assert fast.parts["data parallel"][0] < 0.05 * slow.parts["data parallel"][0]


def test_bubbles_shrink_with_chunks_and_micro_batches() -> None:
    some = [
        Layout(pipeline=8, accumulation=8),
        Layout(pipeline=8, accumulation=8, virtual=4),
        Layout(pipeline=8, accumulation=64),
    ]
    estimate = step_times(columns(*some), prior())
    share = estimate.parts["bubble"] / estimate.seconds
    assert share[0] > share[1]
    assert share[0] > share[2]
    assert step_times(columns(Layout()), prior()).parts["bubble"][0] == 0.0


def test_more_servers_relieve_the_network() -> None:
    estimate = step_times(
        columns(*(Layout(data=32, servers=count) for count in (1, 2, 8))), shipped()
    )
    part = estimate.parts["data parallel"]
    assert part[0] > part[1] > part[2]


def test_gpt_175b_on_1024_devices_is_near_what_was_measured() -> None:
    """SC'21, table 2: 174.6B on 1,536 A100 with t = 8, p = 12 took 20.8 s a step of 1,536."""
    model = gpt(layers=96, hidden=12_288)
    layout = Layout(
        tensor=8, pipeline=12, data=16, accumulation=96, recompute=Recompute.FULL, flash=False
    )
    estimate = step_times(columns(layout, model=model, devices=1536), shipped())
    assert estimate.seconds[0] == pytest.approx(20.83, rel=0.15)
    assert estimate.low[0] < 20.83 < estimate.high[0]


def styled(style: Style, layout: Layout, model: Model | None = None, kind: str = "A100") -> Columns:
    return replace(columns(layout, model=model, kind=kind), style=np.asarray(STYLE_CODE[style]))


def test_the_makers_attention_kernel_is_the_fastest() -> None:
    for kind in ("A100", "H100"):
        others = [
            float(work_of(styled(style, Layout(data=64), kind=kind)).attention[0])
            for style in (Style.UNKNOWN, Style.FUSED, Style.EAGER)
        ]
        tuned = float(work_of(styled(Style.TUNED, Layout(data=64), kind=kind)).attention[0])
        assert min(others) > 1.3 * tuned


def test_heads_that_tensor_cores_cannot_take_slow_scores_down() -> None:
    # BLOOM's sweep: hidden 13,824 with 128 heads of 108 against 64 heads of 216.
    odd = replace(gpt(hidden=13_824), heads=128, kv_heads=128, head_size=108, value_size=108)
    even = replace(odd, heads=64, kv_heads=64, head_size=216, value_size=216)
    layout = Layout(tensor=8, data=8, flash=False)
    slow, fast = (work_of(columns(layout, model=model)) for model in (odd, even))
    assert slow.score_products[0] == pytest.approx(5.0 * fast.score_products[0])
    assert slow.matmul[0] == pytest.approx(fast.matmul[0])
    kernel = replace(layout, flash=True)
    assert work_of(columns(kernel, model=odd)).attention[0] == pytest.approx(
        float(work_of(columns(kernel, model=even)).attention[0])
    )


def test_scores_in_numbers_that_the_softmax_kernel_does_not_take_move_twice() -> None:
    model = replace(gpt(hidden=2048), heads=16, kv_heads=16)
    one, two = (
        work_of(styled(Style.EAGER, Layout(tensor=8, data=8, micro_batch=size, flash=False), model))
        for size in (1, 2)
    )
    assert one.scores[0] == pytest.approx(float(two.scores[0]))
    assert one.launches[0] > two.launches[0]


def test_losses_in_single_operations_move_more_than_fused_ones() -> None:
    eager, tuned = (
        float(work_of(styled(style, Layout(data=64))).logits[0])
        for style in (Style.EAGER, Style.TUNED)
    )
    assert eager == pytest.approx(3.5 * tuned)


def test_interleaved_stages_hide_most_of_their_hand_over() -> None:
    plain, chunks = (
        traffic_of(some, work_of(some))
        for some in (
            columns(Layout(pipeline=8, data=8, virtual=virtual, accumulation=16))
            for virtual in (1, 2)
        )
    )
    # Twice as many messages, of which a quarter is not hidden.
    assert chunks.pipeline[0] == pytest.approx(0.5 * plain.pipeline[0])


@given(
    st.sampled_from((2, 4, 8, 16, 32, 64)),
    st.integers(min_value=1, max_value=8),
)
def test_a_token_is_sent_to_each_node_at_most_once(group: int, used: int) -> None:
    model = replace(gpt(), experts=64, experts_per_token=used, expert_ffn=2048, dense_layers=0)
    some = columns(Layout(data=64, expert=group), model=model)
    work = work_of(some)
    traffic = traffic_of(some, work)
    nodes = max(1.0, group / 8)
    once = work.tokens * 4096 * 2.0 * 4.0 * 32 / some.across_bandwidth
    assert traffic.micro_expert_across[0] <= once[0] * (nodes - 1.0) * (1 + 1e-9)
    assert traffic.micro_expert_across[0] <= once[0] * used
    assert (traffic.micro_expert_across[0] > 0.0) == (group > 8)


def test_runs_that_agree_narrow_the_scatter_and_wild_ones_widen_it() -> None:
    before = shipped()
    some = columns(*[Layout(data=64, accumulation=count) for count in (1, 2, 4, 8, 16, 32)])
    seconds = step_times(some, before).seconds
    signs = np.array([1, -1, -1, 1, 1, -1])
    calm = refit(before, some, seconds * np.exp(0.002 * signs))
    wild = refit(before, some, seconds * np.exp(0.3 * signs))
    assert calm.residual_sigma < before.residual_sigma < wild.residual_sigma


def test_a_few_rows_of_a_cluster_teach_its_factor() -> None:
    some = [Layout(data=8, micro_batch=size) for size in (1, 2, 4, 8)]
    at = columns(*some)
    before = step_times(at, shipped())
    measured = before.seconds * 1.3
    learnt = refit(shipped(), at, measured)
    after = step_times(at, learnt)
    missed = np.abs(np.log(after.seconds / measured))
    assert (missed < 0.4 * np.abs(np.log(before.seconds / measured))).all()
    assert (after.sigma < before.sigma).all()


def test_rows_that_contradict_each_other_teach_less_than_rows_that_agree() -> None:
    models = [gpt(layers=24, hidden=hidden) for hidden in (1024, 2048, 4096, 6144)]
    at = Columns.stacked([columns(Layout(data=8), model=model) for model in models])
    other = columns(Layout(data=8), model=gpt(layers=32, hidden=3072))
    before, usual = step_times(at, shipped()).seconds, step_times(other, shipped())
    agreed = step_times(other, refit(shipped(), at, before * 1.2))
    torn = step_times(other, refit(shipped(), at, before * np.array([1.5, 0.8, 1.6, 0.96])))
    moved = np.log(agreed.seconds / usual.seconds)[0]
    assert moved > 0.5 * np.log(1.2)
    assert abs(np.log(torn.seconds / usual.seconds)[0]) < 0.6 * moved
    assert agreed.sigma[0] < usual.sigma[0]


def test_a_row_as_predicted_teaches_next_to_nothing_but_certainty() -> None:
    at = columns(Layout(data=8, micro_batch=2))
    before = step_times(at, shipped())
    after = step_times(at, refit(shipped(), at, before.seconds))
    assert after.seconds == pytest.approx(before.seconds, rel=1e-3)
    assert after.sigma[0] < before.sigma[0]


def test_a_fit_finds_the_factors_that_made_the_rows() -> None:
    truth = prior()
    mean = truth.mean.copy()
    mean[TERM_NAMES.index("matmul")] += 0.15
    some = [
        Layout(data=8, micro_batch=micro, accumulation=count, tensor=tensor)
        for micro in (1, 2, 4, 8)
        for count in (1, 4)
        for tensor in (1, 2, 8)
    ]
    at = columns(*some)
    seconds = step_times(at, replace(truth, mean=mean)).seconds
    names = ["one"] * len(some)
    found = fit(at, seconds, sources=names, clusters=names)
    predicted = step_times(at, found).seconds
    # One cluster cannot tell its own factor from the terms': most of it must be found.
    assert np.median(np.abs(predicted / seconds - 1.0)) < 0.06


def test_coefficients_survive_their_file() -> None:
    found = shipped()
    again = from_text(to_text(found))
    np.testing.assert_allclose(again.mean, found.mean)
    np.testing.assert_allclose(again.covariance, found.covariance, atol=1e-9)
    assert to_text(again) == to_text(found)
    assert np.linalg.eigvalsh(found.covariance).min() > 0.0
    assert found.mean.size == len(PARAMETERS)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"parameters": []}', "null", "NaN"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        from_text(text)
