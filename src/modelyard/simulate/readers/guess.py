"""Which format is this file? Answered from its first line, and only when one answer fits."""

from __future__ import annotations

from modelyard.simulate.readers import gavel, itp, muri, philly, plain, pollux
from modelyard.simulate.readers.source import Source, unreadable
from modelyard.simulate.readers.table import header

#: The columns without which a file is not of the format. Gavel's files have no header.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "philly": philly.REQUIRED,
    "itp": itp.REQUIRED,
    "pollux": pollux.REQUIRED,
    "muri": muri.REQUIRED,
    "csv": plain.REQUIRED,
}

FORMATS = ("philly", "itp", "pollux", "gavel", "muri", "csv")

#: How much of a first line an error repeats: enough to recognise the file by.
CHARACTERS_SHOWN = 120


def guess_format(source: Source) -> str:
    """The name of the one format whose columns are all in the header, or `InputError`."""
    start, columns = header(source)
    if source.lines[start].count("\t") == len(gavel.COLUMNS) - 1:
        return "gavel"
    fitting = [name for name, needed in SIGNATURES.items() if set(needed) <= set(columns)]
    if len(fitting) == 1:
        return fitting[0]
    fix = f"say which format it is: --format {'|'.join(FORMATS)}"
    if fitting:
        reason = f"fits {' and '.join(fitting)}"
    else:
        reason, way_out = _nearest(columns)
        fix = f"{way_out}, or {fix}"
    what = f"the first line ({', '.join(columns)[:CHARACTERS_SHOWN]!r}) {reason}"
    raise unreadable(source.path, what, fix, line=start + 1)


def _nearest(columns: tuple[str, ...]) -> tuple[str, str]:
    """What a header that fits nothing lacks, and the way out."""
    if len(columns) == 1 and ";" in columns[0]:
        return "has no comma", "separate the columns by ',' instead of ';'"
    lacking = {
        name: [column for column in needed if column not in columns]
        for name, needed in SIGNATURES.items()
    }
    name = min(lacking, key=lambda name: len(lacking[name]))
    if len(lacking[name]) < len(SIGNATURES[name]) / 2:
        return f"lacks {', '.join(lacking[name])} of format {name}", "add what is missing"
    return "fits no known format", f"name your own columns {','.join(plain.REQUIRED)}"
