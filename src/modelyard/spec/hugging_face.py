"""A `config.json` of Hugging Face, or the folder of a model, → a model. Nothing in it is run."""

from __future__ import annotations

import json
import os

from modelyard.errors import InputError, Problem
from modelyard.spec.architectures.reading import model_from_config
from modelyard.spec.model import Model
from modelyard.spec.text_file import read_text
from modelyard.units import describe

CONFIG_FILE = "config.json"
#: configs have a few kilobytes; those that list a thousand labels have a few hundred
MOST_BYTES = 4 * 1024 * 1024


def read_config(path: str | os.PathLike[str]) -> Model:
    """The model that a config file, or the `config.json` of a folder, describes."""
    source = os.fspath(path)
    if os.path.isdir(source):
        source = os.path.join(source, CONFIG_FILE)
        if not os.path.lexists(source):
            raise InputError(
                f"there is no '{CONFIG_FILE}' in this folder",
                fix=f"name a folder that a model was saved to, or the '{CONFIG_FILE}' itself",
                where=os.fspath(path),
            )
    return parse_config(read_text(source, MOST_BYTES), source)


def parse_config(text: str, source: str) -> Model:
    """The model that the text of a config describes; it is called as its file or folder is."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"this is not JSON: {error.msg.lower()}"
        problem = Problem(what, "check the file", source, error.lineno, error.colno)
        raise InputError(what, where=source, problems=[problem]) from error
    except (RecursionError, ValueError) as error:
        # Brackets nested past Python's stack, and numbers of thousands of digits.
        raise InputError(
            "this JSON is nested too deeply or has a number of thousands of digits",
            fix="hand in the config.json of a model as it was saved",
            where=source,
        ) from error
    if not isinstance(fields, dict):
        raise InputError(
            f"expected an object of fields, found {describe(fields)}",
            fix='begin the file with {"model_type": …',
            where=source,
        )
    return model_from_config(fields, _name(fields, source), source)


def _name(fields: dict[str, object], source: str) -> str:
    """What the config says it was loaded from, else the folder, else the file."""
    said = fields.get("_name_or_path")
    path = said if isinstance(said, str) and said.strip("./") else os.path.abspath(source)
    parent, last = os.path.split(path.rstrip("/"))
    if last == CONFIG_FILE:
        last = os.path.basename(parent)
    return last.removesuffix(".json") or "model"
