"""Decoders with routed experts: Mixtral to DeepSeek-V3, by their `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelyard.spec.architectures.decoders import llama, olmo2, qwen3
from modelyard.spec.architectures.family import Family, HeadSizes, Mixture, Names, Window
from modelyard.spec.model_config import ModelConfig
from modelyard.spec.traits import Latent, QueryKeyNorm, Traits


def _plain(_config: ModelConfig) -> Traits:
    return Traits()


def _equal_experts(config: ModelConfig, _layers: int) -> Mixture:
    """Every layer has experts, and the usual width is theirs."""
    return Mixture(
        experts=config.number("num_local_experts", "experts"),
        experts_per_token=config.number("num_experts_per_tok", "experts_per_token"),
        expert_ffn=config.number("intermediate_size", "ffn"),
    )


def _sparse_step(config: ModelConfig, layers: int) -> Mixture:
    """Qwen: every so many layers have experts, except those that are listed."""
    step = config.number("decoder_sparse_step", "step", 1)
    listed = {index for index in config.items("mlp_only_layers") if isinstance(index, int)}
    sparse = sum((index + 1) % step == 0 and index not in listed for index in range(layers))
    return Mixture(
        experts=config.number("num_experts", "experts"),
        experts_per_token=config.number("num_experts_per_tok", "experts_per_token"),
        expert_ffn=config.number("moe_intermediate_size", "expert_ffn"),
        shared_ffn=config.number("shared_expert_intermediate_size", "shared_ffn", 0),
        dense_layers=layers - sparse,
    )


def _first_dense(config: ModelConfig, layers: int) -> Mixture:
    """DeepSeek: dense layers at the bottom, shared experts as wide as several routed ones."""
    width = config.number("moe_intermediate_size", "expert_ffn")
    return Mixture(
        experts=config.number("n_routed_experts", "experts"),
        experts_per_token=config.number("num_experts_per_tok", "experts_per_token"),
        expert_ffn=width,
        shared_ffn=width * config.number("n_shared_experts", "shared_experts", 0),
        dense_layers=min(config.number("first_k_dense_replace", "dense_layers", 0), layers),
    )


def _llama4(config: ModelConfig, layers: int) -> Mixture:
    """Llama 4: one layer in so many has experts, and a shared one as wide as each of them."""
    step = config.number("interleave_moe_layer_step", "step", 1)
    listed = config.items("moe_layers")
    sparse = len(listed) if listed else layers // step
    width = config.number("intermediate_size", "expert_ffn")
    return Mixture(
        experts=config.number("num_local_experts", "experts"),
        experts_per_token=config.number("num_experts_per_tok", "experts_per_token"),
        expert_ffn=width,
        shared_ffn=width,
        dense_layers=max(layers - sparse, 0),
        dense_ffn=config.number("intermediate_size_mlp", "ffn", width),
    )


def _ernie(config: ModelConfig, layers: int) -> Mixture:
    """ERNIE 4.5: experts between two layers, every so many."""
    start = config.number("moe_layer_start_index", "index", 0)
    last = layers - 1
    if not config.is_negative("moe_layer_end_index"):
        last = config.number("moe_layer_end_index", "index", last)
    step = config.number("moe_layer_interval", "step", 1)
    sparse = sum((index + 1) % step == 0 and start <= index <= last for index in range(layers))
    width = config.number("moe_intermediate_size", "expert_ffn")
    return Mixture(
        experts=config.number("moe_num_experts", "experts"),
        experts_per_token=config.number("moe_k", "experts_per_token"),
        expert_ffn=width,
        shared_ffn=width * config.number("moe_num_shared_experts", "shared_experts", 0),
        dense_layers=layers - sparse,
    )


def _latent_sizes(config: ModelConfig) -> HeadSizes:
    rope = config.number("qk_rope_head_dim", "head_size")
    return HeadSizes(
        head_size=config.number("qk_nope_head_dim", "head_size") + rope,
        value_size=config.number("v_head_dim", "value_size"),
    )


def _deepseek(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    latent = Latent(
        query_rank=config.number("q_lora_rank", "rank", 0),
        key_value_rank=config.number("kv_lora_rank", "rank"),
        rope_size=config.number("qk_rope_head_dim", "head_size"),
    )
    return Traits(qkv_bias=bias, output_bias=bias, latent=latent)


def _qwen2_moe(config: ModelConfig) -> Traits:
    return Traits(qkv_bias=config.flag("qkv_bias", True), shared_gate=True)


def _gpt_oss(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias", True)
    return Traits(qkv_bias=bias, output_bias=bias, sinks=True, expert_bias=True, router_bias=True)


def _glm4_moe(config: ModelConfig) -> Traits:
    norm = QueryKeyNorm.HEAD if config.flag("use_qk_norm") else QueryKeyNorm.NONE
    return Traits(qkv_bias=config.flag("attention_bias"), query_key_norm=norm)


def _phimoe(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(
        norm_vectors=2,
        qkv_bias=bias,
        output_bias=bias,
        head_bias=config.flag("lm_head_bias"),
    )


def _ernie_traits(config: ModelConfig) -> Traits:
    bias = config.flag("use_bias")
    # Its routers learn a correction for each expert, whatever `use_bias` says.
    return Traits(qkv_bias=bias, output_bias=bias, mlp_bias=bias, router_bias=True, head_bias=bias)


def _llama4_traits(config: ModelConfig) -> Traits:
    return replace(llama(config), router_is_linear=True)


def _all_heads(_config: ModelConfig, heads: int) -> int:
    return heads


_NO_HEAD_SIZE = Names(head_size="")

MIXTURES: Mapping[str, Family] = {
    "mixtral": Family(
        counted_as="MixtralForCausalLM", traits=_plain, mixture=_equal_experts, window=Window()
    ),
    "qwen2_moe": Family(
        counted_as="Qwen2MoeForCausalLM",
        traits=_qwen2_moe,
        names=_NO_HEAD_SIZE,
        mixture=_sparse_step,
        window=Window(switch="use_sliding_window", full_first_layers_field="max_window_layers"),
    ),
    "qwen3_moe": Family(
        counted_as="Qwen3MoeForCausalLM",
        traits=qwen3,
        mixture=_sparse_step,
        window=Window(switch="use_sliding_window"),
    ),
    "olmoe": Family(
        counted_as="OlmoeForCausalLM",
        traits=olmo2,
        names=_NO_HEAD_SIZE,
        mixture=_equal_experts,
    ),
    "granitemoe": Family(
        counted_as="GraniteMoeForCausalLM",
        traits=llama,
        names=_NO_HEAD_SIZE,
        mixture=_equal_experts,
    ),
    "phimoe": Family(
        counted_as="PhimoeForCausalLM",
        traits=_phimoe,
        names=_NO_HEAD_SIZE,
        mixture=_equal_experts,
        window=Window(),
    ),
    "gpt_oss": Family(
        counted_as="GptOssForCausalLM",
        traits=_gpt_oss,
        mixture=_equal_experts,
        head_size=64,
        window=Window(full_every=2),
    ),
    "deepseek_v2": Family(
        counted_as="DeepseekV2ForCausalLM",
        traits=_deepseek,
        kv_heads=_all_heads,
        head_sizes=_latent_sizes,
        mixture=_first_dense,
    ),
    "deepseek_v3": Family(
        counted_as="DeepseekV3ForCausalLM",
        traits=_deepseek,
        kv_heads=_all_heads,
        head_sizes=_latent_sizes,
        mixture=_first_dense,
    ),
    "glm4_moe": Family(counted_as="Glm4MoeForCausalLM", traits=_glm4_moe, mixture=_first_dense),
    "llama4_text": Family(
        counted_as="Llama4ForCausalLM",
        traits=_llama4_traits,
        head_size=128,
        mixture=_llama4,
        window=Window(field="attention_chunk_size", full_every=4),
    ),
    "ernie4_5_moe": Family(
        counted_as="Ernie4_5_MoeForCausalLM", traits=_ernie_traits, tied=True, mixture=_ernie
    ),
}
