"""Every weight of a model by name and place: what is counted, and what adapters attach to.

Names are the same for all architectures: `q`, `k`, `v` or `qkv`, `o`, `gate`, `up` or `gate_up`,
`down`; a prefix `cross_` for attention to the encoder, `shared_` for shared experts. What stands
here follows the modules of the Hugging Face class for (pre)training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.traits import Latent, QueryKeyNorm, RelativeTables


class Place(StrEnum):
    """The fields of `Parameters`."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, `times` over. A matrix of a block maps `inputs` to `outputs`, with a bias or not.

    `linear` tells matrices that an adapter can stand beside from tables, norms and routers.
    """

    name: str
    place: Place
    inputs: int
    outputs: int
    bias: bool = False
    times: int = 1
    linear: bool = False

    @property
    def count(self) -> int:
        return self.times * (self.inputs * self.outputs + (self.outputs if self.bias else 0))


def counted(model: Model) -> Parameters:
    """Parameters by place."""
    sums = dict.fromkeys(Place, 0)
    for weight in weights(model):
        sums[weight.place] += weight.count
    return Parameters(**{place.value: total for place, total in sums.items()})


def weights(model: Model) -> Iterator[Weight]:
    """All stored weights; a block that is applied several times is stored once."""
    stored = model.all_layers // model.repeats
    yield from _tables(model)
    yield from _attention(model, stored)
    if model.kind is ModelKind.ENCODER_DECODER:
        yield from _projections(model, model.decoder_layers, prefix="cross_")
    yield from _block_norms(model, stored)
    yield from _relative(model, stored)
    if model.experts:
        yield from _experts(model)
        yield from _feed_forward(model, model.dense_layers, model.ffn, gated=model.gated)
    else:
        yield from _feed_forward(model, stored, model.ffn, gated=model.gated)
    yield from _head(model)


def embedding_width(model: Model) -> int:
    """Width of the token table."""
    return model.traits.embedding_width or model.hidden


def _stacks(model: Model) -> int:
    return 2 if model.kind is ModelKind.ENCODER_DECODER else 1


def _norm(model: Model, name: str, place: Place, width: int, times: int) -> Weight:
    return Weight(name, place, width, model.traits.norm_vectors, times=times)


def _matrix(
    name: str, place: Place, inputs: int, outputs: int, times: int, *, bias: bool = False
) -> Weight:
    return Weight(name, place, inputs, outputs, bias, times, linear=True)


def _tables(model: Model) -> Iterator[Weight]:
    traits, place, width = model.traits, Place.EMBEDDING, embedding_width(model)
    other = width if traits.narrow_tables else model.hidden
    stacks = _stacks(model)
    yield Weight("tokens", place, model.vocab, width)
    yield Weight("positions", place, traits.positions, other, times=stacks)
    yield Weight("types", place, traits.token_types, other)
    yield _norm(model, "embedding_norm", place, other, stacks * traits.embedding_norms)
    if width != model.hidden or traits.embedding_projection:
        yield Weight(
            "embedding_projection",
            place,
            width,
            model.hidden,
            bias=traits.embedding_projection_bias,
        )


def _attention(model: Model, blocks: int) -> Iterator[Weight]:
    traits, place = model.traits, Place.ATTENTION
    if traits.latent is None:
        yield from _projections(model, blocks)
    else:
        yield from _latent_projections(model, traits.latent, blocks)
    if traits.sinks:
        yield Weight("sinks", place, model.heads, 1, times=blocks)
    if traits.query_key_norm is QueryKeyNorm.HEAD:
        yield _norm(model, "query_key_norm", place, model.head_size, 2 * blocks)
    elif traits.query_key_norm is QueryKeyNorm.PROJECTION:
        width = (model.heads + model.kv_heads) * model.head_size
        yield _norm(model, "query_key_norm", place, width, blocks)


def _projections(model: Model, blocks: int, prefix: str = "") -> Iterator[Weight]:
    traits, place, hidden = model.traits, Place.ATTENTION, model.hidden
    queries = model.heads * model.head_size
    keys, values = model.kv_heads * model.head_size, model.kv_heads * model.value_size
    split = {"q": queries, "k": keys, "v": values}
    widths = {"qkv": queries + keys + values} if traits.fused_qkv else split
    for name, width in widths.items():
        yield _matrix(prefix + name, place, hidden, width, blocks, bias=traits.qkv_bias)
    outputs = model.heads * model.value_size
    yield _matrix(f"{prefix}o", place, outputs, hidden, blocks, bias=traits.output_bias)


def _latent_projections(model: Model, latent: Latent, blocks: int) -> Iterator[Weight]:
    traits, place, hidden = model.traits, Place.ATTENTION, model.hidden
    queries = model.heads * model.head_size
    if latent.query_rank:
        rank = latent.query_rank
        yield _matrix("q_a", place, hidden, rank, blocks, bias=traits.qkv_bias)
        yield _norm(model, "q_a_norm", place, rank, blocks)
        yield _matrix("q_b", place, rank, queries, blocks)
    else:
        yield _matrix("q", place, hidden, queries, blocks)
    narrow = latent.key_value_rank
    joint = narrow + latent.rope_size
    yield _matrix("kv_a", place, hidden, joint, blocks, bias=traits.qkv_bias)
    yield _norm(model, "kv_a_norm", place, narrow, blocks)
    spread = model.heads * (model.head_size - latent.rope_size + model.value_size)
    yield _matrix("kv_b", place, narrow, spread, blocks)
    outputs = model.heads * model.value_size
    yield _matrix("o", place, outputs, hidden, blocks, bias=traits.output_bias)


def _block_norms(model: Model, stored: int) -> Iterator[Weight]:
    traits = model.traits
    norms = stored * traits.block_norms - traits.norms_left_out
    if model.kind is ModelKind.ENCODER_DECODER:
        norms += model.decoder_layers
    yield _norm(model, "block_norms", Place.ATTENTION, model.hidden, norms)


def _relative(model: Model, stored: int) -> Iterator[Weight]:
    traits, place = model.traits, Place.ATTENTION
    yield Weight("relative_positions", place, traits.relative_rows, model.hidden)
    if traits.relative_norm:
        yield _norm(model, "relative_norm", place, model.hidden, 1)
    if traits.convolution:
        yield Weight(
            "convolution", place, traits.convolution * model.hidden, model.hidden, bias=True
        )
        yield _norm(model, "convolution_norm", place, model.hidden, 1)
    tables = {
        RelativeTables.NONE: 0,
        RelativeTables.STACK: _stacks(model),
        RelativeTables.BLOCK: stored,
    }[traits.relative_tables]
    yield Weight("relative_scores", place, traits.buckets, model.heads, times=tables)


def _feed_forward(
    model: Model, blocks: int, width: int, *, gated: bool, prefix: str = ""
) -> Iterator[Weight]:
    traits, place, hidden = model.traits, Place.MLP, model.hidden
    inner = {"up": width}
    if gated:
        inner = {"gate_up": 2 * width} if traits.fused_gate else {"gate": width, "up": width}
    for name, outputs in inner.items():
        yield _matrix(prefix + name, place, hidden, outputs, blocks, bias=traits.mlp_bias)
    yield _matrix(f"{prefix}down", place, width, hidden, blocks, bias=traits.mlp_bias)
    yield Weight(f"{prefix}activation", place, traits.activation_weights, 1, times=blocks)


def _experts(model: Model) -> Iterator[Weight]:
    traits, hidden, blocks = model.traits, model.hidden, model.expert_layers
    copies, width = blocks * model.experts, model.expert_ffn
    # transformers keeps all experts of a block in one tensor: no matrix that `all-linear` finds.
    for name in ("expert_gate", "expert_up") if model.gated else ("expert_up",):
        yield Weight(name, Place.EXPERTS, hidden, width, traits.expert_bias, copies)
    yield Weight("expert_down", Place.EXPERTS, width, hidden, traits.expert_bias, copies)
    yield Weight(
        "router",
        Place.MLP,
        hidden,
        model.experts,
        bias=traits.router_bias,
        times=blocks,
        linear=traits.router_is_linear,
    )
    if model.shared_ffn:
        yield from _feed_forward(
            model, blocks, model.shared_ffn, gated=model.gated, prefix="shared_"
        )
        if traits.shared_gate:
            yield _matrix("shared_expert_gate", Place.MLP, hidden, 1, blocks)


def _head(model: Model) -> Iterator[Weight]:
    traits, place, hidden = model.traits, Place.HEAD, model.hidden
    width = embedding_width(model)
    if traits.final_norm:
        yield _norm(model, "final_norm", place, hidden, _stacks(model))
    if traits.pooler:
        yield Weight("pooler", place, hidden, hidden, bias=True)
    if traits.classes:
        yield Weight("classes", place, hidden, traits.classes, bias=True)
    if traits.discriminator:
        yield Weight("discriminator", place, hidden, hidden, bias=True)
        yield Weight("verdict", place, hidden, 1, bias=True)
        return
    if traits.head_projection:
        yield Weight("head_projection", place, hidden, width)
    if traits.head_transform:
        yield Weight("head_transform", place, hidden, width, bias=traits.head_transform_bias)
        yield _norm(model, "head_norm", place, width, 1)
    if not model.tied:
        yield Weight("output", place, width, model.vocab)
    if traits.head_bias:
        yield Weight("output_bias", place, model.vocab, 1)
