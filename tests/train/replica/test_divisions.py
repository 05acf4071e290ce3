"""However a replica is divided over processes, it computes what one process does.

Real processes: what torch leaves to each of them, and what they tell each other, is what is tested.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

REPOSITORY = Path(__file__).resolve().parents[3]
LLAMA = {"gated": True, "kv_heads": 2, "tied": False, "positions": 0}
FSDP, TENSOR, PIPELINE = {"fsdp": 2}, {"tensor": 2}, {"pipeline": 2}
INTERLEAVED = {"pipeline": 2, "schedule": "interleaved"}


def played(folder: Path, *plays: dict[str, Any]) -> dict[str, list[float]]:
    """The losses of each play."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.replica.divisions", str(folder)],
        input=json.dumps(plays),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return {
        play["name"]: json.loads((folder / f"{play['name']}.json").read_text()) for play in plays
    }


def check_alike(folder: Path, plays: list[dict[str, Any]], **more: Any) -> None:
    """All plays have the losses of one process."""
    named = [{"name": f"play-{index}", **play, **more} for index, play in enumerate(plays)]
    losses = played(folder, {"name": "one", **more}, *named)
    for play in named:
        assert losses[play["name"]] == pytest.approx(losses["one"], abs=1e-5), play


def test_every_division_learns_what_one_process_does(tmp_path: Path) -> None:
    check_alike(tmp_path, [{"parallel": one} for one in (FSDP, TENSOR, PIPELINE)])


@pytest.mark.slow
@pytest.mark.parametrize("model", [{}, LLAMA], ids=["tied", "llama"])
def test_products_of_divisions_do_as_well(tmp_path: Path, model: dict[str, Any]) -> None:
    products = [
        INTERLEAVED,
        {**FSDP, **TENSOR},
        {**FSDP, **PIPELINE},
        {**TENSOR, **PIPELINE},
        {**FSDP, **TENSOR, **INTERLEAVED},
        {"fsdp": 3},
        {"pipeline": 3},
    ]
    check_alike(tmp_path, [{"parallel": one} for one in products], model=model)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recomputed_activations_are_the_same(tmp_path: Path, recompute: str) -> None:
    divisions = [FSDP, TENSOR, PIPELINE, {**FSDP, **TENSOR}]
    check_alike(tmp_path, [{"parallel": one} for one in divisions], model={"recompute": recompute})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_other_models_are_sharded(tmp_path: Path, kind: str) -> None:
    model = {"decoder_layers": 2} if kind == "t5" else {}
    check_alike(tmp_path, [{"parallel": FSDP}], kind=kind, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "lamb", "adafactor"])
def test_every_optimizer_steps_alike(tmp_path: Path, optimizer: str) -> None:
    check_alike(
        tmp_path,
        [{"parallel": one} for one in (FSDP, TENSOR, PIPELINE, {**FSDP, **TENSOR})],
        optimizer=optimizer,
    )


@pytest.mark.slow
def test_bf16_is_close(tmp_path: Path) -> None:
    plays = [
        {"name": f"play-{index}", "parallel": one, "precision": "bf16"}
        for index, one in enumerate((FSDP, TENSOR, PIPELINE, {**FSDP, **PIPELINE}))
    ]
    losses = played(tmp_path, {"name": "one"}, *plays)
    for play in plays:
        assert losses[play["name"]] == pytest.approx(losses["one"], abs=0.02)


def moved(first: dict[str, int], second: dict[str, int]) -> list[dict[str, Any]]:
    """A run of four steps, and the same kept after two of them and restored by another division."""
    return [
        {"name": "one", "steps": 4},
        {"name": "first", "parallel": first, "steps": 2, "keep": "kept"},
        {"name": "second", "parallel": second, "first": 2, "steps": 2, "restore": "kept"},
    ]


def check_moved(folder: Path, first: dict[str, int], second: dict[str, int]) -> None:
    losses = played(folder, *moved(first, second))
    assert losses["first"] + losses["second"] == pytest.approx(losses["one"], abs=1e-5)


def test_what_shards_keep_pipelines_restore(tmp_path: Path) -> None:
    """Bit for bit: the processes compare what they hold with what was kept."""
    check_moved(tmp_path, FSDP, PIPELINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FSDP, TENSOR),
        (TENSOR, FSDP),
        (PIPELINE, TENSOR),
        (TENSOR, PIPELINE),
        (PIPELINE, {"fsdp": 3}),
        ({**FSDP, **TENSOR}, INTERLEAVED),
        (INTERLEAVED, {**FSDP, **PIPELINE}),
        ({**FSDP, **TENSOR, **PIPELINE}, FSDP),
    ],
)
def test_every_division_restores_every_other(
    tmp_path: Path, first: dict[str, int], second: dict[str, int]
) -> None:
    check_moved(tmp_path, first, second)
