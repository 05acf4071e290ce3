"""Optimizer states that are kept by one process and loaded by another."""

from __future__ import annotations

import pytest
import torch

from modelyard.train.named_state import by_name, by_number, parameter_names


@pytest.mark.parametrize(("before", "now"), [(None, True), (True, None)])
@pytest.mark.parametrize("named", [True, False])
def test_how_an_optimizer_computes_is_not_kept(
    before: bool | None, now: bool | None, named: bool
) -> None:
    model = torch.nn.Linear(3, 2)
    kept = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.5, 0.6), fused=before)
    model(torch.ones(1, 3)).sum().backward()
    kept.step()
    names = parameter_names(model, kept)
    state = by_name(kept.state_dict(), names) if named else kept.state_dict()
    again = torch.optim.AdamW(model.parameters(), fused=now)
    again.load_state_dict(by_number(state, again, names))
    (group,) = again.param_groups
    assert (group["lr"], group["betas"], group["fused"]) == (0.1, (0.5, 0.6), now)
    for one, moments in kept.state.items():
        torch.testing.assert_close(again.state[one]["exp_avg"], moments["exp_avg"])
    again.step()
