"""YAML with places: whatever a file contains, the answer is data or a clear, placed problem."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError, Problem
from modelyard.spec.source import (
    MOST_BYTES,
    MOST_NESTING,
    MOST_VALUES,
    Document,
    parse_document,
    read_document,
)


def only_problem(text: str) -> Problem:
    """The one problem that stops this text from being read, or that it was read with."""
    try:
        problems = parse_document(text, "f.yaml").problems
    except InputError as error:
        problems = error.problems
    assert len(problems) == 1
    return problems[0]


def test_every_value_keeps_its_place() -> None:
    document = parse_document("name: a\nnodes:\n  - devices: 4\n", "f.yaml")
    assert document.data == {"name": "a", "nodes": [{"devices": 4}]}
    place = document.place(("nodes", 0, "devices"))
    assert (place.line, place.column, place.key_line, place.key_column) == (3, 14, 3, 5)
    assert place.written == "4"


def test_what_was_not_written_has_the_place_around_it() -> None:
    document = parse_document("nodes:\n  - devices: 4\n")
    missing = document.place(("nodes", 0, "device", "name"))
    assert missing == document.place(("nodes", 0))


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~"])
def test_empty_text_is_a_document_of_nothing(text: str) -> None:
    assert parse_document(text).data is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("1_000", 1000),
        ("0", 0),
        ("1.5", 1.5),
        ("1.5e+3", 1500.0),
        ("yes", True),
        ("off", False),
        ("null", None),
        ("text", "text"),
        # What YAML 1.1 would turn into something unexpected stays as it was written.
        ("1:30", "1:30"),
        ("1:30:15.5", "1:30:15.5"),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
    ],
)
def test_scalars_are_what_they_look_like(written: str, value: object) -> None:
    data = parse_document(f"key: {written}").data
    assert data == {"key": value}
    assert isinstance(data, dict)
    assert type(data["key"]) is type(value)


def test_keys_stay_text() -> None:
    assert parse_document("no: 1\n3: 2\n").data == {"no": 1, "3": 2}


def test_aliases_are_followed() -> None:
    assert parse_document("a: &x [1, 2]\nb: *x\n").data == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "line", "column", "what", "fix"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "the key 'a' is already on line 1", "remove one"),
        ("a:\n\tb: 1\n", 2, 1, "a tab indents this line", "spaces"),
        ("a:\n  b: 1\n \tc: 2\n", 3, 2, "a tab indents this line", "spaces"),
        ("a: [1, 2\nb: 3\n", 2, 2, "not YAML", "indentation"),
        ("a: b: c\n", 1, 5, "not YAML", "quote"),
        ("a: 'open\n", 2, 1, "not YAML", "quote"),
        ("a: *missing\n", 1, 4, "undefined alias", ""),
        ("a: 1\n---\nb: 2\n", 3, 1, "a second YAML document starts here", "one document"),
        ("a: &x [*x]\n", 1, 4, f"nested deeper than {MOST_NESTING}", "alias"),
        ("a: \x01\n", 1, 4, "control character U+0001", "delete"),
        ("a: 1\n<<: {b: 2}\n", 2, 1, "merge keys", "repeat"),
        ("a: 1\n? [b]\n: 2\n", 2, 3, "a key must be text", "key: value"),
        ("a: !!python/name:os.system x\n", 1, 4, "the tag", "plainly"),
        ("a: !secret x\n", 1, 4, "the tag '!secret' is not supported", "plainly"),
    ],
)
def test_problems_say_where_and_what_to_do(
    text: str, line: int, column: int, what: str, fix: str
) -> None:
    problem = only_problem(text)
    assert (problem.file, problem.line, problem.column) == ("f.yaml", line, column)
    assert what in problem.what
    assert fix in problem.fix


def test_billion_laughs_stop_at_the_limit() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 9):
        aliases = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    assert f"more than {MOST_VALUES:,} values" in only_problem("\n".join(lines)).what


def test_bottomless_nesting_is_refused() -> None:
    assert "nested deeper" in only_problem("[" * 5000).what
    assert "nested deeper" in only_problem("a: " + "[" * 40 + "]" * 40).what


def test_huge_text_is_refused_before_it_is_parsed() -> None:
    assert "larger than 256 KiB" in only_problem("a: " + "x" * MOST_BYTES).what


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file\. Fix: check the path"):
        read_document(tmp_path / "none.yaml")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a directory"):
        read_document(tmp_path)


def test_huge_file(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"a: 1\n" * MOST_BYTES)
    with pytest.raises(InputError, match="larger than 256 KiB"):
        read_document(path)


def test_file_that_is_not_utf8_says_where(tmp_path: Path) -> None:
    path = tmp_path / "latin1.yaml"
    path.write_bytes("name: a\nowner: Jürgen\n".encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_document(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 9)
    assert "0xfc is not UTF-8" in problem.what


def test_utf16_file_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_bytes("name: a\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        read_document(path)


def test_byte_order_mark_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read_document(path).data == {"name": "a"}


@given(st.text(max_size=200))
def test_any_text_gives_a_document_or_a_clear_error(text: str) -> None:
    try:
        outcome: object = parse_document(text)
    except InputError as error:
        outcome = [problem.what for problem in error.problems]
    assert isinstance(outcome, Document) or outcome


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc xyz:#'-", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_data_survives_being_written_and_read(data: object) -> None:
    assert parse_document(yaml.safe_dump(data)).data == data


@given(PLAIN)
def test_every_path_into_the_data_has_a_place(data: object) -> None:
    document = parse_document(yaml.safe_dump(data))

    def visit(value: object, path: tuple[str | int, ...]) -> None:
        assert path in document.places
        children = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for key, child in children:
            visit(child, (*path, key))

    visit(document.data, ())
