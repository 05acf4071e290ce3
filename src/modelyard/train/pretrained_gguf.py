"""Weights and tokenizers in GGUF files, llama.cpp's format, of models in Llama's family.

Quantised weights are turned back into float32, in which they can be trained. llama.cpp keeps the
rows of queries and keys in another order, because it turns neighbours by a position where others
turn halves; here they are put back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.model import Model
from modelyard.spec.model_source import plain_model
from modelyard.train.families import family_named
from modelyard.train.models.registry import build
from modelyard.train.pretrained import fill_weights

_FAMILY = "llama"
#: the kind of tokens that steer, in GGUF's numbering
_CONTROL = 3
#: their name → the name in transformers, in each block
_BLOCK_NAMES: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def load_gguf(
    path: str | os.PathLike[str], config: Mapping[str, object] | None = None
) -> nn.Module:
    """The model of a GGUF file with its weights; `config` are options beside what it says."""
    reader, where = _opened(path), os.fspath(path)
    model = _shape(reader, where)
    options = {
        "rope_theta": float(_field(reader, f"{_FAMILY}.rope.freq_base", 10_000.0)),
        "norm_epsilon": float(_field(reader, f"{_FAMILY}.attention.layer_norm_rms_epsilon", 1e-5)),
    }
    module = build(model, {**options, **(config or {})})
    if torch.get_default_device().type == "meta":
        # Somebody looks at the model's form and has no memory for its weights.
        return module
    tensors = dict(_tensors(reader, model, where))
    family = family_named(_FAMILY)
    assert family is not None
    fill_weights(module, tensors, family, where=where)
    return module


def tokenizer_of_gguf(path: str | os.PathLike[str]) -> Any:
    """The byte-level BPE tokenizer of a GGUF file, as one of the `tokenizers` package."""
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    except ImportError as error:
        raise _missing("tokenizers") from error
    reader = _opened(path)
    kind = _field(reader, "tokenizer.ggml.model", "none")
    if kind != "gpt2":
        raise InputError(
            f"its tokenizer is of the kind '{kind}'",
            fix="use a file with a byte-level BPE tokenizer ('gpt2')",
            where=os.fspath(path),
        )
    tokens = _field(reader, "tokenizer.ggml.tokens", [])
    merges = [tuple(pair.split(" ")) for pair in _field(reader, "tokenizer.ggml.merges", [])]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    # SmolLM splits numbers into digits first.
    digits = _field(reader, "tokenizer.ggml.pre", "") == "smollm"
    first = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    rest = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    made.pre_tokenizer = pre_tokenizers.Sequence([*first, *rest])
    made.decoder = decoders.ByteLevel()
    kinds = _field(reader, "tokenizer.ggml.token_type", [])
    # Kind 3 marks control tokens.
    made.add_special_tokens(
        [
            AddedToken(token, special=True)
            for token, one in zip(tokens, kinds, strict=False)
            if one == 3
        ]
    )
    return made


def _opened(path: str | os.PathLike[str]) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise _missing("gguf") from error
    where = os.fspath(path)
    if not os.path.isfile(where):
        raise InputError("there is no such file", fix="name a .gguf file", where=where)
    try:
        return GGUFReader(where)
    except (ValueError, OSError, IndexError, KeyError, OverflowError) as error:
        raise InputError(
            f"this is no whole GGUF file: {error}", fix="fetch the file again", where=where
        ) from error


def _shape(reader: Any, where: str) -> Model:
    kind = _field(reader, "general.architecture", "none")
    if kind != _FAMILY:
        raise InputError(
            f"this is a '{kind}', and only Llama's family is read from GGUF",
            fix="load it with transformers, save it as safetensors and load that folder",
            where=where,
        )
    names = {tensor.name for tensor in reader.tensors}
    if "rope_freqs.weight" in names:
        raise InputError(
            "its rotary positions are scaled, which is not built here",
            fix="use the model's safetensors with 'hf:'",
            where=where,
        )
    heads = int(_field(reader, f"{_FAMILY}.attention.head_count", 0))
    table = next((one for one in reader.tensors if one.name == "token_embd.weight"), None)
    if table is None:
        raise InputError("it has no table of tokens", fix="use the whole model", where=where)
    return plain_model(
        name=str(_field(reader, "general.name", "model")),
        layers=int(_field(reader, f"{_FAMILY}.block_count", 0)),
        hidden=int(_field(reader, f"{_FAMILY}.embedding_length", 0)),
        heads=heads,
        kv_heads=int(_field(reader, f"{_FAMILY}.attention.head_count_kv", heads)),
        ffn=int(_field(reader, f"{_FAMILY}.feed_forward_length", 0)),
        longest=int(_field(reader, f"{_FAMILY}.context_length", 0)),
        # Sizes stand in the reverse order.
        vocab=int(table.shape[1]),
        gated=True,
        tied="output.weight" not in names,
    )


def _tensors(reader: Any, model: Model, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    from gguf.quants import dequantize

    heads = {"attn_q": model.heads, "attn_k": model.kv_heads}
    for one in reader.tensors:
        try:
            numbers = dequantize(one.data, one.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise InputError(
                f"'{one.name}' is kept as {one.tensor_type.name}, which cannot be turned back",
                fix="use a file with common types, such as Q8_0 or F16",
                where=where,
            ) from error
        tensor = torch.from_numpy(numbers.copy())
        stem, _, end = one.name.rpartition(".")
        first, _, rest = stem.partition(".")
        if first != "blk":
            yield f"{_NAMES.get(stem, stem)}.{end}", tensor
            continue
        number, _, part = rest.partition(".")
        if part in heads and tensor.ndim == 2:
            tensor = _halves(tensor, heads[part])
        yield f"model.layers.{number}.{_BLOCK_NAMES.get(part, part)}.{end}", tensor


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of neighbours, one pair after the other, as first halves and then second halves."""
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return pairs.transpose(1, 2).reshape(rows, width)


def _field(reader: Any, name: str, usual: Any) -> Any:
    found = reader.fields.get(name)
    return usual if found is None else found.contents()


def _missing(package: str) -> InputError:
    return InputError(
        f"GGUF files are read with the package '{package}', which is not installed",
        fix=f"pip install {package}",
    )
