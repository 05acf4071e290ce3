"""Settings that start a plan: consistent with it, readable by their tools, or refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from modelyard.errors import InputError
from modelyard.plan.launch.launchers import LAUNCHERS, PINS, launch
from modelyard.plan.request import Pins
from modelyard.plan.solve import solve
from modelyard.simulate.readers.gavel import read_gavel
from modelyard.simulate.readers.source import read_source
from modelyard.spec.adapters import lora
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.spec.devices import Precision
from modelyard.spec.job import parse_job
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.zoo import find_model


@pytest.fixture(scope="module")
def planned(asked, knowledge):
    """A plan of some request; with another layout where the test needs a certain one."""
    plans = {}

    def make(model="llama2-7b", devices="16xH100", layout=None, **options):
        key = (model, devices, repr(options))
        if key not in plans:
            request = asked(model, devices, tokens=1e8, **options)
            plans[key] = (solve(request, knowledge).plans[0], request)
        plan, request = plans[key]
        return (replace(plan, layout=layout) if layout else plan), request

    return make


def options_of(command):
    words = shlex.split(command.replace("\\\n", " "))
    return {
        word: words[at + 1] if at + 1 < len(words) else ""
        for at, word in enumerate(words)
        if word.startswith("--")
    }


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b", "t5-base", "bert-large"])
def test_the_yards_job_can_be_read_back(planned, model):
    plan, request = planned(model, "64xH100")
    job = parse_job(launch(plan, request, "yard").files["job.yaml"])
    assert job.devices.min == job.devices.max == plan.devices
    assert job.kinds == (plan.pool.kind,)
    assert job.batch == plan.layout.global_batch
    assert job.steps == plan.steps
    assert job.duration == pytest.approx(plan.run_seconds.value, rel=0.02, abs=2)


def test_strange_names_stay_one_word(planned):
    plan, request = planned()
    name = "../my model; rm -rf $HOME: 'x'\n"
    named = replace(request, model=replace(request.model, name=name))
    job = parse_job(launch(plan, named, "yard").files["job.yaml"])
    assert job.model.strip() == name.strip()
    for tool in ("fsdp", "deepspeed", "megatron"):
        layout = Layout(data=16, sharding=Sharding.ZERO3)
        assert "rm -rf" not in launch(replace(plan, layout=layout), named, tool).command


def test_deepspeeds_batches_agree(planned):
    layout = Layout(data=16, sharding=Sharding.ZERO2, micro_batch=4, accumulation=3)
    plan, request = planned(layout=layout)
    settings = launch(plan, request, "deepspeed")
    found = json.loads(settings.files["deepspeed.json"])
    assert found["train_batch_size"] == 16 * 4 * 3
    assert found["train_micro_batch_size_per_gpu"] == 4
    assert found["gradient_accumulation_steps"] == 3
    assert found["zero_optimization"]["stage"] == 2
    assert found["bf16"]["enabled"] is True
    words = options_of(settings.command)
    assert words["--per_device_train_batch_size"] == "4"
    assert words["--num_nodes"] == "2"


@pytest.mark.parametrize(
    ("sharding", "strategy"),
    [(Sharding.ZERO2, "shard_grad_op auto_wrap"), (Sharding.ZERO3, "full_shard auto_wrap")],
)
def test_fsdp_shards_as_planned(planned, sharding, strategy):
    layout = Layout(data=16, sharding=sharding, recompute=Recompute.FULL, micro_batch=2)
    plan, request = planned(layout=layout)
    settings = launch(plan, request, "fsdp")
    words = options_of(settings.command)
    assert words["--fsdp"] == strategy
    assert (words["--nnodes"], words["--nproc-per-node"]) == ("2", "8")
    assert "--gradient_checkpointing" not in words
    assert json.loads(settings.files["fsdp.json"])["activation_checkpointing"] is True


def test_plain_data_parallelism_needs_no_fsdp(planned):
    plan, request = planned(layout=Layout(data=8, recompute=Recompute.FULL))
    settings = launch(plan, request, "fsdp")
    assert settings.files == {}
    assert options_of(settings.command)["--gradient_checkpointing"] == "True"


@pytest.mark.parametrize(
    ("tool", "layout", "part"),
    [
        ("fsdp", Layout(data=8, tensor=2), "not by tensor (2)"),
        ("fsdp", Layout(data=16, sharding=Sharding.ZERO1), "no ZeRO-1"),
        ("deepspeed", Layout(data=4, tensor=2, pipeline=2), "not by pipeline (2)"),
        ("deepspeed", Layout(data=16, context=2), "not by context (2)"),
        ("deepspeed", Layout(data=16, precision=Precision.FP8), "fp8"),
        ("fsdp", Layout(data=16, recompute=Recompute.SELECTIVE), "whole blocks"),
        ("megatron", Layout(data=8, pipeline=2, sharding=Sharding.ZERO3), "pipeline of 2"),
        ("megatron", Layout(data=16, compiled=True), "compile"),
        ("megatron", Layout(data=16, servers=2), "parameter servers"),
    ],
)
def test_what_a_tool_cannot_express_is_refused(planned, tool, layout, part):
    plan, request = planned(layout=layout)
    with pytest.raises(InputError) as caught:
        launch(plan, request, tool)
    assert part in str(caught.value)
    assert "Fix: plan with" in str(caught.value)


def test_megatron_says_everything(planned):
    layout = Layout(
        tensor=4,
        pipeline=2,
        virtual=4,
        data=2,
        sharding=Sharding.ZERO1,
        micro_batch=2,
        accumulation=8,
        sequence_parallel=True,
        recompute=Recompute.FULL,
    )
    plan, request = planned("llama3-8b", layout=layout)
    settings = launch(plan, request, "megatron")
    words = options_of(settings.command)
    expected = {
        "--num-layers": "32",
        "--hidden-size": "4096",
        "--num-attention-heads": "32",
        "--num-query-groups": "8",
        "--ffn-hidden-size": "14336",
        "--seq-length": "2048",
        "--tensor-model-parallel-size": "4",
        "--pipeline-model-parallel-size": "2",
        "--num-layers-per-virtual-pipeline-stage": "4",
        "--micro-batch-size": "2",
        "--global-batch-size": "32",
        "--recompute-granularity": "full",
    }
    assert {name: words[name] for name in expected} == expected
    for flag in ("--swiglu", "--bf16", "--sequence-parallel", "--use-distributed-optimizer"):
        assert flag in words
    assert "--fp8-format" not in words


def test_megatron_knows_experts_and_both_stacks(planned):
    layout = Layout(data=64, expert=8, sharding=Sharding.ZERO1)
    plan, request = planned("mixtral-8x7b", "64xH100", layout=layout)
    words = options_of(launch(plan, request, "megatron").command)
    assert (words["--num-experts"], words["--moe-router-topk"]) == ("8", "2")
    assert words["--expert-model-parallel-size"] == "8"
    plan, request = planned("t5-base", "64xH100", layout=Layout(data=8), target=128)
    words = options_of(launch(plan, request, "megatron").command)
    assert (words["--encoder-num-layers"], words["--decoder-seq-length"]) == ("12", "128")
    plan, request = planned("albert-base", "64xH100", layout=Layout(data=8))
    with pytest.raises(InputError, match="share one block"):
        launch(plan, request, "megatron")


@pytest.mark.parametrize("model", ["bloom-7b1", "bloom-560m"])
def test_megatron_refuses_models_with_linear_biases(planned, model):
    plan, request = planned(model, "8xH100", layout=Layout(data=8))
    with pytest.raises(InputError, match="ALiBi") as error:
        launch(plan, request, "megatron")
    assert "--launch fsdp" in str(error.value)
    assert launch(plan, request, "deepspeed").command


def test_adapters(planned):
    tuning = lora(find_model("llama2-7b"), quantised=True)
    plan, request = planned(tuning=tuning, layout=Layout(data=2, sharding=Sharding.ZERO3))
    words = options_of(launch(plan, request, "fsdp").command)
    assert words["--lora_r"] == "16"
    assert words["--lora_target_modules"] == "all-linear"
    assert "--load_in_4bit" in words
    with pytest.raises(InputError, match="not adapters"):
        launch(plan, request, "megatron")


@pytest.mark.parametrize("tool", list(LAUNCHERS))
def test_plans_with_the_tools_pins_can_be_launched(asked, knowledge, tool):
    request = asked("llama2-7b", "16xH100", tokens=1e8, pins=PINS[tool])
    for plan in solve(request, knowledge).plans:
        if tool != "megatron" or plan.layout.sharding in (Sharding.NONE, Sharding.ZERO1):
            assert launch(plan, request, tool).tool == tool


def test_uneven_nodes_become_even_ones(planned):
    plan, request = planned(layout=Layout(data=12, sharding=Sharding.ZERO3))
    words = options_of(launch(plan, request, "fsdp").command)
    assert (words["--nnodes"], words["--nproc-per-node"]) == ("2", "6")


def test_unknown_tools_are_named(planned):
    plan, request = planned()
    with pytest.raises(InputError, match="did you mean 'megatron'"):
        launch(plan, request, "megatron-lm")
    assert Pins() == PINS["yard"]


def test_the_simulator_plays_a_planned_job(asked, knowledge, tmp_path):
    """On the planned devices it takes as long as its steps do."""
    request = asked("llama2-7b", "16xH100", tokens=1e9)
    answer = solve(request, knowledge)
    plan = answer.plans[0]
    for name, text in launch(plan, request, "yard", answer.curve).files.items():
        (tmp_path / name).write_text(text)
    source = read_source(tmp_path / "job.trace")
    (job,) = read_gavel(source, tmp_path / "speed.json", devices_per_node=8).jobs
    here = Footprint("H100", packed_counts(plan.devices, 8))
    seconds = job.work.steps / job.work.speed.goodput(here)
    assert seconds == pytest.approx(plan.steps * plan.step_seconds.value)
    assert job.kinds == ("H100",)


@pytest.mark.parametrize(
    ("devices", "layout", "one_queue"),
    [
        ("16xH100", Layout(tensor=8, data=2), True),
        ("16xH100", Layout(context=2, data=8), True),
        ("16xH100", Layout(data=16), False),
        ("16xH100", Layout(tensor=8, data=2, sharding=Sharding.ZERO3), False),
        ("16xB200", Layout(tensor=8, data=2), False),
    ],
)
def test_megatron_has_one_queue_where_it_asks_for_it(planned, devices, layout, one_queue):
    plan, request = planned(devices=devices, layout=layout)
    command = launch(plan, request, "megatron").command
    assert command.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun ") is one_queue
    assert ("CUDA_DEVICE" in command) is one_queue


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama3-8b", {"--rotary-base": "500000", "--hidden-dropout": "0"}),
        ("gpt2", {"--rotary-base": None, "--hidden-dropout": None}),
        ("t5-base", {"--position-embedding-type": "relative", "--attention-dropout": None}),
        ("bart-base", {"--position-embedding-type": None}),
        ("mistral-7b", {"--position-embedding-type": "rope", "--rotary-base": None}),
    ],
)
def test_megatron_trains_the_same_model(planned, model, expected):
    plan, request = planned(model, "8xH100", layout=Layout(data=8))
    settings = launch(plan, request, "megatron")
    words = options_of(settings.command)
    assert {name: words.get(name) for name in expected} == expected
    notes = " ".join(settings.notes)
    assert "--lr …" in notes
    assert ("check --rotary-base" in notes) is (model == "mistral-7b")


def test_adapters_in_four_bits_are_stored_as_sharded_weights(planned):
    tuning = lora(find_model("llama2-7b"), quantised=True)
    plan, request = planned(tuning=tuning, layout=Layout(data=2, sharding=Sharding.ZERO3))
    for tool in ("fsdp", "deepspeed"):
        words = options_of(launch(plan, request, tool).command)
        assert words["--bnb_4bit_quant_storage"] == "bfloat16"
    plain = replace(plan, layout=Layout(data=2))
    assert "--bnb_4bit_quant_storage" not in launch(plain, request, "fsdp").command
    settings = launch(plan, request, "yard")
    assert "# qlora: adapters of rank 16 beside q, k" in settings.files["job.yaml"]
    assert parse_job(settings.files["job.yaml"]).devices.min == plan.devices
    assert "adapters" in settings.notes[0]


@pytest.mark.parametrize("accumulation", [1, 4])
def test_fsdp_keeps_no_whole_gradients_between_micro_batches(planned, accumulation):
    layout = Layout(data=16, sharding=Sharding.ZERO3, accumulation=accumulation)
    plan, request = planned(layout=layout)
    settings = launch(plan, request, "fsdp")
    words = options_of(settings.command)
    assert words.get("--accelerator_config") == ("accelerator.json" if accumulation > 1 else None)
    for name, text in settings.files.items():
        assert isinstance(json.loads(text), dict), name
    assert ("accelerator.json" in settings.files) is (accumulation > 1)


def test_trainers_are_told_about_clipping_and_attention(planned):
    plan, request = planned(layout=Layout(data=16, sharding=Sharding.ZERO2))
    settings = launch(plan, request, "deepspeed")
    assert json.loads(settings.files["deepspeed.json"])["gradient_clipping"] == "auto"
    for tool in ("fsdp", "deepspeed"):
        assert "flash_attention_2" in " ".join(launch(plan, request, tool).notes)
    plain = replace(plan, layout=Layout(data=16, flash=False))
    assert "flash_attention_2" not in " ".join(launch(plain, request, "fsdp").notes)


@pytest.mark.parametrize(
    ("tool", "layout", "fix"),
    [
        ("fsdp", Layout(data=16, recompute=Recompute.SELECTIVE), "--recompute full"),
        ("fsdp", Layout(data=8, tensor=2), "--tensor 1"),
        ("megatron", Layout(data=16, compiled=True), "--no-compiled"),
    ],
)
def test_fixes_fix(planned, tool, layout, fix):
    plan, request = planned(layout=layout)
    with pytest.raises(InputError) as caught:
        launch(plan, request, tool)
    assert [fix in problem.fix for problem in caught.value.problems] == [True]


def test_adapters_are_for_other_tools_than_megatron(planned):
    tuning = lora(find_model("llama2-7b"))
    plan, request = planned(tuning=tuning, layout=Layout(data=2))
    with pytest.raises(InputError) as caught:
        launch(plan, request, "megatron")
    assert "--launch fsdp" in caught.value.problems[0].fix
