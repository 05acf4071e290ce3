"""Decoders without experts: GPT-2 to Gemma 3, by their `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelyard.spec.architectures.family import Family, Names, Window, ungated
from modelyard.spec.model_config import ModelConfig
from modelyard.spec.traits import QueryKeyNorm, Traits

_GPT2_NAMES = Names(
    layers="n_layer",
    hidden="n_embd",
    heads="n_head",
    kv_heads="",
    head_size="",
    ffn="n_inner",
    longest="n_positions",
)
_NO_GROUPS = Names(kv_heads="", head_size="")


#: layer norms and biases everywhere, as in GPT-2
BIASED = Traits(norm_vectors=2, qkv_bias=True, output_bias=True, mlp_bias=True)


def _gpt2(config: ModelConfig) -> Traits:
    return replace(BIASED, fused_qkv=True, positions=config.number("n_positions", "longest"))


def _nanogpt(config: ModelConfig) -> Traits:
    bias = config.flag("bias", True)
    return Traits(
        norm_vectors=2 if bias else 1,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        fused_qkv=True,
        positions=config.number("block_size", "longest"),
    )


def _gpt_neo(config: ModelConfig) -> Traits:
    return Traits(
        norm_vectors=2,
        output_bias=True,
        mlp_bias=True,
        positions=config.number("max_position_embeddings", "longest"),
    )


def _gptj(_config: ModelConfig) -> Traits:
    return Traits(norm_vectors=2, block_norms=1, mlp_bias=True, head_bias=True)


def _codegen(_config: ModelConfig) -> Traits:
    return Traits(norm_vectors=2, block_norms=1, mlp_bias=True, head_bias=True, fused_qkv=True)


def _gpt_neox(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias", True)
    return Traits(norm_vectors=2, qkv_bias=bias, output_bias=bias, mlp_bias=True, fused_qkv=True)


#: rows at the start of OPT's and BART's tables of positions that no token uses
UNUSED_POSITIONS = 2


def _opt(config: ModelConfig) -> Traits:
    bias = config.flag("enable_bias", True)
    before = config.flag("do_layer_norm_before", True)
    hidden = config.number("hidden_size", "hidden")
    width = config.number("word_embed_proj_dim", "hidden", hidden)
    return Traits(
        norm_vectors=2 if config.flag("layer_norm_elementwise_affine", True) else 0,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        final_norm=before and not config.flag("_remove_final_layer_norm"),
        positions=config.number("max_position_embeddings", "longest") + UNUSED_POSITIONS,
        embedding_width=width if width != hidden else 0,
        narrow_tables=False,
        head_projection=width != hidden,
    )


def _bloom(_config: ModelConfig) -> Traits:
    return replace(BIASED, fused_qkv=True, embedding_norms=1, linear_biases=True)


def _mpt(config: ModelConfig) -> Traits:
    return Traits(fused_qkv=True, linear_biases=config.part("attn_config").flag("alibi", True))


def _falcon(config: ModelConfig) -> Traits:
    bias, new = config.flag("bias"), config.flag("new_decoder_architecture")
    norms = config.number("num_ln_in_parallel_attn", "norms", 2 if new else 1)
    in_parallel = new or config.flag("parallel_attn", True)
    return Traits(
        norm_vectors=2,
        block_norms=norms if in_parallel else 2,
        fused_qkv=True,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        linear_biases=config.flag("alibi"),
    )


def _falcon_kv_heads(config: ModelConfig, heads: int) -> int:
    if config.flag("new_decoder_architecture"):
        return config.number("num_kv_heads", "kv_heads", heads)
    return 1 if config.flag("multi_query", True) else heads


def _bigcode_kv_heads(config: ModelConfig, heads: int) -> int:
    return 1 if config.flag("multi_query", True) else heads


def llama(config: ModelConfig) -> Traits:
    """RMS norms; biases where the config asks for them."""
    bias = config.flag("attention_bias")
    return Traits(qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"))


def _plain(_config: ModelConfig) -> Traits:
    return Traits()


def _qwen2(_config: ModelConfig) -> Traits:
    return Traits(qkv_bias=True)


def qwen3(config: ModelConfig) -> Traits:
    """Norms over each head's queries and keys."""
    bias = config.flag("attention_bias")
    return Traits(qkv_bias=bias, output_bias=bias, query_key_norm=QueryKeyNorm.HEAD)


def _gemma2(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(qkv_bias=bias, output_bias=bias, block_norms=4)


def _gemma3(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(qkv_bias=bias, output_bias=bias, block_norms=4, query_key_norm=QueryKeyNorm.HEAD)


def _phi(config: ModelConfig) -> Traits:
    norm = QueryKeyNorm.HEAD if config.flag("qk_layernorm") else QueryKeyNorm.NONE
    return Traits(
        norm_vectors=2,
        block_norms=1,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        query_key_norm=norm,
    )


def _phi3(_config: ModelConfig) -> Traits:
    return Traits(fused_qkv=True, fused_gate=True)


def _starcoder2(config: ModelConfig) -> Traits:
    bias = config.flag("use_bias", True)
    return Traits(norm_vectors=2, qkv_bias=bias, output_bias=bias, mlp_bias=bias)


def _stablelm(config: ModelConfig) -> Traits:
    if config.flag("qk_layernorm"):
        config.refuse("'qk_layernorm' of StableLM is not known here", "give plain numbers instead")
    return Traits(
        norm_vectors=2,
        qkv_bias=config.flag("use_qkv_bias"),
        block_norms=1 if config.flag("use_parallel_residual") else 2,
    )


def _olmo(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(norm_vectors=0, qkv_bias=bias, output_bias=bias)


def olmo2(config: ModelConfig) -> Traits:
    """Norms over all heads' queries and keys together."""
    bias = config.flag("attention_bias")
    return Traits(qkv_bias=bias, output_bias=bias, query_key_norm=QueryKeyNorm.PROJECTION)


def _cohere(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    norm = QueryKeyNorm.PROJECTION if config.flag("use_qk_norm") else QueryKeyNorm.NONE
    return Traits(block_norms=1, qkv_bias=bias, output_bias=bias, query_key_norm=norm)


def _glm(config: ModelConfig) -> Traits:
    return Traits(qkv_bias=config.flag("attention_bias", True), fused_gate=True)


def _glm4(config: ModelConfig) -> Traits:
    return Traits(qkv_bias=config.flag("attention_bias", True), fused_gate=True, block_norms=4)


def _nemotron(config: ModelConfig) -> Traits:
    bias = config.flag("attention_bias")
    return Traits(norm_vectors=2, qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"))


def _seed_oss(config: ModelConfig) -> Traits:
    return Traits(
        qkv_bias=config.flag("attention_bias", True),
        output_bias=config.flag("attention_out_bias"),
        mlp_bias=config.flag("mlp_bias"),
    )


def _ernie(config: ModelConfig) -> Traits:
    bias = config.flag("use_bias")
    return Traits(qkv_bias=bias, output_bias=bias, mlp_bias=bias)


_CAUSAL = "ForCausalLM"

DECODERS: Mapping[str, Family] = {
    "gpt2": Family(
        dropout=True,
        counted_as="GPT2LMHeadModel",
        traits=_gpt2,
        names=_GPT2_NAMES,
        gated=ungated,
        tied=True,
        ffn_multiple=4,
    ),
    # Not of Hugging Face: the fields are the model arguments of nanoGPT's checkpoints.
    "nanogpt": Family(
        counted_as="GPT of nanoGPT",
        traits=_nanogpt,
        names=replace(_GPT2_NAMES, ffn="", longest="block_size"),
        gated=ungated,
        tied=True,
        ffn_multiple=4,
    ),
    "gpt_bigcode": Family(
        dropout=True,
        counted_as=f"GPTBigCode{_CAUSAL}",
        traits=_gpt2,
        names=_GPT2_NAMES,
        gated=ungated,
        tied=True,
        ffn_multiple=4,
        kv_heads=_bigcode_kv_heads,
    ),
    "gpt_neo": Family(
        counted_as=f"GPTNeo{_CAUSAL}",
        traits=_gpt_neo,
        names=Names(layers="num_layers", heads="num_heads", kv_heads="", head_size=""),
        gated=ungated,
        tied=True,
        ffn_multiple=4,
        # Global and local layers take turns in every published model.
        window=Window(field="window_size", full_every=2),
    ),
    "gptj": Family(
        counted_as=f"GPTJ{_CAUSAL}",
        traits=_gptj,
        names=_GPT2_NAMES,
        gated=ungated,
        ffn_multiple=4,
    ),
    "codegen": Family(
        counted_as=f"CodeGen{_CAUSAL}",
        traits=_codegen,
        names=_GPT2_NAMES,
        gated=ungated,
        ffn_multiple=4,
    ),
    "gpt_neox": Family(
        counted_as=f"GPTNeoX{_CAUSAL}", traits=_gpt_neox, names=_NO_GROUPS, gated=ungated
    ),
    "opt": Family(
        dropout=True,
        counted_as=f"OPT{_CAUSAL}",
        traits=_opt,
        names=Names(kv_heads="", head_size="", ffn="ffn_dim"),
        gated=ungated,
        tied=True,
    ),
    "bloom": Family(
        counted_as=f"Bloom{_CAUSAL}",
        traits=_bloom,
        names=Names(
            layers="n_layer",
            heads="n_head",
            kv_heads="",
            head_size="",
            ffn="",
            longest="seq_length",
        ),
        gated=ungated,
        tied=True,
        ffn_multiple=4,
    ),
    "mpt": Family(
        counted_as=f"Mpt{_CAUSAL}",
        traits=_mpt,
        names=Names(
            layers="n_layers",
            hidden="d_model",
            heads="n_heads",
            kv_heads="",
            head_size="",
            ffn="",
            longest="max_seq_len",
        ),
        gated=ungated,
        tied=True,
        ffn_multiple=4,
    ),
    "falcon": Family(
        counted_as=f"Falcon{_CAUSAL}",
        traits=_falcon,
        names=Names(kv_heads="", head_size="", ffn="ffn_hidden_size"),
        gated=ungated,
        tied=True,
        ffn_multiple=4,
        kv_heads=_falcon_kv_heads,
    ),
    "llama": Family(counted_as=f"Llama{_CAUSAL}", traits=llama),
    "mistral": Family(counted_as=f"Mistral{_CAUSAL}", traits=_plain, window=Window()),
    "ministral": Family(counted_as=f"Ministral{_CAUSAL}", traits=_plain, window=Window()),
    "qwen2": Family(
        counted_as=f"Qwen2{_CAUSAL}",
        traits=_qwen2,
        names=Names(head_size=""),
        window=Window(switch="use_sliding_window", full_first_layers_field="max_window_layers"),
    ),
    "qwen3": Family(
        counted_as=f"Qwen3{_CAUSAL}",
        traits=qwen3,
        head_size=128,
        window=Window(switch="use_sliding_window", full_first_layers_field="max_window_layers"),
    ),
    "gemma": Family(counted_as=f"Gemma{_CAUSAL}", traits=llama, tied=True, head_size=256),
    "gemma2": Family(
        counted_as=f"Gemma2{_CAUSAL}",
        traits=_gemma2,
        tied=True,
        head_size=256,
        window=Window(full_every=2),
    ),
    "gemma3_text": Family(
        counted_as=f"Gemma3{_CAUSAL}",
        traits=_gemma3,
        tied=True,
        head_size=256,
        window=Window(full_every=6, full_every_field="sliding_window_pattern"),
    ),
    "phi": Family(
        counted_as=f"Phi{_CAUSAL}", traits=_phi, names=Names(head_size=""), gated=ungated
    ),
    "phi3": Family(
        counted_as=f"Phi3{_CAUSAL}", traits=_phi3, names=Names(head_size=""), window=Window()
    ),
    "starcoder2": Family(
        counted_as=f"Starcoder2{_CAUSAL}",
        traits=_starcoder2,
        names=Names(head_size=""),
        gated=ungated,
        tied=True,
        window=Window(),
    ),
    "stablelm": Family(
        counted_as=f"StableLm{_CAUSAL}", traits=_stablelm, names=Names(head_size="")
    ),
    "olmo": Family(counted_as=f"Olmo{_CAUSAL}", traits=_olmo, names=Names(head_size="")),
    "olmo2": Family(counted_as=f"Olmo2{_CAUSAL}", traits=olmo2, names=Names(head_size="")),
    "olmo3": Family(
        counted_as=f"Olmo3{_CAUSAL}",
        traits=olmo2,
        names=Names(head_size=""),
        window=Window(full_every=4),
    ),
    "cohere": Family(
        counted_as=f"Cohere{_CAUSAL}", traits=_cohere, names=Names(head_size=""), tied=True
    ),
    "cohere2": Family(
        counted_as=f"Cohere2{_CAUSAL}",
        traits=_cohere,
        tied=True,
        window=Window(full_every=4, full_every_field="sliding_window_pattern"),
    ),
    "granite": Family(counted_as=f"Granite{_CAUSAL}", traits=llama, names=Names(head_size="")),
    "glm": Family(counted_as=f"Glm{_CAUSAL}", traits=_glm, head_size=128),
    "glm4": Family(counted_as=f"Glm4{_CAUSAL}", traits=_glm4, head_size=128),
    "nemotron": Family(counted_as=f"Nemotron{_CAUSAL}", traits=_nemotron, gated=ungated),
    "smollm3": Family(
        counted_as=f"SmolLM3{_CAUSAL}",
        traits=llama,
        names=Names(head_size=""),
        tied=True,
        window=Window(switch="use_sliding_window"),
    ),
    "arcee": Family(counted_as=f"Arcee{_CAUSAL}", traits=llama, gated=ungated),
    "seed_oss": Family(counted_as=f"SeedOss{_CAUSAL}", traits=_seed_oss, head_size=128),
    "ernie4_5": Family(counted_as=f"Ernie4_5{_CAUSAL}", traits=_ernie, tied=True, head_size=128),
    "hunyuan_v1_dense": Family(counted_as=f"HunYuanDenseV1{_CAUSAL}", traits=qwen3),
    "exaone4": Family(
        counted_as=f"Exaone4{_CAUSAL}",
        traits=qwen3,
        window=Window(full_every=4, full_every_field="sliding_window_pattern"),
    ),
}
