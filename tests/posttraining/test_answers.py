"""What a post-training answer prints: words that give the same step, tokens, what fits, what was assumed."""

from typing import Any

import pytest

import foretell
from foretell.api.post_training_setup import setups_of
from foretell.api.post_training_words import in_our_words
from foretell.cli import run as main
from foretell.errors import BadInput, Infeasible
from foretell.posttraining.step import step_of
from foretell.specs.post_training import algorithm_in
from foretell.specs.questions.post_training import PostTrainingQuestion

RL: dict[str, Any] = {
    "model": "qwen2.5-7b",
    "gpus": "16xH100",
    "prompts": 256,
    "samples": 8,
    "osl": 1500,
    "max_osl": 8192,
}
TUNING: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "algorithm": "sft",
    "gpus": "8xH100",
    "prompts": 64,
    "isl": 4096,
}


@pytest.mark.parametrize(
    "asked",
    [
        RL,
        {**RL, "micro_tokens": 8192, "framework": "verl"},
        {**RL, "framework": "trl"},
        {**RL, "framework": "slime"},
        {**RL, "plan": "mbs2 zero3"},
        TUNING,
        {**TUNING, "algorithm": "dpo", "isl": 1500},
        {**TUNING, "plan": "mbs2"},
    ],
)
def test_a_printed_plan_gives_its_own_step(asked: dict[str, Any]) -> None:
    found = foretell.post_train(**asked)
    assert ("mbs" in found.plan) == (found.micro_tokens is None)
    printed: dict[str, Any] = {"plan": found.plan, "micro_tokens": found.micro_tokens}
    if found.rollout_plan:
        printed["rollout_plan"] = found.rollout_plan
    again = foretell.post_train(**{**asked, **printed})
    assert again.step_s == pytest.approx(found.step_s, rel=1e-9)
    assert again.plan == found.plan


def test_words_of_a_printed_rl_plan_are_enough() -> None:
    found = foretell.post_train(**RL)
    again = foretell.post_train(**RL, plan=found.plan, rollout_plan=found.rollout_plan)
    assert again.step_s == pytest.approx(found.step_s, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["dpo", "reward"])
def test_both_halves_of_a_pair_are_counted(algorithm: str) -> None:
    found = foretell.post_train(**{**TUNING, "algorithm": algorithm, "isl": 1024})
    assert found.tokens == 64 * 2 * 1024
    assert found.tokens_per_s_per_gpu == pytest.approx(found.tokens / found.step_s / 8)


def test_the_text_counts_pairs_and_names_no_placement_without_an_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "post-train qwen2.5-1.5b --gpus 1xH100 --prompts 8 --isl 1025 --algorithm"
    assert main([*words.split(), "sft"]) == 0
    told = capsys.readouterr().out
    assert "\nno framework named; 8 sequences, 8,200 tokens a step" in told
    assert "colocated" not in told
    assert main([*words.split(), "dpo"]) == 0
    assert "8 pairs (16 sequences), 16,400 tokens a step" in capsys.readouterr().out


def test_help_names_the_engine_of_the_framework(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post-train", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "or the id of a profile (default: the framework's)" in told
    assert "where none is named" not in told
    assumed = foretell.post_train(**{**RL, "framework": "verl"}).assumptions
    assert any("vllm-0.6" in said for said in assumed)


def test_modules_that_write_their_own_answers_have_no_engine_to_wake() -> None:
    asked = {**RL, "framework": "trl"}
    engine, own = (foretell.post_train(**asked, engine=name) for name in (None, "transformers"))
    times = {phase.name: phase.seconds for phase in own.phases}
    assert max(times["wake"], times["sleep"]) < 1e-6
    assert times["weight_sync"] < 1e-6
    assert times["generate"] > engine.phases[1].seconds
    assert "no-graph" in own.rollout_plan


def test_an_engine_that_never_sleeps_holds_its_memory_beside_the_trainer() -> None:
    held = {
        name: next(
            m for m in foretell.post_train(**RL, framework=name).memory if m.phase == "update_actor"
        )
        for name in ("trl", "openrlhf")
    }
    beside = {name: one.parts["engine beside"] for name, one in held.items()}
    assert beside["trl"] > 4.0 * beside["openrlhf"]
    assert foretell.post_train(**RL, framework="trl").offload == ()


@pytest.mark.parametrize(
    ("model", "degree"), [("qwen2.5-0.5b", "tp2"), ("qwen2.5-7b", "tp2"), ("qwen2.5-72b", "tp8")]
)
def test_a_framework_lays_its_engine_out_where_that_fits(model: str, degree: str) -> None:
    """rollout.tensor_model_parallel_size of verl is 2 unless set; 72 billion weights need more cards."""
    found = foretell.post_train(model, gpus="64xH100", framework="verl", prompts=64, max_osl=1024)
    assert found.rollout_plan.startswith(degree)


@pytest.mark.parametrize("algorithm", ["online-dpo", "gkd", "grpo"])
def test_a_loop_leaves_out_penalties_alone(algorithm: str) -> None:
    found = foretell.post_train(**{**RL, "framework": "trl", "algorithm": algorithm})
    compared = any(phase.name == "ref_logprob" for phase in found.phases)
    assert compared == (algorithm != "grpo")


def test_micro_batches_of_adapters_are_no_fuller_than_others() -> None:
    asked = {**RL, "framework": "verl", "plan": "lora=32", "prompts": 4096}
    assert foretell.post_train(**asked).micro_tokens == 16384


def test_a_plan_that_fills_the_card_comes_before_the_smallest() -> None:
    """Of gpt-oss-120b no plan leaves most of a card free; experts are cut all the same."""
    found = foretell.post_train(
        "gpt-oss-120b", gpus="32xH200", framework="nemo-rl", prompts=16, samples=8, max_osl=2048
    )
    assert " ep1" not in found.plan
    assert "ep" in found.plan


def test_a_quantised_base_on_one_card_is_told_to_compute_layers_again() -> None:
    asked: dict[str, Any] = {
        "model": "llama-3.1-70b",
        "algorithm": "sft",
        "gpus": "1xA100-80GB",
        "prompts": 8,
        "isl": 2048,
        "plan": "lora=16 weights=nf4",
    }
    found = foretell.post_train(**asked)
    assert found.fits == "no"
    words = "lora=16 weights=nf4 recompute=full"
    assert found.ways_to_fit[0].startswith(f'--plan "{words}" fits')
    assert foretell.post_train(**{**asked, "plan": words}).fits == "yes"


def test_one_small_card_is_told_of_quantised_adapters() -> None:
    found = foretell.post_train(
        "llama-3.1-8b", algorithm="sft", gpus="1xRTX4090", osl=2048, prompts=8
    )
    assert any("lora=32" in way and "weights=nf4" in way for way in found.ways_to_fit)


def test_ways_to_fit_spread_weights_and_begin_with_the_cheapest() -> None:
    sharded = foretell.post_train(**{**TUNING, "isl": 6144, "plan": "tp1 pp1 zero1"})
    assert sharded.fits == "no"
    ways = [way.split(" fits")[0] for way in sharded.ways_to_fit]
    assert ways[:2] == ['--plan "tp1 pp1 zero3"', '--plan "tp1 pp1 zero1 recompute=full"']
    steps = [
        foretell.post_train(**{**TUNING, "isl": 6144, "plan": way.split('"')[1]})
        for way in ways[:2]
    ]
    assert all(one.fits != "no" for one in steps)
    assert steps[0].step_s < steps[1].step_s
    both = foretell.post_train(**{**TUNING, "isl": 8192, "gpus": "4xH100", "plan": "zero0 mbs1"})
    assert any('--plan "mbs1 recompute=full zero3" fits' in way for way in both.ways_to_fit)


def test_the_assumptions_describe_the_placement_that_is_answered() -> None:
    found = foretell.post_train(**RL, placement="best")
    assert found.placement != "colocated"
    layouts = [said for said in found.assumptions if said.startswith("rollout layout")]
    assert layouts == [f"rollout layout {found.rollout_plan}: the fastest that fits"]
    share = float(found.rollout_plan.split("memory_fraction=")[1].split()[0])
    assert [said for said in found.assumptions if said.startswith("the engine takes")] == [
        f"the engine takes {share:.0%} of the memory (a loop that is not named)"
    ]
    given = foretell.post_train(**RL, rollout_plan="tp2 memory_fraction=0.5")
    assert not any(s.startswith(("rollout layout", "the engine")) for s in given.assumptions)


@pytest.mark.parametrize("asked", [TUNING, {**TUNING, "algorithm": "dpo", "isl": 2048}])
def test_a_plan_that_is_chosen_is_no_slower_than_one_that_clearly_fits(
    asked: dict[str, Any],
) -> None:
    found = foretell.post_train(**asked)
    assert found.fits == "yes"
    assert "recompute=none" in found.plan
    for plan in ("recompute=none", "recompute=full"):
        for budget in (16_384, 8192, 4096):
            other = foretell.post_train(**asked, plan=plan, micro_tokens=budget)
            assert other.fits != "yes" or other.step_s >= found.step_s * (1 - 1e-9)


def test_layers_are_computed_again_where_nothing_else_fits() -> None:
    found = foretell.post_train(**{**TUNING, "isl": 16_384, "gpus": "4xH100"})
    assert "recompute=full" in found.plan
    assert found.micro_tokens == 16_384


def test_two_pools_are_split_unless_asked_otherwise() -> None:
    pools = {"trainer_gpus": "16xH100", "rollout_gpus": "8xL40S"}
    asked = {k: v for k, v in RL.items() if k != "gpus"}
    found = foretell.post_train(**asked, **pools)
    assert (found.placement, found.gpus, found.rollout_system) == ("split", 24, "l40s")
    best = foretell.post_train(**asked, **pools, placement="best")
    assert (best.trainer_gpus, best.rollout_gpus) == (16, 8)
    with pytest.raises(BadInput, match="rollout_gpus"):
        foretell.post_train(**asked, trainer_gpus="16xH100")


def test_an_engine_gets_the_share_that_it_needs_on_a_small_card() -> None:
    small = {"model": "qwen2.5-3b", "algorithm": "grpo", "gpus": "1xrtx4090", "framework": "trl",
             "prompts": 4, "max_osl": 512, "plan": "lora=16 mbs2"}  # fmt: skip
    found = foretell.post_train(**small)
    assert "memory_fraction=0.5" in found.rollout_plan
    assert any("the usual 30% leaves no cache" in said for said in found.assumptions)
    with pytest.raises(Infeasible):
        foretell.post_train(**small, rollout_plan="memory_fraction=0.3")


def test_a_model_too_large_for_fsdp_is_cut_by_megatron() -> None:
    asked = {"algorithm": "grpo", "framework": "verl", "prompts": 256, "samples": 8, "osl": 500}
    large = foretell.post_train("deepseek-v3", gpus="512xH100", **asked)
    assert "framework=megatron-core" in large.plan
    assert any("none of FSDP fits" in said for said in large.assumptions)
    small = foretell.post_train("qwen2.5-7b", gpus="64xH100", **asked)
    assert "framework=transformers" in small.plan


def test_the_next_ratio_is_named_beside_the_best() -> None:
    found = foretell.post_train(**RL, placement="async")
    assert any(said.startswith("the next ratio, async") for said in found.placement_reasons)


def test_what_a_card_can_tune() -> None:
    found = foretell.post_train(
        "qwen2.5-1.5b",
        algorithm="sft",
        gpus="1xl40s",
        prompts=4,
        osl=1024.0,
        max_osl=1024,
        fit=True,
    )
    assert found.fit is not None
    ways = {one.way: one for one in found.fit}
    assert ways["full"].max_context < ways["lora"].max_context
    for one in found.fit:
        edge = {"algorithm": "sft", "gpus": "1xl40s", "prompts": 1, "plan": one.plan}
        tokens = one.max_context
        assert (
            foretell.post_train("qwen2.5-1.5b", osl=float(tokens), max_osl=tokens, **edge).fits
            == "yes"
        )
        over = tokens + 256
        assert (
            foretell.post_train("qwen2.5-1.5b", osl=float(over), max_osl=over, **edge).fits != "yes"
        )
    assert found.to_dict()["fit"][0]["way"] == "as asked"


def test_sequences_are_filled_up_to_the_longest_of_their_micro_batch() -> None:
    def step(packing: str) -> Any:
        return foretell.post_train("qwen2.5-1.5b", algorithm="sft", gpus="1xl40s", prompts=16, plan="mbs4",
                          lengths="alpaca", packing=packing)  # fmt: skip

    packed, grouped, batch, padded = (step(one) for one in ("packed", "grouped", "batch", "padded"))
    assert packed.step_s <= 1.05 * grouped.step_s
    assert grouped.step_s < batch.step_s < padded.step_s
    peaks = [one.memory[-1].total_bytes for one in (packed, grouped, batch, padded)]
    assert peaks[0] < peaks[1] == pytest.approx(peaks[2]) == pytest.approx(peaks[3], rel=0.02)


def test_unsloth_holds_neither_scores_nor_inputs_of_layers() -> None:
    asked = {"algorithm": "sft", "gpus": "1xl40s", "prompts": 1, "osl": 16384.0, "max_osl": 16384}
    own, plain = (
        foretell.post_train(
            "qwen2.5-1.5b", framework="unsloth", plan=f"mbs1 lora=16 {words}", **asked
        )
        for words in ("", "loss=kernel offload=none")
    )
    assert own.memory[-1].total_bytes < 0.5 * plain.memory[-1].total_bytes
    assert "loss=chunked" in own.plan


def test_a_synchronisation_alone_is_one_phase() -> None:
    found = foretell.post_train(
        "qwen2.5-7b", algorithm="sync", trainer_gpus="8xh100", rollout_gpus="8xh100"
    )
    assert [phase.name for phase in found.phases] == ["weight_sync"]
    assert found.step_s == found.phases[0].seconds > 0.0


def test_adapters_slow_rollouts_without_graphs() -> None:
    def generated(plan: str, layout: str) -> float:
        found = foretell.post_train(
            "qwen2.5-1.5b", gpus="1xh100", prompts=16, osl=200.0, max_osl=400, plan=plan,
            rollout_plan=layout, framework="verl",
        )  # fmt: skip
        return next(phase.seconds for phase in found.phases if phase.name == "generate")

    assert generated("lora=16", "tp1 no-graph") > 1.5 * generated("", "tp1 no-graph")
    assert generated("lora=16", "tp1") == pytest.approx(generated("", "tp1"))


def phases_of(**asked: object) -> dict[str, float]:
    found = foretell.post_train(
        "qwen2.5-7b", **{"gpus": "8xh100", "prompts": 64, "samples": 5, **asked}
    )  # type: ignore[arg-type]
    return {phase.name: phase.seconds for phase in found.phases}


def test_each_matrix_of_an_adapter_is_a_unit_of_fsdp() -> None:
    """PEFT's wrap policy shares every matrix by itself: the host takes longer for them than for the layers,
    in every micro-batch, where whole blocks are units it does not; the reference is passed without them."""
    words = "zero3 recompute=full lora=32 mbs4"
    apart = phases_of(plan=f"{words} framework=transformers", framework="verl")
    whole = phases_of(plan=f"{words} framework=transformers-fsdp2", framework="verl")
    plain = phases_of(plan="zero3 recompute=full mbs4 framework=transformers", framework="verl")
    assert apart["update_actor"] > 1.5 * whole["update_actor"]
    assert apart["ref_logprob"] == pytest.approx(whole["ref_logprob"])
    assert apart["ref_logprob"] < whole["old_logprob"] < apart["old_logprob"]
    assert plain["ref_logprob"] == pytest.approx(plain["old_logprob"])


def test_verl_moves_what_sleeps_within_each_phase() -> None:
    """Its workers load weights and states at the beginning of a call and put them back at its end."""
    asked = {"framework": "verl", "plan": "zero3 framework=transformers mbs4"}
    moved, kept = (phases_of(**asked, offload=word) for word in ("weights+optimizer", "none"))
    for name in ("old_logprob", "ref_logprob", "update_actor", "wake", "sleep"):
        assert moved[name] > kept[name], name
    assert moved["update_actor"] - kept["update_actor"] > moved["old_logprob"] - kept["old_logprob"]


@pytest.mark.parametrize("framework", ["trl", "llama-factory", "generic"])
def test_slicing_of_trajectories_is_no_part_of_fine_tuning(framework: str) -> None:
    """A collator's batches need no cutting of trajectories: small models train as fast as their passes."""
    asked = PostTrainingQuestion(
        model="qwen2.5-0.5b", algorithm="sft", gpus="1xh100", prompts=4, osl=200.0,
        plan="mbs4 lora=8 framework=transformers@5", framework=framework,
    )  # fmt: skip
    found = step_of(setups_of(asked, [])[0])
    assert found.step_s == pytest.approx(found.passes.update_s)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("multi-turn GRPO", "grpo"), ("Dr. GRPO", "dr-grpo"), ("PPO (no critic)", "grpo"), ("VAPO", "vapo"),
        ("knowledge distillation", "distillation"), ("GKD", "on-policy-distillation"), ("RAFT++", ""),
        ("SFT (LoRA)", "sft"), ("iterative DPO", "dpo"), ("an optimizer", ""), ("DAPO-Math GRPO", "grpo"),
        ("GRPO (DAPO clip, dynamic filter)", "grpo"), ("our loop (PPO)", "ppo"),
    ],
)  # fmt: skip
def test_algorithms_are_found_in_a_text(text: str, name: str) -> None:
    form = algorithm_in(text)
    assert (form.id if form else "") == name


def test_words_of_frameworks_and_papers_are_read_and_said() -> None:
    asked = PostTrainingQuestion(
        model="qwen2.5-0.5b", algorithm="GRPO with LoRA", gpus="8xA100 80GB SXM4", framework="EasyR1",
        placement="disaggregated", sync="nccl", offload="param", prompts=8, max_osl=256,
    )  # fmt: skip
    said: list[str] = []
    read = in_our_words(asked, said)
    assert (read.framework, read.placement, read.sync) == ("verl", "split", "broadcast")
    assert (read.algorithm, read.plan, read.offload) == ("grpo", "lora=8", "weights")
    assert {line.split()[0] for line in said} == {
        "algorithm", "framework", "placement", "sync", "offload", "the",
    }  # fmt: skip
    assert in_our_words(read, said) == read


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        ({"algorithm": "qlora"}, "lora=8 weights=nf4"),
        ({"algorithm": "DoRA"}, "lora=8 method=dora"),
        ({"algorithm": "sft", "plan": "weights=nf4"}, "weights=nf4 lora=8"),
        ({"algorithm": "lora", "plan": "lora=16 mbs2"}, "lora=16 mbs2"),
        ({"algorithm": "sft"}, None),
    ],
)
def test_adapters_that_a_name_or_a_format_asks_for(given: dict[str, str], plan: str | None) -> None:
    read = in_our_words(PostTrainingQuestion(model="qwen2.5-0.5b", gpus="1xa100", **given), [])
    assert (read.algorithm, read.plan) == ("sft", plan)


def test_misspelt_words_keep_their_error() -> None:
    with pytest.raises(BadInput) as caught:
        foretell.post_train("qwen2.5-0.5b", gpus="1xa100", algorithm="grop", framework="ver")
    assert {problem.path for problem in caught.value.problems} == {"algorithm", "framework"}


def test_each_turn_writes_an_answer() -> None:
    asked: dict[str, Any] = {"gpus": "8xh100", "algorithm": "grpo", "prompts": 8, "samples": 2}
    one = foretell.post_train("qwen2.5-0.5b", max_osl=2048, **asked)
    many = foretell.post_train("qwen2.5-0.5b", max_osl=8192, turns=4, **asked)
    assert many.tokens - 16 * many.prompt_tokens == pytest.approx(
        4 * (one.tokens - 16 * one.prompt_tokens), rel=0.1
    )


@pytest.mark.parametrize("plan", ["mbs2 zero3", None])
def test_log_probabilities_have_micro_batches_of_their_own(plan: str | None) -> None:
    asked: dict[str, Any] = {**RL, "framework": "verl", "plan": plan, "offload": "none"}

    def numbers(**more: Any) -> tuple[dict[str, float], dict[str, float]]:
        found = foretell.post_train(**asked, **more)
        took = {phase.name: phase.seconds for phase in found.phases}
        return took, {phase.phase: phase.total_bytes for phase in found.memory}

    def changed(one: dict[str, float], other: dict[str, float]) -> set[str]:
        return {name for name in one if one[name] != pytest.approx(other[name], rel=1e-9)}

    took, held = numbers()
    larger_s, larger = numbers(log_prob_mbs=32)
    apart_s, apart = numbers(log_prob_mbs=32, reference_mbs=4)
    assert changed(took, larger_s) == {"old_logprob", "ref_logprob"}
    assert changed(larger_s, apart_s) == {"ref_logprob"}
    assert changed(held, larger) == {"logprob"}
    assert apart == larger
    assert larger["logprob"] > held["logprob"]
    assert plan is None or numbers(log_prob_mbs=2) == numbers()


def test_micro_batches_of_passes_that_are_not_there_are_noted() -> None:
    found = foretell.post_train(**{**RL, "algorithm": "dapo"}, reference_mbs=4)
    assert any(text.startswith("reference_mbs has no effect") for text in found.assumptions)
