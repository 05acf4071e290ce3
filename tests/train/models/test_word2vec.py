"""Words that stand beside the same words come to lie beside each other."""

from __future__ import annotations

import pytest
import torch

from modelyard.errors import InputError
from modelyard.train.models.context_mlp import ContextMlp
from modelyard.train.models.registry import build
from modelyard.train.models.word2vec import Word2Vec


def _model(**more: object) -> Word2Vec:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = build("word2vec", {"vocab": 6, "width": 8, "window": 1, "negatives": 3, **more})
    assert isinstance(made, Word2Vec)
    return made


def test_words_of_a_kind_meet_and_serve_a_language_model() -> None:
    model = _model()
    luck = torch.Generator().manual_seed(1)
    # Each of 0 and 1 stands before one of 2 and 3; 4 and 5 stand among themselves.
    pairs = torch.stack(
        [torch.randint(0, 2, (64,), generator=luck), torch.randint(2, 4, (64,), generator=luck)], 1
    )
    alone = torch.randint(4, 6, (64, 2), generator=luck)
    rows = torch.cat([pairs, alone])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(120):
        optimizer.zero_grad()
        loss = model.loss(model.prepare(rows))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    rows_of = torch.nn.functional.normalize(model.source.weight.detach(), dim=1)
    likeness = rows_of @ rows_of.T
    assert likeness[0, 1] > likeness[0, 4] + 0.3
    assert likeness[2, 3] > likeness[2, 5] + 0.3
    reader = ContextMlp(vocab=6, context=1, width=8, hidden=4, source=model.source)
    assert reader.loss(reader.prepare(rows)).isfinite()


def test_negatives_are_fixed_by_the_sample_and_follow_the_counts() -> None:
    model = _model(counts=[0, 0, 1, 1, 0, 16])
    rows = torch.tensor([[0, 1, 2], [3, 4, 5]])
    both = model.prepare(rows, [7, 9])
    alone = model.prepare(rows[1:], [9])
    assert torch.equal(both.others.view(2, -1)[1], alone.others.view(-1))
    many = model.prepare(torch.zeros(200, 20, dtype=torch.int64), range(200)).others
    found = torch.bincount(many.view(-1), minlength=6).float() / many.numel()
    # 16 to the power of 3/4 is 8.
    wanted = torch.tensor([0.0, 0.0, 0.1, 0.1, 0.0, 0.8])
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=0.01)


def test_wrong_sizes_are_refused() -> None:
    for more in ({"window": 0}, {"counts": [1, 2]}, {"counts": [0] * 6}, {"negatives": True}):
        with pytest.raises(InputError):
            _model(**more)
