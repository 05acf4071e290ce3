"""Trees come back as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import YardError
from modelyard.keep.problems import Damaged
from modelyard.keep.tree import describe, merge, rebuild

from .states import is_array

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.builds(lambda: np.zeros(2)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner),
        st.dictionaries(st.integers(), inner),
    ),
)


def same(one: object, other: object) -> bool:
    """Equal, of equal types, with NaN equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one is other or (not is_array(one) and one == other)


@given(TREES)
def test_a_tree_survives_json(tree: object) -> None:
    node, tensors = describe(tree, is_array)
    found = dict(tensors)
    assert same(rebuild(json.loads(json.dumps(node, allow_nan=False)), found.__getitem__), tree)


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        ({"a": object()}, r"a state may not hold a object \(at a\)"),
        ({"a": [{1, 2}]}, r"hold a set \(at a/0\)"),
        ({(1, 2): 3}, "tuple as a key"),
        ({True: 3}, "bool as a key"),
        ({1: np.zeros(1), "1": np.zeros(1)}, "two tensors"),
    ],
)
def test_what_cannot_be_kept_is_named(tree: object, complaint: str) -> None:
    with pytest.raises(YardError, match=complaint):
        describe(tree, is_array)


def test_a_circle_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(YardError, match="levels deep"):
        describe(circle, is_array)


@pytest.mark.parametrize(
    "node", [None, 3, [], {}, {"plain": []}, {"items": [[1]]}, {"float": "7"}, {"bytes": "?"}]
)
def test_descriptions_that_make_no_sense(node: object) -> None:
    with pytest.raises(Damaged, match="makes no sense"):
        rebuild(node, str)


def test_stages_that_hold_different_layers_make_one_tree() -> None:
    named: Callable[[str], str] = lambda name: name  # noqa: E731
    first, _ = describe({"model": {"a": np.zeros(1)}, "step": 3}, is_array)
    second, _ = describe({"model": {"b": np.zeros(1)}, "step": 4}, is_array)
    tree = rebuild(merge(first, second), named)
    assert tree == {"model": {"a": "model/a", "b": "model/b"}, "step": 3}
