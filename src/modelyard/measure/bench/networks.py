"""The small GPT and BERT models of `shapes` in torch. Importing this needs the extra `train`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from modelyard.measure.bench.shapes import MASKED_SHARE, TOKEN_TYPES
from modelyard.spec.model import Model, ModelKind

#: standard deviation of fresh weights, as in GPT-2 and BERT
INITIAL_SPREAD = 0.02


class Block(nn.Module):
    """Attention and a feed-forward part. GPT puts the norms before each of them, BERT behind."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        hidden = model.hidden
        self.heads = model.heads
        self.causal = model.kind is ModelKind.DECODER
        self.norm_attention = nn.LayerNorm(hidden)
        self.queries_keys_values = nn.Linear(hidden, 3 * hidden)
        self.attended = nn.Linear(hidden, hidden)
        self.norm_feed = nn.LayerNorm(hidden)
        self.widen = nn.Linear(hidden, model.ffn)
        self.narrow = nn.Linear(model.ffn, hidden)

    def forward(self, x_BSH: Tensor) -> Tensor:  # noqa: N803 (Batch, Sequence, Hidden)
        if self.causal:
            x_BSH = x_BSH + self.attend(self.norm_attention(x_BSH))  # noqa: N806
            return x_BSH + self.feed(self.norm_feed(x_BSH))
        x_BSH = self.norm_attention(x_BSH + self.attend(x_BSH))  # noqa: N806
        return self.norm_feed(x_BSH + self.feed(x_BSH))

    def attend(self, x_BSH: Tensor) -> Tensor:  # noqa: N803
        batch, sequence, hidden = x_BSH.shape
        parts = self.queries_keys_values(x_BSH).split(hidden, dim=2)
        query, key, value = (
            part.view(batch, sequence, self.heads, hidden // self.heads).transpose(1, 2)
            for part in parts
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.attended(seen.transpose(1, 2).reshape(batch, sequence, hidden))

    def feed(self, x_BSH: Tensor) -> Tensor:  # noqa: N803
        return self.narrow(functional.gelu(self.widen(x_BSH), approximate="tanh"))


class Network(nn.Module):
    """A whole model; called with tokens it returns the loss of guessing them."""

    def __init__(self, model: Model, *, recompute: bool = False) -> None:
        super().__init__()
        hidden = model.hidden
        self.recompute = recompute
        self.causal = model.kind is ModelKind.DECODER
        self.tokens = nn.Embedding(model.vocab, hidden)
        self.positions = nn.Embedding(model.longest, hidden)
        if not self.causal:
            self.types = nn.Embedding(TOKEN_TYPES, hidden)
            self.norm_embedding = nn.LayerNorm(hidden)
            self.guess = nn.Linear(hidden, hidden)
            self.bias = nn.Parameter(torch.zeros(model.vocab))
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm_last = nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INITIAL_SPREAD)

    def forward(self, tokens_BS: Tensor) -> Tensor:  # noqa: N803
        sequence = tokens_BS.shape[1]
        places = torch.arange(sequence, device=tokens_BS.device)
        x_BSH = self.tokens(tokens_BS) + self.positions(places)  # noqa: N806
        if not self.causal:
            x_BSH = x_BSH + self.types(torch.zeros_like(tokens_BS))  # noqa: N806
            x_BSH = self.norm_embedding(x_BSH)  # noqa: N806
        for block in self.blocks:
            x_BSH = self.through(block, x_BSH)  # noqa: N806
        return self.next_token(x_BSH, tokens_BS) if self.causal else self.masked(x_BSH, tokens_BS)

    def through(self, block: Block, x_BSH: Tensor) -> Tensor:  # noqa: N803
        return checkpoint(block, x_BSH, use_reentrant=False) if self.recompute else block(x_BSH)

    def next_token(self, x_BSH: Tensor, tokens_BS: Tensor) -> Tensor:  # noqa: N803
        logits = functional.linear(self.norm_last(x_BSH), self.tokens.weight)
        targets = torch.roll(tokens_BS, -1, dims=1)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def masked(self, x_BSH: Tensor, tokens_BS: Tensor) -> Tensor:  # noqa: N803
        """Only masked tokens pass the head; which ones makes no difference to the time."""
        masked = max(1, round(MASKED_SHARE * tokens_BS.shape[1]))
        x_BMH = x_BSH[:, :masked]  # noqa: N806
        guessed = self.norm_last(functional.gelu(self.guess(x_BMH)))
        logits = functional.linear(guessed, self.tokens.weight, self.bias)
        return functional.cross_entropy(logits.flatten(0, 1), tokens_BS[:, :masked].flatten())
