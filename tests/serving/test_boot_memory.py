"""Memory as engines boot: against start-up logs, and by the rules of their releases."""

import csv
import json
import os
import shlex
import statistics
from pathlib import Path

import pytest

import foretell
from foretell.api.serving_commands import fraction_between
from foretell.api.serving_questions import question_of
from foretell.catalog import chip, model, system
from foretell.catalog.engines import engine_releases, profile
from foretell.errors import Infeasible
from foretell.serving.boot_memory import default_fraction, graph_bytes, seen_bytes
from foretell.serving.fit import cache_report, largest_where
from foretell.serving.memory import host_bytes, kv_bytes, memory_of
from foretell.specs.deployment import Deployment
from foretell.specs.questions.serving import ServiceQuestion

GIB = 2**30
DATA = Path(os.environ.get("FORETELL_DATA", "../shared/data"))
BOOTS = DATA / "inference" / "engine_boots.csv"
CHIPS = {"H100": "h100-sxm", "RTX3090": "rtx3090", "A100-40GB": "a100-sxm-40gb"}
WORDS = {
    "--gpu-memory-utilization": "memory_fraction",
    "--max-model-len": "max_context",
    "--max-num-batched-tokens": "max_tokens",
    "--max-num-seqs": "max_batch",
}
SMALL = 0.5
"""GiB of cache below which an engine hardly started: its error is of the card, not of the cache."""


def boots():
    """Rows that a chip and a model of the catalogue stand for."""
    if not BOOTS.exists():
        return []
    with BOOTS.open() as file:
        rows = list(csv.DictReader(file))
    # boot-33 holds 66 GiB of cache beside 51 GiB of weights: an H20 with 141 GB, not the one with 96.
    return [row for row in rows if row["gpu"] in CHIPS and "VL-72B" not in row["command"]]


def asked(row):
    """The question of a command."""
    words = shlex.split(row["command"])
    flags = {words[i]: words[i + 1] for i in range(3, len(words) - 1) if words[i].startswith("--")}
    plan = [f"tp{flags.get('--tensor-parallel-size', 1)}"]
    plan += ["weights=fp8"] if "fp8" in words[2] else []
    plan += [f"{name}={flags[flag]}" for flag, name in WORDS.items() if flag in flags]
    return ServiceQuestion(
        words[2], system=CHIPS[row["gpu"]], gpus=int(row["n_gpus"]), plan=" ".join(plan),
        engine=row["engine"], isl=500, osl=100, concurrency=1,
    )  # fmt: skip


@pytest.mark.skipif(not BOOTS.exists(), reason="no measured boots beside the repository")
def test_the_cache_is_that_of_start_up_logs():
    errors = []
    for row in boots():
        q, _ = question_of(asked(row))
        found = memory_of(q.model, q.system, q.deployment, q.profile)
        measured = float(row["kv_gib_per_gpu"])
        assert found.fits == (measured > 0.0), row["id"]
        assert found.weight_bytes / GIB == pytest.approx(
            float(row["weights_gib_per_gpu"]), rel=0.01
        )
        if measured > SMALL:
            errors.append(abs(found.kv_bytes / GIB / measured - 1.0))
    assert len(errors) >= 12
    assert statistics.median(errors) <= 0.03
    assert max(errors) <= 0.08


def test_a_server_that_did_not_start_is_refused_and_says_why():
    """vllm-project/vllm#23278: gpt-oss-120b on one H100 by defaults of 0.10."""
    with pytest.raises(Infeasible, match="nothing is left for the cache"):
        foretell.serve(
            "openai/gpt-oss-120b", system="h100-sxm", gpus=1, plan="tp1", engine="vllm@0.10"
        )


def test_vllm_refuses_a_longer_request_than_its_cache_holds():
    case = {"system": "rtx4090", "gpus": 1, "isl": 1000, "osl": 100, "concurrency": 1}
    found = foretell.serve("llama-3.1-8b", plan="tp1", **case)
    assert found.max_model_len < 131072
    assert any(f"--max-model-len {found.max_model_len}" in text for text in found.assumptions)
    with pytest.raises(Infeasible, match="refuses"):
        foretell.serve("llama-3.1-8b", plan=f"tp1 max_context={found.max_context + 1000}", **case)


def test_the_scores_of_a_batch_are_what_vllm_profiles():
    """Copies of fp32 scores: 9.5 with torch.sort, 3.5 and a row for each multiprocessor from 0.17 on."""
    qwen, chips, d = model("qwen3-14b"), system("h100-sxm"), Deployment()
    steps = {
        version: memory_of(qwen, chips, d, profile("vllm", chips.chip, version)).step_bytes
        for version in ("0.15", "0.17")
    }
    scores = 4.0 * 1024 * 151936
    outputs = 2.0 * 8192 * 5120
    assert steps["0.15"] == pytest.approx(9.5 * scores + outputs)
    assert steps["0.17"] == pytest.approx((3.5 + 132 / 1024) * scores + outputs)


def test_latent_attention_profiles_the_keys_of_a_prompt():
    """mla_attention.py: 64k tokens x heads of a rank x (nope + value) in 16 bits, where that is most."""
    deepseek, chips = model("deepseek-v3"), system("h200-sxm")
    spread = Deployment(dp=8, ep=8, weights="fp8-block", experts="fp8-block")
    found = memory_of(deepseek, chips, spread, profile("vllm", chips.chip, "0.19"))
    assert found.step_bytes == pytest.approx(2.0 * 65536 * 128 * 256)


def test_graphs_come_before_the_cache_from_0_20_on():
    llama, chips = model("llama-3.1-8b"), system("h100-sxm")
    old, new = (profile("vllm", chips.chip, v) for v in ("0.19", "0.21"))
    held = [memory_of(llama, chips, Deployment(), p).reserve_bytes for p in (old, new)]
    assert held[1] - held[0] == pytest.approx(graph_bytes(llama, Deployment()))
    eager = memory_of(llama, chips, Deployment(graph=False), new).reserve_bytes
    assert eager == pytest.approx(held[0])


def test_ranks_that_exchange_hold_communicators():
    llama, chips = model("llama-3.1-8b"), system("h100-sxm")
    p = profile("vllm", chips.chip, "0.19")
    alone, two, four = (
        memory_of(llama, chips, Deployment(tp=tp), p).reserve_bytes for tp in (1, 2, 4)
    )
    assert alone < two == four


def test_sglang_leaves_what_its_release_reserves():
    """server_args.py of 0.4.0 (by ranks) and 0.5.9: 512 + 1.5 x 8192 + 2 x 256 + 1/8 x 1024 MB."""
    llama, card = model("llama-3.1-8b"), chip("h100-sxm")
    old, new = (profile("sglang", card, v) for v in ("0.4.0", "0.5.9"))
    assert default_fraction(llama, card, Deployment(tp=8), old) == 0.81
    reserve = 512 + 1.5 * 8192 + 2 * 256 + 128
    share = default_fraction(llama, card, Deployment(), new)
    assert float(share) == pytest.approx(1.0 - reserve / 81559)


def test_sglang_s_cache_is_that_of_its_log():
    """docs/references/multi_node_deployment/deploy_on_k8s of SGLang, February 2025: DeepSeek on 16 H20 with
    --mem-fraction-static 0.93 logs max_total_num_tokens=712400."""
    found = foretell.serve(
        "deepseek-v3", system="h20-sxm", gpus=16, engine="sglang@0.4.3",
        plan="tp16 memory_fraction=0.93", isl=1000, osl=100, concurrency=1,
    )  # fmt: skip
    assert found.kv_cache_tokens == pytest.approx(712_400, rel=0.01)


def test_a_share_for_another_engine_leaves_the_same_cache():
    """Each engine's own steps and libraries are beside the cache."""
    case = {"system": "h100-sxm", "gpus": 2, "isl": 1000, "osl": 100, "concurrency": 1}
    own = foretell.serve("llama-3.1-8b", plan="tp2 memory_fraction=0.8", engine="vllm", **case)
    for engine in ("sglang", "trtllm"):
        share = fraction_between(
            "llama-3.1-8b", "h100-sxm", 2, "tp2 memory_fraction=0.8", ("vllm", engine)
        )
        plan = f"tp2 memory_fraction={share}"
        there = foretell.serve("llama-3.1-8b", plan=plan, engine=engine, **case)
        assert there.kv_bytes == pytest.approx(own.kv_bytes, rel=0.001)


def test_llama_cpp_reserves_the_scores_of_a_physical_batch():
    """Its log of Llama-3-8B: CUDA0 compute buffer size = 258.50 MiB."""
    llama, chips = model("llama-3-8b"), system("rtx4090")
    found = memory_of(llama, chips, Deployment(weights="int4"), profile("llamacpp", chips.chip))
    assert found.step_bytes / 2**20 == pytest.approx(258.5, rel=0.001)


def test_tokens_and_concurrency_are_those_of_the_log():
    """Blocks of 16 tokens of whole models; windows and states have groups of their own."""
    llama, chips = model("llama-3.1-8b"), system("h100-sxm")
    p = profile("vllm", chips.chip, "0.19")
    memory = memory_of(llama, chips, Deployment(), p)
    found = cache_report(memory, llama, Deployment(), p)
    each = float(kv_bytes(llama, Deployment(), 1.0))
    assert found.kv_cache_tokens % 16 == 0
    assert 0 <= memory.kv_bytes / each - found.kv_cache_tokens < 16
    assert found.max_concurrency == pytest.approx(found.kv_cache_tokens / 131072)
    gpt, d = model("gpt-oss-20b"), Deployment(experts="mxfp4")
    report = cache_report(memory_of(gpt, chips, d, p), gpt, d, p)
    # Half of the layers keep a window: a request of 131,072 tokens has little more than half of its blocks.
    assert 1.8 < report.max_concurrency * 131072 / report.kv_cache_tokens < 2.0


def test_what_fits_is_answered_for_four_engines_and_is_true():
    found = foretell.serve("llama-3.1-8b", system="rtx4090", gpus=1, fit=True, isl=1000, osl=1000)
    assert found.fit is not None
    assert {one.engine for one in found.fit} == {"vllm", "sglang", "trtllm", "llamacpp"}
    own = found.fit[0]
    assert own.max_context == pytest.approx(found.max_context, rel=0.01)
    # Sequences in the middle of their answers are shorter than whole ones.
    assert own.max_sequences <= found.max_batch
    assert own.max_sequences == pytest.approx(own.max_context / 2000, abs=1.0)
    for form, name in own.largest_models.items():
        answer = foretell.serve(
            name, system="rtx4090", gpus=1, plan=f"tp1 weights={form} experts={form} kv=bf16",
            isl=1000, osl=1000, concurrency=1,
        )  # fmt: skip
        assert answer.fits == "yes"
    assert json.dumps(found.to_dict()["fit"])
    with pytest.raises(Infeasible, match="largest models that start there"):
        foretell.serve("llama-3.1-70b", system="rtx4090", gpus=1, fit=True)


def test_the_largest_number_that_a_rule_allows():
    for limit in (0, 1, 7, 1000):
        assert largest_where(lambda n, limit=limit: n <= limit, 1000) == limit


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_every_release_says_where_it_was_read(engine):
    every = engine_releases(engine)
    assert all(len(one.source) > 40 and one.released for one in every)
    assert len({one.release for one in every}) == len(every)


def test_cards_have_what_drivers_report():
    for name, gib in (
        ("b200-sxm", 178.35),
        ("h200-sxm", 139.8),
        ("h100-sxm", 79.2),
        ("rtx3090", 23.69),
    ):
        assert float(seen_bytes(chip(name))) / GIB == pytest.approx(gib, rel=0.002)


def test_llama_cpp_keeps_the_table_of_embeddings_in_the_hosts_memory():
    """Where it is not the head as well, and the card's memory is its own."""
    for name, chips, share in (("llama-3.1-8b", "h100-sxm", 1.0), ("llama-3.2-1b", "h100-sxm", 0.0),
                               ("llama-3.1-8b", "apple-m3-max", 0.0)):  # fmt: skip
        what, place = model(name), system(chips)
        host, vllm = (profile(engine, place.chip) for engine in ("llamacpp", "vllm"))
        assert host_bytes(what, place, vllm) == 0.0
        table = 2.0 * what.embedding.vocab * what.stack.hidden
        assert host_bytes(what, place, host) == share * table
