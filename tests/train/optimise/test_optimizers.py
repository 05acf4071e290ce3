"""Own optimizers against torch's or against the published formulas, written out in numpy."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from modelyard.errors import InputError
from modelyard.train.models.registry import build
from modelyard.train.optimise.adafactor import Adafactor
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for, settings_from
from modelyard.train.optimise.lamb import Lamb
from modelyard.train.optimise.precision import LossScale, scale_after
from modelyard.train.optimise.update import update
from modelyard.train.state import pack

NAMES = ("adamw", "sgd", "lamb", "adafactor")


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _tensors() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape)) for shape in ((7, 5), (5,), (3, 4, 2))]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adafactor_is_torchs(decay: float) -> None:
    ours = _tensors()
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    mine = Adafactor(ours, lr=0.3, weight_decay=decay)
    peer = torch.optim.Adafactor(theirs, lr=0.3, weight_decay=decay)
    for _ in range(15):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        mine.step()
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6)


def test_adamw_is_torchs_in_one_pass() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    other = copy.deepcopy(model)
    mine = optimizer_for(model, OptimiserSettings(learning_rate=0.01, weight_decay=0.0))
    assert all(group["fused"] for group in mine.param_groups)
    peer = torch.optim.AdamW(
        other.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0, foreach=False
    )
    for _ in range(15):
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            one.grad = torch.randn_like(one)
            two.grad = one.grad.clone()
        mine.step()
        peer.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_lamb_is_algorithm_2() -> None:
    parameter = nn.Parameter(torch.randn(6, 4, dtype=torch.float64))
    x = parameter.detach().numpy().copy()
    optimizer = Lamb([parameter], lr=0.05, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.2)
    m, v = np.zeros_like(x), np.zeros_like(x)
    for step in range(1, 8):
        gradient = torch.randn(6, 4, dtype=torch.float64)
        parameter.grad = gradient
        optimizer.step()
        g = gradient.numpy()
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        r = m / (1 - 0.8**step) / (np.sqrt(v / (1 - 0.9**step)) + 1e-6) + 0.2 * x
        x = x - 0.05 * np.linalg.norm(x) / np.linalg.norm(r) * r
    np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-10)


def test_lamb_without_the_ratio_is_adam() -> None:
    ours = _tensors()
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    mine = Lamb(ours, lr=0.01, betas=(0.9, 0.99), eps=1e-8, adapt=False)
    peer = torch.optim.AdamW(theirs, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        mine.step()
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_decay_of_sgd_does_not_pass_through_the_momentum() -> None:
    line = nn.Linear(3, 2)
    settings = OptimiserSettings(name="sgd", learning_rate=0.1, weight_decay=0.5, momentum=0.9)
    optimizer = optimizer_for(line, settings)
    weight, bias = line.weight.detach().clone(), line.bias.detach().clone()
    for _ in range(3):
        line.weight.grad, line.bias.grad = torch.zeros(2, 3), torch.zeros(2)
        optimizer.step()
    torch.testing.assert_close(line.weight.detach(), weight * 0.95**3)
    torch.testing.assert_close(line.bias.detach(), bias)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_trains_and_its_state_travels(name: str) -> None:
    model = build("gpt", {"layers": 1, "hidden": 16, "heads": 2, "vocab": 32, "longest": 16})
    rate = {"adamw": 0.01, "sgd": 0.5, "lamb": 0.2, "adafactor": 0.1}[name]
    optimizer = optimizer_for(model, OptimiserSettings(name=name, learning_rate=rate))
    rows = torch.arange(64).view(4, 16) % 32
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model.loss(model.prepare(rows))
        loss.backward()
        update(optimizer, rate=rate, clip_norm=1.0)
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    pack(optimizer.state_dict())
    twin = copy.deepcopy(model)
    other = optimizer_for(twin, OptimiserSettings(name=name, learning_rate=rate))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, chosen in ((model, optimizer), (twin, other)):
        chosen.zero_grad()
        one.loss(one.prepare(rows)).backward()
        update(chosen, rate=rate)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_vectors_do_not_decay() -> None:
    model = build("gpt", {"layers": 1, "hidden": 16, "heads": 2, "vocab": 32, "longest": 16})
    groups = optimizer_for(model, OptimiserSettings(weight_decay=0.3)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert all(one.ndim >= 2 for one in groups[0]["params"])
    assert all(one.ndim == 1 for one in groups[1]["params"])
    counted = sum(one.numel() for group in groups for one in group["params"])
    assert counted == sum(one.numel() for one in model.parameters())


def test_clipping_keeps_the_direction_and_a_bad_gradient_moves_nothing() -> None:
    line = nn.Linear(2, 1, bias=False)
    before = line.weight.detach().clone()
    optimizer = optimizer_for(
        line, OptimiserSettings(name="sgd", momentum=0.0, weight_decay=0.0, learning_rate=1.0)
    )
    line.weight.grad = torch.tensor([[3.0, 4.0]])
    done = update(optimizer, rate=1.0, clip_norm=1.0)
    assert done.gradient_norm == pytest.approx(5.0)
    torch.testing.assert_close(before - line.weight.detach(), torch.tensor([[0.6, 0.8]]))
    middle = line.weight.detach().clone()
    line.weight.grad = torch.tensor([[float("inf"), 4.0]])
    scale = LossScale(scale=8.0)
    done = update(optimizer, rate=1.0, clip_norm=1.0, scale=scale)
    assert not done.applied
    assert done.scale.scale == 4.0
    assert torch.equal(middle, line.weight.detach())


def test_a_scaled_loss_gives_the_same_step() -> None:
    steps = []
    for scale in (LossScale(scale=1.0), LossScale(scale=1024.0)):
        torch.manual_seed(1)
        line = nn.Linear(4, 4)
        optimizer = optimizer_for(line, OptimiserSettings(learning_rate=0.1))
        (line(torch.ones(2, 4)).square().mean() * scale.scale).backward()
        update(optimizer, rate=0.1, clip_norm=0.5, scale=scale)
        steps.append(line.weight.detach())
    torch.testing.assert_close(*steps)


def test_the_loss_scale_grows_with_patience_and_shrinks_at_once() -> None:
    scale = LossScale(scale=4.0, patience=2)
    scale = scale_after(scale, finite=True)
    assert scale.scale == 4.0
    scale = scale_after(scale, finite=True)
    assert scale.scale == 8.0
    for _ in range(10):
        scale = scale_after(scale, finite=False)
    assert scale.scale == scale.least


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "adam"}, "did you mean 'adamw'"),
        ({"learning_rate": 0.0}, "number above 0"),
        ({"learning_rate": 10**5000}, "sensible size"),
        ({"beta1": 1.0}, "to below 1"),
        ({"beta3": 1.0}, "unknown setting"),
        ({"weight_decay": float("nan")}, "from 0"),
        ({"nesterov": 1}, "true or false"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        settings_from(given)


def test_a_model_without_gradients_is_refused() -> None:
    with pytest.raises(InputError, match="no parameter that wants a gradient"):
        optimizer_for(torch.nn.Linear(2, 2).requires_grad_(False), OptimiserSettings())
    assert settings_from({"name": "lamb", "beta2": 0.999}).beta2 == 0.999


_SHARDED = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from modelyard.train.models.registry import build
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.optimise.update import update

torch.set_num_threads(1)
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", rank=int(sys.argv[2]), world_size=2, store=store)
rows = torch.arange(64).view(4, 16) % 32
for name in ("adamw", "sgd", "lamb", "adafactor"):
    losses = []
    for cut in (False, True):
        torch.manual_seed(0)
        model = build("gpt", {"layers": 1, "hidden": 16, "heads": 2, "vocab": 32, "longest": 16})
        if cut:
            for part in (*model.blocks, model):
                fully_shard(part)
            register_fsdp_forward_method(model, "loss")
        optimizer = optimizer_for(model, OptimiserSettings(name=name, learning_rate=0.05))
        for _ in range(4):
            optimizer.zero_grad()
            loss = model.loss(model.prepare(rows))
            loss.backward()
            update(optimizer, rate=0.05, clip_norm=0.5)
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-5, (name, losses)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_sharded_parameters_take_the_same_steps(tmp_path: Path) -> None:
    # Two processes, because torch has one default group in each.
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _SHARDED, str(tmp_path / "store"), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        errors = process.communicate(timeout=250)[1]
        assert process.returncode == 0, errors
