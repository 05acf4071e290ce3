"""Embeddings that live on the servers, from job files: rows travel, never the table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
pytest.importorskip("tokenizers", reason="words need a tokenizer: install the extra 'train'")

import numpy as np
import torch
from tests.train.jobs import commits, write_job, yard_train

from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.snapshots import restore_latest

REPOSITORY = Path(__file__).resolve().parents[2]
WIDTH, STEPS = 192, 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("jobs")
    text = REPOSITORY / "examples" / "sonnets.txt"
    wanted = Settings(tokenizer="bpe:1200", validation=0.0)
    prepare([str(text)], made / "data", wanted, workers=1, watch=lambda *_: None)
    return made


def table_bytes(run: Path) -> int:
    """The size of the table in the newest checkpoint."""
    kept = restore_latest(run / "checkpoints")
    assert kept is not None
    assert isinstance(kept.tree, dict)
    table = kept.tree["model"]["source.weight"]
    assert isinstance(table, torch.Tensor)
    return table.numel() * table.element_size()


def test_a_context_model_with_its_embedding_on_the_servers(folder: Path) -> None:
    job = write_job(
        folder,
        "context-servers",
        model="context-mlp",
        batch=4,
        steps=STEPS,
        train={
            "data": "data",
            "model_options": {"context": 2, "width": WIDTH, "hidden": 4, "direct": False},
            "optimizer": {"learning_rate": 0.05},
            "aggregate": {"name": "servers-stale", "options": {"staleness": 2}},
        },
    )
    run = yard_train(job, kill_at=20)
    committed = commits(run)
    used = sorted((one.start, one.stop) for one in committed)
    assert len(used) == STEPS
    assert used[0][0] == 0
    assert all(before[1] == later[0] for before, later in pairwise(used))
    losses = [one.loss for one in committed if one.loss is not None]
    assert np.mean(losses[-10:]) < np.mean(losses[:5]) - 0.3
    # A lease has at most 4 · 16 different words, of some 1,200, in both directions.
    moved = [one.bytes_sent for one in committed]
    assert max(moved) < 0.3 * table_bytes(run)


@pytest.mark.slow
def test_word2vec_gives_its_table_to_a_context_model(folder: Path) -> None:
    first = write_job(
        folder,
        "words",
        model="word2vec",
        batch=4,
        steps=12,
        train={
            "data": "data",
            "model_options": {"width": WIDTH},
            "aggregate": {"name": "downpour", "options": {"fetch": 2, "push": 2}},
        },
    )
    run = yard_train(first)
    learnt = restore_latest(run / "checkpoints")
    second = write_job(
        folder,
        "context",
        model="context-mlp",
        batch=4,
        steps=2,
        train={
            "data": "data",
            "from": "words-run",
            "model_options": {"width": WIDTH, "hidden": 4},
            "optimizer": {"learning_rate": 1e-9},
        },
    )
    begun = restore_latest(yard_train(second) / "checkpoints")
    assert learnt is not None
    assert begun is not None
    assert isinstance(learnt.tree, dict)
    assert isinstance(begun.tree, dict)
    torch.testing.assert_close(
        begun.tree["model"]["source.weight"], learnt.tree["model"]["source.weight"]
    )
