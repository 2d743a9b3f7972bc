"""Published post-training runs: a row's cells as the question that a user would type.

Only what a row states is asked. What is blank is filled where a user's blanks are: prompts, samples and
lengths in api/post_training_setup.py, plans, adapters and precisions in api/post_training_trainer.py, what a
framework does in catalog/posttraining.toml. Cells that are measured are never read into the question.
"""

import re
import shlex
from typing import Any

from foretell.api.post_training_words import (
    ADAPTER_RANK,
    LORA,
    SYNCS,
    base_format,
    first_word,
    tuned_method,
)
from foretell.catalog.post_training import dataset_names, post_training_loop, recognise_loop
from foretell.lab.validate.post_training_cells import (
    PATTERNS,
    WORDS,
    Cells,
    algorithm_of,
    chip_of,
    chips_of,
    counts_of,
    degree_words,
    drafts_in,
    framework_of,
    lengths_of,
    lower,
    model_of,
    number,
    offload_arguments,
    staleness_of,
    stored_words,
    turns_in,
    whole,
)

PHASES = {
    f"{name}_s": name
    for name in (
        "gen", "old_logprob", "ref_logprob", "values", "reward", "adv", "update_actor", "update_critic",
        "reshard", "weight_sync",
    )
}  # fmt: skip
"""Columns of phases, and what they are called."""


def question_of(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a row of any kind; UnsupportedRun with the reason where it
    says too little."""
    if cells["kind"] == "weight_sync":
        return sync_question(cells)
    return rl_question(cells) if cells["kind"] == "rl_step" else tuning_question(cells)


def command_of(cells: Cells) -> str:
    """What a user would type for a row."""
    asked = question_of(cells)
    flags: list[str] = []
    for name, value in asked.items():
        if name == "model" or value is None or value is False or value == "":
            continue
        flags.append(f"--{name.replace('_', '-')}")
        if value is not True:
            flags.append(f"{value:g}" if isinstance(value, float) else str(value))
    return f"foretell post-train {shlex.join([asked['model'], *flags])} # {cells['id']}"


def rl_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a step of reinforcement learning."""
    asked: dict[str, Any] = {
        "model": model_of(cells),
        "algorithm": algorithm_of(cells, "grpo"),
        **chips_of(cells),
    }
    isl, osl, max_osl = lengths_of(cells)
    prompts, samples = whole(cells, "prompts_per_step"), whole(cells, "samples_per_prompt")
    all_samples = whole(cells, "samples_per_step")
    if prompts is None and all_samples:
        prompts, samples = all_samples // (samples or 1), samples or 1
    if prompts and all_samples and samples is None:
        samples = max(all_samples // prompts, 1)
    generated = (prompts or 0) * (samples or 0)
    thrown = 1.0 - all_samples / generated if all_samples and generated > all_samples else None
    stated = {
        "prompts": prompts,
        "samples": samples,
        "filtered": number(cells, "filtered") or (round(thrown, 4) if thrown else None),
        "updates": whole(cells, "updates_per_step"),
        "isl": isl,
        "osl": min(osl, max_osl) if osl and max_osl else osl,
        "max_osl": max_osl,
        "micro_tokens": whole(cells, "micro_tokens"),
        "turns": whole(cells, "turns") or turns_in(lower(cells, "multi_turn")),
        "speculative": drafts_in(lower(cells, "spec_decode")),
    }
    if thrown and all_samples and samples:
        # What is trained on stays; of what is generated, some is thrown away.
        stated["prompts"] = max(all_samples // samples, 1)
    asked |= {name: value for name, value in stated.items() if value}
    asked["framework"] = framework_of(cells)
    if asked["algorithm"] == "ppo" and (
        named := PATTERNS["critic"].search(cells.get("notes") or "")
    ):
        asked["critic"] = named[1]
    if PATTERNS["unpacked"].search(cells.get("notes") or ""):
        asked["packing"] = "batch"
    if own := PATTERNS["log_prob"].search(cells.get("notes") or ""):
        asked["log_prob_mbs"] = int(own[1])
    if asked["placement"] == "async":
        asked |= staleness_of(cells)
    words = [
        *degree_words(cells),
        *trainer_words(cells),
        *adapter_words(cells),
        *micro_words(cells),
    ]
    asked |= {"plan": " ".join(words)} if words else {}
    asked |= engine_arguments(cells)
    return asked | offload_arguments(cells)


def engine_arguments(cells: Cells) -> dict[str, Any]:
    """The rollout engine, and its layout as far as it is stated."""
    tp, fraction = whole(cells, "rollout_tp"), number(cells, "rollout_mem_fraction")
    notes, engine = lower(cells, "notes"), lower(cells, "rollout_engine")
    modules = engine.startswith(("hf", "transformers", "hugging"))
    layout = [f"tp{tp}"] if tp else []
    layout += [f"memory_fraction={fraction:g}"] if fraction else []
    eager = "enforce_eager" in notes and "enforce_eager false" not in notes
    layout += ["no-graph"] if eager else []
    layout += stored_words(cells)
    asked: dict[str, Any] = {"rollout_plan": " ".join(layout)} if layout else {}
    own = "sglang" if engine.startswith("sglang") else "transformers" if modules else None
    return asked | ({"engine": own} if own else {})


def micro_words(cells: Cells) -> list[str]:
    """Sequences of a micro-batch, unless tokens fill it."""
    micro = whole(cells, "micro_batch")
    return [f"mbs{micro}"] if micro and not whole(cells, "micro_tokens") else []


def trainer_words(cells: Cells) -> list[str]:
    """Sharing, recomputation and software of an RL trainer."""
    engine, recompute = lower(cells, "train_engine"), lower(cells, "recompute")
    words = [f"recompute={recompute}"] if recompute in ("none", "full", "selective") else []
    if "megatron" in engine:
        words.append("framework=megatron-core")
    elif engine.startswith(("fsdp", "dtensor")):
        words += ["zero3", "framework=transformers"]
    elif engine.startswith(("zero-3", "deepspeed")):
        own = post_training_loop(recognise_loop(cells.get("framework") or "")).trainer
        words += ["zero3"] if own == "deepspeed" else ["zero3", "framework=deepspeed"]
    return words


def tuning_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a step of fine-tuning."""
    gpus = next((many for many in counts_of(cells) if many), 1)
    micro, words = whole(cells, "micro_batch"), tuning_words(cells)
    ranks = gpus
    for word in degree_words(cells):
        ranks //= int(word[2:]) if word[:2] in ("tp", "pp", "cp") else 1
    batch = whole(cells, "samples_per_step") or whole(cells, "prompts_per_step")
    many = PATTERNS["micro_batches"].search(cells.get("notes") or "")
    batch = batch or (micro or 1) * max(ranks, 1) * int(many[1] if many else 1)
    asked: dict[str, Any] = {
        "model": model_of(cells),
        "algorithm": algorithm_of(cells, "sft"),
        "gpus": f"{gpus}x{chip_of(cells)}",
        "prompts": max(batch, (micro or 1) * max(ranks, 1)),
        **tuning_lengths(cells),
        "plan": " ".join([f"mbs{micro or 1}", *words]),
        "framework": framework_of(cells),
    }
    return asked


def tuning_lengths(cells: Cells) -> dict[str, Any]:
    """Mean and longest sequence; a public data set's where that is all that is stated."""
    notes, longest = lower(cells, "notes"), whole(cells, "max_total")
    mean = number(cells, "seq_len") or number(cells, "mean_total_len")
    printed = re.search(r"longest (?:[\d,]+-)?([\d,]+)", notes)
    if printed:
        longest = int(printed[1].replace(",", ""))
    if mean is None:
        mean = number(cells, "mean_response")
        mean = None if mean is None else mean + (number(cells, "mean_prompt") or 0.0)
    named = next((name for name in dataset_names() if name in notes), None)
    if mean is None and named:
        return {"lengths": named} | ({"max_osl": longest} if longest else {})
    pair = [whole(cells, f"max_{part}") for part in ("prompt", "response")]
    longest = longest or (sum(part or 0 for part in pair) if any(pair) else None)
    if mean is None and longest is None:
        return {}
    mean = mean or float(longest or 1)
    return {"osl": mean, "max_osl": max(longest or 0, round(mean))}


def sync_question(cells: Cells) -> dict[str, Any]:
    """The arguments of `foretell.post_train` for a synchronisation alone."""
    kept = {**cells, "chip": cells.get("chip") or "H100-SXM"}
    kept["gpus_total"] = cells.get("gpus_total") or cells.get("rollout_gpus") or "8"
    notes, apart = lower(cells, "notes"), cells.get("train_gpus") and cells.get("rollout_gpus")
    kept["placement"] = cells.get("placement") or ("split" if apart else "colocated")
    tp = whole(cells, "rollout_tp")
    layout = [f"tp{tp}"] if tp else []
    layout += ["weights=fp8"] if "fp8" in f"{notes} {cells['id']}".lower() else stored_words(cells)
    adapters = [f"lora={rank}"] if (rank := whole(cells, "lora_rank")) else []
    words = [*degree_words(cells), *trainer_words(cells), *adapters]
    return {
        "model": model_of(cells),
        "algorithm": "sync",
        **chips_of(kept),
        "framework": framework_of(cells),
        "sync": first_word(notes, SYNCS),
        "plan": " ".join(words),
        "rollout_plan": " ".join(layout),
        **offload_arguments(cells),
    }


def tuning_words(cells: Cells) -> list[str]:
    """What a row says of adapters, formats, sharing and software, in words of a plan."""
    engine, words = lower(cells, "train_engine"), adapter_words(cells)
    zero = re.search(r"zero-?(\d)", engine)
    words += degree_words(cells)
    if zero:
        words.append(f"zero{zero[1]}")
    elif engine.startswith("fsdp"):
        words.append("zero3")
    elif "ddp" in engine or engine == "none":
        words.append("zero0")
    words += [*software_words(cells), *attention_words(cells)]
    if "true" in lower(cells, "precision_train"):
        words += ["master=none", "states=bf16", "gradients=bf16"]
    recompute, parts = lower(cells, "recompute"), host_parts(cells)
    if recompute == "offload":
        recompute, parts = "full", [*dict.fromkeys((*parts, "activations"))]
    words += [f"offload={'+'.join(parts)}"] if parts else []
    words += [f"recompute={recompute}"] if recompute in ("none", "full", "selective") else []
    return words


def adapter_words(cells: Cells) -> list[str]:
    """Method, rank and maps of adapters, and the format of the frozen weights."""
    notes, quant = cells.get("notes") or "", lower(cells, "quant")
    rank = (cells.get("lora_rank") or "").strip()
    first = notes.split(";")[0].strip().lower()
    named = f"{lower(cells, 'algorithm')} {lower(cells, 'model')}"
    method = method_of(first) or tuned_method(named)
    words = []
    stored = base_format(quant) or ("nf4" if quant else base_format(named.split("/")[0]))
    stored = stored or ("nf4" if first.startswith("qlora") else "")
    rank = "" if rank.lower() in ("0", "no", "none", "full") else rank
    if rank or method or stored or re.match(r"q?-?lora\b", first) or LORA.search(named):
        ranks = re.findall(r"rank[ =:-]?(\d+)", f"{first} {named}")
        words.append(f"lora={rank if rank.isdigit() else next(iter(ranks), ADAPTER_RANK)}")
    words += [f"method={method}"] if method else []
    words += [f"weights={stored}"] if stored else []
    usual = "all" if method == "ia3" and "adapter" in first else ""
    maps = maps_of(notes) or usual
    return [*words, f"adapters={maps}"] if words and maps else words


def method_of(first: str) -> str:
    """The word of the method that notes begin with, or that is behind a name; empty: LoRA, or none."""
    head, _, rest = first.partition("/")
    begins = re.match(r"[\w.-]+(?: v2)?", head)
    return tuned_method(begins[0] if begins else "") or (tuned_method(rest) if rest else "")


def maps_of(notes: str) -> str:
    """Linear maps that notes name as those of the adapters, in the plan's words; empty: none named."""
    if "(emb)" in notes:
        return "all+ends"
    listed = PATTERNS["targets"].search(notes)
    if listed is None:
        return "all" if re.search(r"(?:on|of) all linear", notes) else ""
    names = re.findall(r"[a-z_]+", listed[1].lower())
    found = {WORDS["maps"].get(name) for name in names}
    return "+".join(name for name in ("q", "k", "v", "o", "up", "down") if name in found)


def software_words(cells: Cells) -> list[str]:
    """Training software where a row says more of it than its framework's name."""
    notes, framework = cells.get("notes") or "", lower(cells, "framework")
    loop = recognise_loop(framework)
    own = post_training_loop(loop).software_fsdp
    if "megatron" in lower(cells, "train_engine"):
        return ["framework=megatron-core"]
    if own == "transformers" and "liger" in f"{framework} {notes}".lower():
        return ["framework=transformers-liger@4"]
    if PATTERNS["fused_code"].search(cells.get("model") or "") and "flash" in (
        cells.get("attention") or ""
    ):
        return ["framework=transformers-kernels@4", "loss=plain"]
    if own == "transformers":
        release = re.search(r"transformers (\d)", cells.get("framework_version") or "")
        return [f"framework=transformers@{release[1] if release else 4}"]
    compiled = loop == "torchtune" and "torch.compile" in notes
    return ["framework=torchtune-compiled"] if compiled else []


def attention_words(cells: Cells) -> list[str]:
    """The library of attention, where a row names it."""
    found = PATTERNS["attention"].match(lower(cells, "attention"))
    return [f"attention=fa{found[1]}"] if found else []


def host_parts(cells: Cells) -> list[str]:
    """What a row says lives on the host, in words of a plan."""
    text = lower(cells, "offload")
    if not text or text == "none":
        return []
    return [name for name, marks in WORDS["host"].items() if any(mark in text for mark in marks)]
