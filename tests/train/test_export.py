"""Exported models give the same logits in transformers, and come back with the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from modelyard.errors import InputError
from modelyard.spec.traits import QueryKeyNorm, RelativeTables
from modelyard.train.export import INDEX_FILE, WEIGHTS_FILE, export_model
from modelyard.train.models.registry import build, shape_of
from modelyard.train.pretrained import load_pretrained

pytest.importorskip("safetensors", reason="needs the package safetensors")

SMALL: dict[str, object] = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 61}
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "gpt2": ("gpt", {**SMALL, "longest": 24}),
    "gpt2 untied, relu": ("gpt", {**SMALL, "longest": 24, "tied": False, "activation": "relu"}),
    "llama": ("gpt", {**SMALL, "gated": True, "kv_heads": 2, "rope_theta": 5e4}),
    "llama tied, wide heads": ("gpt", {**SMALL, "gated": True, "tied": True, "head_size": 12}),
    "mistral": ("gpt", {**SMALL, "gated": True, "kv_heads": 2, "window": 5}),
    "bert": ("bert", {**SMALL, "longest": 24}),
    "t5": ("t5", {**SMALL, "ffn": 48}),
    "t5 gated": ("t5", {**SMALL, "gated": True, "ffn": 48, "tied": True}),
    "t5 untied": ("t5", {**SMALL, "gated": True, "ffn": 48, "tied": False}),
}
#: shapes that plain numbers do not reach: the traits that differ from the shape named first
RELATIVES: dict[str, tuple[str, dict[str, object]]] = {
    "gpt2 without biases": (
        "gpt2",
        {"norm_vectors": 1, "qkv_bias": False, "output_bias": False, "mlp_bias": False},
    ),
    "llama with biases": ("llama", {"qkv_bias": True, "output_bias": True, "mlp_bias": True}),
    "qwen2": ("llama", {"qkv_bias": True}),
    "qwen3": ("llama", {"query_key_norm": QueryKeyNorm.HEAD}),
    "bert for masks alone": ("bert", {"pooler": False, "classes": 0, "token_types": 0}),
    "umt5": ("t5", {"relative_tables": RelativeTables.BLOCK}),
}
ALL = (*SHAPES, *RELATIVES)
ROWS = torch.randint(0, 61, (3, 20), generator=torch.Generator().manual_seed(7))


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _made(name: str) -> torch.nn.Module:
    module = _built(name).eval()
    with torch.no_grad():
        # First weights are too even to tell a swapped matrix, and biases are zero.
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def _built(name: str) -> torch.nn.Module:
    if name in SHAPES:
        return build(*SHAPES[name])
    first, changes = RELATIVES[name]
    model = shape_of(build(*SHAPES[first]))
    assert model is not None
    return build(replace(model, traits=replace(model.traits, **changes)))


def _logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        if hasattr(module, "encoder"):
            return module(ROWS, ROWS[:, :9])
        return module(ROWS)


@pytest.mark.parametrize("name", ALL)
def test_transformers_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the package transformers")
    module = _made(name)
    folder = export_model(module, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    peer_class = getattr(transformers, config["architectures"][0])
    peer, told = peer_class.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert config["model_type"] == name.split()[0]
    with torch.no_grad():
        if "t5" in name:
            theirs = peer.eval()(input_ids=ROWS, decoder_input_ids=ROWS[:, :9]).logits
        else:
            found = peer.eval()(input_ids=ROWS)
            theirs = getattr(found, "prediction_logits", None)
            theirs = found.logits if theirs is None else theirs
    torch.testing.assert_close(_logits(module), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_weights_come_back(name: str, tmp_path: Path) -> None:
    module = _made(name)
    again = load_pretrained(export_model(module, tmp_path / "model"))
    if name in SHAPES:
        # Some relatives come back with biases and types of zero, which change nothing.
        for ours, theirs in zip(module.parameters(), again.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    torch.testing.assert_close(_logits(module), _logits(again.eval()))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5 gated", "t5 untied"])
def test_what_transformers_saved_is_loaded(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the package transformers")
    folder = export_model(_made(name), tmp_path / "first")
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    peer = getattr(transformers, architecture).from_pretrained(folder)
    peer.save_pretrained(tmp_path / "second")
    again = load_pretrained(tmp_path / "second").eval()
    torch.testing.assert_close(_logits(again), _logits(load_pretrained(folder).eval()))


def test_any_model_of_transformers_trains_by_name(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the package transformers")
    for name in ("llama", "bert", "t5 gated"):
        folder = export_model(_made(name), tmp_path / name.split()[0])
        module = build(f"hf:{folder}")
        optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = module.loss(module.prepare(ROWS, range(3)))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        export_model(module, tmp_path / f"{name.split()[0]}-again")
    with pytest.raises(InputError, match="transformers cannot load"):
        build(f"hf:{tmp_path / 'nothing' / 'here'}")
    with pytest.raises(InputError, match="no field 'widht'"):
        build(f"hf:{tmp_path / 'llama'}", {"widht": 3})


def test_large_models_are_cut_into_files(tmp_path: Path) -> None:
    module = _made("llama")
    folder = export_model(module, tmp_path / "model", most_bytes=20_000)
    index = json.loads((folder / INDEX_FILE).read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 2
    assert not (folder / WEIGHTS_FILE).exists()
    assert torch.equal(_logits(load_pretrained(folder).eval()), _logits(module))


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    folder = export_model(_made("gpt2"), tmp_path / "one", tokenizer=tmp_path)
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}
    with pytest.raises(InputError, match="no tokenizer"):
        export_model(_made("gpt2"), tmp_path / "two", tokenizer=folder / "nowhere")
    assert not (tmp_path / "two").exists()


def test_half_the_bytes_on_request(tmp_path: Path) -> None:
    whole = export_model(_made("gpt2"), tmp_path / "whole")
    half = export_model(_made("gpt2"), tmp_path / "half", dtype="bfloat16")
    sizes = [os.path.getsize(folder / WEIGHTS_FILE) for folder in (whole, half)]
    assert sizes[1] < 0.6 * sizes[0]
    assert next(load_pretrained(half).parameters()).dtype == torch.float32


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="there already"):
        export_model(_made("gpt2"), tmp_path / "full")
    with pytest.raises(InputError, match="cannot be written"):
        export_model(_made("gpt2"), "/proc/nowhere/model")
    with pytest.raises(InputError, match="has no class in transformers"):
        export_model(build("hidden-markov", {"vocab": 5}), tmp_path / "markov")
    with pytest.raises(InputError, match="unknown type of weights"):
        export_model(_made("gpt2"), tmp_path / "model", dtype="int3")
    assert sorted(os.listdir(tmp_path)) == ["full"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from modelyard.train.export import export_model;"
        "from modelyard.train.models.registry import build;"
        "model = build('gpt', {'layers': 1, 'hidden': 64, 'heads': 2, 'vocab': 99, 'longest': 9});"
        "export_model(model, sys.argv[1])"
    )
    # In a process of its own, because a limit on files cannot be lifted again.
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "InputError" in done.stderr
    assert "cannot be written" in done.stderr
    assert os.listdir(tmp_path) == []


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = export_model(_made("llama"), tmp_path / "model")
    tensors = load_file(folder / WEIGHTS_FILE)
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.zeros(3, 32)
    tensors["surplus.weight"] = torch.zeros(1)
    save_file(tensors, folder / WEIGHTS_FILE)
    with pytest.raises(InputError) as caught:
        load_pretrained(folder)
    text = str(caught.value)
    assert len(caught.value.problems) == 3
    assert all(name in text for name in ("model.norm", "up_proj", "surplus"))
    (folder / WEIGHTS_FILE).write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="cannot be read"):
        load_pretrained(folder)
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(InputError, match=r"there is no 'model\.safetensors'"):
        load_pretrained(folder)


def test_scales_that_are_not_computed_here_are_refused(tmp_path: Path) -> None:
    folder = export_model(_made("gpt2"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["scale_attn_by_inverse_layer_idx"] = True
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="'scale_attn_by_inverse_layer_idx' is True"):
        load_pretrained(folder)


def test_positions_that_are_not_computed_here_are_refused(tmp_path: Path) -> None:
    folder = export_model(_made("llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="'yarn' are not built here"):
        load_pretrained(folder)
