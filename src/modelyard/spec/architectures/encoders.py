"""Encoders, and models of an encoder and a decoder, by their `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelyard.spec.architectures.decoders import BIASED, UNUSED_POSITIONS
from modelyard.spec.architectures.family import Family, Names, Window, ungated
from modelyard.spec.model import ModelKind
from modelyard.spec.model_config import ModelConfig
from modelyard.spec.traits import RelativeTables, Traits

_ENCODER_NAMES = Names(kv_heads="", head_size="")
#: next sentence or not; sentences in order or not
_PAIR_CLASSES = 2


def _bert(config: ModelConfig) -> Traits:
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 2),
        embedding_norms=1,
        head_transform=True,
        head_bias=True,
        pooler=True,
        classes=_PAIR_CLASSES,
    )


def _megatron_bert(config: ModelConfig) -> Traits:
    """BERT with the norms before the blocks: none after the tables, one at the end."""
    return replace(
        BIASED,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 2),
        head_transform=True,
        head_bias=True,
        pooler=True,
        classes=_PAIR_CLASSES,
    )


def _roberta(config: ModelConfig) -> Traits:
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 2),
        embedding_norms=1,
        head_transform=True,
        head_bias=True,
    )


def _roberta_xl(config: ModelConfig) -> Traits:
    return replace(
        BIASED,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 1),
        head_transform=True,
        head_bias=True,
    )


def _distilbert(config: ModelConfig) -> Traits:
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest"),
        embedding_norms=1,
        head_transform=True,
        head_bias=True,
    )


def _albert(config: ModelConfig) -> Traits:
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 2),
        embedding_norms=1,
        embedding_width=config.number("embedding_size", "hidden"),
        # There is a projection even where both widths are the same.
        embedding_projection=True,
        embedding_projection_bias=True,
        head_transform=True,
        head_bias=True,
        pooler=True,
        classes=_PAIR_CLASSES,
    )


def _albert_repeats(config: ModelConfig, layers: int) -> int:
    groups = config.number("num_hidden_groups", "groups", 1)
    inner = config.number("inner_group_num", "groups", 1)
    if layers % groups or inner != 1:
        config.refuse(
            f"{layers} layers in {groups} groups of {inner} blocks are not known here",
            "use a number of groups that divides the layers, with one block each",
        )
        return 1
    return layers // groups


def _electra(config: ModelConfig) -> Traits:
    hidden = config.number("hidden_size", "hidden")
    width = config.number("embedding_size", "hidden", hidden)
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest"),
        token_types=config.number("type_vocab_size", "types", 2),
        embedding_norms=1,
        embedding_width=width if width != hidden else 0,
        embedding_projection_bias=True,
        discriminator=True,
    )


def _deberta_v2(config: ModelConfig) -> Traits:
    if config.flag("relative_attention") and not config.flag("share_att_key"):
        config.refuse(
            "DeBERTa without 'share_att_key' is not known here", "give plain numbers instead"
        )
    positions = config.number("max_position_embeddings", "longest")
    buckets = _positive(config, "position_buckets") or _positive(config, "max_relative_positions")
    relative = config.flag("relative_attention")
    return replace(
        BIASED,
        final_norm=False,
        positions=positions if config.flag("position_biased_input", True) else 0,
        token_types=config.number("type_vocab_size", "types", 0),
        embedding_norms=1,
        relative_rows=2 * (buckets or positions) if relative else 0,
        relative_norm="layer_norm" in config.words("norm_rel_ebd", "none"),
        convolution=config.number("conv_kernel_size", "kernel", 0),
        head_transform=True,
        head_bias=True,
    )


def _positive(config: ModelConfig, field: str) -> int:
    """A number for which -1 stands for none."""
    return 0 if config.is_negative(field) else config.number(field, "longest", 0)


def _modernbert(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(
        norm_vectors=2 if config.flag("norm_bias") else 1,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        fused_qkv=True,
        fused_gate=True,
        embedding_norms=1,
        # The norm after the tables serves the first block's attention as well.
        norms_left_out=1,
        head_transform=True,
        head_transform_bias=config.flag("classifier_bias"),
        head_bias=config.flag("decoder_bias", True),
    )


def _t5(config: ModelConfig) -> Traits:
    return Traits(
        buckets=config.number("relative_attention_num_buckets", "buckets", 32),
        relative_tables=RelativeTables.STACK,
    )


def _umt5(config: ModelConfig) -> Traits:
    return Traits(
        buckets=config.number("relative_attention_num_buckets", "buckets", 32),
        relative_tables=RelativeTables.BLOCK,
    )


def _t5_gated(config: ModelConfig) -> bool:
    return config.words("feed_forward_proj", "relu").startswith("gated-")


def _mt5_gated(config: ModelConfig) -> bool:
    return config.words("feed_forward_proj", "gated-gelu").startswith("gated-")


def _bart(config: ModelConfig) -> Traits:
    _same_stacks(config)
    return replace(
        BIASED,
        final_norm=False,
        positions=config.number("max_position_embeddings", "longest") + UNUSED_POSITIONS,
        embedding_norms=1,
    )


def _mbart(config: ModelConfig) -> Traits:
    _same_stacks(config)
    return replace(
        BIASED,
        positions=config.number("max_position_embeddings", "longest") + UNUSED_POSITIONS,
        embedding_norms=1,
    )


def _same_stacks(config: ModelConfig) -> None:
    for what, noun in (("ffn_dim", "inner width"), ("attention_heads", "number of heads")):
        limit = "ffn" if what == "ffn_dim" else "heads"
        encoder = config.number(f"encoder_{what}", limit)
        if config.number(f"decoder_{what}", limit, encoder) != encoder:
            config.refuse(
                f"encoder and decoder differ in their {noun}, which is not known here",
                f"use the same for 'encoder_{what}' and 'decoder_{what}'",
            )


_T5_NAMES = Names(
    layers="num_layers",
    decoder_layers="num_decoder_layers",
    hidden="d_model",
    heads="num_heads",
    kv_heads="",
    head_size="d_kv",
    ffn="d_ff",
    longest="n_positions",
)
_BART_NAMES = Names(
    layers="encoder_layers",
    decoder_layers="decoder_layers",
    hidden="d_model",
    heads="encoder_attention_heads",
    kv_heads="",
    head_size="",
    ffn="encoder_ffn_dim",
)

_ROBERTA_LIKE = Family(
    dropout=True,
    counted_as="RobertaForMaskedLM",
    kind=ModelKind.ENCODER,
    traits=_roberta,
    names=_ENCODER_NAMES,
    gated=ungated,
    tied=True,
)

ENCODERS: Mapping[str, Family] = {
    "bert": Family(
        dropout=True,
        counted_as="BertForPreTraining",
        kind=ModelKind.ENCODER,
        traits=_bert,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
    ),
    "megatron-bert": Family(
        dropout=True,
        counted_as="MegatronBertForPreTraining",
        kind=ModelKind.ENCODER,
        traits=_megatron_bert,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
    ),
    "roberta": _ROBERTA_LIKE,
    "xlm-roberta": _ROBERTA_LIKE,
    "camembert": _ROBERTA_LIKE,
    "xlm-roberta-xl": Family(
        dropout=True,
        counted_as="XLMRobertaXLForMaskedLM",
        kind=ModelKind.ENCODER,
        traits=_roberta_xl,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
    ),
    "distilbert": Family(
        dropout=True,
        counted_as="DistilBertForMaskedLM",
        kind=ModelKind.ENCODER,
        traits=_distilbert,
        names=Names(
            layers="n_layers",
            hidden="dim",
            heads="n_heads",
            kv_heads="",
            head_size="",
            ffn="hidden_dim",
        ),
        gated=ungated,
        tied=True,
    ),
    "albert": Family(
        dropout=True,
        counted_as="AlbertForPreTraining",
        kind=ModelKind.ENCODER,
        traits=_albert,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
        repeats=_albert_repeats,
    ),
    "electra": Family(
        dropout=True,
        counted_as="ElectraForPreTraining",
        kind=ModelKind.ENCODER,
        traits=_electra,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
    ),
    "deberta-v2": Family(
        dropout=True,
        counted_as="DebertaV2ForMaskedLM",
        kind=ModelKind.ENCODER,
        traits=_deberta_v2,
        names=_ENCODER_NAMES,
        gated=ungated,
        tied=True,
    ),
    "modernbert": Family(
        counted_as="ModernBertForMaskedLM",
        kind=ModelKind.ENCODER,
        traits=_modernbert,
        names=_ENCODER_NAMES,
        tied=True,
        window=Window(
            field="local_attention",
            full_every=3,
            full_every_field="global_attn_every_n_layers",
            first_full=True,
            default=128,
        ),
    ),
}

ENCODER_DECODERS: Mapping[str, Family] = {
    "t5": Family(
        dropout=True,
        counted_as="T5ForConditionalGeneration",
        kind=ModelKind.ENCODER_DECODER,
        traits=_t5,
        names=_T5_NAMES,
        gated=_t5_gated,
        tied=True,
        head_size=64,
    ),
    "mt5": Family(
        dropout=True,
        counted_as="MT5ForConditionalGeneration",
        kind=ModelKind.ENCODER_DECODER,
        traits=_t5,
        names=_T5_NAMES,
        gated=_mt5_gated,
        tied=True,
        head_size=64,
    ),
    "umt5": Family(
        dropout=True,
        counted_as="UMT5ForConditionalGeneration",
        kind=ModelKind.ENCODER_DECODER,
        traits=_umt5,
        names=_T5_NAMES,
        gated=_mt5_gated,
        tied=True,
        head_size=64,
    ),
    "bart": Family(
        dropout=True,
        counted_as="BartForConditionalGeneration",
        kind=ModelKind.ENCODER_DECODER,
        traits=_bart,
        names=_BART_NAMES,
        gated=ungated,
        tied=True,
    ),
    "mbart": Family(
        dropout=True,
        counted_as="MBartForConditionalGeneration",
        kind=ModelKind.ENCODER_DECODER,
        traits=_mbart,
        names=_BART_NAMES,
        gated=ungated,
        tied=True,
    ),
}
