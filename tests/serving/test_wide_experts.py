"""Wide expert parallelism: rates in print, what balancing and overlap are worth, and what must hold."""

import json
from dataclasses import replace

import numpy as np
import pytest

from foretell.api.serving import serve
from foretell.catalog import model, system
from foretell.catalog.engines import profile
from foretell.interop.service_write import Serving, write_command
from foretell.serving.engine_options import prompt_wait
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import memory_of, weight_bytes
from foretell.serving.steady import steady
from foretell.serving.steps import step_times
from foretell.serving.wide_experts import first_experts, slots_of, wide_experts
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.deployment_text import deployment_text, parse_deployment
from tests.surfaces.command import foretell as command

DEEPSEEK = model("deepseek-v3")


def rank_rate(chip, ep, tokens, context, *, decode, **more):
    """Tokens a second of one GPU, `tokens` in a step of each rank."""
    chips = system(chip)
    form = {"weights": "fp8-block", "experts": "fp8-block"}
    layout = Deployment(dp=ep, ep=ep, **(form | more))
    times = step_times(DEEPSEEK, chips, layout, profile("sglang", chips.chip, mixture=True))
    if decode:
        load = StepLoad(decoding=tokens * ep, context_tokens=tokens * ep * context)
    else:
        load = StepLoad(prefill_tokens=tokens * ep, prompts=tokens * ep / context)
    return tokens * (1.0 + layout.accepted) / float(times.seconds(load))


PRINTED = [
    ("h100-sxm", 32, 16384.0, 1024.0, False, {}, 7209.0),
    ("h100-sxm", 32, 16384.0, 2048.0, False, {}, 6818.0),
    ("h100-sxm", 32, 16384.0, 4096.0, False, {}, 6288.0),
    ("h100-sxm", 72, 256.0, 2000.0, True, {}, 2785.0),
    ("h800-sxm", 32, 16384.0, 4096.0, False, {"balance": 1.0}, 7839.0),
    ("h800-sxm", 128, 128.0, 4096.0, True, {"draft_tokens": 1, "accepted": 0.85}, 2325.0),
    ("h20-sxm", 16, 48.0, 4864.0, True, {"draft_tokens": 1, "accepted": 0.85}, 714.0),
    ("h20-sxm", 16, 32.0, 4864.0, True, {"draft_tokens": 1, "accepted": 0.85}, 675.0),
    ("h20-sxm", 16, 12.0, 4864.0, True, {"draft_tokens": 2, "accepted": 1.55}, 423.0),
]
"""Chip, ranks, tokens of a rank, context, decode or prefill, and the rate of a GPU in print: DeepSeek-V3 by
SGLang (lmsys.org/blog/2025-05-05-large-scale-ep), by DeepSeek (deepseek-ai/profile-data, computed there), and
on H20 by Ant (lmsys.org/blog/2025-09-26)."""


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: f"{row[0]} ep{row[1]} {row[3]:.0f}")
def test_rates_in_print_are_met(row):
    chip, ep, tokens, context, decode, more, printed = row
    found = rank_rate(chip, ep, tokens, context, decode=decode, **more)
    assert found == pytest.approx(printed, rel=0.2)


def test_what_two_batch_overlap_is_worth():
    """In print: a loss at 32 sequences of a GPU, about even between 64 and 128, +25.5 % at 256."""
    gain = {}
    for tokens in (32.0, 64.0, 128.0, 256.0):
        on, off = (
            rank_rate("h100-sxm", 72, tokens, 2000.0, decode=True, tbo=tbo) for tbo in (True, False)
        )
        gain[tokens] = on / off
    assert gain[32.0] < 0.9
    assert gain[64.0] < 1.05
    assert gain[128.0] > 0.98
    assert gain[256.0] == pytest.approx(1.255, rel=0.08)
    on, off = (
        rank_rate("h100-sxm", 32, 16384.0, 4096.0, decode=False, tbo=tbo) for tbo in (True, False)
    )
    assert 1.2 < on / off < 1.45


def test_what_balancing_experts_is_worth():
    """In print: 1.49 in prefill at EP32, 2.54 in decode at EP72."""
    for ep, tokens, context, decode, printed in (
        (32, 16384.0, 4096.0, False, 1.49),
        (72, 256.0, 2000.0, True, 2.54),
    ):
        on, off = (
            rank_rate("h100-sxm", ep, tokens, context, decode=decode, eplb=eplb)
            for eplb in (True, False)
        )
        assert on / off == pytest.approx(printed, rel=0.25)


def test_more_ranks_do_more_for_each_gpu_where_print_says_so():
    """Decode at few sequences gains from EP16 to EP32, and wide prefill beats one node
    (lmsys.org/blog/2025-09-26)."""
    narrow, wide = (
        rank_rate("h20-sxm", ep, 8.0, 4864.0, decode=True, draft_tokens=1, accepted=0.85)
        for ep in (16, 32)
    )
    assert wide > narrow
    one_node = rank_rate("h100-sxm", 8, 16384.0, 4096.0, decode=False)
    for ep in (16, 32, 64):
        assert rank_rate("h100-sxm", ep, 16384.0, 4096.0, decode=False) > one_node


def instance(ep, chip="h200-sxm", engine="sglang", **more):
    """Steps and memory of DeepSeek-V3 on one instance."""
    chips = system(chip)
    layout = Deployment(dp=ep, ep=ep, **({"weights": "fp8-block", "experts": "fp8-block"} | more))
    engine = profile(engine, chips.chip, mixture=True)
    return step_times(DEEPSEEK, chips, layout, engine), memory_of(DEEPSEEK, chips, layout, engine)


def asked(ep, each, isl, osl, **more):
    """Requests a second of one GPU in a loop, so many in flight for each."""
    times, memory = instance(ep, **more)
    load = Traffic(isl=isl, osl=osl, concurrency=float(each * ep), waves=1e12)
    return float(steady(times, memory, load).requests_per_s) / ep


@pytest.mark.parametrize(("each", "isl", "osl"), [(16, 4096.0, 1.0), (64, 2000.0, 500.0)])
def test_a_wide_instance_does_more_for_each_gpu_under_load(each, isl, osl):
    """With prompts and answers on the same ranks too: chunks, waits and prompts of a step are per rank."""
    node = asked(8, each, isl, osl)
    for ep in (16, 32, 72):
        assert asked(ep, each, isl, osl) > 1.1 * node


def test_every_rank_reads_a_chunk_in_a_step():
    """The engine's own chunk of 8192 / dp tokens cuts a prompt over many steps, side by side on all ranks."""
    times, memory = instance(32, max_tokens=256)
    load = Traffic(isl=4096.0, osl=1.0, concurrency=512.0, waves=1e12)
    step = float(
        times.seconds(StepLoad(prefill_tokens=8192.0, past_tokens=32 * 1920.0, prompts=32.0))
    )
    rate = float(steady(times, memory, load).requests_per_s) * 4096.0
    assert rate == pytest.approx(8192.0 / step, rel=0.02)


def test_waiting_for_all_ranks_pays_where_steps_are_wide():
    """A step with prompts keeps all ranks, whether they have any: in print the delayer is for that."""
    assert asked(32, 64, 2000.0, 500.0) > 2.0 * asked(32, 64, 2000.0, 500.0, wait_steps=0.0)
    for layout, steps in ((Deployment(dp=8, ep=8), 0.0), (Deployment(dp=32, ep=32), 30.0)):
        engine = profile("sglang", system("h200-sxm").chip, mixture=True)
        assert prompt_wait(engine, layout) == (steps, float(layout.dp))


def test_what_is_assumed_of_options_is_said():
    load = {"system": "h200-sxm", "isl": 2000, "osl": 500, "concurrency": 1024}

    def said(**words):
        return " ".join(serve("deepseek-v3", **load, **words).assumptions)

    together = said(gpus=32, plan="dp32 ep32", engine="sglang")
    assert "max_tokens=256" in together
    assert "wait_steps=0" in together
    assert "stops all" in said(gpus=32, plan="dp32 ep32", engine="vllm")
    assert "stops all" in said(gpus=32, plan="dp32 ep32 wait_steps=0", engine="sglang")
    assert "stops all" not in said(gpus=8, plan="dp8 ep8", engine="vllm")
    split = {"gpus": 64, "plan": "dp32 ep32", "prefill_gpus": 32, "prefill_plan": "dp32 ep32"}
    apart = said(engine="sglang", **split)
    assert "max_tokens=256" in apart
    assert "wait until" not in apart
    assert "stops all" not in said(engine="vllm", **split)


def test_the_loop_is_that_of_simulated_requests():
    for more in ({}, {"max_tokens": 256}):
        plan = " ".join(f"{key}={value}" for key, value in more.items())
        load = {"gpus": 32, "isl": 2000, "osl": 500, "concurrency": 2048, "spread": 0.8}
        words = {"plan": f"dp32 ep32 {plan}", "engine": "sglang", **load}
        closed = serve("deepseek-v3", system="h200-sxm", **words)
        some = serve("deepseek-v3", system="h200-sxm", simulate=True, requests=12000, **words)
        assert closed.output_tokens_per_s == pytest.approx(some.output_tokens_per_s, rel=0.3)


def test_choosing_by_turns_is_never_slower():
    chips = system("h100-sxm")
    engine = profile("sglang", chips.chip, mixture=True)
    layout = Deployment(dp=32, ep=32, weights="fp8-block", experts="fp8-block")
    loads = StepLoad(
        decoding=np.array([32.0, 1024.0, 8192.0, 0.0]),
        context_tokens=np.array([32.0, 1024.0, 8192.0, 0.0]) * 2000.0,
        prefill_tokens=np.array([0.0, 0.0, 0.0, 262144.0]),
        prompts=np.array([0.0, 0.0, 0.0, 64.0]),
    )
    best = step_times(DEEPSEEK, chips, layout, engine).seconds(loads)
    off = step_times(DEEPSEEK, chips, replace(layout, tbo=False), engine).seconds(loads)
    on = step_times(DEEPSEEK, chips, replace(layout, tbo=True), engine).seconds(loads)
    assert best == pytest.approx(np.minimum(on, off), rel=1e-12)


def test_kernels_by_place_and_engine():
    def names(chip, engine, ep, **more):
        chips = system(chip)
        found = wide_experts(
            chips,
            Deployment(dp=ep, ep=ep, **more),
            profile(engine, chips.chip, mixture=True),
        )
        return found and (found.decode.id, found.prefill.id)

    assert names("h100-sxm", "sglang", 8) is None
    assert names("h100-sxm", "sglang", 16) == ("deepep-low-latency", "deepep")
    assert names("h100-sxm", "vllm", 8, dispatch="deepep") == ("deepep-low-latency", "deepep")
    assert names("gb200", "trtllm", 32) == ("nvlink-one-sided", "nvlink-one-sided")
    assert names("mi300x", "sglang", 16) == ("mori-low-latency", "mori")
    assert names("h100-sxm", "sglang", 32, dispatch="gather") is None


def test_redundant_experts_are_counted():
    ffn = first_experts(DEEPSEEK)
    layout = Deployment(dp=32, ep=32, weights="fp8-block", experts="fp8-block")
    assert slots_of(ffn, layout) == 288
    assert slots_of(ffn, replace(layout, eplb=False)) == 256
    assert slots_of(ffn, Deployment(dp=72, ep=72)) == 288
    more = weight_bytes(DEEPSEEK, layout) - weight_bytes(DEEPSEEK, replace(layout, eplb=False))
    each = 3.0 * 7168 * 2048
    assert more == pytest.approx(58 * each * (1.0 + 4.0 / 128**2), rel=0.02)


def test_words_round_trip():
    text = (
        "tp1 dp32 ep32 weights=fp8-block kv=bf16 redundant_experts=16 dispatch=deepep no-eplb tbo"
    )
    assert deployment_text(parse_deployment(text)) == text


def test_a_wide_launch_of_sglang_is_read_as_the_engine_means_it_and_written_as_assumed():
    start = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp-size 32 "
    start += "--dp-size 32 --enable-dp-attention --moe-a2a-backend deepep"
    load = {"system": "h200-sxm", "isl": 2000, "osl": 500, "concurrency": 2048}

    def imported(text):
        flags = [str(word) for key, value in load.items() for word in (f"--{key}", value)]
        done = command("serve", "--import", text, *flags, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    plan = imported(start)["plan"]
    for word in ("no-eplb", "no-tbo", "max_tokens=256", "wait_steps=0"):
        assert word in plan
    more = " --enable-prefill-delayer --enable-eplb --enable-two-batch-overlap"
    whole = imported(f"{start}{more} --chunked-prefill-size 262144")
    assumed = serve("deepseek-v3", gpus=32, plan="dp32 ep32", engine="sglang", **load)
    # The flag halves every step, what is assumed only those that gain by it.
    assert whole["output_tokens_per_s"] == pytest.approx(assumed.output_tokens_per_s, rel=0.1)
    written = write_command("sglang", Serving(model="m", deployment=parse_deployment("dp32 ep32")))
    for flag in (*more.split(), "--chunked-prefill-size 262144", "--moe-a2a-backend deepep"):
        assert flag in written
    plain = write_command(
        "sglang", Serving(model="m", deployment=parse_deployment("dp32 ep32 no-eplb no-tbo"))
    )
    assert "eplb" not in plain
    assert "two-batch" not in plain
