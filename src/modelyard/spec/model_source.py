"""One way in for models: a name from the zoo, a config file, or the folder of a saved model."""

from __future__ import annotations

import os
from collections.abc import Iterable

from modelyard.errors import InputError
from modelyard.spec.hugging_face import CONFIG_FILE, read_config
from modelyard.spec.model import Model
from modelyard.spec.plain import plain_model
from modelyard.spec.zoo import MOST_CHARACTERS, find_model, unknown_model

__all__ = ["load_model", "plain_model"]


def load_model(text: str, *, besides: Iterable[str] = ()) -> Model:
    """The model that somebody names on the command line or in a file.

    `besides` are names that the caller understands itself, and that may have been meant.

    A file or a folder with a config that exists wins over a name of the zoo, as it does with
    transformers; what is neither is an `InputError` with the nearest name.
    """
    name = text.strip()
    if not name:
        raise InputError("the model is empty", fix="write a name such as 'gpt2', or a path")
    if _is_there(name):
        return read_config(name)
    found = find_model(name)
    if found is not None:
        return found
    if len(name) <= MOST_CHARACTERS and (name.endswith(".json") or os.path.lexists(name)):
        # Says which of the two it is: missing, or there without a config.
        return read_config(name)
    raise unknown_model(name, besides=besides)


def _is_there(name: str) -> bool:
    """Whether this is a config file, or a folder with one; never raises, whatever the text."""
    try:
        if os.path.isdir(name):
            return os.path.lexists(os.path.join(name, CONFIG_FILE))
        return os.path.exists(name)
    except (OSError, ValueError):
        return False
