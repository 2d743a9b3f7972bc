"""The launch that a step of reinforcement learning or fine-tuning makes, whatever the framework.

One update of the policy is a training run; the whole step has the names of a post-training question.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, drop_unset, enough_chips, plan_words, read_back
from foretell.interop.launch import Known, Launch, ReadValue
from foretell.interop.tool_fields import Translated, launch_of
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.specs.post_training import USUAL_PROMPT, usual_prompt

TUNED = ("sft", "dpo", "kto", "reward")
"""Algorithms without generation."""
ALGORITHMS = {**{name: name for name in TUNED}, "grpo": "grpo",
              "gae": "ppo", "ppo": "ppo", "dapo": "dapo", "rloo": "grpo", "reinforce": "grpo",
              "group_norm": "grpo", "reinforce_plus_plus": "grpo", "dr_grpo": "grpo",
              "remax": "grpo", "reinforce_baseline": "grpo", "gspo": "grpo", "opo": "grpo",
              "gpg": "dapo"}  # fmt: skip
"""Advantage estimators and the algorithm whose step is theirs."""


def launch_of_step(
    told: Translated,
    given: ArgumentTable,
    known: Known,
    table: ToolTable,
    step: Mapping[str, Any],
    degree: Mapping[str, int | None],
    more: Mapping[str, object],
) -> Launch:
    """One update of the policy as a training run, and the whole step beside it.

    `step` has the arguments of a post-training question, and beside them `mini`, the sequences of an update,
    `prompt_len`, the longest prompt, and `gpus` of the trainer.
    """
    keys, sources = told.keys, {**table_of("_policy").sources, **told.sources}
    tp, pp, cp = (known.over(name, degree.get(name) or 1) for name in ("tp", "pp", "cp"))
    ep = degree.get("ep") or 1
    gpus = step["gpus"]
    if gpus is None:
        keys.ask("the number of GPUs is not in the file: --gpus")
    gpus = enough_chips(keys, known, gpus, tp * pp * cp)
    if gpus is not None and gpus % (tp * pp * cp) and keys.flag("pool_inside"):
        keys.ask(f"the {gpus} GPUs beside the engine are no multiple of {tp * pp * cp}: --gpus")
        gpus = None
    if gpus is not None and gpus % (tp * pp * cp):
        keys.problem("gpus", f"are no multiple of tp x pp x cp = {tp * pp * cp}", gpus)
    dp = None if gpus is None else max(gpus // (tp * pp * cp), 1)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": 1 if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, **more,
    }  # fmt: skip
    if tp > 1 and values.get("sp") is None:
        values["sp"] = values.get("zero") == 1
    keys.note(ONE_UPDATE)
    keys.raise_problems()
    job: dict[str, Any] = {
        "model": step["model"], "gpus": gpus, "global_batch": step["mini"],
        "seq_len": step["prompt_len"] + step["max_osl"],
    }  # fmt: skip
    drop_unset(keys, values, job, sources)
    record = _record({**step, "gpus": gpus}, values)
    for name in UNSET_TOO:
        if keys.unset & {*sources.get(name, ())}:
            record.pop(name, None)
    rows = read_back(keys, {**job, **values, **_apart(record)}, sources)
    return launch_of(
        told, given, table, job, values, sources, models=_names(step["model"]),
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


def _with_limits(step: Mapping[str, Any], rows: tuple[ReadValue, ...]) -> tuple[ReadValue, ...]:
    """Rows, a prompt's length marked as assumed where the launch has only a higher limit."""
    assumed = step["prompt_len"] > USUAL_PROMPT and step["max_osl"] > 0
    return tuple(
        replace(row, origin="assumed") if assumed and row.name == "isl" else row for row in rows
    )


def prompt_room(total: int, answer: int) -> int:
    """Longest prompt that a limit of the whole sequence leaves beside one of the answer; half of it where
    both are alike."""
    return total - answer if total > answer else max(total // 2, 1)


TUNING = ("algorithm", "model", "gpus", "micro_tokens", "framework", "steps")
"""What a question without generation has of a step."""


def _record(step: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of a post-training question; what is unknown is left out."""
    plan = {name: value for name, value in values.items() if name != "dp"}
    if plan.get("framework") in ("fsdp2", "deepspeed"):
        plan["framework"] = "transformers"  # the modules that FSDP or ZeRO holds
    if step["micro_tokens"] is not None:  # micro-batches are filled by tokens, not by sequences
        plan.pop("micro_batch", None)
    algorithm = ALGORITHMS.get(step["algorithm"], "grpo")
    told = {**step, "algorithm": algorithm, "plan": plan_words(plan)}
    mini, prompt = told.pop("mini"), told.pop("prompt_len")
    if algorithm in TUNED:
        told = {"prompts": mini, "isl": prompt, **{n: told[n] for n in (*TUNING, "plan")}}
    else:
        if told["rollout_gpus"] is not None:
            told["trainer_gpus"] = told.pop("gpus")
        told["critic"] = told["critic"] if algorithm == "ppo" else None
        told["isl"] = usual_prompt(prompt)
        told["updates"] = max(step["prompts"] * step["samples"] // max(mini, 1), 1)
    return {name: value for name, value in told.items() if value is not None}


# ---- fine-tuning --------------------------------------------------------------------------------

METHODS = table_of("_training").words["method"]
"""Methods of these trainers, and the algorithm whose step is theirs."""
TAUGHT = ("gkd", "gold", "distill", "forwardkl", "online", "nash", "xpo", "spin")
"""Parts of methods whose step has a teacher or answers of its own, which is not computed."""


def tuning_step(
    keys: Keys, launch: Mapping[str, int | str | None], plan: str, table: ToolTable
) -> dict[str, object] | None:
    """Arguments of a post-training question: algorithm, sequences of a step, the trainer's plan."""
    told = (keys.text("method") or "").lower()
    if not table.options.get("loop") or (table.family == "megatron" and not told):
        return None
    kind = max((one for one in METHODS if one in told), key=len, default="")
    if any(one in told for one in TAUGHT):
        keys.doubt(f"{told[:40]} needs a teacher or answers of its own: taken as plain fine-tuning")
    if not told:
        words = " ".join(keys.given.words).lower()
        ends = r"(?:[_-]\w+)?(?:\.py)?(?:\s|$)"
        kind = next((one for one in METHODS if re.search(rf"(?:^|[\s/_.-]){one}{ends}", words)), "")
    for method, fields in table.options.get("methods", {}).items():
        if not told and not kind and (said := keys.said_as(*fields.split())):
            kind = method
            keys.note(f"{keys.given.spelt.get(said[0], said[0])} says that the method is {method}")
    found: dict[str, object] = {
        "algorithm": METHODS.get(kind, "sft"),
        "model": launch["model"],
        "gpus": launch["gpus"],
        "prompts": launch["global_batch"],
        "isl": launch["seq_len"],
        "plan": plan,
        "framework": table.options["loop"],
    }
    if found["algorithm"] in ("grpo", "ppo"):
        found |= _generation(keys, launch["global_batch"])
    if found["algorithm"] in ("dpo", "kto") and keys.flag("reference_cached"):
        found["reference"] = "cached"
    return {name: value for name, value in found.items() if value is not None}


def _generation(keys: Keys, answers: object) -> dict[str, object]:
    """What TRL's GRPO adds: a batch counts answers, several to each prompt (GRPOConfig, trl 1.16)."""
    samples = keys.whole("samples") or 8
    fraction = keys.number("fraction", high=1.0) or 0.3
    tp = keys.whole("rollout_tp") or 1
    prompt = keys.whole("prompt_len") or USUAL_PROMPT
    return {
        "prompts": max(int(str(answers)) // samples, 1) if answers else None,
        "samples": samples,
        "isl": usual_prompt(prompt),
        "max_osl": keys.whole("answer_len") or 256,
        "updates": keys.whole("iterations") or 1,
        "rollout_plan": f"tp{tp} memory_fraction={fraction:g}" if keys.flag("use_vllm") else None,
        "reference": "pass" if keys.number("beta") else "none",
        "placement": "split" if (keys.text("vllm_mode") or "") == "server" else "colocated",
    }
