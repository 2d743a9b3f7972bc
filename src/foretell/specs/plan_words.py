"""The words of a plan's text: which there are, and what each says of one field.

A word is a degree (`tp8`), a switch (`sp`, `no-flash`), or key=value: one of a few choices, a number between
two ends, an order of the groups, or a form of its own (plan_forms.py).
"""

import re
from typing import Literal, get_args

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.specs.plan_forms import (
    FORM_ALLOWED,
    FORM_WORDS,
    FORMS,
    NUMBERS,
    OPTIMIZER_NAMES,
    PAGED,
    SEQUENCE_GRID,
    as_written,
)
from foretell.specs.plan_forms import (
    GENERIC as GENERIC,
)
from foretell.specs.schedule_words import schedule_modules

PrecisionName = Literal["bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4"]
Scaling = Literal["tensor", "row", "block"]
Optimizer = Literal[
    "adam", "adam-foreach", "adam8bit", "adam-mini", "adafactor", "lion", "muon", "shampoo", "sgd",
    "sgd-plain",
]  # fmt: skip
Reduce = Literal["auto", "step", "micro-batch"]
TuningMethod = Literal[
    "lora", "dora", "adalora", "lokr", "loha", "oft", "boft", "vera", "ia3", "norms", "prefix", "prompt",
    "llama-adapter",
]  # fmt: skip
Autocast = Literal["auto", "on", "off"]
Loss = Literal["auto", "plain", "kernel", "inplace", "chunked"]
AttentionLibrary = Literal["auto", "fa1", "fa2", "fa3", "cudnn", "cudnn8"]
ContextMode = Literal["ring", "allgather", "ulysses"]
ContextCut = Literal["zigzag", "contiguous", "striped"]
Dispatch = Literal["alltoall", "dedup", "deepep"]
Routing = Literal["even", "random", "bias", "batch", "sequence"]
EpOverlap = Literal["off", "on", "shared"]
TensorMode = Literal["1d", "summa"]
Option = Literal["auto", "off", "on"]
Graphs = Literal["auto", "off", "partial", "on"]

AXES = ("tp", "cp", "dp", "pp")
"""Groups that are laid on the network, innermost first by default."""
DEGREES = {
    "tp": "tp",
    "pp": "pp",
    "vpp": "vpp",
    "dp": "dp",
    "cp": "cp",
    "ep": "ep",
    "etp": "etp",
    "zero": "zero",
    "mbs": "micro_batch",
}
"""Words that a number follows, and their fields."""
SWITCHES = ("sp", "flash", "fused", "reshard", "dora")
"""Words that are on by themselves and off after no-."""
CHOICES: dict[str, tuple[str, ...]] = {
    "schedule": tuple(schedule_modules()),
    "precision": get_args(PrecisionName),
    "scaling": get_args(Scaling),
    "autocast": get_args(Autocast),
    "method": get_args(TuningMethod),
    "compile": get_args(Option),
    "loss": get_args(Loss),
    "reduce": get_args(Reduce),
    "wire": ("auto", "fp32", "bf16", "fp16"),
    "gather": ("auto", "bf16", "fp8"),
    "optimizer": get_args(Optimizer),
    "attention": get_args(AttentionLibrary),
    "tp_mode": get_args(TensorMode),
    "tp_overlap": get_args(Option),
    "cp_mode": get_args(ContextMode),
    "cp_cut": get_args(ContextCut),
    "dispatch": get_args(Dispatch),
    "ep_overlap": get_args(EpOverlap),
    "routing": get_args(Routing),
    "grad_overlap": get_args(Option),
    "param_overlap": get_args(Option),
    "graphs": get_args(Graphs),
    "weights": ("fp32", "bf16", "fp16", "fp8", "nf4", "nf4-dq", "int4"),
    "gradients": ("fp32", "bf16", "fp16"),
    "master": ("fp32", "bf16", "none"),
    "states": ("fp32", "bf16", "fp8"),
}
"""Keys whose value is one of a few."""
METHODS = {"lora": "lora={}", "qlora": "lora={} weights=nf4"}
"""Names of methods that are no words of a plan, and the words that say them, by rank."""
USUAL_RANK = "16"
"""Rank in such words where none is given."""
FACTORS = {"capacity": (0.0, 100.0), "imbalance": (1.0, 1e4)}
"""Keys whose value is any number, with its least and most."""
KEYS = (*CHOICES, *FORMS, *NUMBERS, *FACTORS, "order")
"""Words that a value follows behind an equals sign."""
LARGEST_DEGREE = 10**9
"""Degrees above this are a typing error, not a plan."""
LONGEST_TEXT = 10_000
"""Characters above which a text is no plan."""


def outside(path: str, value: object, low: float, high: float) -> Problem:
    """A number that is not between two ends."""
    return wrong(path, value, "out of range", f"{low:g} to {high:g}")


def no_choice(path: str, value: object, allowed: str, nearest: str | None) -> Problem:
    """A value that is none of its key's."""
    return wrong(path, value, "not a choice", allowed, nearest)


def read_words(text: str) -> tuple[dict[str, object], list[Problem]]:
    """Fields that the text names, and every word that is wrong."""
    given: dict[str, object] = {}
    problems: list[Problem] = []
    if len(text) > LONGEST_TEXT:
        return given, [wrong("plan", text[:60], f"is longer than {LONGEST_TEXT} characters")]
    for word in text.split():
        try:
            key, value = _word(word)
        except BadInput as error:
            problems += error.problems
            continue
        if key in given:
            message = f"`{key}` is given twice"
            problems.append(wrong("plan", word, message, "each word once"))
        given[key] = value
    return as_written(given, problems), problems


def is_plan_text(value: object) -> bool:
    """Whether a value is a plan's text, each word of it."""
    return isinstance(value, str) and not read_words(value)[1]


def _word(word: str) -> tuple[str, object]:
    """One word: a switch, a name with a number, or key=value."""
    bare = word.lower()
    if bare in SWITCHES:
        return bare, True
    if bare.startswith("no-") and bare[3:] in SWITCHES:
        return bare[3:], False
    if "=" in bare:
        return _choice(word, *bare.split("=", 1))
    name = bare.rstrip("0123456789")
    digits = bare[len(name) :]
    if name in DEGREES and digits and digits.isascii():
        number = int(digits) if len(digits) < 12 else LARGEST_DEGREE + 1
        low, high = (0, 3) if name == "zero" else (1, LARGEST_DEGREE)
        if not low <= number <= high:
            raise bad_input(f"plan.{name}", word, "out of range", f"{low} to {high}")
        return DEGREES[name], number
    words = [
        *(f"{n}{digits or 1}" for n in DEGREES),
        *SWITCHES,
        *(f"no-{s}" for s in SWITCHES),
        *(f"{k}={v}" for k, vs in {**CHOICES, **FORM_WORDS}.items() for v in vs),
        "order=tp,cp,dp,pp",
    ]
    raise bad_input(
        "plan",
        word,
        "unknown word",
        "tp8 pp4 vpp2 dp16 zero1 mbs1 sp no-flash recompute=full ...",
        _method(bare) or _apart(bare) or nearest_name(bare, words),
    )


def _method(word: str, rank: str = "") -> str | None:
    """Words of a plan that say a method, as in qlora, qlora8 or qlora=8; None where it is none."""
    name = word.rstrip("0123456789")
    words = METHODS.get(name)
    return words.format(rank or word[len(name) :] or USUAL_RANK) if words else None


def _apart(joined: str) -> str | None:
    """Words that other tools join, as in tp2_pp1_dp4_mbs1 or tp8,zero1; None where it is no such text."""
    words = [word for word in re.split(r"[,;_/+-]", joined) if word]
    degrees = all(word.rstrip("0123456789") in DEGREES and word[-1].isdecimal() for word in words)
    return " ".join(words) if len(words) > 1 and degrees else None


def _choice(word: str, key: str, value: str) -> tuple[str, object]:
    """key=value: one of its allowed values, or an order of the axes."""
    if key == "order":
        order = tuple(value.split(","))
        if sorted(order) != sorted(AXES):
            message, allowed = "not an order of the groups", "tp,cp,dp,pp in any order"
            raise bad_input("plan.order", word, message, allowed)
        return key, order
    if key in FORMS or key in NUMBERS:
        return key, _form(key, value)
    if key in FACTORS:
        return key, _factor(key, value)
    if key not in CHOICES:
        plain = next((word for word, field in DEGREES.items() if key in (word, field)), None)
        raise bad_input(
            "plan",
            word,
            f"unknown key `{key}`",
            ", ".join(KEYS),
            (f"{plain}{value}" if plain else _method(key, value) or nearest_name(key, KEYS)),
        )
    spelled = {"tp_mode": (SEQUENCE_GRID,), "optimizer": tuple(PAGED)}
    choices = (*CHOICES[key], *spelled.get(key, ()))
    if value not in choices and not (key == "optimizer" and value in OPTIMIZER_NAMES):
        near = nearest_name(value, choices)
        raise BadInput([no_choice(f"plan.{key}", value, ", ".join(choices), near)])
    return key, value


def _form(key: str, value: str) -> object:
    """The value of a key with a form of its own: a whole number, or its one spelling."""
    if key in NUMBERS:
        whole = value.isascii() and value.isdigit() and len(value) < 12
        if whole and int(value) <= LARGEST_DEGREE:
            return int(value)
        allowed = f"a whole number from 0 to {LARGEST_DEGREE}"
        raise bad_input(f"plan.{key}", value, "out of range", allowed)
    found = FORMS[key](value)
    if found is not None:
        return found
    near = nearest_name(value, FORM_WORDS[key])
    raise BadInput([no_choice(f"plan.{key}", value, FORM_ALLOWED[key], near)])


def _factor(key: str, value: str) -> float:
    """The value of a key that is any number between two ends."""
    low, high = FACTORS[key]
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise BadInput([outside(f"plan.{key}", value, low, high)])
    return number
