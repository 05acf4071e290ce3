"""The options of `yard plan`, by what they are about, in the order of its help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

#: Ranked plans to show where nobody says how many.
TOP = 5

#: As many as an answer has (`MOST_PLANS` of `plan/solve.py`, which takes longer to import).
MOST_TOP = 10
LAUNCHERS = ("yard", "fsdp", "deepspeed", "megatron")


def _text(name: str, metavar: str, words: str) -> click.Option:
    """An option whose text is read later, with all others, so that all mistakes come at once."""
    return click.Option([name], metavar=metavar, help=words)


def _number(name: str, words: str) -> click.Option:
    return _text(name, "N", words)


def _flag(name: str, words: str) -> click.Option:
    return click.Option([name], is_flag=True, default=None, help=words)


def _either(name: str, words: str) -> click.Option:
    """A part of the layout that can be fixed to be there or not, or left to the search."""
    return click.Option([f"--{name}/--no-{name}"], default=None, help=words)


def _path(name: str, words: str, metavar: str = "FILE") -> click.Option:
    return click.Option([name], type=click.Path(path_type=Path), metavar=metavar, help=words)


SECTIONS: Mapping[str, Sequence[click.Option]] = {
    "The run": (
        _text("--devices", "64xH100", "Devices to use at most: 64xH100, 64xH100+32xA100."),
        _text("--cluster", "FILE", "A cluster file or its shorthand, instead of --devices."),
        _text("--tokens", "300B", "Tokens to train on. [default: 20 for each parameter]"),
        _text(
            "--sequence", "N", "Tokens of a sequence. [default: what the model has, at most 4,096]"
        ),
        _text("--target", "N", "Tokens of the decoder's sequence, for encoder–decoders."),
        _text("--batch", "N", "Sequences per step, or '4M tokens'. [default: chosen]"),
        _text("--precision", "P", "bf16, fp16, tf32, fp32 or fp8. [default: chosen by device]"),
        _text(
            "--software",
            "S",
            "What trains it: huggingface, megatron, nemo, torchtitan, jax …, or how it works: "
            "eager, fused, tuned, compiled. [default: that of --launch, or not known]",
        ),
        _text("--lora", "RANK", "Train adapters of this rank beside frozen weights."),
        _text("--qlora", "RANK", "The same beside weights in four bits."),
        _text("--lora-targets", "A,B", "Matrices that get adapters, joined by commas."),
    ),
    "Limits and aims": (
        _text("--deadline", "10d", "The run ends within this time."),
        _text("--budget", "50k", "The run costs at most so many US dollars."),
        _text("--max-loss", "2.2", "The run reaches this loss."),
        _text("--memory-risk", "0.1", "Probability of running out of memory that is acceptable."),
        _flag("--cheapest", "The cheapest plan that keeps the limits, instead of the fastest."),
        _flag("--spot", "Spot instances: cheaper, and taken away now and then."),
        _flag("--mixed", "One run may use several kinds of devices at once."),
    ),
    "The model in numbers, instead of MODEL": (
        _number("--layers", "Blocks; of the encoder where there is a decoder too."),
        _number("--hidden", "Width."),
        _number("--heads", "Attention heads."),
        _number("--kv-heads", "Key and value heads. [default: as many as heads]"),
        _number("--head-size", "Width of a head. [default: hidden / heads]"),
        _number("--ffn", "Inner width of the feed-forward part. [default: 4 × hidden]"),
        _number("--vocab", "Size of the vocabulary."),
        _either("gated", "Three matrices in the feed-forward part."),
        _either("tied", "Output matrix and embedding are one."),
        _number("--experts", "Routed experts of a layer."),
        _number("--experts-per-token", "How many of them serve a token."),
        _number("--expert-ffn", "Inner width of an expert."),
        _text("--kind", "K", "decoder, encoder or encoder-decoder."),
        _number("--decoder-layers", "Blocks of the decoder in an encoder–decoder."),
        _number("--longest", "The longest sequence that the model can read."),
    ),
    "Parts of the layout that are settled": (
        _number("--tensor", "Tensor-parallel degree."),
        _number("--pipeline", "Pipeline stages."),
        _number("--virtual", "Model chunks of a stage (interleaved 1F1B)."),
        _number("--context", "Context-parallel degree."),
        _number("--expert", "Expert-parallel degree."),
        _number("--data", "Data-parallel replicas."),
        _text("--sharding", "S", "none, zero1, zero2 or zero3 (fsdp)."),
        _number("--micro-batch", "Sequences of a micro-batch."),
        _number("--accumulation", "Micro-batches of a step."),
        _either("sequence-parallel", "Divide norms and dropout over the tensor group."),
        _text("--recompute", "R", "none, selective or full."),
        _number("--recompute-layers", "Blocks of each stage or chunk that full recomputes."),
        _either("flash", "Attention that never stores its scores."),
        _either("compiled", "Kernels fused by a compiler."),
        _number("--servers", "Parameter servers beside the workers."),
    ),
    "What is known": (
        _path("--prices", "CSV of prices (kind, usd_per_hour, spot_usd_per_hour)."),
        _path("--pilots", "CSV of small runs on your data: the law of loss is fitted to them."),
        _path("--calibration", "What `yard calibrate` measured on your machines."),
        _text("--mtbf", "TIME", "Mean time between failures of one device, or none."),
        _text("--checkpoint-time", "TIME", "What a checkpoint costs. [default: 60s]"),
        _text("--restart-time", "TIME", "What a restart costs. [default: 5m]"),
    ),
    "Answers": (
        click.Option(
            ["--what-if"],
            multiple=True,
            metavar="devices=+8xH100",
            help="Plan once more with this change, and show the difference; may be repeated.",
        ),
        click.Option(
            ["--top"],
            type=click.IntRange(1, MOST_TOP),
            default=TOP,
            show_default=True,
            help="Ranked plans to show.",
        ),
        click.Option(
            ["--launch"],
            type=click.Choice(LAUNCHERS),
            help="Print settings that start the best plan, or write them with --out.",
        ),
        _path("--out", "Folder for the files of --launch.", metavar="DIR"),
        _path("--report", "Write an HTML report."),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
            help="A table for people or JSON for programs.",
        ),
    ),
}

#: Parameters that say how to answer, and are no words of the question.
ANSWERING = frozenset({"what_if", "top", "launch", "out", "report", "output"})


#: Parameters that `yard plan fit` does not share: it searches the layout itself.
NOT_FOR_FIT = frozenset(
    option.name or "" for option in SECTIONS["Parts of the layout that are settled"]
)


def parameters() -> list[click.Parameter]:
    """The model and all options."""
    model = click.Argument(["model"], required=False, default="")
    return [model, *(option for options in SECTIONS.values() for option in options)]
