"""Any model of `transformers`: a saved folder, a config for fresh weights, or a name of the hub.

Nothing that a folder or the hub holds is run: weights come as safetensors only, and code that a
model brings along is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import ModuleType
from typing import Any

import torch
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.layout import Recompute
from modelyard.train.models.batches import (
    CausalBatch,
    MaskedBatch,
    PairBatch,
    causal,
    check_rows,
    corrupted_spans,
    masked,
    mean_over_rows,
)
from modelyard.train.models.options import ModelOptions


class Objective(StrEnum):
    """What a class of transformers is trained to do."""

    CAUSAL = "ForCausalLM"
    MASKED = "ForMaskedLM"
    PAIRS = "ForConditionalGeneration"


class HuggingFace(nn.Module):
    """A model of transformers with the two calls that every model here has."""

    def __init__(self, inner: nn.Module, objective: Objective, options: ModelOptions) -> None:
        super().__init__()
        self.inner, self.objective, self.options = inner, objective, options
        self.vocab = int(inner.config.vocab_size)
        if options.recompute is not Recompute.NONE:
            inner.gradient_checkpointing_enable()

    def forward(self, tokens: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=tokens, **more).logits

    def prepare(
        self, tokens: torch.Tensor, samples: Sequence[int] | None = None
    ) -> CausalBatch | MaskedBatch | PairBatch:
        """Rows as the objective wants them."""
        numbers = range(len(tokens)) if samples is None else samples
        check_rows(tokens, self.vocab, 2)
        share, vocab = self.options.hidden_share, self.vocab
        if self.objective is Objective.CAUSAL:
            return causal(tokens)
        if self.objective is Objective.MASKED:
            mask = self.options.mask_token
            chosen = mask if mask >= 0 else vocab - 1
            return masked(tokens, numbers, vocab=vocab, mask_token=chosen, share=share)
        return corrupted_spans(
            tokens,
            numbers,
            vocab=vocab,
            share=share,
            span=self.options.span,
            sentinels=self.options.sentinels,
            end=self.options.end_token,
        )

    def loss(self, batch: CausalBatch | MaskedBatch | PairBatch) -> torch.Tensor:
        """The mean cross entropy of the batch's targets."""
        if isinstance(batch, PairBatch):
            return self.inner(
                input_ids=batch.inputs, attention_mask=batch.present, labels=batch.targets
            ).loss
        present = batch.present if isinstance(batch, MaskedBatch) else None
        scores = self.inner(input_ids=batch.inputs, attention_mask=present).logits
        # transformers would shift causal labels itself; batches here are shifted already.
        return mean_over_rows(scores, batch.targets)


def hugging_face(source: str, options: ModelOptions, changes: Mapping[str, object]) -> HuggingFace:
    """The model of a folder, a `config.json` or a name; `changes` are fields of its config."""
    if not source.strip():
        raise InputError("'hf:' names no model", fix="write hf:FOLDER, hf:config.json or hf:NAME")
    transformers = library()
    fresh = os.path.isfile(source)
    if not fresh and os.path.isdir(source) and not _has_weights(source):
        fresh = True
    if torch.get_default_device().type == "meta":
        # Somebody looks at the model's form and has no memory for its weights.
        fresh = True
    config = _config(transformers, source, changes)
    objective = _objective(transformers, config, source)
    auto = _classes(transformers)[objective]
    try:
        if fresh:
            inner = auto.from_config(config)
        else:
            inner = auto.from_pretrained(
                source, config=config, use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, ImportError) as error:
        raise _refused(source, error) from error
    return HuggingFace(inner.float(), objective, options)


def from_config(fields: Mapping[str, Any], objective: Objective) -> HuggingFace:
    """The model that a config describes, as `config.to_dict` gave it, with fresh weights."""
    transformers = library()
    given = {name: value for name, value in fields.items() if name != "model_type"}
    try:
        config = transformers.AutoConfig.for_model(str(fields.get("model_type")), **given)
        inner = _classes(transformers)[objective].from_config(config)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _refused(str(fields.get("model_type")), error) from error
    return HuggingFace(inner.float(), objective, ModelOptions())


def _classes(transformers: ModuleType) -> dict[Objective, Any]:
    return {
        Objective.CAUSAL: transformers.AutoModelForCausalLM,
        Objective.MASKED: transformers.AutoModelForMaskedLM,
        Objective.PAIRS: transformers.AutoModelForSeq2SeqLM,
    }


def library() -> ModuleType:
    """The `transformers` package; `InputError` when it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            "models of Hugging Face need the package 'transformers', which is not installed",
            fix="pip install transformers safetensors",
        ) from error
    return transformers


def _config(transformers: ModuleType, source: str, changes: Mapping[str, object]) -> Any:
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        for name, value in changes.items():
            if not hasattr(config, name):
                raise InputError(
                    f"the config of '{source}' has no field '{name}'",
                    fix="see the fields in its config.json",
                )
            setattr(config, name, value)
    except InputError:
        raise
    except Exception as error:
        raise _refused(source, error) from error
    return config


def _objective(transformers: ModuleType, config: Any, source: str) -> Objective:
    """From the class that the config names, else from the first that exists for its type."""
    named = " ".join(getattr(config, "architectures", None) or ())
    for objective in Objective:
        if objective.value in named:
            return objective
    if any(word in named for word in ("LMHeadModel", "PreTraining")):
        return Objective.MASKED if "PreTraining" in named else Objective.CAUSAL
    kind = type(config)
    tables = {
        Objective.PAIRS: transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        Objective.CAUSAL: transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        Objective.MASKED: transformers.MODEL_FOR_MASKED_LM_MAPPING,
    }
    # An encoder has a causal class as well, which nobody means who names none.
    order = list(tables)
    if kind in tables[Objective.MASKED] and not getattr(config, "is_decoder", False):
        order = [Objective.PAIRS, Objective.MASKED, Objective.CAUSAL]
    for objective in order:
        if kind in tables[objective]:
            return objective
    raise InputError(
        f"'{source}' is a '{config.model_type}', which has no class for language modelling",
        fix="name a causal, masked or sequence-to-sequence model",
    )


def _has_weights(folder: str) -> bool:
    return any(name.endswith(".safetensors") for name in os.listdir(folder))


def _refused(source: str, error: Exception) -> InputError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(
        f"transformers cannot load '{source}': {first[:300]}",
        fix="name a folder with config.json and safetensors, a config.json, or a name of the hub",
    )
