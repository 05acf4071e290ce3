"""The zoo: models by the names that people type, with where their sizes come from.

The facts live in `zoo.csv` beside this file. Case and punctuation do not matter, nor do the owner
before a slash and words such as `instruct`, which change no shape: `Llama-2-7B`, `llama2_7b` and
`meta-llama/Llama-2-7b-chat-hf` are one model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from modelyard.errors import InputError, UnknownName
from modelyard.spec.architectures.reading import FAMILIES, model_from_config
from modelyard.spec.bundled import bundled_rows, bundled_text
from modelyard.spec.model import Model

_ZOO_FILE = "zoo.csv"
#: longer text is no name of a model; comparing it with all of them would take seconds
MOST_CHARACTERS = 200

#: words in a model's name that say how it was tuned or stored, not which shape it has
_WORDS_WITHOUT_SHAPE = frozenset({"hf", "instruct", "chat", "it", "pt"})


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """One row of the zoo before its model is made."""

    name: str
    aliases: tuple[str, ...]
    model_type: str
    fields: Mapping[str, object]
    source: str

    @property
    def counted_as(self) -> str:
        """The class whose parameters are counted."""
        return FAMILIES[self.model_type].counted_as


@cache
def zoo() -> tuple[Model, ...]:
    """All models, in the order of the file: by family, small to large."""
    return tuple(_model(entry.name) for entry in entries())


def find_model(name: str) -> Model | None:
    """The model of that name or alias, or None."""
    entry = find_entry(name)
    return _model(entry.name) if entry else None


def zoo_model(name: str) -> Model:
    """The model of that name or alias; `UnknownName` with the nearest name otherwise."""
    found = find_model(name)
    if found is None:
        raise unknown_model(name)
    return found


def unknown_model(name: str, *, besides: Iterable[str] = ()) -> InputError:
    """The complaint about a name that is neither in the zoo nor a file.

    `besides` are names that would have been understood as well.
    """
    shown = name if len(name) <= MOST_CHARACTERS else f"{name[:40]}…"
    ways = "or give the path of a config.json, or numbers (yard plan --layers … --hidden …)"
    error = UnknownName("model", shown, (*besides, *_names()))
    if error.suggestion:
        return InputError(error.message, fix=f"did you mean '{error.suggestion}'? {ways}")
    return InputError(error.message, fix=f"run 'yard models' to see every name, {ways}")


def find_entry(name: str) -> ZooEntry | None:
    """The row of that name or alias, or None."""
    return _by_key().get(_key(name)) if len(name) <= MOST_CHARACTERS else None


@cache
def entries() -> tuple[ZooEntry, ...]:
    """All rows of the zoo."""
    legend = _legend()
    return tuple(
        ZooEntry(
            name=row["name"],
            aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
            model_type=row["model_type"],
            fields={"model_type": row["model_type"], **_fields(row["config"])},
            source=legend[row["source"]],
        )
        for row in bundled_rows(_ZOO_FILE)
    )


@cache
def _model(name: str) -> Model:
    entry = _by_key()[_key(name)]
    return model_from_config(entry.fields, entry.name)


@cache
def _by_key() -> Mapping[str, ZooEntry]:
    return {_key(name): entry for entry in entries() for name in (entry.name, *entry.aliases)}


@cache
def _names() -> tuple[str, ...]:
    return tuple(name for entry in entries() for name in (entry.name, *entry.aliases))


def _key(name: str) -> str:
    """What is left of a name without owner, case and punctuation.

    A sign between two digits counts, whatever it is: `gpt-22b` is not `gpt2-2b`.
    """
    words = re.findall(r"[a-z0-9]+", name.rpartition("/")[2].casefold())
    kept = [word for word in words if word not in _WORDS_WITHOUT_SHAPE]
    joined = ".".join(kept)
    return re.sub(r"(?<![0-9])\.|\.(?![0-9])", "", joined)


def _fields(text: str) -> Mapping[str, object]:
    pairs = (item.partition("=") for item in text.split(";"))
    return {name: _value(value) for name, _, value in pairs}


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def _legend() -> Mapping[str, str]:
    """The sources that the file's comments explain, by their short name."""
    sources: dict[str, str] = {}
    short = ""
    for line in bundled_text(_ZOO_FILE).splitlines():
        if start := re.fullmatch(r"# ([a-z0-9]+) = (.+)", line):
            short = start.group(1)
            sources[short] = start.group(2)
        elif short and (more := re.fullmatch(r"#     (\S.*)", line)):
            sources[short] += f" {more.group(1)}"
    return sources
