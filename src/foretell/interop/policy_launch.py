"""A step of reinforcement learning in our fields, whatever the framework: prompts, answers, updates, trainer
and engine.

What is read are the arguments of a post-training question (policy_step.py). Fields of the trainer are those
of training_launch.py; those of the engine begin with `rollout_`. A tool with several trainers says by
`backend` which of them runs.
"""

import re
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, world_size
from foretell.interop.launch import Known, Launch
from foretell.interop.policy_step import TUNED, launch_of_step, prompt_room
from foretell.interop.rules import decide
from foretell.interop.tool_fields import translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.whole_numbers import whole_number

OVER = ("zero", "offload", "framework")
"""Words that fields say over those that single keys and defaults stand for."""
_POOL = re.compile(r"(?:[a-z]+[:.])?\(?(?:attn:)?((?:[dptce]\d+)+)", re.IGNORECASE)
_DEGREE = re.compile(r"([dptce])(\d+)", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)|(\d+)")


def read_policy(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What a launch of reinforcement learning, or of the same tool's fine-tuning, says."""
    told = translate(given, table)
    keys = told.keys
    kind = (keys.text("algorithm") or "").lower()
    method = _tuning(keys, given, table)
    pools = _pools(keys)
    gpus, pool = _chips(keys, known, pools)
    group = keys.whole("group")  # of one environment: a batch then counts trajectories
    samples = 1 if method else group or keys.whole("samples") or 1
    answers = None if method else keys.whole("prompts" if group else "answers")
    for start in str(table.options.get("other_steps", "")).split():
        named = any(start in word for word in given.words)
        if named or any(key.startswith(start) for key, _ in given.pairs):
            keys.doubt(f"{start.rstrip('.')} is another step, which is not computed")
    prompts = max(answers // samples, 1) if answers else keys.whole("prompts", low=0) or 0
    mini = (None if group else answers) or _mini(keys, table, prompts, samples, bool(method))
    if prompts == 0 and not method:  # fully asynchronous: what passes between two synchronisations
        times = [keys.whole(name) or 1 for name in ("batches_ahead", "sync_every")]
        prompts = max(mini // samples, 1) * times[0] * times[1]
    answer, prompt = _lengths(keys, bool(method))
    ahead = keys.number("staleness", high=1e6)
    if keys.flag("ahead") is False or (ahead is not None and ahead == 0):
        ahead = None
    elif ahead is None and (keys.flag("ahead") or _async(given, table)):
        ahead = 1.0
    tokens = (
        keys.whole("total_len")
        if table.options.get("token_batches")
        else _micro_tokens(keys, answer + prompt, tuned=bool(method))
    )
    fraction = keys.number("fraction", high=1.0)
    share = "" if fraction is None else f"memory_fraction={fraction:g}"
    rollout = (f"tp{_rollout_tp(keys, pools)}", share, _engine_words(keys))
    turns, steps = keys.whole("turns") or 1, keys.whole("steps", low=-1) or 0
    own = pools[-1][1] if pools else {}
    degree = {
        name: keys.whole(name, low=0) or own.get(mark)
        for name, mark in (("tp", "t"), ("pp", "p"), ("cp", "c"), ("ep", "e"))
    }
    decided = decide(
        keys, table_of("_policy").rules, {**degree, "pool_engine": pools[0][0] if pools else ""}
    )
    copy = bool(decided.known.get("reference"))
    step: dict[str, Any] = {
        "algorithm": method or kind or "grpo",
        "model": (keys.text("model") or "").rstrip("/") or None,
        "gpus": gpus,
        "rollout_gpus": pool,
        "prompts": max(prompts, 1),
        "samples": samples,
        "mini": mini,
        "prompt_len": prompt,
        "max_osl": answer,
        "rollout_plan": " ".join(filter(None, rollout)),
        "framework": table.tool,
        "reference": None if copy else "none",
        "critic": keys.text("critic"),
        "partial": (pool is not None and keys.flag("partial")) or None,
        "offload": _offload(keys, table),
        "placement": "colocated" if pool is None else "async" if ahead else "split",
        "staleness": (ahead or None) if pool is not None else None,
        "engine": str(decided.known.get("engine_name", "")).lower() or None,
        "micro_tokens": tokens,
        "log_prob_mbs": _of_pass(keys, "log_prob", tokens),
        "reference_mbs": _of_pass(keys, "reference", tokens) if copy else None,
        "turns": turns if turns > 1 else None,
        "steps": steps if steps > 0 else None,
    }
    keys.whole("zero_stage", low=0, high=3)
    keys.whole("lora_rank", low=0)
    over = {word: decided.words[word] for word in OVER if word in decided.words}
    more = {"micro_batch": keys.whole("micro_batch") or 1, **decided.words, **told.plan, **over}
    if (degree["cp"] or 1) == 1:
        more.pop("cp_mode", None)
    older = table.options.get("older", {}).get(told.backend)  # releases with another default
    if older and keys.said_as("micro_all") and not keys.said_as("tp"):
        keys.unset.add("tp")
        keys.ask(older)
    every = keys.whole("micro_all")
    if every and not keys.said_as("micro_batch"):  # of all replicas together
        ranks = 1
        for name in ("tp", "pp", "cp"):
            ranks *= degree[name] or 1
        more["micro_batch"] = max(every * ranks // gpus, 1) if gpus else None
    return launch_of_step(told, given, known, table, step, degree, more)


def _tuning(keys: Keys, given: ArgumentTable, table: ToolTable) -> str:
    """The algorithm of a launch that generates nothing: by the program or section that names it."""
    kind = (keys.text("algorithm") or "").lower()
    if kind in TUNED:
        return kind
    names = [one for _, one in keys.given.spelt.items()] + [key for key, _ in given.pairs]
    generates = any(name.startswith("grpo.") for name in names)
    for method, start in table.options.get("sections", {}).items():
        if not generates and any(name.startswith((*start.split(),)) for name in names):
            return str(method)
    without = (*str(table.options.get("generates", "")).split(),)
    if without and not given.started and not any(name.startswith(without) for name in names):
        return "sft"
    for method, marks in table.options.get("tuning", {}).items():
        if any(mark in given.text for mark in marks.split()):
            return str(method)
    return ""


def _async(given: ArgumentTable, table: ToolTable) -> bool:
    return any(mark in given.text for mark in str(table.options.get("async", "")).split())


def _pools(keys: Keys) -> list[tuple[str, dict[str, int]]]:
    """Pools of chips that one text deals out (`sglang:d4t2+fsdp:d4`), the engine's first."""
    texts = re.split(r"[+|]", keys.text("allocation") or "")
    texts = [one for one in texts if one] or [
        text for name in ("rollout_pool", "trainer_pool") if (text := keys.text(name))
    ]
    found = []
    for text in texts:
        match = _POOL.search(text.strip())
        if match:
            degrees = {mark.lower(): int(n) for mark, n in _DEGREE.findall(match[1])}
            found.append((text.partition(":")[0].strip().lower(), degrees))
    return found


def _pool_size(degrees: dict[str, int]) -> int:
    """Chips of a pool: its degrees but the experts', which share those of the others."""
    found = 1
    for mark, number in degrees.items():
        found *= number if mark != "e" else 1
    return found


def _places(text: object) -> set[int] | None:
    """Chips of a list of places: 0-7, [0, 1], list(range(0,16)); None where there is none."""
    if text is None:
        return None
    if isinstance(text, list):
        return {int(one) for one in text if str(one).isdigit()} or None
    plain = str(text)
    match = re.search(r"range\(\s*(?:(\d+)\s*,\s*)?(\d+)\s*\)", plain)
    if match:
        return set(range(int(match[1] or 0), int(match[2])))
    found: set[int] = set()
    for low, high, one in _RANGE.findall(plain):
        found |= set(range(int(low), min(int(high), int(low) + 100_000) + 1)) if low else {int(one)}
    return found or None


def _chips(
    keys: Keys, known: Known, pools: list[tuple[str, dict[str, int]]]
) -> tuple[int | None, int | None]:
    """(chips of the trainer, chips of an engine of its own or None)."""
    nodes, each = keys.whole("nodes"), keys.whole("gpus_per_node")
    every = each * (nodes or 1) if each else None
    if not keys.said_as("nodes"):
        every = keys.whole("gpus") or every
    if pools:
        shared = len(pools) < 2 or "|" in (keys.text("allocation") or "")
        pool = None if shared else _pool_size(pools[0][1])
        return known.gpus or _pool_size(pools[-1][1]), pool
    mine, theirs = _places(keys.raw("places")), _places(keys.raw("rollout_places"))
    if mine:
        apart = theirs is not None and not theirs & mine
        return known.gpus or len(mine), len(theirs) if apart and theirs else None
    whole = known.gpus or every or world_size(keys, known)
    if keys.flag("colocate"):
        return whole, None
    nodes = keys.whole("rollout_nodes", low=0)
    pool = keys.whole("rollout_gpus", low=0) or None
    if nodes or (pool is None and keys.said_as("rollout_gpus_per_node")):
        pool = (nodes or 1) * (keys.whole("rollout_gpus_per_node") or each or 8)
    engines = keys.whole("engines")
    if pool is None and engines and keys.flag("colocate") is False:
        pool = engines * (keys.whole("rollout_tp") or 1)
    if pool is None and keys.said_as("colocate") and keys.flag("colocate") is False:
        keys.ask("the GPUs that generate are not in the file: --rollout-gpus")
    if pool is not None and whole is not None and known.gpus is None and keys.flag("pool_inside"):
        whole = max(whole - pool, 1)
    return whole, pool


def _mini(keys: Keys, table: ToolTable, prompts: int, samples: int, tuned: bool) -> int:
    """Sequences of one optimizer update."""
    told, parts = keys.whole("mini"), keys.whole("minis")
    if tuned and prompts and not keys.said_as("mini"):
        return prompts
    if told is not None:
        return told * (samples if table.options.get("mini_counts") == "prompts" else 1)
    micro, steps = keys.whole("micro_batch"), keys.whole("accumulation")
    every = max(prompts, 1) * samples
    if steps and micro and keys.said_as("accumulation"):
        size = _places(keys.raw("places"))
        ranks = 1
        for name in ("tp", "pp", "cp"):
            ranks *= keys.whole(name) or 1
        if size:
            return max(len(size) // ranks, 1) * micro * steps
    return max(every // (parts or 1), 1)


def _lengths(keys: Keys, tuned: bool) -> tuple[int, int]:
    """(longest answer, longest prompt); a limit of both together leaves the prompt what the answer does not
    take."""
    answer, prompt, total = (keys.whole(f"{n}_len") for n in ("answer", "prompt", "total"))
    if tuned:
        return 0, total or prompt or 1024
    given = keys.said_as("prompt_len")
    if total and not answer:
        answer = total - prompt if prompt and given and total > prompt else total // 2
    if answer is None:
        keys.ask("the longest answer is not in the file: --max-osl")
        answer = 1024
    if (prompt is None or not given) and total:
        prompt = prompt_room(total, answer)
    return answer, prompt or 512


def _rollout_tp(keys: Keys, pools: list[tuple[str, dict[str, int]]]) -> int:
    return keys.whole("rollout_tp") or (pools[0][1].get("t", 1) if pools else 1)


def _engine_words(keys: Keys) -> str:
    """What an engine's section says beside its layout: graphs, sequences at once, formats of the weights."""
    words = ["no-graph"] if keys.flag("rollout_eager") else []
    most = keys.whole("max_num_seqs", low=0)
    words += [f"max_batch={most}"] if most else []
    narrow = (keys.text("rollout_weights") or "").lower()
    words += ["weights=fp8"] if narrow.startswith("fp8") else []
    return " ".join(words)


def _micro_tokens(keys: Keys, longest: int, *, tuned: bool) -> int | None:
    """Tokens of a micro-batch, where it is packed by them."""
    if keys.flag("dynamic") is False or (tuned and not keys.said_as("dynamic")):
        return None
    told = whole_number(keys.text("micro_tokens"))
    if told is not None:
        return told
    if keys.flag("dynamic"):
        return longest * (keys.whole("micro_batch") or 1)
    return None


def _of_pass(keys: Keys, name: str, tokens: int | None) -> int | None:
    """Sequences of a micro-batch of a pass without gradients; None where tokens fill it, as updates' do
    unless the pass has a switch of its own."""
    packed = keys.flag(f"{name}_dynamic")
    filled = packed if packed is not None else tokens is not None
    return None if filled else keys.whole(f"{name}_mbs")


def _offload(keys: Keys, table: ToolTable) -> str | None:
    """What the trainer keeps on the host while the engine generates."""
    parts = [one for one in ("weights", "optimizer", "reference") if keys.flag(f"offload_{one}")]
    return "+".join(parts) or ("none" if table.options.get("offloads") else None)
