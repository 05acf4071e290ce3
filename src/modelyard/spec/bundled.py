"""Tables that come with the package: facts in files beside the code, with comments that say whence.

Read through the import system rather than the file system, so that pure packages may use them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from importlib.resources import files


def bundled_text(name: str, package: str = "modelyard.spec") -> str:
    """The text of a file that is part of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def bundled_rows(name: str, package: str = "modelyard.spec") -> Iterator[Mapping[str, str]]:
    """The rows of a bundled CSV table, without the comment lines that begin with `#`."""
    lines = bundled_text(name, package).splitlines()
    return iter(csv.DictReader(line for line in lines if not line.startswith("#")))
