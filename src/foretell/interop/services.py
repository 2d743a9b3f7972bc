"""What a command of a serving engine says: its tool's table walked into the words of a deployment.

A table (interop/tools) has the flags of each field below, the engine's words for formats, and how its degrees
are counted (`options.ranks`):

    product   tp x pp x dp x cp chips, as vLLM and TGI count
    stage     tp is all chips of a stage; dp x cp of them have sequences of their own where attention is
              data-parallel, else dp is whole copies of the engine (SGLang)
    attention tp is all chips of a stage, each with sequences of its own under attention data parallelism
              (TensorRT-LLM)
    layers    layers are dealt to the chips, one after the other (llama.cpp)
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.arguments import ArgumentTable, flat
from foretell.interop.edited_launch import own_flags
from foretell.interop.keys import Keys, drop_unset, read_back
from foretell.interop.launch import Known, Launch
from foretell.interop.several_servers import joined_halves
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.whole_numbers import whole_number
from foretell.specs.deployment import Deployment

LIMITS = (
    "max_batch", "max_tokens", "cache_tokens", "stream_interval", "receive_steps", "decode_steps",
)  # fmt: skip
"""Fields that are whole numbers from one."""
STORES = ("offload", "lmcache", "store", "flexkv", "hf3fs", "hisparse", "example", "sharedstorage")
"""Parts of the names of connectors that keep caches outside the chips rather than hand them on."""
SIDES = {
    "prefill": "prefill", "decode": "decode", "kv_producer": "prefill", "kv_consumer": "decode",
}  # fmt: skip
"""How engines name the half of a split service that an instance is."""


class Service:
    """One command while it is read."""

    def __init__(self, keys: Keys, table: ToolTable, known: Known, bears: tuple[str, ...]) -> None:
        self.keys, self.table, self.known = keys, table, known
        self.warned = list(bears)

    def option(self, name: str, otherwise: Any = None) -> Any:
        """How the engine does something, by its table."""
        return self.table.options.get(name, otherwise)

    def warn(self, field: str, value: str) -> None:
        """A value that matters and is not modelled."""
        self.warned.append(f"{self.keys.given.spelt.get(field, field)}={value[:40]}")

    def word(self, field: str) -> str | None:
        """Our word for the engine's, None where it has none; one that is not known is a warning."""
        told = (self.keys.text(field) or "").lower()
        found = self.table.words[field].get(told)
        if told and found is None:
            self.warn(field, told)
        return found or None


def read_service(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What a command of a serving engine says."""
    if table.options.get("inside"):
        return _read_inside(given, known, table)
    opened, broken = _opened(given, table)
    told = translate(opened, table)
    keys = told.keys
    for name, text in broken.items():
        _broken_table(keys, name, text)
    one = Service(keys, table, known, told.warned)
    layout, gpus, copies = LAYOUTS[one.option("ranks", "product")](one)
    values: dict[str, object] = {
        **layout, **_formats(one), **_limits(one, copies, int(str(layout.get("dp") or 1))),
        **_drafts(one), **_adapters(one), **dict(told.plan),
    }  # fmt: skip
    if one.option("wide"):
        values |= _wide(one, values)
    models = _models(one, values)
    _say_side(one)
    keys.raise_problems()
    job: dict[str, Any] = {"gpus": gpus * (keys.whole("copies") or 1)}
    sources = {**table.sources, **told.sources}
    drop_unset(keys, values, job, sources)
    rows = {"model": next(iter(models), None), "gpus": job["gpus"], **values}
    bears = tuple(dict.fromkeys((*one.warned, *told.left.bears)))
    launch = launch_of(
        told, given, table, job, values, sources, models=models, values=read_back(keys, rows, sources),
        unmodelled=bears, flags=own_flags(given, dict(given.pairs)),
    )  # fmt: skip
    return _with_prefill(one, launch)


def _read_inside(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """The engine that a command of another runs (Dynamo)."""
    words = " ".join((*given.words, *(str(v) for k, v in given.pairs if k == "m"))).lower()
    engines = table.options["inside"].split()
    engine = next((name for name in engines if f"{table.tool}.{name}" in words), engines[-1])
    pairs = tuple(pair for pair in given.pairs if pair[0] not in HALVES)
    launch = read_service(replace(given, pairs=pairs), known, table_of(engine))
    more = ("one half of a disaggregated service: the other is not read",)
    named = [str(value) for key, value in given.pairs if key in ("model", "model_path")]
    doubts = more if len(pairs) < len(given.pairs) else ()
    return replace(launch, models=launch.models or tuple(named), doubts=(*launch.doubts, *doubts))


HALVES = ("is_prefill_worker", "disaggregation_mode")
"""Flags of Dynamo that say which half an instance is."""


# ---- tables behind flags ------------------------------------------------------------------------


def _opened(given: ArgumentTable, table: ToolTable) -> tuple[ArgumentTable, dict[str, str]]:
    """Arguments with the JSON behind flags as dotted keys under the long name of the flag, and what is no
    JSON."""
    short = dict(table.options.get("short", {}))
    names = {*table.tables, *short}
    pairs: list[tuple[str, Any]] = []
    places, broken = dict(given.places), dict[str, str]()
    for key, value in given.pairs:
        front, dot, rest = key.partition(".")
        if front not in names:
            pairs.append((key, value))
            continue
        long = short.get(front, front)
        places[f"{long}{dot}{rest}"] = places.get(key, 0)
        told = value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                told = json.loads(value)
            except (ValueError, RecursionError):
                broken[long] = value
        if isinstance(told, Mapping) and not dot:
            inner = flat(told, f"{long}.")
            pairs += inner
            places |= dict.fromkeys((name for name, _ in inner), places.get(key, 0))
        elif long not in broken:
            pairs.append((f"{long}{dot}{rest}", told))
    return replace(given, pairs=tuple(pairs), places=places), broken


def _broken_table(keys: Keys, name: str, text: str) -> None:
    if "$" in text:
        keys.ask(f"{name} has values that are not set in the file: words of --plan say them")
    else:
        keys.problem(name, "is not JSON", text)


def _say_side(one: Service) -> None:
    """A note of an instance that is one half of a split service, or that keeps caches elsewhere."""
    keys = one.keys
    connector = keys.text("transfer") or ""
    side = SIDES.get((keys.text("side") or "").lower())
    if any(part in connector.lower() for part in STORES) and side is None:
        one.warn("transfer", connector)
        keys.note(f"{connector} keeps caches outside the chips: --simulate --kv-tiers with a trace or "
                  "sessions counts what comes back")  # fmt: skip
    elif connector or side:
        part = f"{side} alone" if side else "one side"
        keys.note(
            f"this instance does {part}; --prefill-gpus and --prefill-plan describe the other side"
        )


def _with_prefill(one: Service, launch: Launch) -> Launch:
    """The launch with the instances that do prefill alone, where one file starts both halves."""
    keys = one.keys
    many = keys.whole("prefill_copies", low=0) or 0
    if not many or keys.flag("prefill_on") is False:
        return launch
    tp = keys.whole("prefill_tp") or 1
    return joined_halves(launch, many * tp, f"tp{tp}")


# ---- degrees ------------------------------------------------------------------------------------

Layout = tuple[dict[str, object], int, int]
"""Degrees, chips, and ranks that share the limits on requests."""


def _degrees(tp: int, pp: int, dp: int, cp: int, ep: int) -> dict[str, object]:
    """Degrees of a layout; those of 1 that an engine usually has not are left out."""
    rest = {"dp": dp, "cp": cp, "ep": ep}
    return {"tp": tp, "pp": pp, **{name: many if many > 1 else None for name, many in rest.items()}}


def _product(one: Service) -> Layout:
    tp, pp, dp, cp = (one.keys.whole(name) or 1 for name in ("tp", "pp", "dp", "cp"))
    stage = tp * dp * cp
    if one.option("all_seen") and not one.keys.said_as("tp"):
        one.keys.note(one.option("all_seen"))
    return _degrees(tp, pp, dp, cp, stage if one.keys.flag("spread") else 1), stage * pp, 1


def _stage(one: Service) -> Layout:
    keys = one.keys
    ranks, pp, copies, cp = (keys.whole(name) or 1 for name in ("tp", "pp", "dp", "cp"))
    inside = keys.whole("dp_inside") or 1
    apart = bool(keys.flag("dp_attention")) or inside > 1
    copies = inside if inside > 1 else copies
    dp = copies if apart else 1
    if ranks % (dp * cp):
        keys.problem("tp", f"is no multiple of dp {dp} x cp {cp}", ranks)
    if copies > 1 and not apart:
        keys.note(f"{copies} copies of the engine side by side: attention is not data-parallel")
    ep = ranks if keys.flag("spread") else keys.whole("ep") or 1
    backend = (keys.text("dispatch") or ("deepep" if keys.flag("deepep") else "none")).lower()
    if backend in str(one.option("spreads", "")).split():
        if ep not in (1, ranks):
            keys.note(f"ep {ep} becomes {ranks}: all tensor-parallel ranks with {backend}")
        ep = ranks
    layout = _degrees(max(ranks // (dp * cp), 1), pp, dp, cp, ep)
    return layout, ranks * pp * (1 if apart else copies), copies


def _attention(one: Service) -> Layout:
    keys = one.keys
    ranks, pp, cp = (keys.whole(name) or 1 for name in ("tp", "pp", "cp"))
    cut = keys.whole("expert_tp")
    ep = keys.whole("ep") or (ranks // cut if cut and not ranks % cut else 1)
    if cut and cut * ep != ranks:
        keys.problem("expert_tp", f"times ep {ep} is not the {ranks} ranks", cut)
    apart = bool(keys.flag("dp_attention"))
    waits = keys.number("wait_steps", high=1e5)
    if waits is None and apart:
        waits = keys.number("dp_wait_steps", high=1e5)
    layout = _degrees(1 if apart else ranks, pp, ranks if apart else 1, cp, ep)
    return {**layout, "wait_steps": waits or None}, ranks * pp * cp, 1


def _layers(one: Service) -> Layout:
    split = one.keys.text("pp")
    gpus = one.known.gpus or (len(split.split(",")) if split else 1)
    some = whole_number(one.keys.raw("gpu_layers"))
    if some is not None and some < 99:
        one.keys.doubt(f"{some} layers are on the GPU and others on the host: all are taken on it")
    return {"tp": 1, "pp": gpus}, gpus, 1


LAYOUTS = {"product": _product, "stage": _stage, "attention": _attention, "layers": _layers}
"""How degrees are counted, by the word in a table."""


# ---- formats and limits -------------------------------------------------------------------------


def _formats(one: Service) -> dict[str, object]:
    """Formats of weights and cache, and the kernels that bring tokens to experts."""
    keys, words = one.keys, one.table.words
    told = keys.choice(["weights"], words["weights"])
    if told == "":
        keys.note(
            f"quantization {keys.text('weights')}: the checkpoint's own format; weights= says another"
        )
    values: dict[str, object] = {
        "weights": None if told in ("", "experts_int8") else told,
        "experts": "int8" if told == "experts_int8" else None,
        "kv": keys.choice(["kv"], words["kv"]),
        "dispatch": one.word("dispatch"),
    }
    low = (keys.text("deepep_mode") or "") == "low_latency"
    if low and (keys.text("dispatch") or "deepep") == "deepep":
        values["dispatch"] = "deepep-low-latency"
    elif keys.flag("deepep") and not keys.text("dispatch"):
        values["dispatch"] = "deepep"
    for field in ("kv", "dtype"):
        text = (keys.text(field) or "").lower()
        if text in words["not_modelled"]:
            one.warn(field, text)
    return values


def _limits(one: Service, copies: int, dp: int) -> dict[str, object]:
    """What bounds the batch, a step and the cache."""
    keys = one.keys
    values: dict[str, object] = {}
    for name in LIMITS:
        told = [keys.whole(field, low=-1) for field in (name, f"{name}_2")]
        values[name] = min((many for many in told if many is not None and many > 0), default=None)
    chunk = keys.whole("max_tokens", low=-1)
    if one.option("shared_limits"):  # of all ranks together: the engine divides them
        for name, ranks in (("max_batch", copies), ("max_tokens", dp)):
            many = values[name]
            values[name] = max(many // ranks, 1) if isinstance(many, int) else None
    if keys.flag("chunked") is False or (chunk is not None and chunk <= 0):
        values["chunked"] = False
    longest = keys.whole("max_context", low=-1)
    if longest is not None:
        keys.note(f"longest request {longest}: prompts and answers together must stay below it")
    if keys.flag("prefix_caching") is False or keys.flag("no_prefix_caching"):
        keys.note("prefix caching is off: --prefix-hit is to stay 0")
    context = keys.whole("slot_context")
    if context:
        values["cache_tokens"] = context * int(str(values["max_batch"] or 1))
    blocks, cache = keys.whole("cache_blocks"), keys.number("cache_bytes", high=1e15)
    if blocks:
        values["cache_tokens"] = blocks * (keys.whole("page") or int(one.option("page", 16)))
    graphs = largest(keys.raw("graph_batch"))
    if keys.text("graph_batch") == "0":
        values["graph"] = False
    return values | {
        "max_context": longest if longest and longest > 0 else None,
        "memory_fraction": keys.number("memory_fraction", low=0.01, high=1.0),
        "cache_gb": cache / 1e9 if cache else None,
        "graph_batch": graphs or None,
        "offload_gb": keys.number("offload_gb", high=1e5) or None,
        "redundant_experts": keys.whole("redundant_experts", low=0) or None,
        "eplb": keys.flag("eplb") or None,
        "tbo": keys.flag("tbo") or None,
        "overlap": keys.flag("overlap"),
    }


def _wide(one: Service, values: Mapping[str, object]) -> dict[str, object]:
    """Values of a launch with experts over many ranks: neither balanced experts nor halves by turns, no wait
    for prompts of other ranks, and the default chunk divided by the ranks, unless it says so."""
    keys, own = one.keys, one.option("wide")
    dp, ep = (int(str(values.get(name) or 1)) for name in ("dp", "ep"))
    if not Deployment(dp=dp, ep=ep).is_wide:
        return {}
    chunk = values["max_tokens"]
    if chunk is None and values.get("chunked") is not False:
        chunk = max(own["chunk"] // dp, 1)
        keys.note(f"{own['chunk']} tokens of a step (default) are {chunk} for each of {dp} ranks")
    placed = values.get("redundant_experts") or keys.text("expert_places")
    waits = float(keys.whole("delay") or own["delay"]) if keys.flag("delayed") else 0.0
    return {
        "max_tokens": chunk,
        "wait_steps": None if (keys.text("side") or "") in SIDES else waits,
        "eplb": values.get("eplb") or (None if placed else False),
        "tbo": bool(values.get("tbo")),
    }


def largest(values: object) -> int | None:
    """The largest whole number of a list, or of a text of numbers; None where there is none."""
    items = values if isinstance(values, list) else str(values or "").replace(",", " ").split()
    found = [whole_number(str(item).strip("[] ")) for item in items]
    return max((one for one in found if one is not None), default=None)


# ---- drafts and adapters ------------------------------------------------------------------------


DRAFTERS = ("eagle3", "eagle", "medusa", "mlp_speculator", "dspark")
"""Parts of a draft's name that say its method where none is named (vllm/config/speculative.py)."""


def _drafts(one: Service) -> dict[str, object]:
    """Tokens that a draft proposes in each step, who does, and how many are kept where that is forced."""
    keys, own = one.keys, one.option("drafts", {})
    method, model = keys.text("draft_method"), keys.text("draft_model")
    if model in ("[ngram]", "ngram"):  # vLLM's speculative_model of 2024
        method, model = method or "ngram", None
    method = method or next((word for word in DRAFTERS if word in (model or "").lower()), None)
    many, steps = keys.whole("draft_tokens", low=0), keys.whole("draft_steps")
    if not {"method": method, "model": model}.get(own.get("needs"), method or model or many):
        return {}
    if (keys.whole("draft_branches") or 1) > 1:
        one.warn("draft_branches", "a tree")  # of drafts; one branch is a chain, as is modelled
    if own.get("counts_last"):  # the token of the model itself is among them
        many = many - 1 if many else steps or 3
    if own.get("bare_head") == (method or "").lower() and not model:
        method = "nextn"  # without a draft of its own the model's prediction block drafts
    plain = (method or "").lower()
    words = one.table.words["drafter"]
    kind = "mtp" if plain.endswith("mtp") else words.get(plain.replace("_", ""), words.get(plain))
    if not method:
        kind = "model" if model else own.get("drafter")
    elif kind is None:
        one.warn("draft_method", method)
        kind = "eagle3"
    if not many:
        many = own.get("tokens", {}).get(plain if plain in own.get("tokens", {}) else kind)
        if not many:
            keys.doubt("the draft names no number of tokens, which its method needs")
            return {}
        keys.note(f"the draft names no number of tokens: {many}, the method's own")
    found: dict[str, object] = {"draft_tokens": many, "drafter": None if kind == "mtp" else kind}
    forced = keys.number("draft_accepted", low=1.0, high=1000.0)
    if forced is not None and forced <= many + 1.0:
        found["accepted"] = forced - 1.0
    return found


def _adapters(one: Service) -> dict[str, object]:
    """Low-rank adapters: those that the command names, else as many as may be on the host; slots on the chips
    are there whether they are filled or not."""
    keys, own = one.keys, one.option("adapters", {})
    told = keys.raw("lora_named")
    if isinstance(told, str) and own.get("joined"):
        told = [name for name in told.split(",") if name]
    named = len(told) if isinstance(told, list | dict) else int(told not in (None, False))
    slots, host, rank = (keys.whole(f"lora_{name}") for name in ("slots", "host", "rank"))
    limits = own.get("by_limits") and (slots or host)
    if not (keys.flag("lora") or named or limits):
        return {}
    slots = slots or own.get("slots")
    every = named or max(host or 1, slots or 1)
    return {
        "adapters": every,
        "adapter_slots": slots if slots and slots != every else None,
        "adapter_rank": rank or own.get("rank"),
    }


# ---- models by their names ----------------------------------------------------------------------


def _models(one: Service, values: dict[str, object]) -> tuple[str, ...]:
    """What may name the model; where the name says the format of the weights, that too."""
    words = [word for word in one.keys.words if word not in ("\\", "&", ";", "&&")]
    names = [name for name in (one.keys.text("model"),) if name]
    after = str(one.option("behind", "")).split()
    at = next((n for n, word in enumerate(words) if word.rpartition("/")[2] in after), None)
    if at is not None:
        skip = (*after, "serve", "run", "pull")
        names = [*[word for word in words[at + 1 :] if word not in skip][:1], *names]
    names = [name.removeprefix("hf://") for name in names]
    form = one.option("format")
    if form is None:
        return tuple(names)
    return FORMS[form](one, names[0] if names else "", values)


def _gguf(one: Service, file: str, values: dict[str, object]) -> tuple[str, ...]:
    values["weights"] = gguf_format(one, file)
    name = file.partition(":")[0].removesuffix("-GGUF")
    if name.endswith(".gguf"):
        name = name.rpartition("/")[2].removesuffix(".gguf").rpartition("-")[0]
    return (name,) if name else ()


def gguf_format(one: Service, file: str) -> str | None:
    """The format of the weights by the file's name: Q4_K_M, Q8_0; of 5 bits 4, of 6 bits 8, and reported."""
    match = re.search(r"(?:^|[^A-Z0-9])(I?Q)([2-8])(?:[_0-9A-Z]*)", file.upper())
    if match is None:
        return None
    bits = int(match[2])
    if bits not in (4, 8):
        one.warned.append(f"weights of {bits} bits")
    return "int4" if bits < 6 else "int8"


def _tagged(one: Service, name: str, values: dict[str, object]) -> tuple[str, ...]:
    """NAME:TAG of Ollama's library, whose format is Q4_K_M where the tag has none."""
    stem, _, tag = name.partition(":")
    whole = "bf16" if "fp16" in tag or "bf16" in tag else gguf_format(one, f"-{tag}")
    if whole is None:
        one.keys.note("no format in the tag: Q4_K_M, the one that Ollama's library has by default")
    values |= {"weights": whole or "int4", "max_batch": values.get("max_batch") or 1}
    size = next((part for part in tag.split("-") if re.fullmatch(r"[0-9x.]+b", part)), "")
    spelt = re.sub(r"(?<=[a-z])(?=[0-9])", "-", stem.rpartition("/")[2], count=1)
    names = [f"{form}-{size}".strip("-") for form in (spelt, stem)]
    # Ollama's deepseek-r1 below 671b is one of the distilled models.
    names += [f"{stem}-distill-{kind}-{size}" for kind in ("llama", "qwen") if size]
    names += [spelt, stem] if size in ("", "671b") else []
    return tuple(names) if stem else ()


def _bits(one: Service, repository: str, values: dict[str, object]) -> tuple[str, ...]:
    """A repository of mlx-community, whose name says the bits of the weights."""
    known = one.table.words["bits"]
    bits = next((word for word in reversed(repository.lower().split("-")) if word in known), "")
    values["weights"] = known.get(bits)
    if bits in ("2bit", "3bit", "5bit", "6bit"):
        one.warned.append(f"weights of {bits[0]} bits")
    bare = re.sub(rf"-{bits}$", "", repository, flags=re.IGNORECASE) if bits else repository
    return tuple(name for name in (bare.rpartition("/")[2], bare, repository) if name)


FORMS = {"gguf": _gguf, "tag": _tagged, "bits": _bits}
"""How a model's name says the format of its weights, by the word in a table."""
