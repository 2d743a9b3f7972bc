"""The trainer of a post-training question: its software, its plan, and how micro-batches are filled.

What a plan leaves open is as the framework has it (catalog/posttraining.toml) and as its trainer trains:
loops of reinforcement learning compute layers again and keep states in 32 bits; the Trainer of Hugging Face
keeps 32-bit copies of what it trains, adapters under autocast; a framework of fine-tuning has adapters on
maps of its own, and checkpoints by its own rule.
"""

import re
from dataclasses import replace
from typing import Any

from foretell.catalog.post_training import PostTrainingLoop
from foretell.inputs.question import ask, plan_of, settings_of
from foretell.kernels.memory import held_of_parts
from foretell.posttraining.passes import packed_batch, step_numbers
from foretell.posttraining.placement import candidate_plans
from foretell.posttraining.workload import TrajectoryWorkload
from foretell.search.plan_checks import check_plan
from foretell.specs.plan import Plan, named_fields
from foretell.specs.plan_words import read_words
from foretell.specs.post_training import AlgorithmForm, find_algorithm
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import memory_verdict


def budget_of(
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    trainer: str,
    work: TrajectoryWorkload,
    ranks: int,
) -> float:
    """Tokens of a micro-batch on one of so many ranks; 0: the plan's sequences."""
    if question.micro_tokens is not None:
        return float(question.micro_tokens)
    named = _named(question.plan)
    fixed = "micro_batch" in named or isinstance(question.plan, Plan)
    longest = work.prompt_tokens + work.answers.cap if work.generated else 0.0
    # A budget is at least the longest sequence, of which ranks of context parallelism hold a part each.
    usual = max(float(loop.micro_tokens), longest)
    if loop.adapter_batches and work.generated and "lora" in named and "micro_batch" not in named:
        return min(work.passed_tokens / work.samples / work.updates / ranks, usual)
    if loop.bins and work.generated and isinstance(question.plan, str | None):
        many = read_words(question.plan or "")[0].get("micro_batch", loop.sequences(trainer))
        return float(str(many)) * (work.prompt_tokens + work.answers.cap)
    form = find_algorithm(question.algorithm)
    assert form is not None
    own = loop.sequences(trainer) > 0 if form.generates else question.plan is not None
    return 0.0 if fixed or own else usual


def _named(plan: Any) -> tuple[str, ...]:
    return named_fields(plan) if isinstance(plan, str) else ()


def trainer_of(
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    form: AlgorithmForm,
    work: TrajectoryWorkload,
    said: list[str],
    left_out: tuple[str, ...] = (),
) -> tuple[Scenario, str, Plan]:
    """The trainer's scenario, kind and plan; a plan that is not given is the fastest of a few that fit."""
    given = question.plan
    gpus = question.trainer_gpus if question.trainer_gpus is not None else question.gpus
    words = given if isinstance(given, str) else ""
    named = _named(given)
    trainer, software = software_words(words, named, loop)
    text = words if "framework" in named else f"{words} framework={software}".strip()
    asked: dict[str, Any] = {
        "system": question.system,
        "gpus": gpus,
        "set": settings_of(question),
        "global_batch": work.trajectories,
        "seq_len": max(round(work.passed_length), 8),
    }
    if isinstance(given, Plan):
        scenario = ask(question.model, **asked, plan=given)
        return plan_of(scenario, given)[0], trainer, given
    chips = ask(question.model, **asked).job.gpus
    both = (trainer, software)
    words = with_open_words(
        text, question, loop, form, both, 3 if chips > 1 or form.generates else 0
    )
    if replicates(question, loop, form, trainer, chips):
        # Copies unless they are too large.
        whole = with_open_words(text, question, loop, form, both, 0)
        scenario = ask(question.model, **asked, plan=whole)
        scenario, plan = plan_of(scenario, whole, settings_of(question), left_out=left_out)
        held = step_numbers(
            packed_batch(scenario, plan, work, 1.0 / work.updates, 0.0, balanced=True)
        )[1]
        have = float(scenario.system.chip.memory_bytes)
        if memory_verdict(held_of_parts(held), have) == "yes":
            words = whole
    if not form.generates and words.strip() != text:
        left = words.removeprefix(text).strip()
        said.append(f"what the plan leaves open, as {loop.name} trains: {left}")
    text = words
    scenario = ask(question.model, **asked, plan=text)
    degrees = {"tp", "pp", "ep", "cp", "dp", "zero"} & {*named}
    scenario, base = plan_of(scenario, text, settings_of(question), left_out=left_out)
    if given is not None and (degrees or trainer != "megatron"):
        checked_degrees(scenario, base)
        return scenario, trainer, base
    budget = budget_of(question, loop, trainer, work, chips)
    plan, fits = candidate_plans(scenario, base, trainer, work, budget)
    if not fits and given is None and trainer == "fsdp" and loop.megatron and form.generates:
        words = f"framework={loop.software_megatron}"
        other, base = plan_of(scenario, words, settings_of(question), left_out=left_out)
        budget = budget_of(question, loop, "megatron", work, chips)
        cut, fits = candidate_plans(other, base, "megatron", work, budget)
        if fits:
            said.append(
                "trainer's plan chosen: the best of a few Megatron plans; none of FSDP fits"
            )
            return other, "megatron", cut
    said.append(f"trainer's plan chosen: the best of a few {trainer} plans")
    return scenario, trainer, plan


def sender_of(question: PostTrainingQuestion, loop: PostTrainingLoop) -> tuple[Scenario, str, Plan]:
    """The trainer of a synchronisation alone: its chips, kind and adapters, whatever its degrees."""
    words = question.plan if isinstance(question.plan, str) else ""
    gpus = question.trainer_gpus if question.trainer_gpus is not None else question.gpus
    scenario = ask(question.model, system=question.system, gpus=gpus, set=settings_of(question))
    given = read_words(words)[0]
    adapters = {name: given[name] for name in ("lora", "adapters") if name in given}
    plan = replace(Plan(dp=scenario.job.gpus), **adapters)  # type: ignore[arg-type]
    return scenario, software_words(words, _named(words), loop)[0], plan


def software_words(words: str, named: tuple[str, ...], loop: PostTrainingLoop) -> tuple[str, str]:
    """The trainer (fsdp, megatron or deepspeed) of a plan's words, and its software."""
    trainer = loop.trainer
    if any(name in named for name in ("tp", "pp", "ep")) and "zero" not in named:
        trainer = "megatron"
    if "framework" not in named:
        return trainer, loop.software(trainer)
    software = words.split("framework=")[1].split()[0]
    if software.startswith(("megatron", "nemo")) and not software.startswith("nemo-automodel"):
        return "megatron", software
    return ("deepspeed" if software.startswith("deepspeed") else "fsdp"), software


def replicates(
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    form: AlgorithmForm,
    trainer: str,
    chips: int,
) -> bool:
    """Whether fine-tuning over several chips keeps copies of the weights if these fit: no word says how they
    are shared, and the framework has no way of its own."""
    named = _named(question.plan)
    silent = question.plan is not None and not {"zero", "tp", "pp", "ep", "cp"} & {*named}
    return (
        silent
        and not form.generates
        and chips > 1
        and trainer == "fsdp"
        and not loop.tuning_sharded
    )


def with_open_words(
    text: str,
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    form: AlgorithmForm,
    software: tuple[str, str],
    stage: int,
) -> str:
    """A plan's words, and those that it leaves open as its framework and its trainer (the first of
    `software`) have them; `stage`: of sharing, where the plan does not say."""
    trainer, name = software
    named, given = _named(question.plan), question.plan is not None
    own = loop.sequences(trainer) if form.generates and question.micro_tokens is None else 0
    told = {"micro_batch": f"mbs{own}"} if own else {}
    shards = trainer in ("fsdp", "deepspeed")
    if given and shards:
        told["zero"] = f"zero{stage}"
    if given and (form.generates or form.policy):
        told["recompute"] = "recompute=full"
    if form.generates and shards and "lora" not in named:
        # Loops train in mixed precision: one copy, states and reduction in 32 bits.
        told |= {key: f"{key}=fp32" for key in ("master", "states", "gradients")}
        # reduce_dtype of FSDP is float32 in verl, NeMo-RL, SkyRL and AReaL.
        told |= {"wire": "wire=fp32"} if trainer == "fsdp" else {}
    if (form.generates or form.policy) and loop.policy_loss:
        told["loss"] = f"loss={loop.policy_loss}"
    if not form.generates:
        given_stage = re.search(r"(?:^| )zero=?(\d)", text)
        shared = int(given_stage[1]) if given_stage else stage if shards else 0
        tuned = tuning_words(loop, name, shared, "lora" in named)
        # Without a plan the best of a few is chosen, and with it what is computed again.
        told |= {key: word for key, word in tuned.items() if given or key != "recompute"}
    return " ".join([text, *(word for key, word in told.items() if key not in named)])


def tuning_words(
    loop: PostTrainingLoop, software: str, stage: int, adapters: bool
) -> dict[str, str]:
    """What a framework of fine-tuning does that a plan leaves open, by field."""
    told: dict[str, str] = {}
    modules = software.startswith("transformers")
    if loop.tuning_recompute == "full" or (loop.tuning_recompute and stage == 3):
        told["recompute"] = "recompute=full"
    if modules and adapters and loop.tuning_autocast:
        # The Trainer's bf16 runs under autocast; PEFT's adapters are in 32 bits.
        told["autocast"] = "autocast=on"
    if modules and (adapters or stage):
        # DeepSpeed and FSDP keep master weights and states in 32 bits beside bf16 and fp16.
        told |= {key: f"{key}=fp32" for key in ("master", "states")}
    told |= {name: word for word in loop.tuning_plan.split() for name in read_words(word)[0]}
    if adapters and loop.tuning_frozen:
        told |= {"weights": f"weights={loop.tuning_frozen}", "autocast": "autocast=off"}
    if adapters and loop.tuning_adapters:
        told["adapters"] = f"adapters={loop.tuning_adapters}"
    return told


def checked_degrees(scenario: Scenario, plan: Plan) -> None:
    """Raise where a plan's degrees cannot be: its batch and length are made to fit."""
    step = plan.tp * plan.cp * 2
    job = replace(
        scenario.job,
        global_batch=plan.dp * plan.micro_batch * plan.pp * plan.vpp * 4,
        seq_len=-(-scenario.job.seq_len // step) * step,
    )
    check_plan(replace(scenario, job=job), plan)
