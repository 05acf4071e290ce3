"""The micro-benchmarks: small but real, in real processes, because that is what they are for."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.measure.bench import collectives, launch, layer, matmul, memory, training
from modelyard.measure.bench.samples import Sample, Timing, merged, timing
from modelyard.measure.bench.shapes import bert, gpt
from modelyard.spec.devices import Precision
from modelyard.spec.model import Model, ModelKind

ALONE = launch.Machine(accelerator="cpu", processes=1, threads=1)
PAIR = launch.Machine(accelerator="cpu", processes=2, threads=1)


def test_products_and_copies_have_plausible_rates() -> None:
    pytest.importorskip("torch")
    products = matmul.measure_products(ALONE, sizes=[(128, 128, 128)], budget_seconds=0.02)
    assert {one.precision for one in products} == {Precision.FP32, Precision.BF16}
    # From a very old core to a very large machine.
    assert all(1e8 < rate < 1e15 for _, rate in matmul.best_rates(products))
    (copy,) = memory.measure_copies(ALONE, sizes_bytes=[2**20], budget_seconds=0.02)
    assert 1e8 < copy.bandwidth < 1e13


def test_two_processes_exchange_and_train_together() -> None:
    pytest.importorskip("torch")
    exchanges = collectives.measure_exchanges(
        PAIR, processes=2, sizes_bytes=[4096, 2**20], repetitions=4
    )
    assert [one.collective for one in exchanges] == ["all-reduce", "all-gather"] * 2
    link = collectives.fitted_link(exchanges)
    assert 1e6 < link.bandwidth < 1e12
    assert 1e-7 < link.latency < 1.0
    run = training.Run(
        kind=ModelKind.DECODER,
        layers=1,
        hidden=64,
        sequence=16,
        micro_batch=2,
        accumulation=2,
        processes=2,
        vocab=256,
    )
    trial = training.try_run(run, PAIR, budget_seconds=0.05)
    measured = training.summed_up([trial, trial])
    assert measured.timing.repetitions == 2 * len(trial.samples)
    assert 0.0 < measured.timing.seconds < 60.0
    assert measured.peak_bytes >= measured.base_bytes > 10e6


def test_a_block_takes_time_in_both_directions() -> None:
    pytest.importorskip("torch")
    shape = layer.BlockShape(kind=ModelKind.ENCODER, hidden=64, sequence=32, micro_batch=2)
    (block,) = layer.measure_blocks(ALONE, shapes=[shape], budget_seconds=0.02)
    assert block.forward.seconds > 0.0
    assert block.backward.seconds > 0.0
    assert block.seconds > block.forward.seconds + block.backward.seconds


@pytest.mark.parametrize(
    "model",
    [gpt(layers=2, hidden=64, vocab=100), bert(layers=3, hidden=96, vocab=100, ffn=200)],
    ids=lambda model: model.name,
)
def test_the_planner_counts_the_parameters_that_torch_has(model: Model) -> None:
    torch = pytest.importorskip("torch")
    from modelyard.measure.bench.networks import Network

    network = Network(model)
    assert sum(one.numel() for one in network.parameters()) == model.parameters.total
    blocks = sum(one.numel() for one in network.blocks.parameters())
    assert blocks == model.parameters.attention + model.parameters.mlp
    loss = network(torch.zeros((2, 8), dtype=torch.long))
    loss.backward()
    # A network that has learnt nothing guesses among all tokens alike.
    assert loss.item() == pytest.approx(math.log(model.vocab), rel=0.2)


def test_recomputation_changes_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    from modelyard.measure.bench.networks import Network

    model = gpt(layers=2, hidden=64, vocab=100)
    tokens = torch.arange(16).reshape(2, 8)
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(1)
        network = Network(model, recompute=recompute)
        network(tokens).backward()
        gradients.append([one.grad for one in network.parameters()])
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(*gradients, strict=True))


def test_without_torch_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'modelyard\[train\]'"):
        launch.require_torch()


def test_a_worker_that_fails_is_an_error_with_its_last_words() -> None:
    pytest.importorskip("torch")
    with pytest.raises(launch.Failed, match="unknown task dance"):
        launch.measure("dance", {}, ALONE)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the /proc of Linux")
def test_workers_end_with_the_process_that_asked() -> None:
    pytest.importorskip("torch")
    # Killed outright, so that no handler can help: the worker itself has to notice.
    program = (
        "from modelyard.measure.bench import launch, memory\n"
        "machine = launch.Machine(accelerator='cpu', processes=1, threads=1)\n"
        "memory.measure_copies(machine, sizes_bytes=[2**20], budget_seconds=60.0)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        children = _until(lambda: _children(parent.pid))
        assert children
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _until(lambda: all(_gone(child) for child in children))


def _until(condition, limit_seconds: float = 20.0):  # type: ignore[no-untyped-def]
    end = time.monotonic() + limit_seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def _gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z" or not os.path.exists(f"/proc/{pid}")


SAMPLES = st.builds(
    lambda seconds, share: Sample(seconds, seconds * share),
    st.floats(1e-6, 1e3),
    st.floats(0.0, 0.99),
)


@given(st.lists(SAMPLES, min_size=1, max_size=40), st.booleans())
def test_a_timing_lies_within_its_samples(samples: list[Sample], alone: bool) -> None:
    found = timing(samples, alone=alone)
    assert found.low <= found.seconds <= found.high
    assert 0.0 <= found.seconds <= max(one.seconds for one in samples)
    assert 0.0 <= found.waited_share < 1.0


def test_disturbed_repetitions_do_not_count() -> None:
    quiet = [Sample(1.0, 0.0)] * 4
    disturbed = [Sample(3.0, 1.9)] * 6
    assert timing(quiet + disturbed).seconds == 1.0
    assert timing(quiet + disturbed, alone=False).seconds == 1.0


def test_waiting_for_others_is_taken_off() -> None:
    assert timing([Sample(3.0, 1.0)] * 5).seconds == 2.0
    # Processes that work together may wait a little for themselves.
    assert timing([Sample(1.0, 0.02)] * 5, alone=False).seconds == 1.0


def test_a_step_lasts_as_long_as_in_the_slowest_process() -> None:
    one, other = [Sample(1.0, 0.1), Sample(2.0, 0.0)], [Sample(1.5, 0.0), Sample(1.0, 0.3)]
    assert merged([one, other]) == [Sample(1.5, 0.1), Sample(2.0, 0.3)]


@given(st.floats(1e6, 1e11), st.floats(1e-6, 1e-2), st.integers(2, 16))
def test_a_link_is_found_again(bandwidth: float, latency: float, processes: int) -> None:
    exchanges = []
    for collective, times in (("all-reduce", 2.0), ("all-gather", 1.0)):
        for size in (2**12, 2**20, 2**26, 2**32):
            messages = times * (processes - 1)
            seconds = messages * (size / processes / bandwidth + latency)
            exchanges.append(
                collectives.Exchange(
                    collective=collective,
                    size_bytes=size,
                    processes=processes,
                    timing=Timing(
                        seconds=seconds, low=seconds, high=seconds, repetitions=1, waited_share=0.0
                    ),
                )
            )
    link = collectives.fitted_link(exchanges)
    assert link.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert link.latency == pytest.approx(latency, rel=1e-3)
