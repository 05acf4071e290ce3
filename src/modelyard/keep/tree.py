"""Trees of dicts, lists, numbers, texts and tensors as JSON, and back.

The tensors of a tree become names, the paths that lead to them. What a tensor is, is the caller's
business: here it is whatever `is_tensor` says. Nothing is pickled, so a tree read from anywhere
can do no harm.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from modelyard.errors import YardError
from modelyard.keep.problems import Damaged

Node = dict[str, object]
Key = str | int
_Leaf = TypeVar("_Leaf")

#: Deeper trees are circles.
DEEPEST = 100
#: Numbers that JSON cannot say.
_ODD_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def describe(
    tree: object, is_tensor: Callable[[object], bool]
) -> tuple[Node, list[tuple[str, object]]]:
    """A tree as JSON, and its tensors with their names."""
    found: dict[str, object] = {}

    def node_of(value: object, path: tuple[str, ...]) -> Node:
        if len(path) > DEEPEST:
            raise YardError(f"a state is more than {DEEPEST} levels deep", fix="look for a circle")
        if is_tensor(value):
            name = "/".join(path) or "tensor"
            if name in found:
                what = f"two tensors of a state are called '{name}'"
                raise YardError(what, fix="do not use both a number and its text as keys")
            found[name] = value
            return {"tensor": name}
        if isinstance(value, Mapping):
            items = [
                [_checked_key(key, path), node_of(item, (*path, _step(key)))]
                for key, item in value.items()
            ]
            return {"items": items}
        if isinstance(value, (list, tuple)):
            nodes = [node_of(item, (*path, str(index))) for index, item in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": nodes}
        return _plain(value, path)

    return node_of(tree, ()), list(found.items())


def rebuild(node: object, tensor: Callable[[str], _Leaf]) -> object:
    """The tree of a description, with what `tensor` gives for the name of each tensor."""
    match node:
        case {"tensor": str(name)}:
            return tensor(name)
        case {"items": list(items)}:
            return {key: rebuild(item, tensor) for key, item in map(_pair, items)}
        case {"list": list(items)}:
            return [rebuild(item, tensor) for item in items]
        case {"tuple": list(items)}:
            return tuple(rebuild(item, tensor) for item in items)
        case {"plain": None | bool() | int() | float() | str() as value}:
            return value
        case {"float": str(text)} if text in _ODD_FLOATS:
            return _ODD_FLOATS[text]
        case {"bytes": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise _strange() from error
    raise _strange()


def merge(first: object, second: object) -> object:
    """What two workers say of one tree: all that either holds; where they differ, the first's."""
    match first, second:
        case {"items": list(mine)}, {"items": list(others)}:
            merged = dict(map(_pair, mine))
            for key, item in map(_pair, others):
                merged[key] = merge(merged[key], item) if key in merged else item
            return {"items": [[key, item] for key, item in merged.items()]}
        case {"list": list(mine)}, {"list": list(others)} if len(mine) == len(others):
            return {"list": [merge(*both) for both in zip(mine, others, strict=True)]}
    return first


def _pair(item: object) -> tuple[Key, object]:
    match item:
        case [str() | int() as key, node]:
            return key, node
    raise _strange()


def _step(key: object) -> str:
    """A key within a path, so that different paths have different names."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _checked_key(key: object, path: tuple[str, ...]) -> Key:
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return key
    raise _unkept(key, path, "as a key ")


def _plain(value: object, path: tuple[str, ...]) -> Node:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    raise _unkept(value, path, "")


def _unkept(value: object, path: tuple[str, ...], role: str) -> YardError:
    where = "/".join(path) or "the top"
    what = f"a state may not hold a {type(value).__name__} {role}(at {where})"
    return YardError(what, fix="keep numbers, texts, tensors, and lists and dicts of these")


def _strange() -> Damaged:
    return Damaged("the description of a state makes no sense", fix="restore an older checkpoint")
