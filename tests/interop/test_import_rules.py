"""An import asks the question that the tool would run: batches, chips and degrees by the tool's own rules."""

import json

import pytest

from foretell.api.launches import FREED, read_launch, read_question
from foretell.catalog import model as catalog_model
from foretell.errors import BadInput
from foretell.interop.layouts import megatron_text, sizes_of_text, uneven_sizes, word_of
from foretell.specs.plan import parse_plan
from foretell.specs.plan_forms import layout_form, layout_sizes
from foretell.workload.parameters import count
from tests.surfaces.command import foretell

SHAPE = (
    "pretrain_gpt.py --num-layers 48 --hidden-size 6144 --num-attention-heads 48 --seq-length 4096 --bf16 "
    "--max-position-embeddings 4096 --vocab-size 128256 --micro-batch-size 1 "
)
TITAN = (
    "[training]\nlocal_batch_size = 1\nglobal_batch_size = -1\nseq_len = 4096\n"
    "[parallelism]\ntensor_parallel_degree = 2\n[model]\nname='llama3'\nflavor='8B'\n"
)
NEMO = (
    "trainer.devices=8 trainer.num_nodes=4 trainer.precision=bf16-mixed "
    "model.tensor_model_parallel_size=4 model.micro_batch_size=1 model.global_batch_size=64 "
    "model.encoder_seq_length=4096"
)
SPEED = (
    "deepspeed --num_gpus 8 --num_nodes 4 train.py --bf16 true "
    "--train_micro_batch_size_per_gpu 1 --gradient_accumulation_steps 2"
)


def test_shape_beats_tokenizer() -> None:
    launch = read_launch(SHAPE + "--tokenizer-model meta-llama/Llama-3.1-8B --nproc_per_node 8")
    assert launch.models == ()
    assert launch.table is not None
    model = catalog_model(launch.table)
    assert (len(model.stack.layers), model.stack.hidden) == (48, 6144)
    assert model.id == "megatron-48x6144"


def test_a_tokenizer_names_a_model_of_the_same_shape() -> None:
    text = (
        "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear "
        "--position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256 "
        "--tokenizer-model meta-llama/Llama-3.1-8B --micro-batch-size 1 --bf16 --nproc_per_node 8"
    )
    # A tokenizer alone names no model where the flags describe one: the description counts.
    launch = read_launch(text)
    assert launch.table is not None
    assert count(catalog_model(launch.table)).total == count(catalog_model("llama-3.1-8b")).total


@pytest.mark.parametrize(
    ("text", "gpus", "batch", "chips"),
    [
        # torchtitan: global -1 is local x replicas.
        (
            TITAN, 64, 32, 64,
        ),
        # DeepSpeed: micro-batch x accumulation x replicas.
        (
            json.dumps({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                        "bf16": {"enabled": True}}),
            64, 512, 64,
        ),
        # Megatron: one micro-batch of each replica where no global batch is told.
        (
            SHAPE + "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 "
            "--nproc_per_node 8 --nnodes 16",
            None, 8, 128,
        ),
        # NeMo: devices are those of a node.
        (
            NEMO, None, 64, 32,
        ),
        # The deepspeed launcher counts the GPUs of a node.
        (
            SPEED, None, 64, 32,
        ),
    ],
)  # fmt: skip
def test_batches_and_chips_by_the_tools_own_rules(
    text: str, gpus: int | None, batch: int, chips: int
) -> None:
    launch = read_launch(text, gpus=gpus)
    assert (launch.global_batch, launch.gpus) == (batch, chips)


def test_degrees_by_hand_change_the_replicas_that_share_a_batch() -> None:
    text = SHAPE + "--tensor-model-parallel-size 4 --nproc_per_node 8 --nnodes 2"
    assert read_launch(text).global_batch == 4
    assert read_launch(text, plan="tp8").global_batch == 2
    assert read_launch(text, gpus=64).global_batch == 16


def test_chips_that_the_degrees_do_not_divide_are_refused() -> None:
    with pytest.raises(BadInput, match="does not divide 12 GPUs"):
        read_launch(SHAPE + "--tensor-model-parallel-size 8 --nproc_per_node 12")


@pytest.mark.parametrize("backend", ["deepep", "mooncake", "flashinfer"])
def test_sglang_spreads_experts_over_all_ranks(backend: str) -> None:
    start = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 "
    launch = read_launch(start + f"--moe-a2a-backend {backend}")
    assert "ep16" in launch.plan.split()
    row = next(row for row in launch.values if row.name == "ep")
    assert (row.origin, row.key) == ("file", "moe_a2a_backend")


def test_what_is_not_understood_stops_an_import() -> None:
    text = (
        SHAPE
        + "--nproc_per_node 8 --use-megatron-fsdp --my-own-batch-rule 3 --recompute-granularity full"
    )
    done = foretell("estimate", "--import", text, "--system", "h100-sxm")
    assert (done.code, done.out) == (2, "")
    assert "my_own_batch_rule is not known here" in done.err
    assert "--accept-unknown" in done.err
    done = foretell("estimate", "--import", text, "--system", "h100-sxm", "--accept-unknown")
    assert done.code == 0, done.err


def test_a_variable_that_the_text_does_not_set_stops_an_import() -> None:
    text = "pretrain_gpt.py --tensor-model-parallel-size $TP --bf16 --nproc_per_node 8 --seq-length 4096"
    with pytest.raises(BadInput, match="TP is not set in the file"):
        read_question(text, {"model": "llama-3.1-8b"})


def test_every_value_says_where_it_comes_from() -> None:
    text = "#!/bin/bash\n" + SHAPE.replace(" --seq", " \\\n --seq") + "\\\n --nproc_per_node 8"
    asked = read_question(text, {"gpus": 16, "plan": "tp2", "system": "h100-sxm", "model": None})
    rows = {row.name: row for row in asked.rows}
    assert (rows["tp"].origin, rows["tp"].value) == ("flag", "tp2")
    assert (rows["gpus"].origin, rows["gpus"].value) == ("flag", "16")
    assert (rows["seq_len"].origin, rows["seq_len"].line) == ("file", 3)
    assert rows["gradients"].origin == "tool default"
    assert (rows["global_batch"].value, rows["global_batch"].key) == ("8", "micro_batch_size")
    # Every word of the plan that is asked about is in the table.
    plan = parse_plan(asked.arguments["plan"], 16)
    assert (plan.tp, plan.dp) == (2, 8)
    names = {row.name for row in asked.rows}
    assert {"tp", "pp", "zero", "micro_batch", "precision", "framework", "parameters"} <= names


def test_a_search_keeps_the_recipe_and_frees_the_layout() -> None:
    text = SHAPE + "--tensor-model-parallel-size 4 --nproc_per_node 8 --recompute-granularity full"
    asked = read_question(text, {"model": None, "plan": "zero1"}, free=FREED)
    words = asked.arguments["plan"].split()
    assert {"zero1", "precision=bf16", "gradients=fp32"} <= set(words)
    assert not any(word.startswith(("tp4", "recompute", "mbs")) for word in words)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("Et*3|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),
        ("Et|t|t|tL", [1, 1, 1, 1]),
        ("E|(t|)*3L", [0, 1, 1, 1, 0]),
        ("t*5000000|", None),
        ("Ex|t", None),
    ],
)
def test_layouts_of_megatron(text: str, sizes: list[int] | None) -> None:
    assert sizes_of_text(text) == sizes


@pytest.mark.parametrize("word", ["7,8*14,7", "3,2*29,0", "1*8", "0,5", "2"])
def test_a_layout_is_written_and_read_back(word: str) -> None:
    assert layout_form(word) == word
    assert sizes_of_text(megatron_text(word)) == list(layout_sizes(word))
    assert word_of(list(layout_sizes(word))) == word


def test_first_and_last_stages_of_their_own() -> None:
    assert uneven_sizes(126, 16, 1, (None, None), (True, True)) == [7, *[8] * 14, 7]
    assert uneven_sizes(61, 4, 1, (14, 15), (False, False)) == [14, 16, 16, 15]
    assert uneven_sizes(62, 4, 1, (14, 15), (False, False)) is None
    assert uneven_sizes(32, 2, 2, (12, None), (False, False)) == [6, 10, 6, 10]


def test_torchtitan_without_checkpointing_is_without_it() -> None:
    off = read_launch(TITAN + "[activation_checkpoint]\nmode = 'none'\n")
    assert "recompute=none" in off.plan.split()
    row = next(one for one in off.values if one.name == "recompute")
    assert (row.key, row.origin, row.line) == ("activation_checkpoint.mode", "file", 11)


def test_what_several_keys_decide_names_those_that_decided() -> None:
    launch = read_launch(SHAPE + "--fp8-format hybrid --fp8-recipe blockwise --nproc_per_node 8")
    assert {"precision=fp8", "scaling=block"} <= {*launch.plan.split()}
    rows = {one.name: one.key for one in launch.values}
    assert rows["scaling"] == "fp8_recipe"
    assert "fp8_format" in rows["precision"]
