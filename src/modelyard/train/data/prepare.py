"""From text to token files: planned by sizes, on all cores, resumed where it was interrupted.

What a data set becomes depends on the input and the settings alone, never on the cores or on how
often it was interrupted: parts are cut by bytes, and each becomes shards of its own number.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from modelyard.errors import InputError, Problem
from modelyard.files import write_atomically
from modelyard.train.data.crew import Work, tokenizer_of, unwritable, write_parts
from modelyard.train.data.places import Kind, Source, find_sources
from modelyard.train.data.readers import Slice, read_slice, slices
from modelyard.train.data.shards import TEMPORARY, Part, read_record, record_path
from modelyard.train.data.tokenizer import FILE, Tokenizer, bpe_size, find_tokenizer, train_bpe
from modelyard.train.data.tokens import (
    HEADER,
    SPLITS,
    Header,
    header_text,
    read_header,
    token_bytes,
)
from modelyard.units import format_bytes

#: Parts are a 64th of the input within these bounds: small enough that an interruption costs
#: seconds, large enough that a terabyte gives thousands of files and not millions.
SMALLEST_PART, LARGEST_PART = 1 << 20, 256 << 20
PARTS = 64
#: What a BPE tokenizer is trained on, taken evenly from all parts. More changes few merges.
TOKENIZER_SAMPLE = 64 << 20

#: (what is being done, bytes done, bytes in all)
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How text becomes tokens."""

    #: `bytes`, `bpe:SIZE` or the path of a tokenizer.json
    tokenizer: str = "bytes"
    end_token: str = ""
    #: of JSONL and Parquet
    field: str = "text"
    #: of JSONL and Parquet, the field with a number for each document; empty for none
    label: str = ""
    #: the share that is held out
    validation: float = 0.01
    #: tokens of a sample, as advice for jobs
    sequence: int = 0
    #: of every file, where names do not say it
    kind: Kind | None = None


def prepare(
    inputs: Sequence[str],
    out: Path,
    settings: Settings,
    *,
    workers: int,
    watch: Watch,
    force: bool = False,
) -> Header:
    """Make a data set; one that is there already, of the same input, stays as it is."""
    if not 0 <= settings.validation <= 0.5:
        what = f"a share of {settings.validation:g} to be held out"
        raise InputError(what, fix="hold out between 0% and 50%, such as --validation 1%")
    given = None if bpe_size(settings.tokenizer) else _given(settings)
    sources = find_sources(inputs, settings.kind)
    parts = plan_parts(sources, settings.field)
    if not parts:
        raise InputError("the input has no documents", fix="name files that have some")
    made_of = _made_of(sources, settings, given)
    try:
        return _make(parts, out, settings, given, made_of, workers, watch, force=force)
    except OSError as error:
        raise unwritable(out if out.is_dir() else Path(), error) from error


def plan_parts(sources: Sequence[Source], field: str) -> list[Part]:
    """The input in parts; all files whose heads show a fault are named in one `InputError`."""
    total = sum(source.size_bytes for source in sources)
    most = min(max(total // PARTS, SMALLEST_PART), LARGEST_PART)
    parts: list[Part] = []
    gathered: list[Slice] = []
    size = 0
    problems: list[Problem] = []
    for source in sources:
        try:
            found = slices(source, field, most)
        except InputError as error:
            problems += error.problems
            continue
        for each in found:
            gathered.append(each)
            size += each.size_bytes
            if size >= most:
                parts.append(Part(number=len(parts), slices=tuple(gathered)))
                gathered, size = [], 0
    if problems:
        raise InputError(problems[0].what, problems=problems)
    if gathered:
        parts.append(Part(number=len(parts), slices=tuple(gathered)))
    return parts


def _make(
    parts: Sequence[Part],
    out: Path,
    settings: Settings,
    given: Tokenizer | None,
    made_of: str,
    workers: int,
    watch: Watch,
    *,
    force: bool,
) -> Header:
    if (header := _finished(out, made_of, force=force)) is not None:
        if settings.sequence and header.sequence != settings.sequence:
            header = replace(header, sequence=settings.sequence)
            write_atomically(out / HEADER, header_text(header))
        return header
    with _claimed(out, made_of, force=force):
        _check_space(parts, out, settings)
        tokenizer = _tokenizer(parts, out, settings, given, watch)
        work = Work(
            folder=out,
            tokenizer=settings.tokenizer,
            end_token=settings.end_token,
            field=settings.field,
            validation=settings.validation,
            label=settings.label,
        )
        total = sum(part.size_bytes for part in parts)
        left = [part for part in parts if read_record(out, part.number) is None]
        before = total - sum(part.size_bytes for part in left)
        write_parts(work, left, workers, lambda done: watch("tokens", before + done, total))
        watch("tokens", total, total)
        header = _header(parts, out, settings, tokenizer, made_of)
        write_atomically(out / HEADER, header_text(header))
        shutil.rmtree(out / "unfinished")
        return header


def _header(
    parts: Sequence[Part], out: Path, settings: Settings, tokenizer: Tokenizer, made_of: str
) -> Header:
    records = [read_record(out, part.number) for part in parts]
    written = [record for record in records if record is not None]
    shards = {
        split: tuple(shard for each in written if (shard := getattr(each, split)) is not None)
        for split in SPLITS
    }
    if not shards["train"]:
        raise InputError("the input has no text", fix="name files that have some")
    return Header(
        tokenizer=Path(settings.tokenizer).name,
        end_token=settings.end_token,
        vocab=tokenizer.vocab,
        token_bytes=token_bytes(tokenizer.vocab),
        sequence=settings.sequence,
        made_of=made_of,
        shards=shards,
        special=tokenizer.special,
        labelled=bool(settings.label),
    )


# -- the folder ---------------------------------------------------------------------------------


def _finished(out: Path, made_of: str, *, force: bool) -> Header | None:
    """The header of a data set that needs no more work."""
    if force or not (out / HEADER).is_file():
        return None
    header = read_header(out)
    if header.made_of != made_of:
        what = "this folder has a data set of other input or with other settings"
        raise InputError(
            what, fix="choose another --out, or write over it with --force", where=str(out)
        )
    return header


@contextmanager
def _claimed(out: Path, made_of: str, *, force: bool) -> Iterator[None]:
    """The folder, for this process alone, with what an earlier run for the same input left."""
    unfinished = out / "unfinished"
    if out.exists() and not out.is_dir():
        raise InputError("this is a file", fix="name a folder with --out", where=str(out))
    if out.is_dir() and any(out.iterdir()) and not (unfinished.is_dir() or (out / HEADER).exists()):
        what = "this folder has other files in it"
        raise InputError(what, fix="name an empty or a new folder with --out", where=str(out))
    unfinished.mkdir(parents=True, exist_ok=True)
    lock = os.open(unfinished / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        what = "another process prepares this data set at this moment"
        raise InputError(
            what, fix="wait for it, or choose another --out", where=str(out)
        ) from error
    try:
        _ready(out, unfinished / "plan.json", made_of, force=force)
        yield
    finally:
        os.close(lock)


def _ready(out: Path, plan: Path, made_of: str, *, force: bool) -> None:
    before = plan.read_text(encoding="utf-8") if plan.is_file() else None
    if before not in (None, made_of) and not force:
        what = "this folder has an unfinished data set of other input or with other settings"
        raise InputError(
            what, fix="choose another --out, or write over it with --force", where=str(out)
        )
    for path in out.glob(f"*{TEMPORARY}"):
        path.unlink()
    if before != made_of:
        (out / HEADER).unlink(missing_ok=True)
        (out / FILE).unlink(missing_ok=True)
        for split in SPLITS:
            for ending in ("tokens", "ends", "labels"):
                for path in out.glob(f"{split}-*.{ending}"):
                    path.unlink()
        for path in plan.parent.glob(record_path(out, 0).name.replace("00000", "*")):
            path.unlink()
        write_atomically(plan, made_of)


def _made_of(sources: Sequence[Source], settings: Settings, given: Tokenizer | None) -> str:
    """The same only for the same input, prepared in the same way."""
    chosen = asdict(replace(settings, sequence=0))
    chosen["tokenizer"] = given.fingerprint if given else settings.tokenizer
    if not settings.label:
        # As in releases without labels: what was prepared then is the same still.
        del chosen["label"]
    told = {"sources": [asdict(source) for source in sources], "settings": chosen, "parts": PARTS}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _check_space(parts: Sequence[Part], out: Path, settings: Settings) -> None:
    """Refuse at once what is certain not to fit: every byte of text becomes two."""
    if settings.tokenizer != "bytes":
        return
    left = [part for part in parts if read_record(out, part.number) is None]
    texts = [each for part in left for each in part.slices if each.source.kind is Kind.TEXT]
    need = 2 * sum(each.size_bytes for each in texts)
    free = shutil.disk_usage(out).free
    if need > free:
        what = f"the tokens need {format_bytes(need)}; {format_bytes(free)} are free here"
        fix = "free some space, choose another --out, or use --tokenizer bpe:8192, which needs less"
        raise InputError(what, fix=fix, where=str(out))


# -- the tokenizer ------------------------------------------------------------------------------


def _given(settings: Settings) -> Tokenizer:
    return find_tokenizer(settings.tokenizer, end=settings.end_token)


def _tokenizer(
    parts: Sequence[Part], out: Path, settings: Settings, given: Tokenizer | None, watch: Watch
) -> Tokenizer:
    """The tokenizer, in the folder for all processes: given, trained before, or trained now."""
    if given is not None:
        given.save(out)
        return given
    if not (out / FILE).is_file():
        size = bpe_size(settings.tokenizer)
        assert size is not None
        train_bpe(_sample(parts, settings.field, watch), size).save(out)
    work = Work(
        folder=out,
        tokenizer=settings.tokenizer,
        end_token=settings.end_token,
        field=settings.field,
        validation=settings.validation,
    )
    return tokenizer_of(work)


def _sample(parts: Sequence[Part], field: str, watch: Watch) -> Iterator[str]:
    """The beginning of every part, so that all of the input has a say."""
    each_bytes = TOKENIZER_SAMPLE // len(parts)
    total = sum(min(part.size_bytes, each_bytes) for part in parts)
    done = 0
    for part in parts:
        read = 0
        for each in part.slices:
            for piece in read_slice(each, field):
                if isinstance(piece.content, str):
                    yield piece.content
                read += piece.size_bytes
                watch("tokenizer", min(done + read, total), total)
                if read >= each_bytes:
                    break
            if read >= each_bytes:
                break
        done += min(read, each_bytes)
