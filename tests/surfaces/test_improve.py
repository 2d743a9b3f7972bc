"""`foretell improve`: a launch, its gain, the interval of the gain, and the flags that bring it."""

import difflib
from pathlib import Path
from typing import Any

import pytest

import foretell as package
from foretell.api.improve import freed_fields
from foretell.api.launches import FREED, read_launch
from foretell.errors import BadInput
from foretell.interop.edited_launch import edited_launch
from tests.surfaces.command import foretell

LAUNCHES = Path(__file__).parents[1] / "interop" / "launches"
SLOW = Path(__file__).parents[2] / "examples" / "launch_slow.sh"


@pytest.fixture(scope="module")
def found() -> Any:
    return package.improve(str(SLOW))


def test_a_slow_launch_gains_and_says_how_surely(found: Any) -> None:
    low, high = found.gain_interval["p90"]
    assert 0.0 < low < found.gain < high
    assert found.certain
    assert found.after == pytest.approx(found.before * (1.0 + found.gain))
    inner = found.gain_interval["p50"]
    assert low < inner[0] < found.gain < inner[1] < high


def test_the_flags_to_change_are_those_of_the_tool(found: Any) -> None:
    changes = {one.flag: (one.before, one.after) for one in found.changes}
    assert changes["--recompute-granularity"] == ("full", None)
    assert changes["--pipeline-model-parallel-size"][0] == "8"
    # Flags of the recipe stay.
    assert not {"--bf16", "--global-batch-size", "--seq-length", "--num-layers"} & {*changes}
    assert found.launchable_with == ("megatron-core",)


def test_what_is_exported_is_the_better_plan(found: Any) -> None:
    launch = read_launch(found.export)
    before = read_launch(str(SLOW))
    again = package.estimate(**launch.arguments(), system="h100-sxm")
    assert again.tokens_per_s == pytest.approx(found.after, rel=1e-6)
    assert (launch.global_batch, launch.seq_len) == (before.global_batch, before.seq_len)


def test_words_that_are_not_freed_are_held() -> None:
    told = foretell("improve", str(SLOW), "--free", "recompute mbs", "--json").json
    assert told["plan_after"].startswith("tp8 pp8")
    assert "zero1" in told["plan_after"].split()
    held = foretell("improve", str(SLOW), "--plan", "tp8", "--json").json
    assert held["plan_after"].startswith("tp8")
    assert held["after"] <= foretell("improve", str(SLOW), "--json").json["after"]


def test_fields_that_a_text_frees() -> None:
    assert freed_fields("") == (FREED, ())
    assert freed_fields("tp, mbs")[0] == ("tp", "micro_batch", "dp")
    assert freed_fields("schedule dispatch")[1] == ("schedule", "dispatch")
    with pytest.raises(BadInput, match="precision"):
        freed_fields("precision")


def test_a_launch_as_good_as_it_gets_is_answered_with_no() -> None:
    better = foretell("improve", str(SLOW), "--json").json
    again = foretell("improve", better["export"], "--system", "h100-sxm", "--json")
    assert again.code == 1
    assert again.json["changes"] == []
    assert again.json["gain"] == 0.0


def test_a_launch_that_does_not_fit_is_answered_with_one_that_does() -> None:
    text = (
        "torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --tokenizer-model meta-llama/Llama-3.1-70B "
        "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 --seq-length 8192 --bf16"
    )
    done = foretell("improve", text, "--system", "h100-sxm", "--json")
    assert done.code == 0, done.err
    assert done.json["fits_before"] == "no"
    assert done.json["answer"]["fits"] == "yes"


def test_a_service_is_improved_too() -> None:
    text = "vllm serve meta-llama/Llama-3.1-70B -tp 8 -pp 2 --max-num-seqs 32"
    done = foretell("improve", text, "--system", "h100-sxm")
    assert done.code == 0, done.err
    assert "instances" in done.out
    told = foretell("improve", text, "--system", "h100-sxm", "--json").json
    assert (told["metric"], told["gain"] > 0.0) == ("output_tokens_per_s", True)


def test_an_improved_service_keeps_its_model_and_its_other_flags() -> None:
    text = (
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8 -pp 2 "
        "--max-model-len 8192 --port 9000"
    )
    told = foretell("improve", text, "--system", "h100-sxm", "--json").json
    assert told["export"] == text.replace(" -pp 2", "")
    assert any("--export vllm writes all of them" in note for note in told["export_notes"])
    asked = ("--system", "h100-sxm", "--export", "vllm", "--json")
    fleet = foretell("improve", text, *asked).json["export"]
    assert "serve meta-llama/Llama-3.1-70B-Instruct " in fleet
    assert "--max-model-len 8192" in fleet
    router = next(line for line in fleet.splitlines() if "vllm-router" in line)
    assert router.endswith("--port 9000 &")
    assert not {"--max-model-len", "--port"} & {one["flag"] for one in told["changes"]}


def test_a_service_tells_its_load_and_its_latency() -> None:
    text = "vllm serve meta-llama/Llama-3.1-70B -tp 8 -pp 2 --max-num-seqs 32"
    told = foretell("improve", text, "--system", "h100-sxm", "--isl", "512", "--json").json
    assert told["load"] == {"isl": 512.0, "osl": 256.0, "concurrency": 64.0}
    assert told["latency_after"]["tpot_ms"] == told["answer"]["tpot_ms"]["mean"]
    assert told["latency_before"]["ttft_ms"] != told["latency_after"]["ttft_ms"]
    shown = foretell("improve", text, "--system", "h100-sxm", "--isl", "512").out
    assert "prompts of 512 tokens, answers of 256, 64 requests at a time" in shown
    assert "TTFT" in shown
    assert "TPOT" in shown


@pytest.mark.parametrize(
    "path",
    [SLOW.with_name("launch_verl.sh"), LAUNCHES / "trl_grpo.py", LAUNCHES / "openrlhf_ppo.sh"],
)
def test_reinforcement_learning_is_sent_to_its_own_command(path: Path) -> None:
    done = foretell("improve", str(path), "--system", "h100-sxm")
    assert (done.code, done.out) == (2, "")
    assert "foretell post-train --import FILE" in done.err


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("trl_sft.sh", {"--fsdp"}),
        ("axolotl_lora.yml", {"micro_batch_size", "gradient_accumulation_steps"}),
        ("llamafactory_full.yaml", {"disable_gradient_checkpointing"}),
        ("trainer_clm.sh", {"--gradient_checkpointing", "--fsdp"}),
    ],
)
def test_trainers_on_transformers_are_answered_in_their_own_keys(name: str, own: set[str]) -> None:
    done = foretell(
        "improve", str(LAUNCHES / name), "--system", "h100-sxm", "--gpus", "8", "--json"
    )
    assert done.code == 0, done.err
    keys = {one["flag"] for one in done.json["changes"]}
    assert own <= keys
    assert not any("activation_checkpointing" in key or "autotp" in key for key in keys)
    assert done.json["plan_after"].startswith("tp1 pp1 dp8 ")
    _is_the_file_with_the_better_plan(done.json, LAUNCHES / name)


def _is_the_file_with_the_better_plan(told: dict[str, Any], file: Path) -> None:
    """The user's own file but for the lines that change, and read again it has the better plan's values."""
    text, before = told["export"], file.read_text()
    elsewhere = {note.partition(" is in ")[0] for note in told["export_notes"]}
    assert text
    again, plan = read_launch(text, gpus=8, files=False), told["plan_after"].split()
    words = again.plan.split()
    assert next(word for word in words if word.startswith("mbs")) in plan
    assert again.global_batch == told["answer"]["global_batch"]
    if not elsewhere:
        assert {w for w in words if w.startswith("zero")} <= {*plan}
    keys = {one["flag"].rpartition(".")[2].lstrip("-") for one in told["changes"]}
    kept = [line for line in before.splitlines() if not any(key in line for key in keys)]
    lines = text.splitlines()
    assert all(any(new.startswith(line.rstrip(" \\")) for new in lines) for line in kept)


def test_a_file_of_torchtune_is_changed_and_no_other_tools() -> None:
    file = LAUNCHES / "torchtune_full.yaml"
    done = foretell("improve", str(file), "--system", "h100-sxm", "--gpus", "8", "--json")
    assert done.json["export_tool"] == "torchtune"
    _is_the_file_with_the_better_plan(done.json, file)


def test_keys_in_a_file_beside_the_launch_are_named(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n"
        "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(
        "accelerate launch --config_file acc.yaml --num_processes 8 sft.py "
        "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 "
        "--gradient_accumulation_steps 8 --max_length 2048 --bf16 True --gradient_checkpointing True\n"
    )
    launch = read_launch(script)
    assert (launch.gpus, launch.global_batch) == (8, 64)  # flags count before the file
    assert "zero2" in launch.plan.split()
    told = foretell("improve", str(script), "--system", "h100-sxm", "--json").json
    changed = {one["flag"] for one in told["changes"]}
    assert "--per_device_train_batch_size 1 " not in told["export"]
    if "fsdp_config.fsdp_sharding_strategy" in changed:
        assert "is in acc.yaml: change it there" in " ".join(told["export_notes"])
    # As a text it has no folder: nothing is opened, and that is said.
    closed = read_launch(script.read_text())
    assert any("acc.yaml" in text for text in closed.asks)


def test_accelerate_keeps_the_keys_of_its_second_fsdp() -> None:
    beside = ["--model", "llama-3.1-8b", "--plan", "mbs1", "--seq-len", "4096", "--accept-unknown"]
    file = str(LAUNCHES / "accelerate_fsdp2.yaml")
    told = foretell("improve", file, "--system", "h100-sxm", *beside, "--json").json
    keys = {one["flag"] for one in told["changes"]}
    assert keys
    assert keys <= {
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.fsdp_activation_checkpointing",
        "gradient_accumulation_steps",
    }


def test_a_trainer_has_no_tensor_parallelism_to_free() -> None:
    file = str(LAUNCHES / "trl_sft.sh")
    done = foretell("improve", file, "--system", "h100-sxm", "--free", "tp")
    assert done.code == 2
    assert "allowed: zero, micro_batch, recompute, all" in done.err


def test_an_improved_megatron_launch_keeps_its_data_and_dropout() -> None:
    text = (
        "torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 "
        "--tokenizer-model meta-llama/Llama-3.1-70B-Instruct --pipeline-model-parallel-size 8 --bf16 "
        "--micro-batch-size 1 --global-batch-size 256 --seq-length 8192 --recompute-granularity full "
        "--attention-dropout 0.1 --data-path /corpus/text --lr 3e-4 --train-iters 5000 --save $CHECKPOINTS"
    )
    told = foretell("improve", text, "--system", "h100-sxm", "--json").json
    export = told["export"]
    for kept in (
        "--tokenizer-model meta-llama/Llama-3.1-70B-Instruct ", "--attention-dropout 0.1 ",
        "--data-path /corpus/text ", "--lr 3e-4 ", "--train-iters 5000 ", "--save $CHECKPOINTS",
    ):  # fmt: skip
        assert kept in export, kept
    assert "--mock-data" not in export
    assert not any("placeholders" in note for note in told["export_notes"])
    assert "--attention-dropout" not in {one["flag"] for one in told["changes"]}


@pytest.mark.parametrize(
    "name",
    "nanotron_1b.yaml nemo_llama2_70b.yaml litgpt_pretrain.yaml megatron_llama3_8b_fp8.slurm "
    "torchtitan_llama3_8b.toml deepspeed_zero3.json llamafactory_lora.yaml".split(),
)
def test_only_the_lines_of_the_table_change(name: str) -> None:
    """Every changed line of the user's file has a key of the table, or the variable that its value is."""
    file = LAUNCHES / name
    beside = ["--model", "llama-3.1-8b", "--seq-len", "4096", "--gpus", "32", "--accept-unknown"]
    told = foretell("improve", str(file), "--system", "h100-sxm", *beside, "--json").json
    if told["export"]:
        keys = [
            one["flag"].lstrip("-").rpartition(".")[2].replace("-", "_") for one in told["changes"]
        ]
        old, new = file.read_text().splitlines(), told["export"].splitlines()
        for kind, a, b, c, d in difflib.SequenceMatcher(
            None, old, new, autojunk=False
        ).get_opcodes():
            block = " ".join([*old[a:b], *new[c:d]]).replace("-", "_")
            assert kind == "equal" or any(key in block for key in keys) or "=" in block, block


@pytest.mark.parametrize(
    ("text", "changes", "meant"),
    [
        (
            '  - --tp-size\n  - "4"\n  - --chunked-prefill-size\n  - "8192"\n',
            {"chunked_prefill_size": None, "tp_size": "8"},
            '  - --tp-size\n  - "8"\n',
        ),
        (
            "  - --tp-size=4\n  - --max-num-seqs=$(SEQS)\n",
            {"max_num_seqs": None, "dp_size": "2", "tp_size": "8"},
            "  - --tp-size=8\n  - --dp-size=2\n",
        ),
        (
            'OPTIONS="--bf16 \\\n  --tp 2 \\\n  --checkpoint-activations"\nrun $OPTIONS\n',
            {"checkpoint_activations": None},
            'OPTIONS="--bf16 \\\n  --tp 2"\nrun $OPTIONS\n',
        ),
        (
            'import a\nsize = 1  # each\nload = dict(\n    size=size,\n    gc = "x", # why\n)\n',
            {"size": "4", "gc": "false"},
            "import a\nsize = 4  # each\nload = dict(\n    size=size,\n    gc = False, # why\n)\n",
        ),
    ],
)
def test_a_key_is_changed_where_it_stands(text: str, changes: dict[str, str], meant: str) -> None:
    assert edited_launch(text, changes) == meant


def test_sharding_is_said_by_the_words_of_the_tool() -> None:
    text = (
        '{"model_name_or_path": "meta-llama/Meta-Llama-3-8B", "dataset_name_or_path": "d",\n'
        '"src_length": 64, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 4,\n'
        '"tensor_parallel_degree": 1, "sharding": "stage1", "bf16": true, "recompute": true}'
    )
    told = foretell("improve", text, "--system", "h100-sxm", "--gpus", "8", "--json").json
    assert not {"fsdp", "--fsdp"} & {one["flag"] for one in told["changes"]}


def test_a_launch_of_an_earlier_release_gets_no_flag_of_today() -> None:
    text = (
        "deepspeed --num_nodes 8 --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 48 "
        "--hidden-size 8192 --num-attention-heads 64 --pipeline-model-parallel-size 8 --bf16 "
        "--micro-batch-size 1 --global-batch-size 256 --seq-length 2048 --checkpoint-activations"
    )
    told = foretell("improve", text, "--system", "h100-sxm", "--accept-unknown", "--json").json
    assert told["changes"]
    assert all(one["before"] is not None for one in told["changes"])


def test_what_is_not_understood_stops_it() -> None:
    done = foretell(
        "improve", "vllm serve meta-llama/Llama-3.1-8B --warp-batch 9", "--system", "h100-sxm"
    )
    assert (done.code, done.out) == (2, "")
    assert "warp_batch is not known here" in done.err


@pytest.mark.parametrize(("free", "each"), [("tp pp mbs zero", 20), ("vpp", 1)])
def test_layers_of_a_virtual_stage_go_with_the_stages(free: str, each: int) -> None:
    """Megatron refuses --num-layers-per-virtual-pipeline-stage at pp 1, and beside stages per rank."""
    flag, ours = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
    text = SLOW.with_name("launch_megatron.sh").read_text().replace(f"{flag} 10", f"{flag} {each}")
    asked = ("--system", "h100-sxm", "--accept-unknown", "--free", free, "--json")
    told = foretell("improve", text, *asked).json
    changes = {one["flag"]: (one["before"], one["after"]) for one in told["changes"]}
    assert changes[flag] == (str(each), None)
    assert flag not in told["export"]
    assert (ours in told["export"]) == (" pp1 " not in told["plan_after"])


def test_a_field_that_another_key_needs_stays_as_it_is() -> None:
    text = (
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\noptimizer: adamw_torch_fused\n"
        "gradient_checkpointing: true\nactivation_offloading: {}\ndatasets: [d]\n"
    )
    kept, freed = (
        package.improve(text.format(word), system="h100-sxm", gpus=8) for word in ("true", "false")
    )
    assert "gradient_checkpointing" not in {change.flag for change in kept.changes}
    assert "gradient_checkpointing" in {change.flag for change in freed.changes}


def test_a_variable_is_set_where_no_other_flag_has_it() -> None:
    text = "MBS=2\nrun --micro-batch-size $MBS\nsed s/A/${MBS}/ a.json > b.json\n"
    assert edited_launch(text, {"micro_batch_size": "4"}) == text.replace("MBS=2", "MBS=4")
    text = "N=2\nrun --nproc_per_node $N --tensor-model-parallel-size $N\n"
    changed = edited_launch(text, {"tensor_model_parallel_size": "1"})
    assert changed == text.replace("parallel-size $N", "parallel-size 1")


def test_what_was_read_is_shown_where_nothing_runs() -> None:
    text = "vllm serve meta-llama/Llama-3.1-405B --tensor-parallel-size 2"
    given = ("improve", text, "--system", "h100-sxm")
    assert "tensor_parallel_size" in foretell(*given).out
    rows = foretell(*given, "--json").json["read_back"]
    assert {"name": "tp", "value": "2"}.items() <= next(
        r for r in rows if r["name"] == "tp"
    ).items()
