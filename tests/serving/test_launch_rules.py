"""Layouts that launch: exported scripts against the rules of the engines, each with its source.

The rules read the flags of a script, not our records: what `size --export` writes must be taken by the
engine's own argument parser (tests/interop/release_flags.json, from the packages of vLLM and SGLang) and
refused by none of the checks that its code makes at start.
"""

import json
import random
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import foretell
from foretell.catalog import model, system
from foretell.catalog.engines import profile
from foretell.errors import Infeasible
from foretell.serving.launch_rules import launch_refusal
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2

FLAGS = json.loads((Path(__file__).parents[1] / "interop" / "release_flags.json").read_text())
STARTS = {"vllm": "vllm serve", "sglang": "sglang.launch_server", "trtllm": "trtllm-serve"}
FRONT = {"port", "host", "headless"}
"""Flags of vLLM's server beside those of its engine (entrypoints/cli/serve.py, openai/cli_args.py)."""
SWITCHES = set(
    """enable_expert_parallel enforce_eager enable_lora enable_dp_attention enable_prefill_cp
    disable_cuda_graph enable_prefill_delayer enable_eplb enable_two_batch_overlap""".split()
)
"""Flags without a value: bool in EngineArgs (vllm/engine/arg_utils.py of 0.33) and in SGLang's fields
(srt/arg_groups/fields of 0.5.23)."""
WHOLE = (
    "_size",
    "_seqs",
    "_tokens",
    "_requests",
    "_rank",
    "_len",
    "nnodes",
    "_port",
    "_steps",
    "_topk",
)
"""How flags end whose value is a whole number."""
TRTLLM = set(
    """tp_size pp_size cp_size ep_size max_batch_size max_num_tokens max_seq_len config host port
    kv_cache_free_gpu_memory_fraction gpus_per_node backend trust_remote_code""".split()
)
"""tensorrt_llm/commands/serve.py of 1.x."""
MODELS = (
    "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct",
    "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B", "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen2.5-7B-Instruct", "microsoft/phi-4", "google/gemma-3-27b-it",
)  # fmt: skip
CHIPS = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-sxm-80gb", "l40s", "gb200")


def questions(many: int) -> list[dict]:
    """Random questions of `size`."""
    draw = random.Random(36)
    found = []
    for _ in range(many):
        ask = {
            "model": draw.choice(MODELS), "system": draw.choice(CHIPS), "rate": draw.choice((1, 5, 20, 60)),
            "isl": draw.choice((256, 1024, 4000, 8000)), "osl": draw.choice((128, 500, 1000)),
            "ttft": draw.choice((1000, 3000, 10000)), "tpot": draw.choice((20, 40, 80)),
            "plan": draw.choice((None, None, "weights=fp8")),
        }  # fmt: skip
        if ask["model"] == "deepseek-ai/DeepSeek-R1":
            ask |= {"plan": None, "speculative": draw.choice((None, "mtp:1"))}
        found.append(ask)
    return found


def commands(script: str, engine: str) -> list[dict[str, str]]:
    """Flags of every server that a script starts."""
    found = []
    for line in script.splitlines():
        if STARTS[engine] not in line or "disaggregated -c" in line:
            continue
        # Arrays of a shell are one word each.
        words = shlex.split(re.sub(r"\$\{[^}]*\}", "HOST", line).rstrip("& "))
        words = words[words.index(STARTS[engine].split()[-1]) + 1 :]
        table: dict[str, str] = {"": words[0]} if not words[0].startswith("--") else {}
        for place, word in enumerate(words):
            if word.startswith("--"):
                after = words[place + 1] if place + 1 < len(words) else "--"
                table[word[2:].replace("-", "_")] = "" if after.startswith("--") else after
        found.append(table)
    return found


def degrees(flags: dict[str, str], engine: str, script: str) -> Deployment:
    """Degrees as the engine reads them."""

    def whole(name: str) -> int:
        return int(flags.get(name) or 1)

    if engine == "vllm":
        tp, dp = whole("tensor_parallel_size"), whole("data_parallel_size")
        ep = tp * dp if "enable_expert_parallel" in flags else 1
        return Deployment(tp=tp, pp=whole("pipeline_parallel_size"), dp=dp, ep=ep)
    if engine == "sglang":
        dp = whole("dp_size") if "enable_dp_attention" in flags else 1
        return Deployment(
            tp=whole("tp_size") // dp, pp=whole("pp_size"), dp=dp, ep=whole("ep_size")
        )
    file = flags.get("config", "")
    text = script.partition(f"> {file} <<'EOF'\n")[2].partition("\nEOF")[0] if file else ""
    apart = "enable_attention_dp: true" in text
    ranks = whole("tp_size")
    return Deployment(
        tp=1 if apart else ranks, dp=ranks if apart else 1, pp=whole("pp_size"), ep=whole("ep_size")
    )


def refusals(flags: dict[str, str], engine: str, script: str, of) -> list[str]:
    """What the engine's code refuses at start."""
    d, found = degrees(flags, engine, script), []
    parted = "kv_transfer_config" in flags or "disaggregation_mode" in flags
    parted = parted or ("cache_transceiver_config" in script and engine == "trtllm")
    drafts = "speculative_config" in flags or "speculative_algorithm" in flags
    drafts = drafts or (engine == "trtllm" and "speculative_config:" in script)
    for layer in of.stack.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention | LatentAttention) and mixer.heads % d.tp:
                # vllm/config/model.py verify_with_parallel_config: "must be divisible by tensor parallel
                # size"; sglang/srt/models/*: assert total_num_heads % attn_tp_size == 0; TensorRT-LLM too
                found.append("heads")
            if isinstance(mixer, Attention) and mixer.kv_heads % d.tp and d.tp % mixer.kv_heads:
                # vllm model_executor/layers/linear.py QKVParallelLinear, divide(); sglang likewise
                found.append("key heads")
            if isinstance(mixer, Mamba2) and mixer.heads % d.tp:
                found.append("recurrent heads")  # vllm mamba_mixer2.py: num_heads % tp_size
            if isinstance(mixer, DeltaNet) and (mixer.key_heads % d.tp or mixer.value_heads % d.tp):
                found.append("recurrent heads")  # vllm qwen3_next.py: divide(num_k_heads, tp_size)
        block = 128 if of.dtype == "fp8" else 1
        if isinstance(layer.ffn, Dense) and layer.ffn.width // d.tp % block:
            # vllm/model_executor/layers/quantization/utils/fp8_utils.py validate_fp8_block_shape
            found.append("blocks of fp8")
        if isinstance(layer.ffn, Experts):
            cut = layer.ffn.width // max(d.tp * d.dp // d.ep, 1)
            if cut % block:
                found.append("blocks of experts")  # quantization/fp8.py create_weights of experts
            if engine != "vllm" and d.ep > 1 and layer.ffn.experts % d.ep:
                extra = int(flags.get("ep_num_redundant_experts") or 0)
                if (layer.ffn.experts + extra) % d.ep:
                    found.append(
                        "experts"
                    )  # sglang expert_location.py; TensorRT-LLM moe: num_experts % ep_size
    if "quantization" in flags and of.dtype not in ("bf16", "fp16"):
        # vllm/config/model.py _verify_quantization: the checkpoint's own method does not match the argument's
        found.append("quantization of a narrow checkpoint")
    if engine == "vllm":
        if parted and d.pp > 1:
            # kv_connector/v1/nixl/base_worker.py: not for decode; prefill needs NixlPushConnector
            found.append("stages with NIXL")
        nodes = int(flags.get("nnodes") or 1)
        if d.gpus % nodes:
            found.append("nodes")  # engine/arg_utils.py: --nnodes must evenly divide the world size
    if engine == "sglang":
        if d.ep > d.tp * d.dp:
            found.append("ep above tp")  # srt/arg_groups/parallel_hook.py
        if d.ep > 1 and of.id.startswith("gpt-oss"):
            found.append(
                "ep of mxfp4"
            )  # model_hook.py: "Triton kernel MoE is only ... when ep_size == 1"
        if d.pp > 1 and drafts:
            found.append("drafts on stages")  # validation_hook.py check_pipeline_parallel_compat
        if d.pp > 1 and flags.get("disaggregation_mode") == "decode":
            found.append(
                "decode stages"
            )  # disaggregation/common/conn.py: as many as prefill, or one
        if (d.tp * d.dp * d.pp) % int(flags.get("nnodes") or 1):
            found.append("nodes")  # validation_hook.py check_server_args
    if engine == "trtllm":
        if d.pp > 1 and drafts:
            found.append("drafts on stages")  # docs/source/features/feature-combination-matrix.md
        if (d.tp * d.dp) % max(d.ep, 1):
            found.append("ep does not divide tp")  # tensorrt_llm/mapping.py: moe_tp x moe_ep == tp
    return sorted(set(found))


def unparsed(flags: dict[str, str], engine: str) -> list[str]:
    """Flags that the engine's parser does not know, or whose value is of another kind."""
    if engine == "trtllm":
        return [name for name in flags if name and name not in TRTLLM]
    (table,) = FLAGS[engine].values()
    found = []
    for name, value in flags.items():
        if not name or name in FRONT:
            continue
        if name not in table:
            found.append(name)
            continue
        if (name in SWITCHES) != (value == "") or (name.endswith(WHOLE) and not value.isdigit()):
            found.append(f"{name}={value}")
    return found


def check(ask: dict, engine: str, folder: Path, *, simulate: bool = False) -> None:
    """One question: sized, exported, and taken by shell, parser and rules."""
    try:
        found = foretell.size(**ask, engine=engine, simulate=simulate, top=1)
    except Infeasible:
        return
    script = found.export(engine).text
    path = folder / "launch.sh"
    path.write_text(script)
    shell = shutil.which("bash")
    assert shell
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    servers = commands(script, engine)
    assert servers, script
    for flags in servers:
        assert flags.get("", flags.get("model_path")) == ask["model"]
        assert not unparsed(flags, engine), (unparsed(flags, engine), ask)
        assert not refusals(flags, engine, script, model(ask["model"])), (ask, script)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_scripts_of_random_questions_launch(engine, tmp_path):
    for ask in questions(8):
        check(ask, engine, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_scripts_of_forty_random_questions_launch(engine, tmp_path):
    for ask in questions(40):
        check(ask, engine, tmp_path, simulate=True)


def test_the_rules_of_this_file_refuse_what_engines_refuse():
    """A layout with stages before NIXL, and heads that do not divide."""
    script = "vllm serve Qwen/Qwen3-32B --pipeline-parallel-size 4 --kv-transfer-config x &"
    (flags,) = commands(script, "vllm")
    assert refusals(flags, "vllm", script, model("qwen3-32b")) == ["stages with NIXL"]
    (flags,) = commands("vllm serve Qwen/Qwen2.5-7B-Instruct --tensor-parallel-size 8", "vllm")
    assert "heads" in refusals(flags, "vllm", "", model("qwen2.5-7b"))
    assert unparsed({"tensor_parallel_degree": "8"}, "vllm") == ["tensor_parallel_degree"]
    for bad in ({"max_num_seqs": ""}, {"enforce_eager": "8"}, {"max_num_seqs": "8.5"}):
        assert unparsed(bad, "vllm"), bad


def test_the_example_of_the_readme_launches_and_says_what_does_not():
    found = foretell.size(
        "qwen3-32b", system="h200-sxm", rate=20, isl=4000, osl=500, ttft=2000, tpot=30
    )
    front = found.best.option.prefill
    assert front is None or front.deployment.pp == 1
    assert found.cannot_launch is not None
    other = found.cannot_launch
    name, gpus, reason = other.option.name(), other.option.gpus, other.refusal
    assert gpus < found.best.option.gpus
    assert "pp" in name
    assert "NixlConnector" in reason
    assert {one.what for one in found.alternatives} == {
        "plain, on one node",
        "plain, weights in fp8",
    }
    told = found.to_dict()
    assert told["cannot_launch"]["gpus"] == gpus
    assert len(told["alternatives"]) == 2


@pytest.mark.parametrize(
    ("engine", "name", "words", "role", "why"),
    [
        ("vllm", "qwen3-32b", {"pp": 2}, "prefill", "NixlConnector hands no cache over from"),
        ("vllm", "qwen3-32b", {"pp": 2}, "decode", "to pipeline stages"),
        ("vllm", "qwen3-32b", {"pp": 2}, "both", ""),
        ("sglang", "qwen3-32b", {"pp": 2}, "prefill", ""),
        ("sglang", "qwen3-32b", {"pp": 2}, "decode", "to pipeline stages"),
        ("trtllm", "qwen3-32b", {"pp": 2}, "decode", ""),
        ("trtllm", "deepseek-r1", {"pp": 2, "draft_tokens": 1}, "both", "no drafts on pipeline stages"),
        ("vllm", "deepseek-r1", {"pp": 2, "dp": 8, "ep": 8}, "both", "data-parallel attention"),
        ("trtllm", "deepseek-r1", {"tp": 2, "dp": 8, "ep": 16}, "both", "over all ranks, or over none"),
        ("sglang", "deepseek-r1", {"tp": 2, "dp": 8, "ep": 16}, "both", ""),
        ("vllm", "qwen2.5-7b", {"tp": 8}, "both", "28 heads do not divide by tp8"),
        ("vllm", "qwen3-235b-a22b", {"tp": 8, "weights": "fp8-block", "experts": "fp8-block"}, "both",
         "no whole blocks of 128"),
        ("vllm", "qwen3-235b-a22b",
         {"tp": 8, "ep": 8, "weights": "fp8-block", "experts": "fp8-block"}, "both", ""),
        ("sglang", "gpt-oss-120b", {"tp": 4, "ep": 4, "experts": "mxfp4"}, "both", "experts in mxfp4"),
        ("vllm", "gpt-oss-120b", {"tp": 4, "ep": 4, "experts": "mxfp4"}, "both", ""),
        ("trtllm", "nvidia/Nemotron-H-56B-Base-8K", {"tp": 2}, "prefill", "no states of recurrences"),
    ],
)  # fmt: skip
def test_what_a_release_refuses_is_said(engine, name, words, role, why):
    found = launch_refusal(
        model(name), Deployment(**words), profile(engine, system("h200-sxm").chip), role
    )
    assert (why in found) if why else not found


def test_a_layout_is_chosen_among_those_that_launch():
    """Qwen3-235B in blocks of fp8: 1536 in eight parts are no whole blocks, experts are spread."""
    found = foretell.serve(
        "qwen3-235b-a22b", system="h200-sxm", gpus=8, plan="weights=fp8-block", concurrency=64
    )
    assert "ep8" in found.plan or "tp4" in found.plan or "pp" in found.plan


def test_scripts_keep_the_model_that_was_named_and_say_what_is_to_be_filled_in():
    case = {"system": "h200-sxm", "rate": 2, "isl": 500, "osl": 100, "ttft": 5000, "tpot": 80}
    for name, written in (
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"),
        (
            "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic",
            "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic",
        ),
    ):
        found = foretell.size(name, **case, simulate=False).export("vllm")
        assert all(flags[""] == written for flags in commands(found.text, "vllm"))
        assert "--quantization" not in found.text
    drafted = foretell.size("llama-3.1-8b", **case, speculative="eagle3:3", simulate=False)
    text = drafted.export("sglang")
    assert "--speculative-algorithm EAGLE3" in text.text
    assert any("DRAFT_HEAD" in note for note in text.notes)
