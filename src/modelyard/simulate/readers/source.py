"""From a path to numbered lines of text: everything that can be wrong before a row is looked at.

Plain text and gzip are read, told apart by their first bytes, since traces are renamed as often
as they are repacked. Line ends of any system and a byte order mark are accepted.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from modelyard.errors import InputError, Problem, cause_of

GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

#: First bytes of files that people mistake for a trace, with the words for them.
FOREIGN_MAGIC = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PAR1": "a Parquet file",
    b"%PDF": "a PDF",
}

#: The largest public trace of this kind unpacks to about 100 MB; ten times that is a mistake or
#: an archive made to fill the memory.
LARGEST_TEXT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file. Line number n, as people count, is `lines[n - 1]`."""

    path: Path
    lines: tuple[str, ...]
    #: False when the last line has no line end: it may have been cut off
    ends_cleanly: bool

    @property
    def name(self) -> str:
        """The file's name without `.csv`, `.trace` and `.gz`."""
        name = self.path.name
        for suffix in (".gz", ".csv", ".trace"):
            name = name.removesuffix(suffix)
        return name or self.path.name


def read_source(path: Path) -> Source:
    """The lines of a text file, gzip or not; `InputError` says why there are none."""
    data = _unpacked(path, _bytes(path))
    text = _text(path, data).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise unreadable(path, "the file is empty", "check that the export or download finished")
    lines = text.split("\n")
    ends_cleanly = lines[-1] == ""
    if ends_cleanly:
        lines.pop()
    return Source(path=path, lines=tuple(lines), ends_cleanly=ends_cleanly)


def unreadable(path: Path, what: str, fix: str, *, line: int = 0) -> InputError:
    """The error for a file with one problem that makes reading on pointless."""
    return InputError(what, fix=fix, problems=[Problem(what, fix, str(path), line)])


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise unreadable(path, "there is no such file", "check the path") from None
    except IsADirectoryError:
        fix = "name one file inside it"
        raise unreadable(path, "this is a folder, not a file", fix) from None
    except OSError as error:
        what = f"the file cannot be read: {cause_of(error)}"
        raise unreadable(path, what, "check its permissions and the disk") from None
    return _bounded(path, data)


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return _bounded(path, stream.read(LARGEST_TEXT_BYTES + 1))
    except EOFError:
        what = "the gzip file ends too early: it was cut off"
        raise unreadable(path, what, "copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        what = f"the gzip file is damaged ({error})"
        raise unreadable(path, what, "copy or download it again") from None


def _bounded(path: Path, data: bytes) -> bytes:
    if len(data) > LARGEST_TEXT_BYTES:
        what = f"the file holds more than {LARGEST_TEXT_BYTES >> 30} GiB of text"
        raise unreadable(path, what, "cut the part of the trace that you need out of it")
    return data


def _text(path: Path, data: bytes) -> str:
    for magic, words in FOREIGN_MAGIC.items():
        if data.startswith(magic):
            what = f"this is {words}, not text"
            raise unreadable(path, what, "unpack or export it; text and gzipped text are read")
    if data.startswith(UTF16_MARKS):
        raise unreadable(path, "the text is encoded as UTF-16", "save it as UTF-8")
    zero = data.find(b"\0")
    if zero >= 0:
        what = f"this is a binary file (a zero byte at offset {zero}), not text"
        raise unreadable(path, what, "name a text file, or a gzipped one")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise unreadable(path, what, "save the file as UTF-8", line=line) from None
