"""Deployments as words: `tp8 ep8 weights=fp8 kv=fp8 max_batch=256`; what is printed parses back."""

import re
from dataclasses import fields, replace
from typing import Any

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.specs.deployment import DRAFTERS, FORMATS, Deployment
from foretell.specs.plan_words import LONGEST_TEXT

DEGREES = ("tp", "pp", "dp", "ep", "cp")
"""Words of a name and a number."""
FORMS = ("weights", "experts", "kv")
"""Words whose value is a format."""
WHOLE = (
    "max_batch", "max_tokens", "draft_tokens", "stream_interval", "redundant_experts", "receive_steps",
    "decode_steps", "graph_batch", "adapters", "adapter_rank", "adapter_slots", "cache_tokens",
    "max_context",
)  # fmt: skip
"""Words whose value is a whole number."""
SHARES = ("memory_fraction", "accepted", "wait_steps", "balance", "offload_gb", "cache_gb")
"""Words whose value is a number."""
SWITCHES = ("graph", "eplb", "tbo", "overlap", "chunked", "mixed")
"""Words that are alone, or with no- before them."""
DISPATCHES = (
    "auto", "gather", "deepep", "deepep-2", "deepep-low-latency", "nvlink-one-sided",
    "nvlink-two-sided", "mori", "mori-low-latency", "pplx", "pplx-proxy", "nccl",
)  # fmt: skip
"""Kernels that bring tokens to experts: `dispatch=NAME`."""
OTHER_NAMES: dict[str, str] = {
    "awq": "int4", "gptq": "int4", "nf4": "int4", "awq_marlin": "int4", "gptq_marlin": "int4",
    "w4a16": "int4",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "w8a8": "int8", "fp8_block": "fp8-block",
    "modelopt_fp4": "nvfp4", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
}  # fmt: skip
"""Names that engines and checkpoints have for formats -> ours."""
CHOICES: dict[str, tuple[str, ...]] = {"drafter": DRAFTERS, "dispatch": DISPATCHES}
"""Words whose value is one of a few names."""
_DEGREE = re.compile(r"([a-z]+)([0-9]{1,6})")


def parse_deployment(text: str, base: Deployment | None = None) -> Deployment:
    """A deployment from its words, on top of another; every wrong or doubled word is reported."""
    if len(text) > LONGEST_TEXT:
        raise bad_input("plan", text[:60], f"is longer than {LONGEST_TEXT} characters")
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for word in text.split():
        found = _word(word)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        name, value = found
        if name in values:
            problems.append(wrong("plan", word, "given more than once"))
        values[name] = value
    if problems:
        raise BadInput(problems)
    if "weights" in values and "experts" not in values:
        values["experts"] = values["weights"]
    return replace(base or Deployment(), **values)


def _word(word: str) -> tuple[str, Any] | Problem:
    """Name and value of a word, or what is wrong with it."""
    plain = word.removeprefix("no-")
    if plain in SWITCHES:
        return plain, plain == word
    key, equals, value = word.partition("=")
    if equals:
        return _value(word, key, value)
    match = _DEGREE.fullmatch(word)
    if match and match[1] in DEGREES and int(match[2]) >= 1:
        return match[1], int(match[2])
    number = re.sub(r"\D", "", word).lstrip("0") or "1"
    switches = [f"{no}{name}" for name in SWITCHES for no in ("", "no-")]
    return wrong(
        "plan",
        word,
        "is no word of a serving plan",
        "tp8 pp2 dp8 ep8 cp2, graph, eplb, tbo, overlap, chunked, mixed, and key=value",
        nearest_name(word, [*(f"{name}{number}" for name in DEGREES), *switches]),
    )


def _value(word: str, key: str, value: str) -> tuple[str, Any] | Problem:
    """The value of key=value."""
    if key in FORMS:
        value = OTHER_NAMES.get(value, value)
        if value in FORMATS:
            return key, value
        return _bad(word, ", ".join(FORMATS), nearest_name(value, FORMATS))
    for name, allowed in CHOICES.items():
        if key == name:
            return (
                (key, value)
                if value in allowed
                else _bad(word, ", ".join(allowed), nearest_name(value, allowed))
            )
    if key in WHOLE and re.fullmatch(r"[0-9]{1,9}", value):
        return key, int(value)
    if key in SHARES and re.fullmatch(r"[0-9]{0,6}(\.[0-9]{1,6})?", value) and value:
        return key, float(value)
    known = (*FORMS, *WHOLE, *SHARES, *CHOICES)
    if key in known:
        return _bad(word, "a number", None)
    return wrong(
        "plan",
        word,
        "is no choice of a serving plan",
        ", ".join(known),
        f"{key}{value}" if key in DEGREES else nearest_name(key, known),
    )


def _bad(word: str, allowed: str, near: str | None) -> Problem:
    return wrong("plan", word, "no such value", allowed, near)


def deployment_text(deployment: Deployment) -> str:
    """The words of a deployment: degrees above 1 and formats, then what is not at its default."""
    words = [f"tp{deployment.tp}"]
    words += [f"{n}{getattr(deployment, n)}" for n in DEGREES[1:] if getattr(deployment, n) > 1]
    words.append(f"weights={deployment.weights}")
    if deployment.experts != deployment.weights:
        words.append(f"experts={deployment.experts}")
    words.append(f"kv={deployment.kv}")
    default = {f.name: f.default for f in fields(Deployment)}
    for name in (*WHOLE, *SHARES):
        value = getattr(deployment, name)
        if value != default[name]:
            words.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
    for name in CHOICES:
        if getattr(deployment, name) != default[name]:
            words.append(f"{name}={getattr(deployment, name)}")
    for name in SWITCHES:
        value = getattr(deployment, name)
        if value != default[name]:
            words.append(name if value else f"no-{name}")
    return " ".join(words)


def deployment_problems(deployment: Deployment, gpus: int) -> list[Problem]:
    """Degrees that contradict each other or the number of chips; shares out of range."""
    d, problems = deployment, []

    def bad(path: str, value: object, message: str, allowed: str) -> None:
        problems.append(wrong(f"plan.{path}", value, message, allowed))

    if gpus % d.gpus:
        bad("tp", deployment_text(d), f"{gpus} chips are not whole instances of {d.gpus}",
            "degrees whose product divides the chips")  # fmt: skip
    if d.stage % d.ep:
        bad(
            "ep",
            d.ep,
            f"does not divide the {d.stage} chips of a stage",
            "a divisor of tp x dp x cp",
        )
    if d.memory_fraction is not None and not 0.0 < d.memory_fraction <= 1.0:
        bad("memory_fraction", d.memory_fraction, "out of range", "above 0, at most 1")
    if d.cache_gb is not None and d.cache_gb <= 0.0:
        bad("cache_gb", d.cache_gb, "out of range", "gigabytes above 0")
    if d.balance is not None and not 0.0 < d.balance <= 1.0:
        bad("balance", d.balance, "out of range", "above 0, at most 1")
    if d.accepted > d.draft_tokens:
        bad(
            "accepted",
            d.accepted,
            f"more than the {d.draft_tokens} drafted",
            "at most draft_tokens",
        )
    for name in ("max_batch", "max_tokens", "stream_interval", "receive_steps", "decode_steps",
                 "graph_batch", "adapter_rank", "adapter_slots", "cache_tokens", "max_context"):  # fmt: skip
        value = getattr(d, name)
        if value is not None and value < 1:
            bad(name, value, "out of range", "from 1")
    return problems
