"""Which shapes of `spec` the models here can be, and the exact check of what was built."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from modelyard.errors import InputError, Problem
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.traits import QueryKeyNorm, RelativeTables, Traits
from modelyard.spec.weights import counted

#: what an own implementation of each kind can have besides widths
_BLOCKS = frozenset({"norm_vectors", "qkv_bias", "output_bias", "mlp_bias", "fused_qkv"})
_PRETRAINING = frozenset({"head_transform", "head_bias", "pooler", "classes"})
#: what the models here take as options: the base as it is, dropout only where somebody asks for it
_OPTIONS = frozenset({"rotary_base", "dropout"})
_KNOWN: dict[ModelKind, frozenset[str]] = {
    ModelKind.DECODER: _BLOCKS
    | {"final_norm", "query_key_norm", "fused_gate", "positions"}
    # Says something only where the table of tokens is narrow, which is refused.
    | {"narrow_tables"},
    ModelKind.ENCODER: _BLOCKS
    | _PRETRAINING
    | {"final_norm", "positions", "token_types", "embedding_norms"},
    ModelKind.ENCODER_DECODER: frozenset({"buckets", "relative_tables"}),
}
_NOT_HERE = "name its Hugging Face config with 'hf:' before it, which trains that class itself"


def unsupported(model: Model) -> Iterator[str]:
    """What a shape has that the models here do not."""
    usual, known = Traits(), _KNOWN[model.kind] | _OPTIONS
    for field in Traits.__dataclass_fields__:
        if field not in known and getattr(model.traits, field) != getattr(usual, field):
            yield f"'{field}'"
    if model.experts:
        yield "routed experts"
    if model.repeats > 1:
        yield "blocks that are applied several times"
    if model.value_size != model.head_size:
        yield "values of another width than keys"
    if model.window and model.windowed_share < 1.0:
        yield "windows in some of the layers"
    if model.traits.query_key_norm is QueryKeyNorm.PROJECTION:
        yield "norms over all heads' queries and keys"
    if model.kind is ModelKind.DECODER and not model.traits.final_norm:
        yield "no norm at the end"
    if model.kind is ModelKind.ENCODER_DECODER:
        if model.traits.relative_tables is RelativeTables.NONE:
            yield "an encoder and a decoder without relative positions"
    elif model.kind is ModelKind.ENCODER and model.gated:
        yield "an encoder with gates"


def check_supported(model: Model) -> None:
    """`InputError` with all that a shape has and the models here do not."""
    problems = [
        Problem(f"'{model.name}' has {what}, which is not built here", _NOT_HERE)
        for what in unsupported(model)
    ]
    if problems:
        raise InputError(f"'{model.name}' cannot be built", problems=problems)


def check_counts(module: nn.Module, model: Model) -> None:
    """The module must have exactly the parameters that planning counted."""
    wanted = counted(model).total
    found = sum(parameter.numel() for parameter in module.parameters())
    if found != wanted:
        raise InputError(
            f"'{model.name}' was built with {found:,} parameters instead of {wanted:,}",
            fix=_NOT_HERE,
        )
