"""Every way to train together learns, agrees with the others where it should, and can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import torch
from tests.train.aggregate.members import Member, all_at_once, groups, trained_together

from modelyard.errors import InputError
from modelyard.train.aggregate.choose import aggregation
from modelyard.train.aggregate.diloco import Nesterov
from modelyard.train.aggregate.gossip import Graph, hops
from modelyard.train.aggregate.servers import divided
from modelyard.train.group import Group
from modelyard.train.state import pack, skeleton

#: name, options, and the loss that 60 steps of two members stay below at the end; all begin
#: near 1.46, and one worker alone with AdamW ends at 0.16
WAYS: list[tuple[str, dict[str, object], float]] = [
    ("all-reduce", {}, 0.4),
    ("all-reduce", {"compress": "fp16"}, 0.4),
    ("all-reduce", {"compress": "bf16"}, 0.4),
    ("all-reduce", {"compress": "int8"}, 0.4),
    ("all-reduce", {"compress": {"name": "top-k", "share": 0.1}}, 0.6),
    ("all-reduce", {"compress": {"name": "power-sgd", "rank": 2}}, 0.6),
    ("all-reduce", {"compress": "one-bit"}, 0.6),
    ("servers", {}, 0.4),
    ("servers", {"count": 1}, 0.4),
    ("servers", {"compress": "one-bit"}, 0.6),
    ("local-sgd", {"updates": 4}, 0.4),
    ("local-sgd", {"updates": 4, "compress": "int8"}, 0.4),
    ("diloco", {"updates": 4}, 0.4),
    ("decentralised", {"graph": "ring"}, 0.5),
    ("decentralised", {"graph": "one-peer"}, 0.5),
]
NAMES = sorted({name for name, _, _ in WAYS})


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "options", "below"), WAYS)
def test_two_members_learn(name: str, options: dict[str, object], below: float) -> None:
    # The outer momentum makes the steps of its rounds up to seven times longer.
    rate = 0.003 if name == "diloco" else 0.02
    members = [Member(aggregation(name, options), rate=rate) for _ in range(2)]
    trained_together(members, 60)
    assert members[0].losses[0] > 1.0
    assert np.mean(members[0].losses[-10:]) < below
    assert members[0].aggregation.bytes_sent > 0
    same = torch.equal(members[0].parameters(), members[1].parameters())
    assert same != (name == "decentralised")


@pytest.mark.parametrize("size", [1, 3])
def test_servers_compute_what_all_reduce_does(size: int) -> None:
    losses = []
    ways: list[tuple[str, dict[str, object]]] = [
        ("all-reduce", {}),
        ("servers", {}),
        ("servers", {"count": 2}),
    ]
    for name, options in ways:
        members = [Member(aggregation(name, options), clip=0.5) for _ in range(size)]
        trained_together(members, 20)
        losses.append(members[0].losses)
    assert np.allclose(losses[1], losses[0], rtol=0.0, atol=1e-5)
    assert np.allclose(losses[2], losses[0], rtol=0.0, atol=1e-5)


def test_moments_survive_their_server() -> None:
    """Three become two, then one: parameters go on as if moments had always been there."""
    ends = []
    for name in ("all-reduce", "servers"):
        members = [Member(aggregation(name)) for _ in range(3)]
        trained_together(members, 5)
        trained_together(members[1:], 5)
        trained_together(members[1:2], 5)
        ends.append(members[1].parameters())
    assert torch.allclose(*ends, atol=1e-5)


def test_a_checkpoint_of_servers_has_all_moments() -> None:
    members = [Member(aggregation("servers")) for _ in range(3)]
    alone = Member(aggregation("all-reduce"))
    trained_together([alone], 1)

    def play(member: Member, connect: Callable[[], Group]) -> None:
        group = connect()
        member.aggregation.meet(group, [])
        member.attempt(group, 0, kept=True)
        member.aggregation.apply()

    all_at_once([partial(play, *pair) for pair in zip(members, groups(3), strict=True)])
    first = members[0]
    assert len(first.optimizer.state) < len(list(first.model.parameters()))
    state = first.aggregation.kept({"optimizer": first.optimizer.state_dict()})["optimizer"]
    assert isinstance(state, dict)
    expected = alone.optimizer.state_dict()["state"]
    assert state["state"].keys() == expected.keys()
    for index, moments in expected.items():
        assert torch.allclose(state["state"][index]["exp_avg"], moments["exp_avg"], atol=1e-6)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 12))
def test_servers_have_about_the_same(sizes: list[int], servers: int) -> None:
    """Greedy: whoever has most got its last tensor when it had least."""
    loads = [0] * servers
    for size, server in zip(sizes, divided(sizes, servers), strict=True):
        loads[server] += size
    assert max(loads) <= sum(sizes) / servers + max(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_is_not_committed_leaves_no_trace(name: str) -> None:
    """What was attempted and discarded is as if it had never been, for moments as well."""

    def play(member: Member, connect: Callable[[], Group], *, disturbed: bool) -> None:
        group = connect()
        member.aggregation.meet(group, [])
        for step in range(6):
            if disturbed and step in (0, 3):
                member.attempt(group, step, kept=True)
                member.aggregation.discard()
            member.attempt(group, step, kept=step == 4)
            member.aggregation.apply()

    parameters = []
    for disturbed in (False, True):
        members = [Member(aggregation(name)) for _ in range(2)]
        pairs = zip(members, groups(2), strict=True)
        all_at_once([partial(play, *pair, disturbed=disturbed) for pair in pairs])
        parameters.append(members[0].parameters())
    assert torch.equal(*parameters)


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, options, _ in WAYS if name != "decentralised"]
)
def test_a_joiner_goes_on_like_those_who_stayed(name: str, options: dict[str, object]) -> None:
    members = [Member(aggregation(name, options)) for _ in range(2)]
    trained_together(members, 5)
    joiner = Member(aggregation(name, options))
    description, tensors = pack(
        {
            "model": members[0].model.state_dict(),
            "optimizer": members[0].optimizer.state_dict(),
            "aggregation": members[0].aggregation.state(),
        }
    )
    tree, places = skeleton(description)
    for place, tensor in zip(places, tensors, strict=True):
        place.copy_(tensor)
    joiner.model.load_state_dict(tree["model"])
    joiner.optimizer.load_state_dict(tree["optimizer"])
    joiner.aggregation.load(tree["aggregation"])
    everybody = [*members, joiner]
    trained_together(everybody, 5)
    assert torch.equal(joiner.parameters(), members[0].parameters())
    assert np.isfinite(joiner.losses).all()


def test_the_outer_optimizer_is_torchs_own() -> None:
    luck = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(7, generator=luck))
    ours = parameter.detach().clone()
    peer = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    outer = Nesterov()
    for _ in range(5):
        change = torch.randn(7, generator=luck)
        parameter.grad = -change
        peer.step()
        ours += outer.step([change])[0]
    assert torch.allclose(ours, parameter.detach(), atol=1e-5)


@given(st.sampled_from(Graph), st.integers(1, 40), st.integers(0, 9))
def test_mixing_is_doubly_stochastic(graph: Graph, size: int, step: int) -> None:
    mixing = mixing_matrix(graph, size, step)
    assert np.allclose(mixing.sum(0), 1.0)
    assert np.allclose(mixing.sum(1), 1.0)
    assert (mixing >= 0.0).all()


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_one_peer_finds_the_mean_of_a_power_of_two_in_its_logarithm(size: int) -> None:
    """Ying et al. (2021): exact averaging in log2 n steps."""
    whole = np.eye(size)
    for step in range(size.bit_length() - 1):
        whole = mixing_matrix(Graph.ONE_PEER, size, step) @ whole
    assert np.allclose(whole, 1.0 / size)


def test_exponential_graphs_mix_faster_than_rings() -> None:
    def second(graph: Graph) -> float:
        return float(np.sort(np.abs(np.linalg.eigvals(mixing_matrix(graph, 16, 0))))[-2])

    assert second(Graph.EXPONENTIAL) < 0.7 < 0.9 < second(Graph.RING)


def mixing_matrix(graph: Graph, size: int, step: int) -> npt.NDArray[np.float64]:
    """What `Gossip` computes, as a matrix."""
    mixing = np.zeros((size, size))
    chosen = [0, *hops(graph, size, step)]
    for rank in range(size):
        for hop in chosen:
            mixing[rank, (rank - hop) % size] += 1.0 / len(chosen)
    return mixing


def test_differing_members_keep_and_hand_on_their_mean() -> None:
    members = [Member(aggregation("decentralised", {"graph": "ring"})) for _ in range(4)]
    kept: dict[int, torch.Tensor] = {}

    def play(member: Member, connect: Callable[[], Group]) -> None:
        group = connect()
        for step in range(5):
            member.attempt(group, step, kept=step == 4)
            member.aggregation.apply()
        state = member.aggregation.kept({"model": member.model.state_dict()})["model"]
        assert isinstance(state, dict)
        kept[group.rank] = torch.cat([one.reshape(-1) for one in state.values()])

    all_at_once([partial(play, *pair) for pair in zip(members, groups(4), strict=True)])
    own = torch.stack([member.parameters() for member in members])
    assert not torch.equal(own[0], own[1])
    for rank in range(4):
        assert torch.allclose(kept[rank], own.mean(0), atol=1e-6)
    before = [member.parameters() for member in members]

    def join(member: Member, connect: Callable[[], Group]) -> None:
        member.aggregation.meet(connect(), [1])

    all_at_once([partial(join, *pair) for pair in zip(members, groups(4), strict=True)])
    expected = torch.stack([before[0], before[2], before[3]]).mean(0)
    assert torch.allclose(members[1].parameters(), expected, atol=1e-6)
    assert torch.equal(members[0].parameters(), before[0])


def test_compression_sends_less() -> None:
    sent = {}
    for compress in (None, "fp16", "int8", "one-bit"):
        options = {} if compress is None else {"compress": compress}
        members = [Member(aggregation("all-reduce", options)) for _ in range(2)]
        trained_together(members, 2)
        sent[compress] = members[0].aggregation.bytes_sent
    plain = sent[None]
    assert sent["fp16"] * 2 == plain
    assert sent["int8"] * 3 < plain
    assert sent["one-bit"] * 15 < plain


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("telepathy", {}, "unknown aggregation 'telepathy'"),
        ("all-reduce", {"graph": "ring"}, "no option 'graph'"),
        ("all-reduce", {"compress": "int4"}, "unknown compression 'int4'"),
        ("all-reduce", {"compress": 3}, "'compress' is 3"),
        ("all-reduce", {"compress": {"name": "top-k", "share": 2.0}}, "number above 0 to 1"),
        ("servers", {"compress": "power-sgd"}, "does not go with 'servers'"),
        ("servers", {"count": -1}, "whole number"),
        ("local-sgd", {"updates": 0}, "whole number"),
        ("local-sgd", {"updates": 10**5000}, "whole number"),
        ("diloco", {"outer_rate": float("nan"), "outer_momentum": 1.0}, "'outer_rate' is nan"),
        ("diloco", {"outer_rate": float("nan"), "outer_momentum": 1.0}, "'outer_momentum' is 1"),
        ("decentralised", {"graph": ["ring"]}, "write ring, exponential, one-peer"),
        ("decentralised", {"compress": "top-k"}, "no option 'compress'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        aggregation(name, options)
