"""A trained model as Hugging Face keeps it: safetensors, config.json and the tokenizer's files.

`transformers` loads the folder and computes the same logits. The folder is there whole or not at
all: it is written beside its place and moved there last.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from modelyard.errors import InputError, UnknownName, cause_of
from modelyard.spec.hugging_face import CONFIG_FILE
from modelyard.train.families import Family, Pair, family_of
from modelyard.train.models.bert import Bert
from modelyard.train.models.gpt import Gpt
from modelyard.train.models.hugging_face import HuggingFace
from modelyard.train.models.t5 import T5

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
#: as large as transformers itself makes a file of weights
MOST_BYTES = 5_000_000_000
#: whatever of these is there belongs to a tokenizer
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
)
#: heads of tasks, beside the trunk that transformers loads
BESIDE_FILE = "heads.safetensors"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def export_model(
    module: nn.Module,
    folder: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    most_bytes: int = MOST_BYTES,
    config: Mapping[str, object] | None = None,
    beside: Mapping[str, torch.Tensor] | None = None,
) -> Path:
    """Write a module to a new folder; `tokenizer` is a folder, or a tokenizer.json.

    `config` are fields for the config beside those of the model; tensors `beside` it, which
    transformers has no place for, go to a file of their own.
    """
    kind = _type_named(dtype)

    def write(part: Path) -> None:
        _write(module, part, kind, most_bytes, config or {})
        if beside:
            _save_as(_converted(beside, kind), part / BESIDE_FILE)

    return _exported(folder, tokenizer, write)


def export_tensors(
    tensors: Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    most_bytes: int = MOST_BYTES,
) -> Path:
    """Write weights under their own names, for models that transformers has no class for."""
    kind = _type_named(dtype)
    return _exported(
        folder, tokenizer, lambda part: _save(_converted(tensors, kind), part, most_bytes)
    )


def _exported(
    folder: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None,
    write: Callable[[Path], None],
) -> Path:
    safetensors()
    target = Path(folder)
    _check_target(target)
    extra = _tokenizer_files(tokenizer)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            write(part)
            for name, source in extra.items():
                shutil.copyfile(source, part / name)
            # Temporary folders, and what safetensors writes, are for their owner alone.
            part.chmod(0o755)
            for file in part.iterdir():
                file.chmod(0o644)
            with contextlib.suppress(FileNotFoundError):
                target.rmdir()
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except (OSError, _write_error()) as error:
        what = f"'{target}' cannot be written: {cause_of(error)}"
        raise InputError(what, fix="choose another place, or make room") from error
    return target


def _type_named(dtype: str) -> torch.dtype:
    if dtype not in DTYPES:
        raise UnknownName("type of weights", dtype, DTYPES)
    return DTYPES[dtype]


def _converted(tensors: Mapping[str, torch.Tensor], kind: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: one.detach().cpu().to(kind).contiguous() for name, one in tensors.items()}


def safetensors() -> None:
    """`InputError` when the package is not installed."""
    try:
        import safetensors.torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            "weights are kept with the package 'safetensors', which is not installed",
            fix="pip install safetensors",
        ) from error


def _write_error() -> type[Exception]:
    """What a full disk looks like from within safetensors, which hides the error of the system."""
    from safetensors import SafetensorError

    found: type[Exception] = SafetensorError
    return found


def tensor_of(pair: Pair, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """One of their tensors from ours."""
    parts = [state[name] if name in state else _zeros(name, state) for name in pair.ours]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole.T if pair.transposed else whole


def _write(
    module: nn.Module,
    folder: Path,
    dtype: torch.dtype,
    most_bytes: int,
    more: Mapping[str, object],
) -> None:
    if isinstance(module, HuggingFace):
        module.inner.to(dtype).save_pretrained(folder, max_shard_size=most_bytes)
        return
    family = family_of(module)
    assert isinstance(module, (Gpt, Bert, T5))
    state = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
    tensors = {
        pair.theirs: tensor_of(pair, state).to(dtype).contiguous()
        for pair in family.pairs(module.spec)
    }
    if isinstance(module, Bert) and not module.spec.traits.token_types:
        # Theirs always adds a type; a row of zeros adds nothing.
        width = module.spec.hidden
        tensors["bert.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width, dtype=dtype)
    _save(tensors, folder, most_bytes)
    config = {**_config(module, family, dtype), **more}
    text = json.dumps(config, indent=2, sort_keys=True)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def _config(module: Gpt | Bert | T5, family: Family, dtype: torch.dtype) -> dict[str, object]:
    shape = module.shape
    config = family.config(module.spec, module.options, shape.activation, shape.norm_epsilon)
    if config.get("type_vocab_size") == 0:
        config["type_vocab_size"] = 1
    return {
        **config,
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "dtype": str(dtype).removeprefix("torch."),
    }


def _save(tensors: dict[str, torch.Tensor], folder: Path, most_bytes: int) -> None:
    """One file, or several and an index."""
    from safetensors.torch import save_file

    files = list(_shards(tensors, most_bytes))
    if len(files) == 1:
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        return
    places: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        save_file({one: tensors[one] for one in names}, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(names, name)
    total = sum(one.numel() * one.element_size() for one in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _save_as(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})


def _shards(tensors: dict[str, torch.Tensor], most_bytes: int) -> Iterator[list[str]]:
    names: list[str] = []
    taken = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if names and taken + size > most_bytes:
            yield names
            names, taken = [], 0
        names.append(name)
        taken += size
    yield names


def _zeros(name: str, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """A bias that ours does not have."""
    weight = state[name.removesuffix(".bias") + ".weight"]
    return weight.new_zeros(weight.shape[0])


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise InputError(f"'{target}' is there already", fix="name a new or an empty folder")


def _tokenizer_files(source: str | os.PathLike[str] | None) -> dict[str, Path]:
    if source is None:
        return {}
    path = Path(source)
    if path.is_file():
        return {"tokenizer.json": path}
    found = {name: path / name for name in TOKENIZER_FILES if (path / name).is_file()}
    if not found:
        raise InputError(
            f"there is no tokenizer at '{path}'",
            fix="name a tokenizer.json, or a folder that a tokenizer was saved to",
        )
    return found
