"""YAML as people write it → plain data that remembers where each value stood.

Only the plain part of YAML is accepted: mappings with text keys, lists, and scalars. Nothing in
a file can run code, and no file, however odd, costs more than its size: aliases, nesting and the
number of values have limits. Scalars that YAML 1.1 reads in surprising ways (`1:30` as 90, `010`
as 8, dates) stay the text that was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from modelyard.errors import InputError, Problem, cause_of

#: about 5,000 lines: room for a cluster whose nodes are all listed by name, read in seconds
MOST_BYTES = 256 * 1024
#: no spec nests deeper than 5; this stops self-containing aliases long before Python's stack ends
MOST_NESTING = 32
#: aliases multiply values ("billion laughs"); the limit counts values after aliases are followed
MOST_VALUES = 50_000

ValuePath = tuple[str | int, ...]

_TOO_DEEP = f"nested deeper than {MOST_NESTING} levels"
_TOO_DEEP_FIX = "look for an alias that contains itself, or for brackets that never close"

#: Of a whole number: more than anything here is counted in, less than Python refuses to read.
MOST_DIGITS = 100

_STANDARD = "tag:yaml.org,2002:"
_TRUE_WORDS = frozenset(("y", "yes", "true", "on"))
_HALF_LETTER = re.compile(r"[\ud800-\udfff]")
_PLAIN_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_PLAIN_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*\.?[0-9]*([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: line and column from 1, of its key (if any) and of itself."""

    line: int
    column: int
    key_line: int
    key_column: int
    #: a scalar as it was written; YAML may have read it as something else
    written: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one YAML document, and the place of everything in it by its path.

    `problems` are those that leave the rest readable, such as a key that is there twice; whoever
    checks the data reports them together with its own.
    """

    source: str
    data: object
    places: Mapping[ValuePath, Place]
    problems: tuple[Problem, ...] = ()

    def place(self, path: ValuePath) -> Place:
        """The place of `path`, or of the nearest thing around it that was written."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places[path]


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read one YAML file; `InputError` when it is missing, unreadable or not plain YAML."""
    return parse_document(_read_text(path), os.fspath(path))


def parse_document(text: str, source: str = "<string>") -> Document:
    """Read YAML text; an empty one is a document whose data is None."""
    if len(text) > MOST_BYTES:
        raise _too_large(source)
    root = _compose(text, source)
    if root is None:
        return Document(source, None, {(): Place(1, 1, 1, 1)})
    builder = _Builder(source)
    data = builder.build(root, (), root)
    return Document(source, data, builder.places, tuple(builder.problems))


def problems_error(source: str, problems: Iterable[Problem]) -> InputError:
    """One error for all problems of a source, in the order of its lines."""
    found = sorted(problems, key=lambda problem: (problem.line, problem.column))
    count = len(found)
    return InputError(
        f"{count} problem{'s' if count != 1 else ''} in {source}",
        where=source,
        problems=found,
    )


def _read_text(path: str | os.PathLike[str]) -> str:
    source = os.fspath(path)
    try:
        with open(path, "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise InputError("no such file", fix="check the path", where=source) from error
    except IsADirectoryError as error:
        fix = "name a YAML file inside it"
        raise InputError("this is a directory, not a file", fix=fix, where=source) from error
    except PermissionError as error:
        fix = "make the file readable for the user who runs this"
        raise InputError("no permission to read this file", fix=fix, where=source) from error
    except OSError as error:
        raise InputError(f"cannot be read: {cause_of(error)}", where=source) from error
    if len(content) > MOST_BYTES:
        raise _too_large(source)
    return _decode(content, source)


def _decode(content: bytes, source: str) -> str:
    fix = "save the file as UTF-8"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("the file is UTF-16, not UTF-8", fix=fix, where=source)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(content[: error.start].decode("utf-8", "replace"))
        byte = content[error.start]
        what = f"the byte 0x{byte:02x} is not UTF-8 text"
        raise problems_error(source, [Problem(what, fix, source, line, column)]) from error


def _line_and_column(text_before: str) -> tuple[int, int]:
    return text_before.count("\n") + 1, len(text_before) - (text_before.rfind("\n") + 1) + 1


def _too_large(source: str) -> InputError:
    return InputError(
        f"larger than {MOST_BYTES // 1024} KiB, the most that a spec may have",
        fix="use 'count' for groups of equal nodes, and one file per job",
        where=source,
    )


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        return _single_node(text, source)
    except yaml.YAMLError as error:
        raise problems_error(source, [_syntax_problem(error, text, source)]) from error
    except RecursionError as error:
        raise InputError(_TOO_DEEP, fix=_TOO_DEEP_FIX, where=source) from error


def _single_node(text: str, source: str) -> yaml.Node | None:
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_node() if loader.check_node() else None
        if loader.check_node() and (second := loader.get_node()) is not None:
            mark = second.start_mark
            what = "a second YAML document starts here"
            fix = "keep one document per file: remove the '---' and what follows"
            problem = Problem(what, fix, source, mark.line + 1, mark.column + 1)
            raise problems_error(source, [problem])
        return root
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line, column = _line_and_column(text[: error.position])
        # PyYAML keeps the code point here, in spite of the name.
        what = f"the control character U+{int(error.character):04X} is not allowed"
        return Problem(what, "delete it", source, line, column)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(f"not YAML: {error}", "", source)
    line, column = error.problem_mark.line, error.problem_mark.column
    lines = text.splitlines()
    shown = lines[line] if line < len(lines) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        what, fix = "a tab indents this line", "indent with spaces; YAML does not allow tabs"
        return Problem(what, fix, source, line + 1, shown.index("\t") + 1)
    reason = " ".join(part for part in (error.context, error.problem) if part)
    fix = "check the indentation, and quote text that contains ': ', '#' or brackets"
    return Problem(f"not YAML: {reason}", fix, source, line + 1, column + 1)


@dataclass(slots=True)
class _Builder:
    """Turns nodes into plain data, remembering places and collecting problems."""

    source: str
    places: dict[ValuePath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def build(self, node: yaml.Node, path: ValuePath, key: yaml.Node) -> object:
        if len(path) > MOST_NESTING:
            self._stop(_TOO_DEEP, _TOO_DEEP_FIX, node)
        if len(self.places) >= MOST_VALUES:
            what = f"more than {MOST_VALUES:,} values after aliases are followed"
            self._stop(what, "use fewer aliases, and no aliases of aliases", node)
        start, key_start = node.start_mark, key.start_mark
        self.places[path] = Place(
            line=start.line + 1,
            column=start.column + 1,
            key_line=key_start.line + 1,
            key_column=key_start.column + 1,
            written=node.value if isinstance(node, yaml.ScalarNode) else "",
        )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, at), item) for at, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: ValuePath) -> dict[str, object]:
        data: dict[str, object] = {}
        first_line: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._complain("a key must be text", "write 'key: value'", key)
            elif key.tag == f"{_STANDARD}merge":
                fix = "repeat the keys, or let an alias stand for one whole value"
                self._complain("merge keys ('<<') are not supported", fix, key)
            elif key.value in first_line:
                what = f"the key '{key.value}' is already on line {first_line[key.value]}"
                self._complain(what, "remove one of the two", key)
            else:
                first_line[key.value] = key.start_mark.line + 1
                data[key.value] = self.build(value, (*path, key.value), key)
        return data

    def _scalar(self, node: yaml.Node) -> object:
        text = str(node.value)
        if _HALF_LETTER.search(text):
            # Only an escape can write one; nothing that prints or keeps text could take it.
            self._complain("half a letter (a surrogate)", "write the letter itself", node)
            return _HALF_LETTER.sub("\N{REPLACEMENT CHARACTER}", text)
        match node.tag.removeprefix(_STANDARD):
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE_WORDS
            case "int" if _PLAIN_INTEGER.fullmatch(text):
                if len(text) > MOST_DIGITS:
                    what = f"a number of {len(text):,} digits"
                    self._complain(what, "write a smaller one", node)
                    return 0
                return int(text.replace("_", ""))
            case "float" if _PLAIN_FLOAT.fullmatch(text):
                return float(text.replace("_", ""))
            case "str" | "int" | "float" | "timestamp" | "value" | "merge":
                return text
        self._complain(f"the tag '{node.tag}' is not supported", "write the value plainly", node)
        return text

    def _complain(self, what: str, fix: str, node: yaml.Node) -> None:
        mark = node.start_mark
        self.problems.append(Problem(what, fix, self.source, mark.line + 1, mark.column + 1))

    def _stop(self, what: str, fix: str, node: yaml.Node) -> None:
        """A limit is reached: going on would only find the same thing again."""
        self._complain(what, fix, node)
        raise problems_error(self.source, self.problems)
