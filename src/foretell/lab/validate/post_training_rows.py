"""Published post-training runs: a row's cells as the question that a user would type.

What is blank is filled as a user's blanks are: lengths by the limit, prompts and samples by the recipe's
usual numbers, the plan by the trainer. Cells that are measured are never read into the question.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from foretell.catalog.names import exists, find
from foretell.catalog.post_training import post_training_loop, recognise_loop
from foretell.lab.validate.training_model import UnsupportedRun, find_named_model

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
USUAL_PROMPTS, USUAL_SAMPLES, USUAL_PROMPT = 512, 16, 150
"""Prompts and samples of a step, and tokens of a prompt, where nothing says."""
ALPACA_MEAN = 128
"""Mean tokens of Alpaca's examples with their prompt, where a run trains on them unpacked."""
REASONING = re.compile(r"R1|QwQ|think|reason|Qwen3(?![.\d])", re.IGNORECASE)
"""Models that were trained to reason at length."""
REASONING_SHARE = 0.25
"""Their mean answer over the limit, where it is not printed."""
OFFLOADS = {
    "weights": "weights",
    "optimizer": "optimizer",
    "reference": "reference",
    "param": "weights",
}
"""Words of what lives on the host."""
ADAPTERS_ONLY = re.compile(r"^adapter\b|adapter v2", re.IGNORECASE)
"""Notes of methods that are neither LoRA nor full fine-tuning."""


Cells = Mapping[str, str]


def number(cells: Cells, name: str) -> float | None:
    """A cell as a number; None where it is none."""
    try:
        return float((cells.get(name) or "").strip())
    except ValueError:
        return None


def whole(cells: Cells, name: str) -> int | None:
    """A cell as a whole number."""
    value = number(cells, name)
    return None if value is None else round(value)


def chip_of(cells: Cells) -> str:
    """The chip's id; UnsupportedRun where none is known."""
    text = (cells.get("chip") or "").strip()
    for part in re.split(r"\s+or\s+|\(|,", text):
        name = part.strip().replace("A800", "A100")
        if name and exists(name, ("chip",)):
            return find(name, ("chip",)).id
        bare = re.sub(r"-?\d+G(?:B|iB)?$", "", name)
        size = re.search(r"(\d+)G", name)
        tries = [f"{bare}-sxm-{size[1]}gb" if size else bare, f"{bare}-sxm", bare]
        for one in tries:
            if one and exists(one, ("chip",)):
                return find(one, ("chip",)).id
    raise UnsupportedRun(f"the chip {text or '(blank)'} is not known")


def model_of(cells: Cells) -> str:
    """The model's id; UnsupportedRun where the catalogue has none like it."""
    text = (cells.get("model") or "").strip()
    short = text.rsplit("/", maxsplit=1)[-1]
    tries = [text, short, re.sub(r"-(Instruct|Chat|hf|Base|it|chat|instruct)\b", "", short)]
    tries += [
        re.sub(r"-(Math|Distill-Qwen|Coder|VL)\b|-(unsloth|bnb-4bit).*", "", one)
        for one in list(tries)
    ]
    tries += [one.replace("Qwen2-", "Qwen2.5-").replace("_", ".") for one in list(tries)]
    tries += [FAMILIES[pattern] for pattern in FAMILIES if re.search(pattern, text, re.IGNORECASE)]
    for one in tries:
        known = find_named_model(one) if one else None
        if known is not None:
            return known
        if one.startswith(("llama:", "gpt:")):
            return one
    near = nearest_size(short)
    if near is None:
        raise UnsupportedRun(f"the catalogue has no model {text or '(blank)'}")
    return near


SIZES = {
    0.5: "qwen2.5-0.5b",
    1.5: "qwen2.5-1.5b",
    3.0: "qwen2.5-3b",
    7.5: "qwen2.5-7b",
    14.0: "qwen2.5-14b",
    32.0: "qwen2.5-32b",
    72.0: "llama-3.1-70b",
}
"""Dense models of usual shapes, by billions of weights, in the place of one that the catalogue does not
have."""


def nearest_size(name: str) -> str | None:
    """The dense model nearest to the size in a name, within a third; None where there is none."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])", name)
    if found is None or float(found[1]) <= 0.0:
        return None
    size = float(found[1])
    best = min(SIZES, key=lambda known: abs(math.log(known / size)))
    return SIZES[best] if abs(math.log(best / size)) < math.log(4.0 / 3.0) else None


FAMILIES = {
    r"deepseek-llm-7b|deepseek-7b": "llama:layers=30,hidden=4096,heads=32,ffn=11008,vocab=102400",
    r"R1-Distill-Qwen-1\.5B": "qwen2.5-1.5b",
    r"R1-Distill-Qwen-7B": "qwen2.5-7b",
    r"phi-1_5": "gpt:layers=24,hidden=2048,heads=32,ffn=8192,vocab=51200,positions=4096",
    r"phi-2$": "gpt:layers=32,hidden=2560,heads=32,ffn=10240,vocab=51200,positions=4096",
    r"phi-3-mini": "llama:layers=32,hidden=3072,heads=32,ffn=8192,vocab=32064",
    r"stablelm-base-alpha-3b": "gpt:layers=16,hidden=4096,heads=32,ffn=16384,vocab=50432,positions=4096",
    r"TinyLlama": "llama:layers=22,hidden=2048,heads=32,kv_heads=4,ffn=5632,vocab=32000",
    r"falcon-7b": "gpt:layers=32,hidden=4544,heads=71,kv_heads=1,ffn=18176,vocab=65024",
    r"falcon-40b": "gpt:layers=60,hidden=8192,heads=128,kv_heads=8,ffn=32768,vocab=65024",
    r"CodeLlama-34b": "llama:layers=48,hidden=8192,heads=64,kv_heads=8,ffn=22016,vocab=32000",
    r"Llama-2-7b": "llama-2-7b",
    r"Llama-2-13b": "llama-2-13b",
    r"gemma-2b$": "llama:layers=18,hidden=2048,heads=8,kv_heads=1,head_dim=256,ffn=16384,vocab=256000",
    r"gemma-7b$": "llama:layers=28,hidden=3072,heads=16,kv_heads=16,head_dim=256,ffn=24576,vocab=256000",
    r"gemma-2-2b": "gemma-2-2b",
    r"gemma-2-9b": "gemma-2-9b",
    r"Mistral-7B": "mistral-7b",
    r"Qwen3\.5-9B": "qwen3-8b",
}
"""Families of public models that the catalogue has no entry of, typed out from their config.json."""


CRITIC = re.compile(r"\bcritic\s+(?:is\s+|of\s+)?([\w./-]*\d+(?:\.\d+)?[BMbm]\b)")
"""A value model of another size than the policy, in a row's notes."""


def rl_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a step of reinforcement learning."""
    chip = chip_of(cells)
    if not any(
        cells.get(name) for name in ("mean_response", "max_response", "mean_total_len", "max_total")
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
    prompts, samples = whole(cells, "prompts_per_step"), whole(cells, "samples_per_prompt")
    all_samples = whole(cells, "samples_per_step")
    if prompts is None and all_samples:
        prompts, samples = all_samples // (samples or 1), samples or 1
    asked |= {
        "algorithm": algorithm_of(cells),
        "prompts": prompts or USUAL_PROMPTS,
        "samples": samples or USUAL_SAMPLES,
        "updates": whole(cells, "updates_per_step") or 1,
        "isl": number(cells, "mean_prompt")
        or min(number(cells, "max_prompt") or USUAL_PROMPT, USUAL_PROMPT),
        "osl": number(cells, "mean_response"),
        "max_osl": whole(cells, "max_response"),
        "framework": recognise_loop(cells.get("framework") or ""),
    }
    if asked["algorithm"] == "ppo" and (named := CRITIC.search(cells.get("notes") or "")):
        asked["critic"] = model_of({"model": named[1]})
    if asked["osl"] and asked["max_osl"]:
        asked["osl"] = min(asked["osl"], asked["max_osl"])
    if asked["osl"] is None and asked["max_osl"] and REASONING.search(cells.get("model") or ""):
        asked["osl"] = REASONING_SHARE * asked["max_osl"]
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


def common_arguments(cells: Cells) -> dict[str, Any]:
    """Model, plans, offload: what all kinds of rows have."""
    words = []
    for name, word in (
        ("train_tp", "tp"),
        ("train_pp", "pp"),
        ("train_cp", "cp"),
        ("train_ep", "ep"),
    ):
        degree = whole(cells, name)
        words += [f"{word}{degree}"] if degree and degree > 1 else []
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
    asked: dict[str, Any] = {"model": model_of(cells)}
    asked |= {"plan": " ".join(words)} if words else {}
    tp = whole(cells, "rollout_tp")
    fraction = number(cells, "rollout_mem_fraction")
    layout = [f"tp{tp}"] if tp else []
    layout += [f"memory_fraction={fraction:g}"] if fraction else []
    layout += ["no-graph"] if is_eager(cells) else []
    asked |= {"rollout_plan": " ".join(layout)} if layout else {}
    offload = (cells.get("offload") or "").lower()
    named = list(dict.fromkeys(OFFLOADS[word] for word in OFFLOADS if word in offload))
    if named:
        asked["offload"] = "+".join(named)
    elif offload == "none":
        asked["offload"] = "none"
    return asked


def is_eager(cells: Cells) -> bool:
    """Whether rollouts ran without graphs: verl's recipes before 0.5 set enforce_eager; its first FSDP is of
    that time where no version is printed."""
    if recognise_loop(cells.get("framework") or "") != "verl":
        return False
    version = re.match(r"(\d+)\.(\d+)", (cells.get("framework_version") or "").strip())
    if version:
        return (int(version[1]), int(version[2])) < (0, 5)
    return (cells.get("train_engine") or "").strip().lower() == "fsdp"


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
    words = [f"mbs{micro}", *tuning_words(cells, gpus)]
    return {
        "model": model_of(cells),
        "algorithm": algorithm_of(cells),
        "gpus": f"{gpus}x{chip}",
        "prompts": max(batch, micro * gpus),
        "isl": 0.0,
        "osl": float(length),
        "max_osl": length,
        "lengths": "fixed",
        "plan": " ".join(words),
    }


def tuning_words(cells: Cells, gpus: int) -> list[str]:
    """What a row says of adapters, formats, sharing and software, in words of a plan."""
    notes, quant = cells.get("notes") or "", (cells.get("quant") or "").lower()
    rank = (cells.get("lora_rank") or "").strip()
    trained = rank or re.match(r"\s*q?-?lora\b", notes.split(";")[0].strip(), re.IGNORECASE)
    words = []
    first = notes.split(";")[0].strip().lower()
    if trained:
        words.append(f"lora={rank}" if rank.isdigit() else "lora=8")
    quant = quant or ("nf4" if first.startswith("qlora") else "")
    if quant:
        words.append(
            "weights=int4"
            if "int4" in quant or "gptq" in quant
            else "weights=nf4-dq"
            if "dq" in quant
            else "weights=nf4"
        )
    if "(emb)" in notes:
        words.append("adapters=all+ends")
    ladder = ladder_words(notes)
    framework = (cells.get("framework") or "").lower()
    engine = (cells.get("train_engine") or "").lower()
    zero = re.search(r"zero-?(\d)", engine)
    if zero:
        words.append(f"zero{zero[1]}")
    elif gpus > 1 and (engine or "torchtune" in framework):
        words.append("zero3")
    else:
        words.append("zero0")
    software = SOFTWARE.get(
        next((name for name in SOFTWARE if name in framework), ""), "transformers"
    )
    if (
        software == "transformers@4"
        and FUSED_CODE.search(cells.get("model") or "")
        and "flash" in (cells.get("attention") or "")
    ):
        software = "transformers-kernels@4"
        words.append("loss=plain")
    compiled = "torchtune" in software and ("torch.compile" in notes or "compile=on" in ladder)
    words.append(f"framework={software}{'-compiled' if compiled else ''}")
    precision = (cells.get("precision_train") or "").lower()
    pure = "true" in precision or software.startswith("torchtune")
    if pure:
        words += ["master=none", "states=bf16", "gradients=bf16"]
    words += [word for word in ladder if word != "compile=on"]
    if trained and software.startswith("transformers") and not pure:
        # The Trainer's bf16 runs under autocast; PEFT's adapters are in 32 bits.
        words += ["autocast=on", "master=fp32", "states=fp32"]
    if trained and "litgpt" in software:
        words.append("adapters=qv")
    elif trained and "torchtune" in software:
        words.append("adapters=q+v+o+mlp")
    recompute = (cells.get("recompute") or "").strip()
    if not recompute and software == "litgpt" and engine == "fsdp":
        # Its fine-tuning scripts checkpoint every block as soon as FSDP shares them.
        recompute = "full"
    words += [f"recompute={recompute}"] if recompute in ("none", "full", "selective") else []
    return words


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
SOFTWARE = {
    "litgpt": "litgpt",
    "torchtune": "torchtune",
    "unsloth": "unsloth",
    "transformers": "transformers@4",
    "axolotl": "transformers@4",
    "llama-factory": "transformers@4",
    "trl": "transformers@4",
}
"""Frameworks of fine-tuning in print -> words of a plan."""
