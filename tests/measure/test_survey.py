"""What a calibration sets out to measure."""

from __future__ import annotations

import pytest

from modelyard.measure.bench.about import About
from modelyard.measure.bench.launch import Machine
from modelyard.measure.survey import expected_seconds, full_agenda, quick_agenda, usual_machine
from modelyard.spec.devices import Precision


def about(accelerators: int = 0, cores: int = 2, bfloat16: bool = True) -> About:
    return About(
        torch="2.13.0",
        accelerators=accelerators,
        name="NVIDIA A100-SXM4-80GB" if accelerators else "AMD EPYC",
        memory_bytes=80 * 10**9,
        cores=cores,
        bfloat16=bfloat16,
    )


@pytest.mark.parametrize(
    ("facts", "processes", "expected"),
    [
        (about(), None, ("cpu", 2, 1, Precision.FP32)),
        (about(cores=1), None, ("cpu", 1, 1, Precision.FP32)),
        (about(cores=64), None, ("cpu", 2, 32, Precision.FP32)),
        (about(cores=64), 8, ("cpu", 8, 8, Precision.FP32)),
        (about(accelerators=8, cores=64), None, ("cuda", 8, 8, Precision.BF16)),
        (about(accelerators=8, cores=64), 4, ("cuda", 4, 16, Precision.BF16)),
        (about(accelerators=1, bfloat16=False), None, ("cuda", 1, 2, Precision.FP16)),
    ],
)
def test_the_usual_machine_is_all_of_it(
    facts: About, processes: int | None, expected: tuple[str, int, int, Precision]
) -> None:
    machine = usual_machine(facts, processes)
    assert (
        machine.accelerator,
        machine.processes,
        machine.threads,
        machine.precision,
    ) == expected


MACHINES = [
    Machine(accelerator="cpu", processes=1, threads=1),
    Machine(accelerator="cpu", processes=2, threads=1),
    Machine(accelerator="cpu", processes=2, threads=64),
    Machine(accelerator="cuda", processes=1, threads=8),
    Machine(accelerator="cuda", processes=8, threads=8),
]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_a_calibration_takes_two_to_five_minutes(machine: Machine) -> None:
    assert expected_seconds(full_agenda(machine), machine) <= 300.0
    assert expected_seconds(quick_agenda(machine), machine) <= 60.0


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_runs_are_alone_and_together_and_of_both_sorts(machine: Machine) -> None:
    for agenda in (full_agenda(machine), quick_agenda(machine)):
        assert {run.processes for run in agenda.runs} == {1, machine.processes}
        assert len({run.kind for run in agenda.runs}) == 2
        assert len(set(agenda.runs)) == len(agenda.runs)
        for run in agenda.runs:
            assert run.hidden % run.model.heads == 0
            assert run.sequence <= run.model.longest
    quick, full = quick_agenda(machine), full_agenda(machine)
    assert set(quick.runs) <= set(full.runs)


def test_many_threads_get_wider_models() -> None:
    narrow, wide = (
        full_agenda(Machine(accelerator="cpu", processes=1, threads=threads)) for threads in (4, 16)
    )
    for one, other in zip(narrow.runs, wide.runs, strict=True):
        assert other.hidden == 2 * one.hidden
