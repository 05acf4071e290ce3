"""Every compressor loses nothing over time, says exactly how much it sends, and can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.compress.combinations import REFUSED, check_combination, compressor
from modelyard.train.compress.feedback import (
    Exchanged,
    Payload,
    State,
    for_joiner,
    size_of,
    with_residual_of,
)
from modelyard.train.compress.power_sgd import PowerSgd

NAMES = ("fp16", "bf16", "int8", "top-k", "power-sgd", "one-bit")
SHAPES = st.one_of(
    st.tuples(st.integers(1, 700)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(shape=SHAPES, seed=st.integers(0, 2**20), scale=st.sampled_from([1e-6, 1.0, 1e4]))
def test_decoded_sums_to_the_inputs_less_the_residual(
    name: str, shape: tuple[int, ...], seed: int, scale: float
) -> None:
    chosen, luck = compressor(name), torch.Generator().manual_seed(seed)
    state = chosen.start(shape)
    inputs = [scale * torch.randn(shape, generator=luck) for _ in range(4)]
    decoded = []
    for tensor in inputs:
        encoded = chosen.encode(tensor, state)
        assert size_of(encoded.payload) == chosen.payload_bytes(shape)
        decoded.append(chosen.decode(encoded.payload, shape))
        state = encoded.state
    wanted = torch.stack(inputs).double().sum(0) - state["residual"]
    found = torch.stack(decoded).double().sum(0)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize("name", NAMES)
def test_encoding_changes_neither_input_nor_state(name: str) -> None:
    torch.manual_seed(0)
    chosen = compressor(name)
    state = chosen.encode(torch.randn(40, 30), chosen.start((40, 30))).state
    before = {key: part.clone() for key, part in state.items()}
    tensor = torch.randn(40, 30)
    copy = tensor.clone()
    first, second = chosen.encode(tensor, state), chosen.encode(tensor, state)
    assert torch.equal(tensor, copy)
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert all(torch.equal(a, b) for a, b in zip(first.payload, second.payload, strict=True))


class Together:
    """Members in one process: each call is made with everybody's part at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.inputs: list[list[torch.Tensor]] = []

    def run(self, calls: Sequence[Callable[[Member], Exchanged]]) -> list[Exchanged]:
        import threading

        barrier = threading.Barrier(self.size)
        shared: dict[tuple[int, int], object] = {}
        results: dict[int, Exchanged] = {}

        def one(rank: int) -> None:
            torch.set_num_threads(1)
            results[rank] = calls[rank](Member(rank, self.size, barrier, shared))

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[rank] for rank in range(self.size)]


class Member:
    def __init__(self, rank: int, size: int, barrier: object, shared: dict) -> None:
        self.rank, self.size, self.barrier, self.shared, self.turn = rank, size, barrier, shared, 0

    def _all(self, value: object) -> list:
        self.shared[self.turn, self.rank] = value
        self.barrier.wait(30)
        found = [self.shared[self.turn, rank] for rank in range(self.size)]
        self.turn += 1
        return found

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._all(tensor.clone())).sum(0)

    def gather(self, payload: Payload) -> list[Payload]:
        return self._all(payload)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(24, 20), (500,), (5,)])
def test_members_agree_and_lose_nothing_together(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    chosen, size = compressor(name), 3
    states: list[State] = [chosen.start(shape) for _ in range(size)]
    given_in, came_out = torch.zeros(shape), torch.zeros(shape)
    for _ in range(4):
        tensors = [torch.randn(shape) for _ in range(size)]
        results = Together(size).run(
            [
                lambda wire, own=tensor, state=state: chosen.exchange(own, state, wire)
                for tensor, state in zip(tensors, states, strict=True)
            ]
        )
        states = [result.state for result in results]
        assert all(torch.equal(result.total, results[0].total) for result in results)
        assert {result.bytes_sent for result in results} == {chosen.payload_bytes(shape)}
        given_in += torch.stack(tensors).sum(0)
        came_out += results[0].total
    left = torch.stack([state["residual"] for state in states]).sum(0)
    # bf16 sums are rounded on the wire: 8 bits of precision, four times.
    tolerance = {"bf16": 0.1, "fp16": 0.02}.get(name, 1e-4)
    torch.testing.assert_close(came_out, given_in - left, rtol=0.0, atol=tolerance)


def test_factors_of_many_tensors_in_one_sum_are_those_of_each() -> None:
    torch.manual_seed(3)
    chosen, shapes = PowerSgd(rank=2), [(24, 20), (5,), (8, 3, 4)]
    own = [[torch.randn(shape) for shape in shapes] for _ in range(2)]
    starts = [chosen.start(shape) for shape in shapes]
    together = Together(2).run(
        [lambda wire, mine=mine: chosen.exchange_all(mine, starts, wire) for mine in own]
    )
    for index, shape in enumerate(shapes):
        apart = Together(2).run(
            [
                lambda wire, mine=mine[index], state=starts[index]: chosen.exchange(
                    mine, state, wire
                )
                for mine in own
            ]
        )
        for one, other in zip([found[index] for found in together], apart, strict=True):
            assert one.total.shape == shape
            assert torch.equal(one.total, other.total)
            assert one.bytes_sent == other.bytes_sent == chosen.payload_bytes(shape)
            for name, part in other.state.items():
                assert torch.equal(one.state[name], part)


@pytest.mark.parametrize("name", NAMES)
def test_a_spoilt_gradient_is_seen_and_forgotten(name: str) -> None:
    torch.manual_seed(0)
    chosen = compressor(name)
    state = chosen.encode(torch.randn(30, 30), chosen.start((30, 30))).state
    for bad in (float("nan"), float("inf"), -float("inf")):
        tensor = torch.randn(30, 30)
        tensor[3, 4] = bad
        encoded = chosen.encode(tensor, state)
        assert not chosen.decode(encoded.payload, (30, 30)).isfinite().all()
        assert all(part.isfinite().all() for part in encoded.state.values())


def test_numbers_beyond_fp16_come_later() -> None:
    chosen = compressor("fp16")
    state = chosen.start((2,))
    encoded = chosen.encode(torch.tensor([1e5, -1e5]), state)
    assert chosen.decode(encoded.payload, (2,)).tolist() == [65504.0, -65504.0]
    assert encoded.state["residual"].tolist() == [1e5 - 65504.0, 65504.0 - 1e5]


def test_power_sgd_finds_a_matrix_of_its_rank() -> None:
    torch.manual_seed(0)
    chosen = compressor("power-sgd", {"rank": 2})
    matrix = torch.randn(30, 2) @ torch.randn(2, 20)
    state = chosen.start((30, 20))
    encoded = chosen.encode(matrix, state)
    torch.testing.assert_close(chosen.decode(encoded.payload, (30, 20)), matrix, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["int8", "top-k", "power-sgd", "one-bit"])
def test_descent_with_error_feedback_reaches_the_minimum(name: str) -> None:
    torch.manual_seed(0)
    options = {"top-k": {"share": 0.1}, "power-sgd": {"rank": 1}, "one-bit": {"block": 64}}
    chosen = compressor(name, options.get(name))
    goal, at = torch.randn(20, 20), torch.zeros(20, 20)
    state = chosen.start((20, 20))
    for step in range(600):
        encoded = chosen.encode(at - goal, state)
        at = at - 0.05 * 0.99**step * 4 * chosen.decode(encoded.payload, (20, 20)) / 4
        state = encoded.state
    assert (at - goal).abs().max() < 0.1


def test_joiners_share_what_is_common_and_leavers_hand_on_what_is_theirs() -> None:
    torch.manual_seed(0)
    chosen = compressor("power-sgd", {"rank": 1})
    state = chosen.encode(torch.randn(9, 9), chosen.start((9, 9))).state
    joiner = for_joiner(state)
    assert torch.equal(joiner["factor"], state["factor"])
    assert not joiner["residual"].any()
    assert torch.equal(with_residual_of(joiner, state)["residual"], state["residual"])


def test_bytes_of_a_million_numbers() -> None:
    shape = (1000, 1000)
    assert {name: compressor(name).payload_bytes(shape) for name in NAMES} == {
        "fp16": 2_000_000,
        "bf16": 2_000_000,
        "int8": 1_000_000 + 4 * 3907,
        "top-k": 80_000,
        "power-sgd": 4 * 4 * 2000,
        "one-bit": 125_000 + 4 * 977,
    }


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("int4", {}, "unknown compression 'int4'"),
        ("top-k", {"share": 0.0}, "number above 0 to 1"),
        ("top-k", {"share": float("nan")}, "number above 0 to 1"),
        ("power-sgd", {"rank": True}, "whole number"),
        ("fp16", {"block": 3}, "no option 'block'"),
        ("int8", {"block": 10**5000}, "whole number"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        compressor(name, options)


def test_combinations_are_refused_with_a_reason() -> None:
    for aggregation, refused in REFUSED.items():
        for name in NAMES:
            if name in refused:
                with pytest.raises(InputError, match="does not go with"):
                    check_combination(name, aggregation)
            else:
                check_combination(name, aggregation)
    with pytest.raises(InputError, match="unknown aggregation"):
        check_combination("fp16", "telepathy")
