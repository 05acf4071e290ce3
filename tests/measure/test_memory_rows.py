"""Rows of measured memory: what they mean, what is refused, and how well they are predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelyard.errors import InputError
from modelyard.measure.memory_fit import fit_rows
from modelyard.measure.memory_rows import (
    Counted,
    MemoryRows,
    joined,
    parse_memory_rows,
    read_memory_rows,
)
from modelyard.measure.memory_score import as_counted, calibrated_errors, score_memory
from modelyard.speed.physical.memory import peak_memory, shipped_memory

HEADER = (
    "id,source,framework,model,layers,hidden,heads,vocab,seq_len,device,device_mem_gb,n_devices,"
    "tp,pp,sharding,micro_batch,global_batch,precision,recompute,flash_attn,mem_gb,mem_kind,"
    "component,oom,notes\n"
)
ROW = (
    "a,mine,Megatron-LM,gpt,24,1024,16,51200,1024,A100-80,80,8,1,1,none,4,32,bf16,none,no,21.5,"
    "nvidia-smi max GB,,,\n"
)


def test_a_row_says_what_was_counted() -> None:
    rows = parse_memory_rows(
        HEADER
        + ROW
        + ROW.replace("nvidia-smi max GB", "peak GiB over ranks")
        + ROW.replace("nvidia-smi max GB,", "GiB,activations")
        + ROW.replace("nvidia-smi max GB,", "GiB,params+grads+optimizer")
    )
    assert rows.counted == (
        Counted.DEVICE,
        Counted.ALLOCATOR,
        Counted.ACTIVATIONS,
        Counted.STATES,
    )
    assert rows.bytes == pytest.approx(21.5 * 2**30)
    assert rows.columns.layout.accumulation.tolist() == [1.0] * 4
    predicted = as_counted(rows, peak_memory(rows.columns, shipped_memory()))
    assert predicted[0] > predicted[1] > predicted[2]


def test_an_outcome_is_enough() -> None:
    rows = parse_memory_rows(
        HEADER
        + ROW.replace("21.5,nvidia-smi max GB,,", ",,,yes")
        + ROW.replace("21.5,nvidia-smi max GB,,", ",,,")
    )
    assert rows.failed.tolist() == [True, False]
    assert not rows.measured.any()
    assert rows.settled.all()


def test_rows_without_their_main_facts_are_not_judged() -> None:
    stack = ROW.replace("Megatron-LM", "NeMo 24.07")
    rows = parse_memory_rows(
        HEADER + stack.replace("bf16,none", "bf16,") + ROW.replace(",none,4,32", ",none,,32") + ROW
    )
    assert rows.settled.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("1024,A100", ",A100"), "seq_len"),
        (("A100-80", "Abacus"), "Abacus"),
        (("gpt,24", "transgan,24"), "not a language model"),
        (("80,8,1,1", "80,8,3,1"), "cannot be divided"),
        (("bf16,none", "bf16,sometimes"), "sometimes"),
        ((",4,32", ",,"), "micro_batch"),
        (("24,1024,16", ",,"), "missing"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_kept_with_its_reason(
    change: tuple[str, str], reason: str
) -> None:
    rows = parse_memory_rows(HEADER + ROW + ROW.replace(*change).replace("a,", "b,", 1))
    assert rows.size == 1
    assert [row.id for row in rows.skipped] == ["b"]
    assert reason in rows.skipped[0].reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model,device\n",
        HEADER,
        HEADER + ROW.replace("21.5", "-1"),
        HEADER + ROW.replace("21.5", "nan"),
        HEADER + ROW.replace("21.5", "9" * 5000),
        HEADER + ROW.replace("A100-80", "Abacus"),
    ],
)
def test_a_table_without_rows_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        parse_memory_rows(text, "rows.csv")


def test_a_run_in_two_files_counts_once_with_its_figure() -> None:
    measured = parse_memory_rows(HEADER + ROW)
    outcome = parse_memory_rows(HEADER + ROW.replace("21.5,nvidia-smi max GB", ","))
    for tables in ([measured, outcome], [outcome, measured]):
        assert joined(tables).bytes.tolist() == measured.bytes.tolist()


def test_a_file_of_one_source_has_nothing_to_be_held_out_from() -> None:
    rows = parse_memory_rows(HEADER + ROW)
    score = score_memory(rows, shipped_memory(), hold_out=True)
    assert np.isfinite(score.overall.held_out_median)
    assert "1 peak:" in score.summary()


def test_a_name_says_whether_there_are_gates_where_no_width_does() -> None:
    """Three matrices of 8/3·h have as many parameters as two of 4·h."""
    rows = parse_memory_rows(HEADER + ROW + ROW.replace("gpt", "my-llama").replace("a,", "b,", 1))
    assert rows.columns.gated.tolist() == [0.0, 1.0]
    assert rows.columns.ffn.tolist() == [4096.0, 2730.0]


def test_a_few_peaks_of_a_cluster_teach_about_the_others() -> None:
    text = HEADER + "".join(
        ROW.replace("a,mine", f"{batch},mine")
        .replace(",4,32", f",{batch},{8 * batch}")
        .replace("21.5", f"{(11 + 3.4 * batch) * 1.2:.1f}")
        for batch in range(1, 13)
    )
    rows = parse_memory_rows(text)
    before = score_memory(rows, shipped_memory()).overall.median
    after = calibrated_errors(rows, 5, shipped_memory())
    assert np.isnan(after).sum() == 5
    assert np.nanmedian(np.abs(after)) < before
    assert np.isnan(calibrated_errors(rows, 7, shipped_memory())).all()


@pytest.fixture(scope="module")
def published(data_folder: Path) -> MemoryRows:
    folder = data_folder / "planning"
    return joined([read_memory_rows(folder / name) for name in ("memory.csv", "throughput.csv")])


def test_published_peaks_are_within_a_tenth(published: MemoryRows) -> None:
    score = score_memory(published, shipped_memory())
    assert score.overall.rows == 85
    assert score.overall.median < 0.06
    assert score.overall.p90 < 0.12
    assert all(source.median < 0.1 for source in score.sources)
    assert score.flags.recall >= 0.95
    assert score.flags.precision >= 0.8
    assert {row.source for row in score.skipped} >= {"amd-primus-pipeline", "amp-neurips22"}


def test_the_shipped_coefficients_are_those_of_the_rows(published: MemoryRows) -> None:
    fitted = fit_rows(published)
    assert fitted.values == pytest.approx(shipped_memory().values, rel=0.02)


@pytest.mark.slow
def test_sources_that_were_not_fitted_are_within_a_tenth(published: MemoryRows) -> None:
    score = score_memory(published, shipped_memory(), hold_out=True)
    assert score.overall.held_out_median < 0.1
    assert 0.75 <= score.overall.held_out_coverage <= 0.85
    assert score.held_out_flags is not None
    assert score.held_out_flags.recall >= 0.95
    assert score.held_out_flags.precision >= 0.8
    assert np.isfinite([source.held_out_p90 for source in score.sources]).all()
