"""The law of loss: published anchors, recovery from pilots, and what must always hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.plan.loss import PRIOR, LossLaw, Pilot, effective_tokens, refit_law
from modelyard.plan.loss.law import log_loss

PARAMETERS = st.floats(1e6, 1e13)
TOKENS = st.floats(1e7, 1e15)


def test_prior_is_the_law_of_hoffmann() -> None:
    # Hoffmann et al., 2022, equation 10 at Chinchilla: 70e9 parameters, 1.4e12 tokens.
    by_hand = 1.69 + 406.4 / 70e9**0.34 + 410.7 / 1.4e12**0.28
    found = PRIOR.predict(70e9, 1.4e12)
    assert found.loss == pytest.approx(by_hand)
    # Besiroglu et al., 2024, lies well within the interval.
    corrected = 1.8169 + 482.01 / 70e9**0.3478 + 2085.43 / 1.4e12**0.3659
    assert found.low < corrected < found.high


@given(PARAMETERS, TOKENS)
def test_more_of_either_lowers_the_loss(parameters: float, tokens: float) -> None:
    here = PRIOR.predict(parameters, tokens)
    assert 0 < here.low < here.loss < here.high
    assert here.loss > PRIOR.E
    assert PRIOR.predict(2 * parameters, tokens).loss < here.loss
    assert PRIOR.predict(parameters, 2 * tokens).loss < here.loss


@given(st.floats(1e7, 1e12), st.floats(1e8, 1e14))
def test_inversions_come_back(parameters: float, tokens: float) -> None:
    loss = PRIOR.predict(parameters, tokens).loss
    assert PRIOR.tokens_for_loss(parameters, loss) == pytest.approx(tokens, rel=1e-5)
    assert PRIOR.parameters_for_loss(tokens, loss) == pytest.approx(parameters, rel=1e-5)


def test_what_no_run_reaches() -> None:
    assert PRIOR.tokens_for_loss(1e9, 1.7) is None
    assert PRIOR.parameters_for_loss(1e9, 1.7) is None


def test_slopes_are_derivatives() -> None:
    centre, parameters, tokens = PRIOR.logarithms, np.array([3e8, 7e10]), np.array([5e9, 2e12])
    _, slopes = log_loss(centre, parameters, tokens)
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-6
        above, _ = log_loss(centre + step, parameters, tokens)
        below, _ = log_loss(centre - step, parameters, tokens)
        assert slopes[:, i] == pytest.approx((above - below) / 2e-6, abs=1e-8)


def _pilots(floor: float, noise: float = 0.0, seed: int = 0) -> list[Pilot]:
    draw = np.random.default_rng(seed)
    return [
        Pilot(n, d, _truth(floor, n, d) * math.exp(noise * float(draw.normal())))
        for n in (1e8, 2e8, 4e8)
        for d in (2e9, 8e9, 2e10)
    ]


def _truth(floor: float, parameters: float, tokens: float) -> float:
    return floor + 300.0 / parameters**0.33 + 900.0 / tokens**0.31


@pytest.mark.parametrize("floor", [1.0, 1.4, 2.2])
def test_pilots_teach_another_dataset(floor: float) -> None:
    law = refit_law(_pilots(floor, noise=0.003))
    truth = _truth(floor, 1.3e9, 3e10)
    found = law.predict(1.3e9, 3e10)
    assert found.loss == pytest.approx(truth, rel=0.02)
    assert found.low < truth < found.high
    before = PRIOR.predict(1.3e9, 3e10)
    assert math.log(found.high / found.low) < 0.5 * math.log(before.high / before.low)


def test_a_run_that_went_wrong_does_not_bend_the_law() -> None:
    good = _pilots(1.5, noise=0.003)
    diverged = [*good[:4], Pilot(good[4].parameters, good[4].tokens, 9.0), *good[5:]]
    straight = refit_law(good).predict(1e9, 4e10).loss
    assert refit_law(diverged).predict(1e9, 4e10).loss == pytest.approx(straight, rel=0.015)


def test_order_does_not_matter_and_the_answer_is_the_same_twice() -> None:
    pilots = _pilots(1.5, noise=0.01)
    first, second = refit_law(pilots), refit_law(pilots)
    assert first == second
    turned = refit_law(pilots[::-1])
    assert turned.predict(1e9, 1e11).loss == pytest.approx(first.predict(1e9, 1e11).loss, rel=1e-4)


def test_no_pilots_leave_the_prior() -> None:
    assert refit_law([]) is PRIOR


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(Pilot, PARAMETERS, TOKENS, st.floats(1e-3, 1e3)),
        min_size=1,
        max_size=6,
    )
)
def test_any_pilots_give_a_law(pilots: list[Pilot]) -> None:
    law = refit_law(pilots)
    found = law.predict(1e9, 2e10)
    assert 0 < found.low < found.loss < found.high < math.inf
    assert np.all(np.linalg.eigvalsh(np.array(law.covariance)) > 0)
    assert law.pilots == len(pilots)


def test_says_so_before_extrapolating_more_than_tenfold() -> None:
    law = refit_law(_pilots(1.5))
    assert law.predict(4e8, 2e10).extrapolation == 1.0
    near, far = law.predict(1e9, 5e10), law.predict(7e9, 1e12)
    assert not near.far
    assert law.warning(1e9, 5e10) is None
    assert far.far
    assert far.extrapolation == pytest.approx(7e9 * 1e12 / (4e8 * 2e10))
    assert "875 times larger than the largest of the 9 pilot runs" in str(law.warning(7e9, 1e12))
    assert math.log(far.high / far.low) > math.log(near.high / near.low)


def test_repeated_tokens_are_worth_less() -> None:
    # Muennighoff et al., 2023: four epochs are nearly as good as new data; forty are worth few.
    assert effective_tokens(1e9, 2e9) == 1e9
    assert effective_tokens(4e9, 1e9) == pytest.approx(3.73e9, rel=0.01)
    assert effective_tokens(1e12, 1e9) == pytest.approx(16.39e9, rel=0.01)
    fresh = PRIOR.predict(1e9, 1e11)
    assert PRIOR.predict(1e9, 1e11, unique_tokens=1e9).loss > fresh.loss
    assert PRIOR.predict(1e9, 1e11, unique_tokens=1e11) == fresh


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
def test_impossible_runs_are_refused(number: float) -> None:
    with pytest.raises(InputError, match="parameters of a run must be a positive number"):
        PRIOR.predict(number, 1e9)
    with pytest.raises(InputError, match="tokens of a run must be a positive number"):
        PRIOR.predict(1e9, number)
    with pytest.raises(InputError, match="loss"):
        Pilot(1e9, 1e9, number)


def test_perplexities_are_no_losses() -> None:
    with pytest.raises(InputError, match="no loss of a language model"):
        Pilot(1e9, 1e9, 40_000.0)


def test_a_law_survives_its_logarithms() -> None:
    again = LossLaw.of(
        PRIOR.logarithms,
        np.array(PRIOR.covariance),
        noise=PRIOR.noise,
        drift=PRIOR.drift,
        largest=(PRIOR.largest_parameters, PRIOR.largest_tokens, PRIOR.largest_flops),
        pilots=0,
    )
    assert again.predict(1e9, 1e11).loss == pytest.approx(PRIOR.predict(1e9, 1e11).loss)
