"""The small models that are measured, in the planner's words; `networks` has them in torch."""

from __future__ import annotations

from modelyard.spec.model import Model, ModelKind, Parameters

#: tokens of the models that are made here are drawn, so any vocabulary does; this is GPT-2's ÷ 6
VOCAB = 8_192
LONGEST = 1_024
TOKEN_TYPES = 2
#: share of a sequence that BERT is asked to guess (Devlin et al., 2018, section 3.1)
MASKED_SHARE = 0.15


def gpt(
    *, layers: int, hidden: int, heads: int | None = None, ffn: int = 0, vocab: int = VOCAB
) -> Model:
    """A GPT-2 of that shape: learnt positions, norms before each part, the head tied."""
    width, inner = hidden, ffn or 4 * hidden
    return _model(
        ModelKind.DECODER,
        f"gpt-{layers}x{hidden}",
        (layers, hidden, heads or _heads(hidden), inner, vocab),
        embedding=(vocab + LONGEST) * width,
        head=2 * width,
    )


def bert(
    *, layers: int, hidden: int, heads: int | None = None, ffn: int = 0, vocab: int = VOCAB
) -> Model:
    """A BERT of that shape with the head that guesses masked tokens."""
    width, inner = hidden, ffn or 4 * hidden
    return _model(
        ModelKind.ENCODER,
        f"bert-{layers}x{hidden}",
        (layers, hidden, heads or _heads(hidden), inner, vocab),
        embedding=(vocab + LONGEST + TOKEN_TYPES) * width + 2 * width,
        # A square layer with its norm, and a bias for each token beside the tied matrix.
        head=width * width + 3 * width + vocab,
    )


def _model(
    kind: ModelKind, name: str, shape: tuple[int, int, int, int, int], *, embedding: int, head: int
) -> Model:
    layers, hidden, heads, ffn, vocab = shape
    return Model(
        name=name,
        kind=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        value_size=hidden // heads,
        ffn=ffn,
        vocab=vocab,
        longest=LONGEST,
        parameters=Parameters(
            embedding=embedding,
            attention=layers * (4 * hidden * hidden + 4 * hidden + 4 * hidden),
            mlp=layers * (2 * hidden * ffn + ffn + hidden),
            head=head,
        ),
    )


def _heads(hidden: int) -> int:
    """Heads of 64, as in GPT-2 and BERT; of 32 in models too narrow for two of those."""
    return hidden // 64 if hidden >= 128 else hidden // 32
