"""Matrices divided over places by heads and inner features, as in Megatron-LM, with DTensor.

Queries, keys, values, gates and up-projections are cut by rows, what follows them by columns, so
each block needs one sum after attention and one after its feed-forward part. The vocabulary is cut
as well. Norms and positions are small and whole on every place: all compute the same with them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from modelyard.errors import InputError, Problem
from modelyard.train.models.gpt import Gpt

_BLOCK = {
    "attention.q": ColwiseParallel,
    "attention.k": ColwiseParallel,
    "attention.v": ColwiseParallel,
    "attention.o": RowwiseParallel,
    "mlp.gate": ColwiseParallel,
    "mlp.up": ColwiseParallel,
    "mlp.down": RowwiseParallel,
}
#: norms that each place applies to its own heads: their gradients are parts of a sum
_OF_HEADS = ("attention.q_norm.weight", "attention.k_norm.weight")


class TiedScores(nn.Module):
    """The output layer of a model whose table of tokens is cut by rows, and is its output too."""

    def __init__(self, tokens: nn.Embedding) -> None:
        super().__init__()
        # In a tuple, so that the table stays the parameter of one module.
        self._tokens = (tokens,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self._tokens[0].weight
        assert isinstance(weight, DTensor)
        mesh = weight.device_mesh
        everywhere = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        scores = functional.linear(everywhere, weight)
        return scores.redistribute(mesh, [Replicate()]).to_local()


def check_tensor(model: nn.Module, places: int) -> None:
    """`InputError` with all that keeps a model from being divided over so many places."""
    if places == 1:
        return
    if not isinstance(model, Gpt):
        raise InputError(
            f"tensor parallelism of a {type(model).__name__} is not supported",
            fix="write 'fsdp' instead of 'tensor', or train a GPT or Llama",
        )
    shape = model.shape
    sizes = {"heads": shape.heads, "kv_heads": shape.kv_heads, "ffn": shape.ffn}
    problems = [
        Problem(
            f"'tensor: {places}' does not divide the model's {size} {name}",
            "write a number that divides it",
        )
        for name, size in sizes.items()
        if size % places
    ]
    if problems:
        raise InputError(f"'tensor: {places}' does not fit the model", problems=problems)


def divide_matrices(model: nn.Module, mesh: DeviceMesh) -> list[nn.Parameter]:
    """Cut a model over a mesh of one dimension; those whose gradients are to be summed over it."""
    check_tensor(model, mesh.size())
    assert isinstance(model, Gpt)
    parts: list[nn.Parameter] = []
    for block in model.blocks:
        present = dict(block.named_modules())
        plan = {name: style() for name, style in _BLOCK.items() if name in present}
        parallelize_module(block, mesh, plan)
        named = dict(block.named_parameters())
        parts.extend(named[name] for name in _OF_HEADS if name in named)
    parallelize_module(model.tokens, mesh, RowwiseParallel(input_layouts=Replicate()))
    if model.output is None:
        model.output = TiedScores(model.tokens)
    else:
        parallelize_module(model.output, mesh, ColwiseParallel(output_layouts=Replicate()))
    return parts
