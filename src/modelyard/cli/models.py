"""`yard models`: the zoo, or everything about one model."""

from __future__ import annotations

from typing import Any

import click

from modelyard.cli.output import counted, output_option, print_json, print_table
from modelyard.spec.adapters import target_names
from modelyard.spec.model import Model
from modelyard.spec.model_source import load_model
from modelyard.spec.zoo import ZooEntry, entries, find_entry, find_model, zoo
from modelyard.units import format_count

LEGEND = (
    "All about one model, or a config.json of your own: yard models NAME|PATH\n"
    "Part of a name lists what has it: yard models --like llama"
)


@click.command(
    epilog="Examples: yard models · yard models --like qwen3 · yard models llama3-8b · "
    "yard models ./my-model/config.json -o json"
)
@click.argument("model", required=False)
@click.option("--like", metavar="TEXT", help="List only models with this in a name.")
@output_option
def models(model: str | None, like: str | None, output: str) -> None:
    """List the models that the yard knows, or show one: its shape, and parameters by part.

    MODEL is a name of the list (case and punctuation do not matter, and neither does the owner:
    "meta-llama/Llama-2-7b-hf" works), a Hugging Face config.json, or a folder that has one.
    """
    if model is not None and like is not None:
        raise click.UsageError("name a model or use --like, not both")
    if model is not None:
        show_one(model, output)
        return
    chosen = [found for found in zoo() if like is None or _is_like(found.name, like)]
    if output == "json":
        print_json([as_json(item) for item in chosen])
        return
    if not chosen:
        click.echo(f"no model has '{like}' in a name")
        return
    print_zoo(chosen)


def show_one(text: str, output: str) -> None:
    """Everything about one model."""
    found = load_model(text)
    if output == "json":
        print_json(as_json(found))
    else:
        print_model(found)


def as_json(model: Model) -> dict[str, Any]:
    """A model for programs: parts that it does not have are 0."""
    entry = _entry(model)
    counts = model.parameters
    return {
        "name": model.name,
        "aliases": list(entry.aliases) if entry else [],
        "model_type": entry.model_type if entry else None,
        "kind": str(model.kind),
        "layers": model.layers,
        "decoder_layers": model.decoder_layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_size": model.head_size,
        "value_size": model.value_size,
        "ffn": model.ffn,
        "gated": model.gated,
        "vocab": model.vocab,
        "tied": model.tied,
        "longest": model.longest,
        "window": model.window,
        "windowed_share": model.windowed_share,
        "experts": model.experts,
        "experts_per_token": model.experts_per_token,
        "expert_ffn": model.expert_ffn,
        "shared_ffn": model.shared_ffn,
        "dense_layers": model.dense_layers,
        "repeats": model.repeats,
        "parameters": {
            "total": counts.total,
            "active": model.active_parameters,
            "embedding": counts.embedding,
            "attention": counts.attention,
            "mlp": counts.mlp,
            "experts": counts.experts,
            "head": counts.head,
        },
        "adapter_targets": list(target_names(model)),
        "source": entry.source if entry else "",
    }


def print_zoo(chosen: list[Model]) -> None:
    """One line per model."""
    numbers = ("parameters", "active", "layers", "hidden", "heads", "kv", "ffn", "vocab")
    print_table(
        ("model", "kind", *numbers),
        [
            (
                item.name,
                str(item.kind),
                format_count(item.parameters.total),
                format_count(item.active_parameters) if item.experts else "",
                _layers(item),
                str(item.hidden),
                str(item.heads),
                str(item.kv_heads),
                f"{item.experts}x{item.expert_ffn}" if item.experts else str(item.ffn),
                str(item.vocab),
            )
            for item in chosen
        ],
        numbers=numbers,
    )
    click.echo(f"{counted(len(chosen), 'model')}. {LEGEND}")


def print_model(item: Model) -> None:
    """Everything about one model, one fact per line."""
    entry, counts = _entry(item), item.parameters
    parts = (
        ("embedding", counts.embedding),
        ("attention", counts.attention),
        ("mlp", counts.mlp),
        ("experts", counts.experts),
        ("head", counts.head),
    )
    facts = [
        ("model", item.name),
        ("also called", ", ".join(entry.aliases) if entry else ""),
        ("kind", str(item.kind)),
        ("layers", _layers(item) + (f", one block {item.repeats} times" if _shared(item) else "")),
        ("hidden", f"{item.hidden:,}"),
        ("heads", _heads(item)),
        ("ffn", _ffn(item)),
        ("experts", _experts(item)),
        ("vocabulary", f"{item.vocab:,}, output {'tied' if item.tied else 'not tied'} to input"),
        ("longest sequence", f"{item.longest:,}" if item.longest else ""),
        ("window", _window(item)),
        ("parameters", f"{counts.total:,} ({format_count(counts.total)})"),
        ("per token", f"{item.active_parameters:,}" if item.experts else ""),
        *(
            (f"  {name}", f"{count:>{len(f'{counts.total:,}')},}  {count / counts.total:6.1%}")
            for name, count in parts
            if count
        ),
        ("adapters beside", ", ".join(target_names(item))),
        ("counted as", entry.counted_as if entry else ""),
        ("source", entry.source if entry else ""),
    ]
    width = max(len(label) for label, text in facts if text)
    for label, text in facts:
        if text:
            click.echo(f"{label:<{width}}  {text}")


def _entry(model: Model) -> ZooEntry | None:
    """The row of the zoo, unless this model only shares its name with one of there."""
    return find_entry(model.name) if find_model(model.name) == model else None


def _is_like(name: str, text: str) -> bool:
    found = next(entry for entry in entries() if entry.name == name)
    wanted = text.casefold()
    return any(wanted in one.casefold() for one in (found.name, *found.aliases))


def _shared(item: Model) -> bool:
    return item.repeats > 1


def _layers(item: Model) -> str:
    return f"{item.layers}+{item.decoder_layers}" if item.decoder_layers else str(item.layers)


def _heads(item: Model) -> str:
    sizes = f"of {item.head_size}"
    if item.value_size != item.head_size:
        sizes += f", values of {item.value_size}"
    if item.kv_heads == item.heads:
        return f"{item.heads} {sizes}"
    return f"{item.heads} {sizes}, {item.kv_heads} of keys and values"


def _ffn(item: Model) -> str:
    if not item.ffn:
        return ""
    where = f", in {counted(item.dense_layers, 'layer')}" if item.experts else ""
    return f"{item.ffn:,}{', gated' if item.gated else ''}{where}"


def _experts(item: Model) -> str:
    if not item.experts:
        return ""
    shared = f", shared experts of {item.shared_ffn:,}" if item.shared_ffn else ""
    return (
        f"{item.experts} of {item.expert_ffn:,}, {item.experts_per_token} for each token, "
        f"in {counted(item.expert_layers, 'layer')}{shared}"
    )


def _window(item: Model) -> str:
    if not item.window:
        return ""
    return f"{item.window:,} tokens in {item.windowed_share:.0%} of the layers"
