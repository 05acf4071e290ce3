"""A data set's tokenizer as Hugging Face keeps it: `AutoTokenizer` gives the same tokens."""

from __future__ import annotations

import json

from modelyard.errors import InputError
from modelyard.train.data.tokenizer import BYTES, FILE, SPECIAL_NAMES, Special

CONFIG_FILE = "tokenizer_config.json"


def tokenizer_files(text: bytes, special: Special | None) -> dict[str, str]:
    """The files by name; `text` is a tokenizer.json, or nothing where tokens are bytes."""
    whole = text.decode("utf-8") if text else byte_tokenizer()
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if special is not None:
        names = _names(whole)
        for key, number in (
            ("eos_token", special.end),
            ("pad_token", special.pad),
            ("mask_token", special.mask),
        ):
            if number is not None and number in names:
                config[key] = names[number]
    return {FILE: whole, CONFIG_FILE: json.dumps(config, indent=2, ensure_ascii=False) + "\n"}


def byte_tokenizer() -> str:
    """A tokenizer.json whose tokens are bytes: merges of none, over the usual alphabet of bytes."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    except ImportError as error:
        what = "the tokenizer is written with the package 'tokenizers', which is not installed"
        raise InputError(what, fix="pip install 'modelyard[train]'") from error
    letters = _letters()
    made = Tokenizer(models.BPE(vocab={letters[at]: at for at in range(BYTES)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL_NAMES))
    text: str = made.to_str(pretty=False)
    return text


def _letters() -> list[str]:
    """The letter that stands for each byte in byte-level tokenizers, since GPT-2's."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)}
    shown |= set(range(ord("®"), ord("ÿ") + 1))
    # What cannot be shown takes the letters after the last byte, in turn.
    others = iter(range(BYTES, 2 * BYTES))
    return [chr(at) if at in shown else chr(next(others)) for at in range(BYTES)]


def _names(text: str) -> dict[int, str]:
    told = json.loads(text)
    return {int(one["id"]): str(one["content"]) for one in told.get("added_tokens") or ()}
