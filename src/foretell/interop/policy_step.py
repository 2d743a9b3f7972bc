"""A step of reinforcement learning or fine-tuning as a launch says it, whatever the framework: `PolicyStep`.

`launch_of_step` makes the launch of it: one update of the policy as a training run, and the whole step by the
names of a post-training question.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import drop_unset, enough_chips, plan_words, read_back
from foretell.interop.launch import Known, Launch, ReadValue, Tool
from foretell.interop.tool_fields import Translated, launch_of
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.records import dataclass
from foretell.specs.post_training import USUAL_PROMPT, usual_prompt

ALGORITHMS = {"sft": "sft", "dpo": "dpo", "reward": "reward", "grpo": "grpo",
              "gae": "ppo", "ppo": "ppo", "dapo": "dapo", "rloo": "grpo", "reinforce": "grpo",
              "group_norm": "grpo", "reinforce_plus_plus": "grpo", "dr_grpo": "grpo",
              "remax": "grpo", "reinforce_baseline": "grpo", "gspo": "grpo", "opo": "grpo",
              "gpg": "dapo"}  # fmt: skip
"""Advantage estimators and the algorithm whose step is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """What all of them say, under one name each."""

    model: str | None
    """The policy."""
    gpus: int | None
    """Chips of the trainer, and where they are shared of all."""
    prompts: int
    """Prompts of a step."""
    samples: int
    """Answers to each."""
    mini: int
    """Sequences of one optimizer update."""
    prompt_len: int
    """Longest prompt."""
    answer_len: int
    """Longest answer."""
    algorithm: str
    """Its estimator of advantages."""
    rollout_tp: int
    """Tensor-parallel ranks of the engine."""
    fraction: float | None
    """Share of the memory that the engine takes."""
    micro_tokens: int | None
    """Tokens of a micro-batch, where it is packed by them."""
    colocated: bool = True
    """Whether trainer and engine share chips."""
    rollout_gpus: int | None = None
    """Chips of the engine's own, where they are not shared."""
    staleness: float | None = None
    """Batches that generation may be ahead of the trainer, where it runs beside it; None: in turn."""
    engine: str | None = None
    """The engine that generates, where it is named."""
    turns: int = 1
    """Turns of a trajectory."""
    steps: int | None = None
    """Steps of the run."""
    critic: str | None = None
    """The value model, where it is named."""
    rollout_words: str = ""
    """More words of the engine's plan: graphs, formats, sequences at once."""
    partial: bool = False
    """Whether long answers go on under the next weights."""
    reference: bool = True
    """Whether a frozen copy of the policy passes over the answers, where the algorithm has one."""
    offload: str | None = None
    """What the trainer moves to the host while the engine generates."""
    log_prob_mbs: int | None = None
    """Sequences of a micro-batch of log-probabilities, where it is not packed by tokens."""
    reference_mbs: int | None = None
    """The same of the reference."""


def launch_of_step(
    told: Translated,
    given: ArgumentTable,
    known: Known,
    table: ToolTable,
    step: PolicyStep,
    degree: Mapping[str, int | None],
    more: Mapping[str, object],
) -> Launch:
    """One update of the policy as a training run, and the whole step beside it."""
    keys, sources = told.keys, {**table_of("_policy").sources, **told.sources}
    tp, pp, cp = (known.over(name, degree.get(name) or 1) for name in ("tp", "pp", "cp"))
    ep = degree.get("ep") or 1
    if step.gpus is None:
        keys.ask("the number of GPUs is not in the file: --gpus")
    step = replace(step, gpus=enough_chips(keys, known, step.gpus, tp * pp * cp))
    if step.gpus is not None and step.gpus % (tp * pp * cp) and keys.flag("pool_inside"):
        keys.ask(
            f"the {step.gpus} GPUs beside the engine are no multiple of {tp * pp * cp}: --gpus"
        )
        step = replace(step, gpus=None)
    if step.gpus is not None and step.gpus % (tp * pp * cp):
        keys.problem("gpus", f"are no multiple of tp x pp x cp = {tp * pp * cp}", step.gpus)
    dp = None if step.gpus is None else max(step.gpus // (tp * pp * cp), 1)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": 1 if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, **more,
    }  # fmt: skip
    if tp > 1 and values.get("sp") is None:
        values["sp"] = values.get("zero") == 1
    keys.note(ONE_UPDATE)
    keys.raise_problems()
    seq_len = step.prompt_len + step.answer_len
    record = _record(step, table.tool, values)
    job: dict[str, Any] = {
        "model": step.model, "gpus": step.gpus, "global_batch": step.mini, "seq_len": seq_len,
    }  # fmt: skip
    drop_unset(keys, values, job, sources)
    for name in UNSET_TOO:
        if keys.unset & {*sources.get(name, ())}:
            record.pop(name, None)
    rows = read_back(keys, {**job, **values, **_apart(record)}, sources)
    return launch_of(
        told, given, table, job, values, sources, models=_names(step.model),
        values=_with_limits(step, rows), post_training=record,
    )  # fmt: skip


def _names(model: str | None) -> tuple[str, ...]:
    """What may name the policy: the repository or folder, and its last part."""
    return tuple(dict.fromkeys((model, model.rpartition("/")[2]))) if model else ()


ONE_UPDATE = (
    "one update of the policy is read as the training step: post-train takes the whole step"
)
"""What a training question takes from such a launch."""
STEP_VALUES = (
    "algorithm", "prompts", "samples", "isl", "max_osl", "updates", "rollout_plan", "rollout_gpus",
    "placement", "staleness", "engine", "micro_tokens", "turns", "steps", "reference", "offload",
    "critic", "partial", "log_prob_mbs", "reference_mbs",
)  # fmt: skip
"""Values of a step that an update alone does not have, as the read-back table names them."""


UNSET_TOO = ("samples", "prompts", "isl", "max_osl", "rollout_plan", "rollout_gpus", "micro_tokens",
             "log_prob_mbs", "reference_mbs")  # fmt: skip
"""Those that a launch may leave unset."""


def _apart(record: Mapping[str, Any]) -> dict[str, object]:
    """What a step has beyond its update, for the read-back table."""
    return {name: record[name] for name in STEP_VALUES if name in record}


def _with_limits(step: PolicyStep, rows: tuple[ReadValue, ...]) -> tuple[ReadValue, ...]:
    """Rows, a prompt's length marked as assumed where the launch has only a higher limit."""
    assumed = step.prompt_len > USUAL_PROMPT and step.answer_len > 0
    return tuple(
        replace(row, origin="assumed") if assumed and row.name == "isl" else row for row in rows
    )


def prompt_room(total: int, answer: int) -> int:
    """Longest prompt that a limit of the whole sequence leaves beside one of the answer; half of it where
    both are alike."""
    return total - answer if total > answer else max(total // 2, 1)


def _record(step: PolicyStep, tool: Tool, values: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of a post-training question; what is unknown is left out."""
    rollout = f"tp{step.rollout_tp}"
    if step.fraction is not None:
        rollout += f" memory_fraction={step.fraction:g}"
    rollout += f" {step.rollout_words}" if step.rollout_words else ""
    plan = {name: value for name, value in values.items() if name != "dp"}
    if plan.get("framework") in ("fsdp2", "deepspeed"):
        plan["framework"] = "transformers"  # the modules that FSDP or ZeRO holds
    if step.micro_tokens is not None:  # micro-batches are filled by tokens, not by sequences
        plan.pop("micro_batch", None)
    apart = not step.colocated
    algorithm = ALGORITHMS.get(step.algorithm, "grpo")
    if algorithm in ("sft", "dpo", "reward"):
        tuned = {"algorithm": algorithm, "model": step.model, "gpus": step.gpus, "prompts": step.mini,
                 "isl": step.prompt_len, "micro_tokens": step.micro_tokens, "plan": plan_words(plan),
                 "framework": tool,
                 "steps": step.steps}  # fmt: skip
        return {name: value for name, value in tuned.items() if value is not None}
    found = {
        "algorithm": algorithm,
        "model": step.model,
        "gpus": step.gpus if not apart or step.rollout_gpus is None else None,
        "trainer_gpus": step.gpus if apart and step.rollout_gpus is not None else None,
        "rollout_gpus": step.rollout_gpus if apart else None,
        "prompts": step.prompts,
        "samples": step.samples,
        "isl": usual_prompt(step.prompt_len),
        "max_osl": step.answer_len,
        "updates": max(step.prompts * step.samples // max(step.mini, 1), 1),
        "plan": plan_words(plan),
        "rollout_plan": rollout,
        "framework": tool,
        "reference": None if step.reference else "none",
        "critic": step.critic if algorithm == "ppo" else None,
        "partial": step.partial or None,
        "offload": step.offload,
        "placement": "colocated" if not apart else "split" if not step.staleness else "async",
        "staleness": step.staleness if apart and step.staleness else None,
        "engine": step.engine,
        "micro_tokens": step.micro_tokens,
        "log_prob_mbs": step.log_prob_mbs,
        "reference_mbs": step.reference_mbs if step.reference else None,
        "turns": step.turns if step.turns > 1 else None,
        "steps": step.steps,
    }
    return {name: value for name, value in found.items() if value is not None}
