"""The context model reads its table from anywhere: a remote one gets the same gradients."""

from __future__ import annotations

import pytest
import torch

from modelyard.errors import InputError
from modelyard.train.models.context_mlp import ContextMlp, LocalTable


class Elsewhere:
    """A table that is no part of the model: rows are copied out, gradients come back by id."""

    def __init__(self, table: torch.Tensor) -> None:
        self.rows, self.width = table.shape
        self.table = table
        self.gradient = torch.zeros_like(table)

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.table[ids].clone().requires_grad_()

        def send_home(gradient: torch.Tensor) -> None:
            self.gradient.index_add_(0, ids, gradient)

        rows.register_hook(send_home)
        return rows


def test_a_remote_table_receives_what_a_local_one_would() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    local = ContextMlp(vocab=20, context=3, width=4, hidden=8)
    assert isinstance(local.source, LocalTable)
    elsewhere = Elsewhere(local.source.weight.detach().clone())
    remote = ContextMlp(vocab=20, context=3, width=4, hidden=8, source=elsewhere)
    remote.load_state_dict(
        {key: value for key, value in local.state_dict().items() if key != "source.weight"}
    )
    batch = local.prepare(torch.randint(0, 20, (3, 9)))
    losses = [model.loss(batch) for model in (local, remote)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == losses[1].item()
    torch.testing.assert_close(local.source.weight.grad, elsewhere.gradient)
    assert not any("source" in name for name, _ in remote.named_parameters())


def test_a_table_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="5 × 4 instead of 20 × 4"):
        ContextMlp(vocab=20, width=4, source=LocalTable(5, 4))
