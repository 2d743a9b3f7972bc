"""Published post-training runs: a row's cells as the question that a user would type.

Only what a row states is asked. What is blank is filled where a user's blanks are: prompts, samples and
lengths in api/post_training_setup.py, plans, adapters and precisions in api/post_training_trainer.py, what a
framework does in catalog/posttraining.toml. Cells that are measured are never read into the question.
"""

import re
from typing import Any

from foretell.catalog.models import find_model
from foretell.catalog.post_training import post_training_loop, recognise_loop
from foretell.errors import BadInput
from foretell.lab.validate.post_training_names import Cells, chip_of, model_of, number, whole
from foretell.lab.validate.training_model import UnsupportedRun
from foretell.specs.post_training import usual_prompt

PHASES = {
    "gen_s": "gen",
    "old_logprob_s": "old_logprob",
    "ref_logprob_s": "ref_logprob",
    "values_s": "values",
    "reward_s": "reward",
    "adv_s": "adv",
    "update_actor_s": "update_actor",
    "update_critic_s": "update_critic",
    "reshard_s": "reshard",
    "weight_sync_s": "weight_sync",
}
"""Columns of phases, and what they are called."""
ALGORITHMS = {
    "dapo": "dapo",
    "grpo": "grpo",
    "ppo": "ppo",
    "gpg": "dapo",
    "ppo (no critic)": "grpo",
    "rloo": "grpo",
    "reinforce++": "grpo",
    "gspo": "grpo",
    "sft": "sft",
    "dpo": "dpo",
    "reward": "reward",
    "rm": "reward",
    "kto": "dpo",
    "orpo": "dpo",
}
"""Names in print -> ours."""
ALPACA_MEAN = 128
"""Mean tokens of Alpaca's examples with their prompt, where a run trains on them unpacked."""
OFFLOADS = {
    "weights": "weights",
    "optimizer": "optimizer",
    "reference": "reference",
    "param": "weights",
}
"""Words of what lives on the host."""
ADAPTERS_ONLY = re.compile(r"^adapter\b|adapter v2", re.IGNORECASE)
"""Notes of methods that are neither LoRA nor full fine-tuning."""

CRITIC = re.compile(r"\bcritic\s+(?:is\s+|of\s+)?([\w./-]*\d+(?:\.\d+)?[BMbm]\b)")
"""A value model of another size than the policy, in a row's notes."""


def rl_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a step of reinforcement learning."""
    chip = chip_of(cells)
    if not any(
        cells.get(name)
        for name in ("mean_response", "max_response", "mean_total_len", "max_total", "seq_len")
    ):
        raise UnsupportedRun("neither lengths of answers nor their limit are known")
    if "images" in (cells.get("notes") or "").lower():
        raise UnsupportedRun("prompts with images are not modelled")
    asked = common_arguments(cells)
    placement = (cells.get("placement") or "").strip()
    if placement and placement not in ("colocated", "split", "split_async", "colocated_async"):
        raise UnsupportedRun(f"the placement is unclear: {placement[:40]}")
    total, trainer, rollout = (
        whole(cells, f"{n}gpus{s}") for n, s in (("", "_total"), ("train_", ""), ("rollout_", ""))
    )
    isl, osl, max_osl = lengths_of(cells)
    prompts, samples = whole(cells, "prompts_per_step"), whole(cells, "samples_per_prompt")
    all_samples = whole(cells, "samples_per_step")
    if prompts is None and all_samples:
        prompts, samples = all_samples // (samples or 1), samples or 1
    stated = {
        "prompts": prompts,
        "samples": samples,
        "updates": whole(cells, "updates_per_step"),
        "isl": isl,
        "osl": osl,
        "max_osl": max_osl,
    }
    asked |= {name: value for name, value in stated.items() if value}
    asked |= {"algorithm": algorithm_of(cells), "framework": framework_of(cells)}
    if asked["algorithm"] == "ppo" and (named := CRITIC.search(cells.get("notes") or "")):
        asked["critic"] = model_of({"model": named[1]})
    if osl and max_osl:
        asked["osl"] = min(osl, max_osl)
    if placement in ("split", "split_async"):
        if not trainer and not total:
            raise UnsupportedRun("the number of chips is not known")
        if trainer:
            others = rollout or (total or 2 * trainer) - trainer
            asked |= {"trainer_gpus": f"{trainer}x{chip}", "rollout_gpus": f"{others}x{chip}"}
        else:
            asked["gpus"] = f"{total}x{chip}"
        asked["placement"] = "async" if placement == "split_async" else "split"
    else:
        if not total and not trainer:
            raise UnsupportedRun("the number of chips is not known")
        asked |= {"gpus": f"{total or trainer}x{chip}", "placement": "colocated"}
    if asked["placement"] == "async":
        asked |= staleness_of(cells)
    engine = (cells.get("rollout_engine") or "").lower()
    if engine.startswith("sglang"):
        asked["engine"] = "sglang"
    return asked


def lengths_of(cells: Cells) -> tuple[float | None, float | None, int | None]:
    """Mean prompt and answer and the longest answer; what is printed of whole sequences, less the prompt."""
    isl, most = number(cells, "mean_prompt"), number(cells, "max_prompt")
    isl = usual_prompt(most) if isl is None and most else isl
    mean, limit = number(cells, "mean_response"), whole(cells, "max_response")
    total, longest = number(cells, "mean_total_len"), whole(cells, "max_total")
    total = total or number(cells, "seq_len")
    prompt = usual_prompt(None) if isl is None else isl
    if mean is None and total:
        mean = max(total - prompt, 1.0)
    if limit is None and longest:
        limit = max(round(longest - prompt), 1)
    return isl, mean, limit


def framework_of(cells: Cells) -> str:
    """The loop's word, with the release that is printed. verl's logs name its first engine `fsdp`: where no
    release is printed, they are of one before its second (0.5)."""
    loop = recognise_loop(cells.get("framework") or "")
    release = re.match(r"v?(\d+(?:\.\d+)+)", (cells.get("framework_version") or "").strip())
    if release:
        return f"{loop}@{release[1]}"
    first = loop == "verl" and (cells.get("train_engine") or "").strip().lower() == "fsdp"
    return "verl@0.4" if first else loop


def named_model(cells: Cells) -> str:
    """The model by its printed name where the catalogue has that, else the one that is meant."""
    text = (cells.get("model") or "").strip()
    try:
        return text if find_model(text) is not None else model_of(cells)
    except BadInput:
        return model_of(cells)


def common_arguments(cells: Cells) -> dict[str, Any]:
    """Model, plans, offload: what all kinds of rows have."""
    words = degree_words(cells)
    micro = whole(cells, "micro_batch")
    words += [f"mbs{micro}"] if micro else []
    recompute = (cells.get("recompute") or "").strip()
    words += [f"recompute={recompute}"] if recompute in ("none", "full", "selective") else []
    engine = (cells.get("train_engine") or "").lower()
    if "megatron" in engine:
        words.append("framework=megatron-core")
    elif engine.startswith("fsdp"):
        words += ["zero3", "framework=transformers"]
    elif engine.startswith(("zero-3", "deepspeed")):
        own = post_training_loop(recognise_loop(cells.get("framework") or "")).trainer
        words += ["zero3"] if own == "deepspeed" else ["zero3", "framework=deepspeed"]
    asked: dict[str, Any] = {"model": named_model(cells)}
    asked |= {"plan": " ".join(words)} if words else {}
    tp = whole(cells, "rollout_tp")
    fraction = number(cells, "rollout_mem_fraction")
    layout = [f"tp{tp}"] if tp else []
    layout += [f"memory_fraction={fraction:g}"] if fraction else []
    layout += ["no-graph"] if is_eager(cells) else []
    asked |= {"rollout_plan": " ".join(layout)} if layout else {}
    offload = (cells.get("offload") or "").lower()
    named = list(dict.fromkeys(OFFLOADS[word] for word in OFFLOADS if word in offload))
    named = ["reference"] if offload.startswith("reference") else named
    if named:
        asked["offload"] = "+".join(named)
    elif offload == "none":
        asked["offload"] = "none"
    return asked


def degree_words(cells: Cells) -> list[str]:
    """The trainer's degrees above one."""
    words = []
    for word in ("tp", "pp", "cp", "ep"):
        degree = whole(cells, f"train_{word}")
        words += [f"{word}{degree}"] if degree and degree > 1 else []
    return words


def is_eager(cells: Cells) -> bool:
    """Whether rollouts ran without graphs: by transformers' generate."""
    return (
        re.match(r"(?:hf|transformers|hugging)", (cells.get("rollout_engine") or "").lower())
        is not None
    )


def algorithm_of(cells: Cells) -> str:
    """The algorithm by our name."""
    text = (cells.get("algorithm") or "").strip().lower()
    if text not in ALGORITHMS:
        raise UnsupportedRun(f"the algorithm {text or '(blank)'} is not known")
    return ALGORITHMS[text]


def staleness_of(cells: Cells) -> dict[str, Any]:
    """How far ahead rollouts may be: a number in the cell, with its words."""
    text = (cells.get("staleness") or "").lower()
    found = re.search(r"\d+(?:\.\d+)?", text)
    if found is None:
        return {}
    value = float(found[0])
    partial = "partial" in text or 0.0 < value < 1.0 or "stream" in text
    return {"staleness": value, "partial": partial}


def tuning_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a step of fine-tuning."""
    notes = cells.get("notes") or ""
    if ADAPTERS_ONLY.search(notes):
        raise UnsupportedRun("adapters of another kind than LoRA are not modelled")
    chip, gpus = chip_of(cells), whole(cells, "gpus_total") or whole(cells, "train_gpus") or 1
    length = whole(cells, "seq_len") or whole(cells, "mean_total_len") or whole(cells, "max_total")
    if length is None and "alpaca" in notes.lower():
        length = ALPACA_MEAN
    if length is None:
        raise UnsupportedRun("the length of the sequences is not known")
    micro = whole(cells, "micro_batch") or 1
    batch = whole(cells, "samples_per_step") or whole(cells, "prompts_per_step") or micro * gpus
    words = [f"mbs{micro}", *tuning_words(cells)]
    return {
        "model": named_model(cells),
        "algorithm": algorithm_of(cells),
        "gpus": f"{gpus}x{chip}",
        "prompts": max(batch, micro * gpus),
        "isl": 0.0,
        "osl": float(length),
        "max_osl": length,
        "lengths": "fixed",
        "plan": " ".join(words),
        "framework": framework_of(cells),
    }


def tuning_words(cells: Cells) -> list[str]:
    """What a row says of adapters, formats, sharing and software, in words of a plan."""
    words = adapter_words(cells)
    engine = (cells.get("train_engine") or "").lower()
    zero = re.search(r"zero-?(\d)", engine)
    words += degree_words(cells)
    if zero:
        words.append(f"zero{zero[1]}")
    elif engine.startswith("fsdp"):
        words.append("zero3")
    elif "ddp" in engine or engine == "none":
        words.append("zero0")
    words += software_words(cells)
    if "true" in (cells.get("precision_train") or "").lower():
        words += ["master=none", "states=bf16", "gradients=bf16"]
    words += [word for word in ladder_words(cells.get("notes") or "") if word != "compile=on"]
    words += [f"offload={'+'.join(offloaded)}"] if (offloaded := host_parts(cells)) else []
    recompute = (cells.get("recompute") or "").strip()
    words += [f"recompute={recompute}"] if recompute in ("none", "full", "selective") else []
    return words


def adapter_words(cells: Cells) -> list[str]:
    """Rank and maps of adapters, and the format of the frozen weights."""
    notes, quant = cells.get("notes") or "", (cells.get("quant") or "").lower()
    rank = (cells.get("lora_rank") or "").strip()
    first = notes.split(";")[0].strip().lower()
    words = []
    if rank or re.match(r"q?-?lora\b", first):
        words.append(f"lora={rank}" if rank.isdigit() else "lora=8")
    quant = quant or ("nf4" if first.startswith("qlora") else "")
    if "int4" in quant or "gptq" in quant:
        words.append("weights=int4")
    elif quant:
        words.append("weights=nf4-dq" if "dq" in quant else "weights=nf4")
    if "(emb)" in notes:
        words.append("adapters=all+ends")
    return words


def software_words(cells: Cells) -> list[str]:
    """Training software where a row says more of it than its framework's name."""
    notes, framework = cells.get("notes") or "", (cells.get("framework") or "").lower()
    loop = recognise_loop(framework)
    own = post_training_loop(loop).software_fsdp
    if "megatron" in (cells.get("train_engine") or "").lower():
        return ["framework=megatron-core"]
    if own == "transformers" and "liger" in f"{framework} {notes}".lower():
        return ["framework=transformers-liger@4"]
    if FUSED_CODE.search(cells.get("model") or "") and "flash" in (cells.get("attention") or ""):
        return ["framework=transformers-kernels@4", "loss=plain"]
    if own == "transformers":
        return ["framework=transformers@4"]
    compiled = "torch.compile" in notes or "compile=on" in ladder_words(notes)
    return ["framework=torchtune-compiled"] if loop == "torchtune" and compiled else []


def host_parts(cells: Cells) -> list[str]:
    """What a row says lives on the host, in words of a plan."""
    text = (cells.get("offload") or "").lower()
    if not text or text == "none":
        return []
    names = {"optimizer": ("optimizer", "host", "cpu"), "activations": ("activation",),
             "weights": ("weights", "param", "host", "cpu")}  # fmt: skip
    return [name for name, marks in names.items() if any(mark in text for mark in marks)]


LADDER = (
    ("packed", ()),
    ("compile", ("compile=on",)),
    ("chunked cross entropy", ("loss=auto",)),
    ("activation checkpointing", ("recompute=full",)),
    ("optimizer in backward", ()),
    ("activation offload", ("offload=activations",)),
    ("8-bit", ("optimizer=adam8bit",)),
)
"""Rungs of a table in which each row adds to the one before, and their words."""


def ladder_words(notes: str) -> list[str]:
    """Words of all rungs up to a row's own, where its notes say that each row adds to the one before."""
    if "each row adds to the one before" not in notes:
        return []
    first = notes.split(";")[0].strip().lower()
    names = [name for name, _ in LADDER]
    own = [i for i, name in enumerate(names) if name in first]
    adapters = "lora" in first
    upto = len(LADDER) if adapters else (own[0] + 1 if own else 0)
    without = ("optimizer in backward", "8-bit") if adapters else ()
    found = [word for name, words in LADDER[:upto] if name not in without for word in words]
    if "recompute=full" not in found:
        found.append("recompute=none")
    chunked = "loss=auto" in found
    return [w for w in found if w != "loss=auto"] if chunked else [*found, "loss=plain"]


FUSED_CODE = re.compile(r"Qwen/Qwen-")
"""Models whose own code takes norms and rotary positions from flash-attn where that is there."""
