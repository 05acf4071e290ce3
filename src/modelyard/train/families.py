"""How Hugging Face calls what is built here: names of tensors and fields of configs.

A `Pair` says which tensors of ours, one below the other, make one of theirs. GPT-2 keeps its
matrices the other way round and queries, keys and values in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from modelyard.errors import InputError
from modelyard.spec.model import Model
from modelyard.spec.traits import QueryKeyNorm, RelativeTables
from modelyard.train.models.bert import Bert
from modelyard.train.models.gpt import Gpt
from modelyard.train.models.options import ModelOptions
from modelyard.train.models.t5 import T5


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor of theirs; absent ones of ours are biases, which count as zeros."""

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One `model_type`."""

    model_type: str
    architecture: str
    pairs: Callable[[Model], Iterator[Pair]]
    config: Callable[[Model, ModelOptions, str, float], dict[str, object]]


def family_of(module: nn.Module) -> Family:
    """The class of transformers that computes what a module does; `InputError` if none does."""
    if isinstance(module, Gpt):
        return _FAMILIES[_decoder_type(module)]
    if isinstance(module, Bert):
        traits = module.spec.traits
        if traits.final_norm or not (traits.embedding_norms and traits.head_transform):
            raise _homeless(module.spec, "its norms come before its blocks")
        return _FAMILIES["bert" if traits.classes else "bert-masked"]
    if isinstance(module, T5):
        if module.spec.traits.relative_tables is RelativeTables.STACK:
            return _FAMILIES["t5"]
        if not module.spec.tied:
            # transformers 5 scales its outputs as if they were tied, earlier releases do not.
            raise _homeless(module.spec, "releases differ in how they scale an untied UMT5")
        return _FAMILIES["umt5"]
    raise InputError(
        f"a {type(module).__name__} has no class in transformers",
        fix="export a GPT, Llama, BERT or T5",
    )


def family_named(model_type: str) -> Family | None:
    """The family of a config, or None where nothing here computes the same."""
    return _FAMILIES.get({"mt5": "t5"}.get(model_type, model_type))


def _decoder_type(module: Gpt) -> str:
    model, traits = module.spec, module.spec.traits
    if traits.positions:
        plain = model.kv_heads == model.heads and not model.gated and not model.window
        whole = model.heads * model.head_size == model.hidden
        if not (plain and whole) or traits.query_key_norm is not QueryKeyNorm.NONE:
            raise _homeless(model, "GPT-2 has no groups, gates, windows or other widths of heads")
        return "gpt2"
    if not module.shape.rms or not model.gated:
        raise _homeless(model, "Llama has root-mean-square norms and gates")
    if traits.query_key_norm is QueryKeyNorm.HEAD:
        if traits.qkv_bias != traits.output_bias or traits.mlp_bias or model.window:
            raise _homeless(model, "Qwen 3 has no such biases or windows")
        return "qwen3"
    if model.window:
        if traits.qkv_bias or traits.output_bias or traits.mlp_bias:
            raise _homeless(model, "Mistral has no biases")
        return "mistral"
    if traits.qkv_bias != traits.output_bias:
        if traits.output_bias or traits.mlp_bias:
            raise _homeless(model, "Qwen 2 has biases of queries, keys and values only")
        return "qwen2"
    return "llama"


def _homeless(model: Model, why: str) -> InputError:
    return InputError(
        f"no class of transformers computes what '{model.name}' does: {why}",
        fix="keep its checkpoints, or train a shape of GPT-2, Llama, Mistral, Qwen, BERT or T5",
    )


def _both(theirs: str, *ours: str, transposed: bool = False) -> Iterator[Pair]:
    """A matrix and its bias."""
    yield Pair(f"{theirs}.weight", tuple(f"{one}.weight" for one in ours), transposed)
    yield Pair(f"{theirs}.bias", tuple(f"{one}.bias" for one in ours))


def _gpt2_pairs(model: Model) -> Iterator[Pair]:
    yield Pair("transformer.wte.weight", ("tokens.weight",))
    yield Pair("transformer.wpe.weight", ("positions.weight",))
    for index in range(model.layers):
        here, there = f"blocks.{index}", f"transformer.h.{index}"
        attention = f"{here}.attention"
        parts = (f"{attention}.q", f"{attention}.k", f"{attention}.v")
        yield from _both(f"{there}.ln_1", f"{here}.attention_norm")
        yield from _both(f"{there}.attn.c_attn", *parts, transposed=True)
        yield from _both(f"{there}.attn.c_proj", f"{attention}.o", transposed=True)
        yield from _both(f"{there}.ln_2", f"{here}.mlp_norm")
        yield from _both(f"{there}.mlp.c_fc", f"{here}.mlp.up", transposed=True)
        yield from _both(f"{there}.mlp.c_proj", f"{here}.mlp.down", transposed=True)
    yield from _both("transformer.ln_f", "final_norm")
    if not model.tied:
        yield Pair("lm_head.weight", ("output.weight",))


def _llama_pairs(model: Model) -> Iterator[Pair]:
    traits = model.traits

    def matrix(theirs: str, ours: str, *, bias: bool) -> Iterator[Pair]:
        return (pair for pair in _both(theirs, ours) if bias or pair.theirs.endswith("weight"))

    yield Pair("model.embed_tokens.weight", ("tokens.weight",))
    for index in range(model.layers):
        here, there = f"blocks.{index}", f"model.layers.{index}"
        attention, mlp = f"{there}.self_attn", f"{there}.mlp"
        for name in ("q", "k", "v"):
            ours = f"{here}.attention.{name}"
            yield from matrix(f"{attention}.{name}_proj", ours, bias=traits.qkv_bias)
        yield from matrix(f"{attention}.o_proj", f"{here}.attention.o", bias=traits.output_bias)
        for name in ("gate", "up", "down"):
            yield from matrix(f"{mlp}.{name}_proj", f"{here}.mlp.{name}", bias=traits.mlp_bias)
        if traits.query_key_norm is QueryKeyNorm.HEAD:
            yield Pair(f"{attention}.q_norm.weight", (f"{here}.attention.q_norm.weight",))
            yield Pair(f"{attention}.k_norm.weight", (f"{here}.attention.k_norm.weight",))
        yield Pair(f"{there}.input_layernorm.weight", (f"{here}.attention_norm.weight",))
        yield Pair(f"{there}.post_attention_layernorm.weight", (f"{here}.mlp_norm.weight",))
    yield Pair("model.norm.weight", ("final_norm.weight",))
    if not model.tied:
        yield Pair("lm_head.weight", ("output.weight",))


def _bert_pairs(model: Model) -> Iterator[Pair]:
    tables = "bert.embeddings"
    yield Pair(f"{tables}.word_embeddings.weight", ("tokens.weight",))
    yield Pair(f"{tables}.position_embeddings.weight", ("positions.weight",))
    if model.traits.token_types:
        yield Pair(f"{tables}.token_type_embeddings.weight", ("types.weight",))
    yield from _both(f"{tables}.LayerNorm", "embedding_norm")
    for index in range(model.layers):
        here, there = f"blocks.{index}", f"bert.encoder.layer.{index}"
        for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value")):
            yield from _both(f"{there}.attention.self.{theirs}", f"{here}.attention.{ours}")
        yield from _both(f"{there}.attention.output.dense", f"{here}.attention.o")
        yield from _both(f"{there}.attention.output.LayerNorm", f"{here}.attention_norm")
        yield from _both(f"{there}.intermediate.dense", f"{here}.mlp.up")
        yield from _both(f"{there}.output.dense", f"{here}.mlp.down")
        yield from _both(f"{there}.output.LayerNorm", f"{here}.mlp_norm")
    if model.traits.pooler:
        yield from _both("bert.pooler.dense", "pooler")
    if model.traits.classes:
        yield from _both("cls.seq_relationship", "classes")
    yield from _both("cls.predictions.transform.dense", "transform")
    yield from _both("cls.predictions.transform.LayerNorm", "transform_norm")
    yield Pair("cls.predictions.bias", ("output_bias",))
    if not model.tied:
        yield Pair("cls.predictions.decoder.weight", ("output.weight",))


def _t5_pairs(model: Model) -> Iterator[Pair]:
    yield Pair("shared.weight", ("tokens.weight",))
    for stack, layers in (("encoder", model.layers), ("decoder", model.decoder_layers)):
        for index in range(layers):
            yield from _t5_block(model, stack, index)
        yield Pair(f"{stack}.final_layer_norm.weight", (f"{stack}.final_norm.weight",))
    if not model.tied:
        yield Pair("lm_head.weight", ("output.weight",))


def _t5_block(model: Model, stack: str, index: int) -> Iterator[Pair]:
    here, there = f"{stack}.blocks.{index}", f"{stack}.block.{index}.layer"
    each = model.traits.relative_tables is RelativeTables.BLOCK
    parts = [("attention", "SelfAttention")]
    if stack == "decoder":
        parts.append(("cross", "EncDecAttention"))
    for place, (ours, theirs) in enumerate(parts):
        for name in ("q", "k", "v", "o"):
            yield Pair(f"{there}.{place}.{theirs}.{name}.weight", (f"{here}.{ours}.{name}.weight",))
        yield Pair(f"{there}.{place}.layer_norm.weight", (f"{here}.{ours}_norm.weight",))
    if each or not index:
        relative = f"{there}.0.SelfAttention.relative_attention_bias.weight"
        yield Pair(relative, (f"{here}.relative.weight",))
    last = f"{there}.{len(parts)}"
    inner = {"gate": "wi_0", "up": "wi_1"} if model.gated else {"up": "wi"}
    for ours, theirs in {**inner, "down": "wo"}.items():
        yield Pair(f"{last}.DenseReluDense.{theirs}.weight", (f"{here}.mlp.{ours}.weight",))
    yield Pair(f"{last}.layer_norm.weight", (f"{here}.mlp_norm.weight",))


def _gpt2_config(
    model: Model, _options: ModelOptions, activation: str, epsilon: float
) -> dict[str, object]:
    return {
        "vocab_size": model.vocab,
        "n_positions": model.traits.positions,
        "n_embd": model.hidden,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.ffn,
        "activation_function": activation,
        "layer_norm_epsilon": epsilon,
        "tie_word_embeddings": model.tied,
        # Those of GPT-2 are tokens of its own tokenizer, which this model need not have.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama_config(
    model: Model, options: ModelOptions, activation: str, epsilon: float
) -> dict[str, object]:
    traits = model.traits
    config: dict[str, object] = {
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "intermediate_size": model.ffn,
        "hidden_act": activation,
        "rms_norm_eps": epsilon,
        # Old releases read the first, new ones the second.
        "rope_theta": options.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": options.rope_theta},
        "attention_bias": traits.qkv_bias,
        "mlp_bias": traits.mlp_bias,
        "tie_word_embeddings": model.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if model.longest:
        config["max_position_embeddings"] = model.longest
    if model.window:
        config["sliding_window"] = model.window
    return config


def _bert_config(
    model: Model, options: ModelOptions, activation: str, epsilon: float
) -> dict[str, object]:
    return {
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.ffn,
        "hidden_act": activation,
        "layer_norm_eps": epsilon,
        "max_position_embeddings": model.traits.positions,
        "type_vocab_size": model.traits.token_types,
        "hidden_dropout_prob": options.dropout,
        "attention_probs_dropout_prob": options.dropout,
        "tie_word_embeddings": model.tied,
    }


def _t5_config(
    model: Model, options: ModelOptions, activation: str, epsilon: float
) -> dict[str, object]:
    # transformers reads 'gated-gelu' as the tanh approximation, for the sake of old configs.
    named = "gelu" if model.gated and activation == "gelu_new" else activation
    return {
        "vocab_size": model.vocab,
        "d_model": model.hidden,
        "d_kv": model.head_size,
        "d_ff": model.ffn,
        "num_layers": model.layers,
        "num_decoder_layers": model.decoder_layers,
        "num_heads": model.heads,
        "relative_attention_num_buckets": model.traits.buckets,
        "relative_attention_max_distance": options.furthest_bucket,
        "feed_forward_proj": f"gated-{named}" if model.gated else named,
        "layer_norm_epsilon": epsilon,
        "dropout_rate": options.dropout,
        "tie_word_embeddings": model.tied,
        "pad_token_id": options.pad_token,
        "decoder_start_token_id": options.pad_token,
        "is_encoder_decoder": True,
    }


_FAMILIES: Mapping[str, Family] = {
    "gpt2": Family("gpt2", "GPT2LMHeadModel", _gpt2_pairs, _gpt2_config),
    "llama": Family("llama", "LlamaForCausalLM", _llama_pairs, _llama_config),
    "mistral": Family("mistral", "MistralForCausalLM", _llama_pairs, _llama_config),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", _llama_pairs, _llama_config),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", _llama_pairs, _llama_config),
    "bert": Family("bert", "BertForPreTraining", _bert_pairs, _bert_config),
    "bert-masked": Family("bert", "BertForMaskedLM", _bert_pairs, _bert_config),
    "t5": Family("t5", "T5ForConditionalGeneration", _t5_pairs, _t5_config),
    "umt5": Family("umt5", "UMT5ForConditionalGeneration", _t5_pairs, _t5_config),
}
