"""How fast text becomes tokens and tokens become batches, per core, beside the usual ways.

    python benchmarks/data.py [TEXT] [--quick]

TEXT is a UTF-8 file, best of some 100 MB; without one, the pages of this project stand in for it.
Times are of the processor, in one process, so that other programs disturb them little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# Before the library is imported: one core is measured.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

from modelyard.train.data.packing import PackedSamples
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.data.tokenizer import load_bpe
from modelyard.train.data.tokens import TokenSamples

REPOSITORY = Path(__file__).resolve().parents[1]
SEQUENCE, BATCH = 256, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="?", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = chosen.text or own_pages(folder / "pages.txt", copies=2 if chosen.quick else 40)
        measure(text, folder, batches=20 if chosen.quick else 400)


def measure(text: Path, folder: Path, *, batches: int) -> None:
    size = text.stat().st_size
    print(f"{size / 1e6:.1f} MB of text, one core, MB per second of the processor")
    taken = spent(lambda: made(text, folder / "bytes", "bytes"))
    print(f"  bytes, text to files             {size / taken / 1e6:8.1f}")
    taken = spent(lambda: made(text, folder / "trained", "bpe:8192"))
    print(f"  bpe:8192 with its training       {size / taken / 1e6:8.1f}")
    tokenizer = str(folder / "trained" / "tokenizer.json")
    taken = spent(lambda: made(text, folder / "bpe", tokenizer))
    print(f"  bpe:8192, text to files          {size / taken / 1e6:8.1f}")
    compare_tokenizers(text, Path(tokenizer))
    compare_reading(folder / "bpe", batches)


def compare_tokenizers(text: Path, path: Path) -> None:
    tokenizer = load_bpe(path)
    content = text.read_text(encoding="utf-8")[:8_000_000]
    pieces = [content[start : start + (1 << 20)] for start in range(0, len(content), 1 << 20)]
    size = len(content.encode())
    ours = spent(lambda: [tokenizer.encode([piece]) for piece in pieces])
    library = tokenizer.library
    theirs = spent(lambda: [library.encode_batch_fast([piece])[0].ids for piece in pieces])
    print(f"  bpe:8192, tokens alone           {size / ours / 1e6:8.1f}")
    print(f"  the same by `tokenizers` alone   {size / theirs / 1e6:8.1f}   ×{theirs / ours:.1f}")


def compare_reading(folder: Path, batches: int) -> None:
    print(f"samples of {SEQUENCE} tokens per second of the processor, {BATCH} at a time, shuffled")
    samples = TokenSamples(folder, SEQUENCE)
    packed = PackedSamples(folder, SEQUENCE)
    luck = np.random.default_rng(0)
    wanted = [luck.integers(0, samples.size, BATCH) for _ in range(batches)]
    some = [luck.integers(0, packed.size, BATCH) for _ in range(batches)]
    shard = max(samples.header.shards["train"], key=lambda each: each.tokens)
    plain = np.memmap(folder / f"{shard.name}.tokens", dtype="<u2", mode="r")
    starts = [luck.integers(0, len(plain) - SEQUENCE - 1, BATCH) for _ in range(batches)]
    ways: tuple[tuple[str, Callable[[], object]], ...] = (
        ("TokenSamples", lambda: [samples.read(ids) for ids in wanted]),
        ("PackedSamples", lambda: [packed.read(ids) for ids in some]),
        ("slices of one memmap, stacked", lambda: [sliced(plain, each) for each in starts]),
    )
    for name, way in ways:
        way()
        print(f"  {name:<30} {batches * BATCH / spent(way):10,.0f}")


def sliced(tokens: np.memmap, starts: np.ndarray) -> np.ndarray:
    """As small training scripts do it."""
    rows = [tokens[start : start + SEQUENCE + 1].astype(np.int64) for start in starts]
    return np.stack(rows)


def made(text: Path, out: Path, tokenizer: str) -> None:
    settings = Settings(tokenizer=tokenizer, validation=0.01)
    prepare([str(text)], out, settings, workers=1, watch=lambda *_: None)


def own_pages(path: Path, *, copies: int) -> Path:
    pages = sorted((REPOSITORY / "docs").rglob("*.md"))
    sonnets = REPOSITORY / "examples" / "sonnets.txt"
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*pages, sonnets])
    path.write_text(text * copies, encoding="utf-8")
    return path


def spent(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


if __name__ == "__main__":
    main()
