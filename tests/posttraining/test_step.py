"""Steps of fine-tuning and reinforcement learning: sums, monotone answers, memory, placements, the verb."""

import json
from dataclasses import replace
from typing import Any

import pytest

import foretell
from foretell.api.post_training import printed_phases
from foretell.api.post_training_setup import setups_of
from foretell.catalog import model
from foretell.catalog.post_training import post_training_loop
from foretell.cli import run as main
from foretell.posttraining.pipeline import PoolTimes, pipeline_of
from foretell.posttraining.step import carried_s, step_of
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.workload.parameters import count

GRPO: dict[str, Any] = {
    "model": "qwen2.5-1.5b",
    "gpus": "8xH100",
    "prompts": 64,
    "samples": 8,
    "isl": 100,
    "osl": 300,
    "max_osl": 1024,
    "framework": "verl",
}


def seconds(answer: Any) -> dict[str, float]:
    return {phase.name: phase.seconds for phase in answer.phases}


def test_a_colocated_step_is_the_sum_of_its_phases() -> None:
    answer = foretell.post_train(**GRPO)
    assert answer.step_s == pytest.approx(sum(seconds(answer).values()))
    assert all(phase.exposed == phase.seconds for phase in answer.phases)


@pytest.mark.parametrize(
    ("algorithm", "phases"),
    [
        ("grpo", {"generate", "old_logprob", "ref_logprob", "update_actor"}),
        ("dapo", {"generate", "old_logprob", "update_actor"}),
        (
            "ppo",
            {"generate", "old_logprob", "ref_logprob", "values", "update_actor", "update_critic"},
        ),
        ("sft", {"update_actor"}),
        ("dpo", {"ref_logprob", "update_actor"}),
        ("reward", {"update_actor"}),
    ],
)
def test_an_algorithm_has_its_phases(algorithm: str, phases: set[str]) -> None:
    found = set(seconds(foretell.post_train(**{**GRPO, "algorithm": algorithm})))
    around = {"wake", "sleep", "reward", "adv", "weight_sync", "host", "environment"}
    assert found - around == phases


def test_longer_answers_take_longer_and_more_chips_less() -> None:
    base, longer, wider = (
        foretell.post_train(**{**GRPO, **change})
        for change in ({}, {"osl": 600, "max_osl": 2048}, {"gpus": "16xH100"})
    )
    assert seconds(longer)["generate"] > seconds(base)["generate"]
    assert seconds(longer)["update_actor"] > seconds(base)["update_actor"]
    assert seconds(wider)["update_actor"] < seconds(base)["update_actor"]


def test_padding_costs_and_pairs_are_two_sequences() -> None:
    packed, padded = (foretell.post_train(**{**GRPO, "packing": p}) for p in ("packed", "padded"))
    assert seconds(padded)["update_actor"] > 1.5 * seconds(packed)["update_actor"]
    one = {**GRPO, "samples": 1, "plan": "mbs1 zero3 recompute=none"}
    sft, dpo = (foretell.post_train(**{**one, "algorithm": a}) for a in ("sft", "dpo"))
    assert seconds(dpo)["update_actor"] == pytest.approx(
        2.0 * seconds(sft)["update_actor"], rel=0.2
    )


def test_a_forward_pass_takes_a_third_of_an_update_or_less() -> None:
    answer = foretell.post_train(**{**GRPO, "plan": "zero3 recompute=none"})
    share = seconds(answer)["old_logprob"] / seconds(answer)["update_actor"]
    assert 0.2 < share < 0.5


def test_the_phase_that_does_not_fit_is_named() -> None:
    answer = foretell.post_train(
        **{**GRPO, "model": "qwen2.5-32b", "gpus": "4xH100", "offload": "none"}
    )
    assert answer.fits == "no"
    assert answer.fails_in
    told = {one.phase: one.fits for one in answer.memory}
    assert "no" in told.values()


def test_chips_of_the_pools_may_differ() -> None:
    pools = {**GRPO, "gpus": None, "trainer_gpus": "8xH100", "rollout_gpus": "4xL40S"}
    answer = foretell.post_train(**pools, placement="async")
    assert (answer.trainer_gpus, answer.rollout_gpus, answer.gpus) == (8, 4, 12)
    assert answer.waiting_pool in ("trainer", "rollout")
    assert answer.rollout_system != answer.trainer_system


def test_placements_are_ranked_and_the_winner_is_explained() -> None:
    answer = foretell.post_train(**GRPO, placement="best")
    steps = [one["step_s"] for one in answer.alternatives if one["fits"]]
    assert steps == sorted(steps)
    assert answer.step_s == steps[0]
    assert len(answer.placement_reasons) > 1


def test_placements_of_128_chips_are_all_ranked() -> None:
    answer = foretell.post_train(
        "qwen3-30b-a3b", gpus="128xH100", prompts=512, samples=16, osl=2500, max_osl=16384, updates=8,
        framework="slime", placement="best",
    )  # fmt: skip
    assert {one["placement"] for one in answer.alternatives} == {"colocated", "split", "async"}


def test_tool_calls_are_waited_for() -> None:
    quick = foretell.post_train(**GRPO)
    slow = foretell.post_train(**GRPO, tool_time="5:60", turns=4)
    assert seconds(slow)["environment"] > 5.0
    assert "environment" not in seconds(quick)


def test_staleness_never_slows_a_pipeline_and_is_bounded() -> None:
    pools = PoolTimes(trainer_s=100.0, generate_s=220.0, steady_s=90.0, latency_s=60.0)
    steps = [
        pipeline_of(pools, k, partial=True, partial_hides=4.0) for k in (0.1, 0.3, 0.5, 1.0, 4.0)
    ]
    assert [one.step_s for one in steps] == sorted((one.step_s for one in steps), reverse=True)
    assert all(one.step_s >= 100.0 for one in steps)
    assert all(one.staleness <= k for one, k in zip(steps, (0.1, 0.3, 0.5, 1.0, 4.0), strict=True))


def test_published_staleness_of_a_streaming_trainer() -> None:
    """verl's table of Qwen2.5-Math-7B on 64 + 64 H20: 231, 171 and 146 s with staleness 0, 0.1 and 0.3."""
    steps = [
        foretell.post_train(
            "qwen2.5-7b", algorithm="dapo", trainer_gpus="64xh20-sxm", rollout_gpus="64xh20-sxm",
            prompts=512, samples=16, isl=150, osl=1400, max_osl=28672, updates=16, framework="verl",
            placement="async", staleness=k, partial=True, plan="zero3 framework=transformers",
        ).step_s
        for k in (0.0, 0.1, 0.3)
    ]  # fmt: skip
    assert steps == pytest.approx([231.3, 171.3, 146.1], rel=0.15)


def test_the_command_answers_with_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "post-train qwen2.5-1.5b --algorithm grpo --gpus 8xH100 --prompts 64 --samples 8 --osl 300 "
        "--max-osl 1024"
    )
    assert main([*words.split(), "--steps", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    keys = {
        "step_s", "interval", "phases", "memory", "idle_share", "tail_share", "staleness",
        "tokens_per_s_per_gpu", "usd_per_step", "usd_per_run", "placement", "plan", "rollout_plan",
        "assumptions",
    }  # fmt: skip
    assert keys <= told.keys()
    assert {"name", "seconds", "interval", "pool", "exposed"} == set(told["phases"][0])
    assert told["memory"]["fits"] in ("yes", "no", "too_close")


def test_answers_that_grow_make_a_run_longer() -> None:
    held = foretell.post_train(**GRPO, steps=100)
    grown = foretell.post_train(**GRPO, steps=100, osl_end=600)
    assert held.run_s == pytest.approx(100 * held.step_s)
    assert grown.run_s is not None
    assert held.run_s is not None
    assert held.run_s < grown.run_s < 2.5 * held.run_s
    assert grown.step_s == held.step_s


def test_cached_references_need_no_pass() -> None:
    found = seconds(foretell.post_train(**GRPO, reference="cached"))
    assert "ref_logprob" not in found


def test_everything_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = "post-train qwen2.5-1.5b --algorithm grpoo --placement colo --sync wire --tool-time x"
    assert main(words.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    for path in ("algorithm", "placement", "sync", "tool_time", "gpus"):
        assert path in told.err


@pytest.mark.parametrize("tool", ["verl", "nemo-rl", "trl"])
def test_configurations_are_written(tool: str) -> None:
    written = foretell.post_train(**GRPO).export(tool)
    assert "Qwen/Qwen2.5-1.5B" in written.text or tool == "trl"
    assert "8" in written.text


def test_a_trace_has_the_pools_as_processes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pools = {**GRPO, "gpus": None, "trainer_gpus": "8xH100", "rollout_gpus": "8xH100"}
    answer = foretell.post_train(**pools, placement="async", trace=tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {"trainer (8 chips)", "rollout (8 chips)"} <= names
    shown = sum(e["dur"] for e in events if e["ph"] == "X" and e["name"] == "update_actor")
    assert shown == pytest.approx(1e6 * seconds(answer)["update_actor"])


def test_a_smaller_value_model_makes_its_phases_shorter() -> None:
    asked = {**GRPO, "algorithm": "ppo"}
    alike, small = foretell.post_train(**asked), foretell.post_train(**asked, critic="qwen2.5-0.5b")
    for phase in ("values", "update_critic"):
        assert seconds(small)[phase] < 0.7 * seconds(alike)[phase]
    assert seconds(small)["update_actor"] == seconds(alike)["update_actor"]
    held = [
        next(m for m in one.memory if m.phase == "update_actor").parts["critic"]
        for one in (small, alike)
    ]
    assert held[0] < 0.5 * held[1]
    with pytest.raises(foretell.BadInput, match="value model"):
        foretell.post_train(**GRPO, critic="gpt2")


def test_scalar_heads_are_cheaper_than_scores() -> None:
    pairs = {"prompts": 16, "osl": 512, "gpus": "4xH100", "reference": "cached"}
    dpo, reward = (
        foretell.post_train("qwen2.5-1.5b", algorithm=name, **pairs) for name in ("dpo", "reward")
    )
    assert reward.step_s < dpo.step_s
    buffers = [next(iter(one.memory)).parts["buffers"] for one in (reward, dpo)]
    assert buffers[0] < buffers[1]


@pytest.mark.parametrize(("share", "rounds"), [(0.0, 1), (0.3, 2), (0.5, 2), (0.6, 3)])
def test_filtered_groups_are_generated_in_whole_rounds(share: float, rounds: int) -> None:
    once = seconds(foretell.post_train(**GRPO))["generate"]
    assert seconds(foretell.post_train(**GRPO, filtered=share))["generate"] == pytest.approx(
        rounds * once
    )


def test_drafts_shorten_a_generation_of_few_answers() -> None:
    few = {**GRPO, "prompts": 4, "samples": 4}
    plain, drafted = foretell.post_train(**few), foretell.post_train(**few, speculative="eagle3:3")
    assert seconds(drafted)["generate"] < seconds(plain)["generate"]
    assert any("eagle3 drafts 3" in said for said in drafted.assumptions)


def test_a_controller_takes_as_long_on_more_chips() -> None:
    """What verl hands out is filled up to the limit: the same bytes whatever the chips."""
    long = {**GRPO, "max_osl": 32_768, "framework": "verl"}
    setup, _ = setups_of(PostTrainingQuestion(**long), [])
    wider, _ = setups_of(PostTrainingQuestion(**{**long, "gpus": "16xH100"}), [])
    assert carried_s(setup, 36.0) == carried_s(wider, 36.0) > 0.0
    other, _ = setups_of(PostTrainingQuestion(**{**long, "framework": "slime"}), [])
    assert carried_s(other, 36.0) == 0.0


def test_values_can_leave_a_source_out() -> None:
    known, without = (post_training_loop("verl", out) for out in ((), ("verl-fully-async",)))
    assert known.controller_bytes_per_s != without.controller_bytes_per_s
    assert known.sync_fixed_s == without.sync_fixed_s
    assert post_training_loop("verl", ("another",)) == known


def test_sequences_alike_are_as_long_as_the_longest() -> None:
    found = foretell.post_train("llama-3.1-8b", algorithm="sft", gpus="8xH100", prompts=64, osl=600)
    assert found.max_answer_tokens == 600
    assert not any("cut at" in said and "four times" in said for said in found.assumptions)


def test_a_fine_tuned_sequence_is_counted_once() -> None:
    by_prompt = foretell.post_train(
        "qwen2.5-1.5b", algorithm="sft", gpus="1xH100", prompts=8, isl=1024
    )
    by_answer = foretell.post_train(
        "qwen2.5-1.5b", algorithm="sft", gpus="1xH100", prompts=8, osl=1024
    )
    assert by_prompt.tokens == by_answer.tokens == 8 * 1024


def test_what_does_not_fit_is_told_what_does() -> None:
    asked: dict[str, Any] = {**GRPO, "model": "llama-3.1-70b", "gpus": "8xH100"}
    found = foretell.post_train(**asked)
    assert found.fits == "no"
    assert any(way.startswith('--plan "lora=32" fits') for way in found.ways_to_fit)
    assert foretell.post_train(**asked, plan="lora=32").fits != "no"
    assert foretell.post_train(**GRPO).ways_to_fit == ()


def test_adapters_alone_are_sent_unless_the_loop_merges_them() -> None:
    full, adapted = (
        seconds(foretell.post_train(**{**GRPO, "model": "qwen2.5-7b"}, plan=plan))["weight_sync"]
        for plan in ("zero3", "zero3 lora=16")
    )
    merged = foretell.post_train(
        **{**GRPO, "model": "qwen2.5-7b", "framework": "trl"}, plan="zero3 lora=16"
    )
    assert adapted < full - 0.5
    # Frozen weights are gathered in 16 bits, trained ones in the 32 that FSDP keeps.
    loop, many = post_training_loop("generic"), float(count(model("qwen2.5-7b")).text)
    wider_s = 2.0 * many / loop.sync_ipc_bytes_per_s
    # Nothing is paused in a process of its own.
    calls_s = loop.sync_fixed_s - post_training_loop("trl").sync_fixed_s
    assert seconds(merged)["weight_sync"] == pytest.approx(full - wider_s - calls_s)


def test_an_early_release_has_its_own_values() -> None:
    trainers = [post_training_loop(f"areal{release}").trainer for release in ("@0.3", "@1.0", "")]
    assert trainers == ["megatron", "fsdp", "fsdp"]


def test_graphs_where_an_engine_has_its_chips() -> None:
    asked = {**GRPO, "framework": "openrlhf"}
    shared = foretell.post_train(**asked)
    apart = foretell.post_train(**{**asked, "gpus": "16xH100", "placement": "split"})
    assert "no-graph" in shared.rollout_plan
    assert "no-graph" not in apart.rollout_plan


def test_samples_are_by_algorithm_and_then_by_framework() -> None:
    def samples(**changes: Any) -> int:
        asked = {k: v for k, v in GRPO.items() if k != "samples"}
        return foretell.post_train(**{**asked, **changes}).samples

    assert samples(framework="generic") == post_training_loop("generic").samples
    assert samples(framework="nemo-rl") == 16
    assert samples(algorithm="dapo", framework="trl") == 16
    assert samples(algorithm="ppo", framework="nemo-rl") == 1


def test_models_that_reason_fill_more_of_a_limit() -> None:
    def tokens(name: str, limit: int = 16384) -> float:
        asked = {k: v for k, v in GRPO.items() if k not in ("osl", "max_osl")}
        found = foretell.post_train(**{**asked, "model": name, "max_osl": limit})
        return found.tokens / found.trajectories - found.prompt_tokens

    thinks = "deepseek-r1-distill-qwen-1.5b"
    assert tokens(thinks) > 2.0 * tokens("qwen2.5-1.5b")
    shares = [tokens(thinks, limit) / limit for limit in (1024, 4096, 16384)]
    assert 0.9 > shares[0] > shares[1] > shares[2]


def test_batches_in_turn_wait_for_the_longest_of_each() -> None:
    asked = {**GRPO, "framework": "nemo-aligner", "rollout_plan": "tp1 max_batch=8"}
    setup = setups_of(PostTrainingQuestion(**asked), [])[0]
    loop = setup.loop
    always = replace(setup, loop=replace(loop, static_batches=False))
    turns, refilled = (step_of(one).rollout for one in (setup, always))
    assert loop.static_batches
    assert turns is not None
    assert refilled is not None
    assert turns.seconds > 1.2 * refilled.seconds


def test_engines_on_ascend_launch_kernel_by_kernel() -> None:
    loop = post_training_loop("slime")
    assert "ascend" in loop.runs_eagerly("slime", "ascend", apart=False)
    assert loop.runs_eagerly("slime", "hopper", apart=False) == ""
    assert post_training_loop("skyrl").runs_eagerly("skyrl", "hopper", apart=False)


def test_passes_of_one_timer_are_one_figure() -> None:
    answer = foretell.post_train(**{**GRPO, "framework": "skyrl"})
    alone = seconds(answer)
    told = printed_phases(answer.phases, answer.placement, post_training_loop("skyrl"))
    assert told["old_logprob"] == alone["old_logprob"] + alone["ref_logprob"]
    assert "ref_logprob" not in told


def test_a_budget_holds_the_longest_trajectory() -> None:
    long = {**GRPO, "osl": 9000, "max_osl": 30000, "framework": "slime", "gpus": "16xH100"}
    assert (foretell.post_train(**long).micro_tokens or 0) >= 30000


def test_weights_that_are_gathered_to_be_loaded_need_room() -> None:
    asked = {"model": "llama-2-7b", "algorithm": "sft", "gpus": "2xA100", "prompts": 2, "osl": 512}
    answer = foretell.post_train(**asked, plan="zero3 lora=8", framework="litgpt")
    held = {one.phase: one.total_bytes for one in answer.memory}
    assert held["load"] == pytest.approx(1.5 * 2.0 * count(model("llama-2-7b")).text, rel=0.01)
    alone = foretell.post_train(**{**asked, "gpus": "1xA100"}, plan="lora=8", framework="litgpt")
    assert {one.phase for one in alone.memory} == {"update_actor"}


def test_early_releases_roll_out_without_graphs() -> None:
    early, late, none = (
        seconds(foretell.post_train(**{**GRPO, "framework": name}))["generate"]
        for name in ("verl@0.4", "verl@0.6", "verl")
    )
    assert early > 1.2 * late
    assert late == none


def test_a_framework_of_fine_tuning_fills_what_the_plan_leaves_open() -> None:
    def plan(
        words: str, framework: str = "transformers", gpus: str = "4xa100-sxm-40gb"
    ) -> set[str]:
        asked = {"model": "llama-2-7b", "algorithm": "sft", "prompts": 64, "isl": 512}
        found = foretell.post_train(**asked, gpus=gpus, framework=framework, plan=words)
        return set(found.plan.split())

    assert {"zero0", "autocast=on", "master=fp32"} <= plan("lora=8")
    assert {"zero3", "master=fp32"} <= plan("mbs1")
    assert "recompute=none" in plan("lora=8")
    assert "recompute=full" in plan("lora=8", "llama-factory")
    assert {"zero3", "adapters=q+v+o+up+down"} <= plan("lora=8", "torchtune")
    assert {"zero0", "adapters=qv"} <= plan("lora=8", "litgpt")
    assert "recompute=full" in plan("lora=8 zero3", "litgpt")
    assert {"zero0", "adapters=all"} <= plan("lora=8 adapters=all zero0", "litgpt", "1xA100")
