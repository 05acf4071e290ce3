"""Ways to make a run fit: what each may change, and figures that must agree with the search."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from modelyard.errors import InputError
from modelyard.plan.answer import Interval
from modelyard.plan.knowledge import shipped_knowledge
from modelyard.plan.request import Limits, Objective, Pins, Request
from modelyard.plan.search import search
from modelyard.plan.ways import Fit, Way, WayName, ways
from modelyard.plan.ways.pricing import price
from modelyard.plan.ways.shrink import half_as_large, narrower, shallower
from modelyard.plan.ways.tune import gap, greedy
from modelyard.plan.ways.way import keeps_limits
from modelyard.spec.pool import Price, parse_pools
from modelyard.spec.tuning import Method, Tuning
from modelyard.spec.zoo import find_model

PRICES = {
    kind: Price(usd_per_hour=usd)
    for kind, usd in (("V100", 1.0), ("A100", 2.0), ("A100-80GB", 2.0), ("H100", 3.0))
}
DAY = 86_400.0


def asked(
    name: str, devices: str, tokens: float, limits: Limits | None = None, sequence: int = 1024
) -> Request:
    model = find_model(name)
    return Request(
        model=model,
        tuning=Tuning(trainable=model.parameters.total),
        pools=parse_pools(devices, PRICES),
        tokens=tokens,
        sequence=sequence,
        limits=limits or Limits(),
    )


@cache
def fit_of(request: Request) -> Fit:
    return ways(request, shipped_knowledge())


def by_name(fit: Fit) -> dict[WayName, Way]:
    return {way.name: way for way in fit.ways}


def in_time(request: Request, share: float) -> Request:
    """The request with a share of the time that it takes at best."""
    plan = price(request, shipped_knowledge())
    assert plan is not None
    return replace(request, limits=Limits(deadline_seconds=share * plan.run_seconds.value))


DECODER = asked("gpt2-medium", "8xA100", 2e10)
ENCODER = asked("bert-large", "8xV100", 3e9, sequence=512)
BOTH = asked("t5-base", "8xA100", 1e10, sequence=512)


@pytest.mark.parametrize("request_", [DECODER, ENCODER, BOTH], ids=["gpt2", "bert", "t5"])
def test_every_way_has_figures_that_make_sense(request_: Request) -> None:
    found = fit_of(request_)
    assert found.ways[0].name is WayName.AS_ASKED
    names = [way.name for way in found.ways]
    assert len(set(names)) == len(names)
    assert {WayName.TUNE, WayName.NARROWER, WayName.SHALLOWER, WayName.STAGE} <= set(names)
    assert {WayName.PRUNE, WayName.DISTIL, WayName.QUANTISE} <= set(names)
    for way in found.ways:
        for figure in (way.seconds, way.usd, way.loss):
            assert figure is None or 0 < figure.low <= figure.value <= figure.high
        assert way.seconds is not None
        assert way.usd is not None
        assert (way.loss is None) == (request_ is not DECODER)
        assert way.keeps
        assert way.changes
        assert way.why


def test_without_limits_shrinks_to_half_the_time() -> None:
    found = by_name(fit_of(DECODER))
    whole = found[WayName.AS_ASKED]
    assert whole.seconds is not None
    for name in (WayName.NARROWER, WayName.SHALLOWER):
        way = found[name]
        assert way.seconds is not None
        assert way.seconds.value <= 0.5 * whole.seconds.value
        assert way.model.parameters.total < whole.model.parameters.total
        assert way.loss is not None
        assert whole.loss is not None
        assert way.loss.value > whole.loss.value
        assert "half the time" in way.why


def test_shrinks_no_further_than_the_deadline_asks() -> None:
    request = in_time(DECODER, 0.7)
    found = by_name(fit_of(request))
    assert not found[WayName.AS_ASKED].keeps
    way = found[WayName.NARROWER]
    assert way.keeps
    sizes = narrower(request.model)
    place = [size.hidden for size in sizes].index(way.model.hidden)
    if place:
        wider = sizes[place - 1]
        plan = price(
            replace(request, model=wider, tuning=Tuning(trainable=wider.parameters.total)),
            shipped_knowledge(),
        )
        assert plan is not None
        assert request.limits.deadline_seconds is not None
        assert plan.run_seconds.value > request.limits.deadline_seconds


@pytest.mark.parametrize("name", ["gpt2", "llama2-7b", "bert-large", "t5-base", "mixtral-8x7b"])
def test_smaller_models_keep_heads_and_tiles(name: str) -> None:
    model = find_model(name)
    for smaller in narrower(model):
        assert smaller.hidden < model.hidden
        assert smaller.head_size == model.head_size
        assert smaller.hidden % 64 == 0
        assert smaller.parameters.total < model.parameters.total
    assert all(smaller.layers < model.layers for smaller in shallower(model))
    half = half_as_large(model)
    assert 0.4 < half.parameters.total / model.parameters.total < 0.6


def test_loss_limit_is_told_when_a_smaller_model_misses_it() -> None:
    request = in_time(DECODER, 0.6)
    whole = by_name(fit_of(DECODER))[WayName.AS_ASKED].loss
    assert whole is not None
    strict = replace(request, limits=replace(request.limits, most_loss=whole.value * 1.0001))
    way = by_name(fit_of(strict))[WayName.NARROWER]
    assert not way.keeps
    assert "misses" in way.why


def test_a_smaller_model_for_longer_reaches_the_same_loss() -> None:
    # Far more parameters than 3e9 tokens deserve: Hoffmann et al., 2022, say go smaller.
    found = by_name(fit_of(asked("gpt2-xl", "64xA100", 3e9)))
    whole, longer = found[WayName.AS_ASKED], found[WayName.LONGER]
    assert whole.loss is not None
    assert longer.loss is not None
    assert longer.loss.value == pytest.approx(whole.loss.value, rel=0.01)
    assert longer.tokens > whole.tokens
    assert whole.seconds is not None
    assert longer.seconds is not None
    assert longer.seconds.value < whole.seconds.value


def test_stages_cost_something_between_shallow_and_deep() -> None:
    found = by_name(fit_of(DECODER))
    staged, whole = found[WayName.STAGE], found[WayName.AS_ASKED]
    assert staged.seconds is not None
    assert whole.seconds is not None
    assert 0.5 * whole.seconds.value < staged.seconds.value < whole.seconds.value
    # Disputed: never better than full training, never worse than its compute is worth.
    assert staged.loss is not None
    assert whole.loss is not None
    assert staged.loss.low == pytest.approx(whole.loss.low, rel=1e-6)
    assert staged.loss.value > whole.loss.value
    assert "Kaddour" in staged.source


def test_stages_follow_the_deadline() -> None:
    easy, hard = (by_name(fit_of(in_time(DECODER, share)))[WayName.STAGE] for share in (0.95, 0.8))
    assert easy.seconds is not None
    assert hard.seconds is not None
    assert hard.seconds.value < easy.seconds.value


def test_compression_has_a_token_budget_of_its_own_and_says_whose() -> None:
    found = by_name(fit_of(DECODER))
    whole = found[WayName.AS_ASKED]
    for name in (WayName.PRUNE, WayName.DISTIL, WayName.QUANTISE):
        way = found[name]
        assert way.tokens < whole.tokens
        assert way.source
        assert "trained weights of gpt2-medium" in way.needs
        assert way.seconds is not None
        assert whole.seconds is not None
        assert way.seconds.value < whole.seconds.value
        # The budget itself is a range, so time is less sure than the model of time is.
        assert way.seconds.high / way.seconds.low > whole.seconds.high / whole.seconds.low
    pruned, quantised = found[WayName.PRUNE], found[WayName.QUANTISE]
    assert pruned.model.parameters.total < whole.model.parameters.total
    assert quantised.model == whole.model


def test_eight_bits_only_where_a_device_has_them() -> None:
    assert WayName.FP8 not in by_name(fit_of(DECODER))
    found = by_name(fit_of(replace(DECODER, pools=parse_pools("8xH100", PRICES))))
    assert found[WayName.FP8].seconds is not None


@pytest.mark.parametrize(
    ("name", "devices", "tokens"),
    [
        ("gpt2", "8xA100", 1e10),
        ("bert-large", "8xV100", 3e9),
        ("llama2-7b", "64xH100", 1e11),
        ("megatron-39.1b", "256xA100", 1e11),
        ("mixtral-8x7b", "128xH100", 1e11),
    ],
)
def test_greedy_search_comes_near_enumeration(name: str, devices: str, tokens: float) -> None:
    request = asked(name, devices, tokens, sequence=512)
    knowledge = shipped_knowledge()
    walk, found = greedy(request, knowledge), search(request, knowledge)
    assert walk is not None
    behind = gap(walk, found, request.objective)
    assert behind is not None
    assert -1e-9 <= behind < 0.1
    assert walk.looked_at < found.enumerated


def test_greedy_search_for_money() -> None:
    request = replace(DECODER, objective=Objective.COST)
    walk = greedy(request, shipped_knowledge())
    assert walk is not None
    behind = gap(walk, search(request, shipped_knowledge()), Objective.COST)
    assert behind is not None
    assert -1e-9 <= behind < 0.1


def test_adapters_are_not_shrunk() -> None:
    model = find_model("llama2-7b")
    tuning = Tuning(method=Method.LORA, rank=16, trainable=20_000_000)
    found = fit_of(replace(asked(model.name, "8xA100", 1e8), tuning=tuning))
    assert {way.name for way in found.ways} == {WayName.AS_ASKED, WayName.TUNE, WayName.QUANTISE}
    assert any("nothing is shrunk" in note for note in found.notes)
    assert all(way.loss is None for way in found.ways)


def test_what_fits_nowhere_is_shrunk_until_it_does() -> None:
    found = by_name(fit_of(asked("gpt3-175b", "1xV100", 1e6)))
    assert found[WayName.AS_ASKED].seconds is None
    assert not found[WayName.AS_ASKED].keeps
    assert WayName.STAGE not in found
    way = found[WayName.NARROWER]
    assert way.seconds is not None or "none of the devices" in way.why


def test_pins_that_a_smaller_model_cannot_have_leave_it_out() -> None:
    # 1,024 wide with 16 heads; narrower ones mostly have no multiple of 16 heads.
    pinned = replace(DECODER, pins=Pins(tensor=8))
    found = by_name(fit_of(pinned))
    way = found[WayName.NARROWER]
    assert way.keeps
    assert way.layout is not None
    assert way.layout.tensor == 8
    assert way.model.heads % 8 == 0


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(InputError, match="tokens"):
        ways(replace(DECODER, tokens=0.0), shipped_knowledge())
    with pytest.raises(InputError, match="no law says which loss"):
        ways(replace(ENCODER, limits=Limits(most_loss=2.0)), shipped_knowledge())


def test_limits_are_kept_by_known_figures_only() -> None:
    figure = Interval(10.0, 9.0, 11.0)
    assert keeps_limits(Limits(), figure, None, None)
    assert not keeps_limits(Limits(), None, None, None)
    assert keeps_limits(Limits(deadline_seconds=10.0), figure, None, None)
    assert not keeps_limits(Limits(deadline_seconds=9.9), figure, None, None)
    assert not keeps_limits(Limits(budget_usd=10.0), figure, None, None)
    assert not keeps_limits(Limits(most_loss=2.0), figure, None, None)


def test_notes_say_what_the_losses_are_worth() -> None:
    notes = fit_of(asked("gpt2", "8xA100", 1e13)).notes
    assert any("times larger" in note for note in notes)
    assert any("pilots" in note for note in notes)
    assert any("no law of loss" in note for note in fit_of(ENCODER).notes)
