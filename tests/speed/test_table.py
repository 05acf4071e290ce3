"""Gavel's throughput table and what a job learns beyond it."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.table import TableSpeed, ThroughputTable, throughput_table

A, B = "A (batch size 1)", "B"


def key(job_type: str, devices: int) -> str:
    return str((job_type, devices))


MEASURED = {
    "fast": {
        key(A, 1): {"null": 10.0, key(B, 1): [5.0, 2.0], key(A, 1): [0.0, 0.0]},
        key(A, 4): {"null": 30.0, key(B, 4): [7.5, 3.0]},
        key(A, 8): {"null": 50.0},
        key(B, 1): {"null": 4.0, key(A, 1): [2.0, 5.0]},
        key(B, 4): {"null": 0.0, key(A, 4): [3.0, 7.5]},
    },
    "fast_unconsolidated": {
        key(A, 1): {"null": 10.0, key(B, 1): [5.0, 2.0]},
        key(A, 4): {"null": 12.0, key(B, 4): [6.0, 2.0]},
        key(B, 1): {"null": 4.0},
    },
    "slow": {key(A, 1): {"null": 1.0}, key(A, 4): {"null": 3.0}},
}
TABLE = throughput_table(MEASURED)


def test_measured_entries_are_returned_as_they_are() -> None:
    assert TABLE.steps_per_second("fast", A, 4, True) == 30.0
    assert TABLE.steps_per_second("fast", A, 4, False) == 12.0
    assert TABLE.steps_per_second("fast", A, 4, True, B) == 7.5
    assert TABLE.steps_per_second("fast", A, 1, True, A) == 0.0
    assert TABLE.kinds == ("fast", "slow")
    assert TABLE.job_types == (A, B)
    assert TABLE.scales("fast", A) == (1, 4, 8)


def test_rules_for_what_was_not_measured() -> None:
    rate = TABLE.steps_per_second
    assert rate("fast", A, 2, True) == pytest.approx(math.sqrt(10.0 * 30.0)), "halfway in logs"
    assert rate("fast", A, 64, True) == 50.0, "more devices bring nothing"
    assert rate("fast", A, 0, True) == 0.0
    assert rate("fast", B, 2, True) == 0.0, "one end does not fit"
    assert rate("fast", A, 8, False) == 0.0, "measured together, never spread"
    assert rate("slow", A, 4, False) == 3.0, "a kind with no spread entries does not care"
    kept = math.sqrt(0.5 * 0.25)
    assert rate("fast", A, 2, True, B) == pytest.approx(kept * rate("fast", A, 2, True))
    assert rate("fast", A, 8, True, B) == pytest.approx(0.25 * 50.0), "the share kept is held"
    assert rate("slow", A, 1, True, B) == 0.0, "a pair nobody measured"
    assert rate("elsewhere", A, 1, True) == 0.0
    assert rate("slow", B, 1, True) == 0.0


def test_all_malformed_entries_are_named_at_once() -> None:
    broken = {
        "v": {
            "no tuple": {"null": 1.0},
            key(A, 1): {"null": -1.0, key(B, 2): [1.0, 1.0], key(B, 1): 3.0},
            key(B, 1): {key(A, 1): [1.0, 1.0]},
            "__import__('os')": {"null": 1.0},
        },
        "w": [],
    }
    with pytest.raises(ValueError, match="make no sense") as caught:
        throughput_table(broken)
    message = str(caught.value)
    for part in ("no tuple", "-1.0 is not", "same 1 devices", "3.0 is not a pair", "__import__"):
        assert part in message
    assert "w: expected a mapping" in message


def test_many_problems_are_cut_short() -> None:
    with pytest.raises(ValueError, match="and 12 more"):
        throughput_table({"v": {f"bad {index}": {} for index in range(20)}})


curves = st.dictionaries(
    st.sampled_from([1, 2, 4, 8, 16, 32]), st.floats(1e-3, 1e3), min_size=1, max_size=6
)


@given(curve=curves, devices=st.integers(1, 64), factor=st.floats(1e-3, 1e3))
def test_interpolation_stays_between_its_neighbours_and_scales(
    curve: dict[int, float], devices: int, factor: float
) -> None:
    def at(scale: float) -> float:
        rows = {key(A, n): {"null": scale * speed} for n, speed in curve.items()}
        return throughput_table({"v": rows}).steps_per_second("v", A, devices, True)

    below = [n for n in curve if n <= devices]
    if not below:
        assert at(1.0) == 0.0
        return
    ends = [curve[max(below)], *(curve[n] for n in sorted(curve) if n >= devices)][:2]
    assert min(ends) * (1 - 1e-9) <= at(1.0) <= max(ends) * (1 + 1e-9)
    assert at(factor) == pytest.approx(factor * at(1.0))


@given(curve=curves)
def test_a_rising_curve_stays_rising_between_its_points(curve: dict[int, float]) -> None:
    speeds = sorted(curve.values())
    rows = {key(A, n): {"null": speed} for n, speed in zip(sorted(curve), speeds, strict=True)}
    table = throughput_table({"v": rows})
    line = [table.steps_per_second("v", A, n, True) for n in range(1, 65)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(line))


def test_consolidated_means_the_fewest_nodes() -> None:
    model: SpeedModel = TableSpeed(TABLE, A, 4)
    assert model.goodput(Footprint("fast", (4,))) == 30.0
    assert model.goodput(Footprint("fast", (2, 2))) == 12.0
    assert model.goodput(Footprint("fast", (4, 4))) == 50.0, "eight do not fit on one node of four"
    assert model.step_seconds(Footprint("fast", (4,))) == pytest.approx(1 / 30)
    assert model.goodput(Footprint("fast+slow", (2, 2))) == 3.0, "the slowest kind decides"
    assert model.goodput(Footprint("fast", (4,), slowdown=0.25)) == pytest.approx(22.5)
    assert model.goodput(Footprint("fast", (4,), partner=B)) == 7.5
    for nowhere in (Footprint("fast", ()), Footprint("cpu", (1,)), Footprint("fast", (1,), A)):
        assert model.goodput(nowhere) == 0.0
        assert model.step_seconds(nowhere) == math.inf


def test_an_unknown_job_type_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'A"):
        TableSpeed(TABLE, "A (batch size 2)", 4)
    with pytest.raises(ValueError, match="it has 'A"):
        TableSpeed(TABLE, "zzz", 4)
    with pytest.raises(ValueError, match="devices_per_node"):
        TableSpeed(TABLE, A, 0)


FOOTPRINTS = [
    Footprint("fast", (1,)),
    Footprint("fast", (4,)),
    Footprint("fast", (2, 2)),
    Footprint("fast", (4, 4)),
    Footprint("fast", (4,), partner=B),
    Footprint("slow", (3,), slowdown=0.5),
]
footprints = st.sampled_from(FOOTPRINTS)
ratios = st.floats(0.05, 20.0)


def observed(model: TableSpeed, at: Footprint, ratio: float) -> Observation:
    return Observation(at, model.step_seconds(at) / ratio)


@given(at=footprints, ratio=ratios, times=st.integers(1, 50))
def test_a_correction_moves_towards_what_was_measured_and_never_past_it(
    at: Footprint, ratio: float, times: int
) -> None:
    model = TableSpeed(TABLE, A, 4)
    learnt = model.refit([observed(model, at, ratio)] * times)
    correction = learnt.goodput(at) / model.goodput(at)
    low, high = sorted((1.0, ratio))
    assert low * (1 - 1e-9) <= correction <= high * (1 + 1e-9)
    more = learnt.refit([observed(model, at, ratio)])
    distance = [abs(math.log(m.goodput(at) / model.goodput(at) / ratio)) for m in (learnt, more)]
    assert distance[1] <= distance[0] + 1e-12


@given(
    first=st.lists(st.tuples(footprints, ratios), max_size=6),
    second=st.lists(st.tuples(footprints, ratios), max_size=6),
)
def test_refitting_twice_is_refitting_with_both(
    first: list[tuple[Footprint, float]], second: list[tuple[Footprint, float]]
) -> None:
    model = TableSpeed(TABLE, A, 4)
    early = [observed(model, at, ratio) for at, ratio in first]
    late = [observed(model, at, ratio) for at, ratio in second]
    for at in FOOTPRINTS:
        twice = model.refit(early).refit(late).goodput(at)
        assert twice == pytest.approx(model.refit(early + late).goodput(at))
        assert math.isfinite(twice)
        assert twice > 0.0


def test_a_job_slow_everywhere_looks_slow_where_it_has_not_been() -> None:
    model = TableSpeed(TABLE, A, 4)
    seen, unseen = Footprint("fast", (4,)), Footprint("fast", (4, 4))
    learnt = model.refit([observed(model, seen, 0.5)] * 20)
    assert learnt.goodput(seen) / model.goodput(seen) == pytest.approx(0.5, rel=0.03)
    assert learnt.goodput(unseen) / model.goodput(unseen) == pytest.approx(0.5, rel=0.03)


def test_steps_that_say_nothing_change_nothing() -> None:
    model = TableSpeed(TABLE, A, 4)
    useless = [
        Observation(Footprint("cpu", (1,)), 1.0),
        Observation(Footprint("fast", (1,)), math.inf),
        Observation(Footprint("fast", (1,)), math.nan),
        Observation(Footprint("fast", (1,), slowdown=1.0), 1.0),
    ]
    assert model.refit(useless) is model


@pytest.fixture(scope="module")
def gavel(data_folder: Path) -> ThroughputTable:
    path = data_folder / "traces" / "gavel" / "simulation_throughputs.json.gz"
    if not path.is_file():
        pytest.skip(f"no Gavel throughputs at {path}")
    with gzip.open(path, "rt") as file:
        return throughput_table(json.load(file))


def test_gavel_table_is_read_whole(gavel: ThroughputTable) -> None:
    assert gavel.kinds == ("k80", "p100", "v100")
    assert len(gavel.job_types) == 26
    assert gavel.scales("v100", "LM (batch size 5)") == (1, 2, 4, 8)
    assert gavel.scales("v100", "A3C") == (1,)
    # Straight from the file.
    assert gavel.steps_per_second("v100", "LM (batch size 5)", 8, True) == 698.773292956699
    assert gavel.steps_per_second("v100", "LM (batch size 5)", 8, False) == 73.11997842291213
    assert gavel.steps_per_second("k80", "ResNet-50 (batch size 128)", 2, True) == 0.0
    assert gavel.steps_per_second("k80", "ResNet-50 (batch size 128)", 2, False) == 0.0


def test_gavel_consolidation_gains(gavel: ThroughputTable) -> None:
    """Consolidated over spread on 8 V100, from Gavel's profiles: 4.8–9.6 for language models,
    1.4–3.6 for Transformers, 0.7–1.1 for ResNet-50."""
    expected = {"LM": (4.8, 9.6), "Transformer": (1.4, 3.6), "ResNet-50": (0.7, 1.1)}
    for family, (low, high) in expected.items():
        gains = []
        for job_type in gavel.job_types:
            if job_type.startswith(family):
                model = TableSpeed(gavel, job_type, 8)
                together = model.goodput(Footprint("v100", packed_counts(8, 8)))
                gains.append(together / model.goodput(Footprint("v100", (4, 4))))
        assert min(gains) == pytest.approx(low, abs=0.05)
        assert max(gains) == pytest.approx(high, abs=0.05)


def test_gavel_pairs(gavel: ThroughputTable) -> None:
    """676 ordered pairs on one V100, from Gavel's profiles: 40 do not fit, the median pair does
    1.35 times the work of one job, 74 % gain, the worst job falls to 0.09 of its speed."""

    def kept(job_type: str, partner: str) -> float:
        at = Footprint("v100", (1,))
        model = TableSpeed(gavel, job_type, 8)
        return model.goodput(Footprint("v100", (1,), partner)) / model.goodput(at)

    pairs = [(one, two) for one in gavel.job_types for two in gavel.job_types]
    shares = {pair: kept(*pair) for pair in pairs}
    work = [shares[one, two] + shares[two, one] for one, two in pairs]
    assert len(pairs) == 676
    assert work.count(0.0) == 40
    assert statistics.median(work) == pytest.approx(1.35, abs=0.005)
    assert sum(both > 1.0 for both in work) / len(work) == pytest.approx(0.74, abs=0.005)
    assert min(share for share in shares.values() if share > 0.0) == pytest.approx(0.09, abs=0.005)
