"""What a plan leaves open and its software decides: every choice that the record states, with a sentence.

Words of the plan win. Where attention stores its scores there is no library to choose; gradients in the
working precision are fp16 beside fp16 weights and fp32 beside wide ones, as states are; sequence parallelism
needs tensor parallelism. A search tries recomputation and sequence parallelism itself: for it they stay open.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from foretell.catalog.attention import NONE, Heads, library_for
from foretell.catalog.software import family_table
from foretell.specs.plan import BATCH_FIELDS, DTYPE_BYTES, WIDE_PRECISIONS, Plan
from foretell.specs.plan_words import DEGREES, SWITCHES
from foretell.specs.software import Software

NO_RULES: Mapping[str, str] = {}
WIDE_BYTES = 4.0
"""Bytes of a weight whose gradient and states are in 32 bits too, where they have its dtype."""


def stated_fields(
    software: Software,
    architecture: str,
    plan: Plan,
    heads: Heads = (0, 0),
    *,
    searched: bool = False,
) -> dict[str, object]:
    """Fields of a plan that the software states, with their values for this plan on such a chip, or for a
    search, which tries degrees that the plan does not have.

    The attention library goes by chip and head size too (catalog/attention.toml).
    """
    library = library_for(software.attention, architecture, heads)
    narrow = "fp16" if plan.precision == "fp16" else "bf16"
    wide = DTYPE_BYTES[plan.weights] >= WIDE_BYTES
    working = "fp32" if plan.precision in WIDE_PRECISIONS or wide else narrow
    found: dict[str, object] = {
        "fused": software.fused,
        "flash": software.flash and library != NONE,
        "attention": "" if library == NONE else library,
        "recompute": software.default_recompute,
        "gradients": working if software.gradients == "bf16" else "fp32",
        "sp": software.sequence_parallel and plan.tp > 1,
        "master": software.master
        and ("none" if plan.precision in WIDE_PRECISIONS else software.master),
        "states": software.states and ("fp32" if wide else software.states),
        "optimizer": software.optimizer,
        "cp_mode": software.context if plan.cp > 1 or searched else "",
    }
    return {name: value for name, value in found.items() if value not in ("", None)}


def complete_plan(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    *,
    searched: bool = False,
    heads: Heads = (0, 0),
) -> Plan:
    """The plan with the choices of its software, where its own words (`named` fields) leave them open."""
    open_ones = _open(plan, named, software, architecture, searched=searched, heads=heads)
    return replace(plan, **open_ones) if open_ones else plan  # type: ignore[arg-type]


def sentences(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    ruled: Mapping[str, str] = NO_RULES,
    *,
    searched: bool = False,
    heads: Heads = (0, 0),
) -> tuple[str, ...]:
    """What the software of a completed plan has set, and which of its choices the plan's words replace.

    `ruled` are the fields that a rule has set, with its reason.
    """
    by = f"framework={plan.framework}"
    filled = _open(plan, {*named, *ruled}, software, architecture, searched=searched, heads=heads)
    words = [_word(name, value) for name, value in filled.items() if name != "sp" or plan.tp > 1]
    if plan.tp_overlap == "auto" and plan.tp > 1 and software.in_pieces(architecture):
        words.append("tp_overlap=on")
    found = [
        f"{by} (release {software.release}) sets {', '.join(words)} (catalogue, {software.file})"
    ]
    own = [
        f"{_word(name, getattr(plan, name))} for {_word(name, value)}"
        for name, value in _choices(plan, software, architecture, heads).items()
        if name in named and name not in ruled and getattr(plan, name) != value
    ]
    reasons: dict[str, list[str]] = {}
    for name, why in ruled.items():
        reasons.setdefault(why, []).append(_word(name, getattr(plan, name)))
    found += [f"{software.family} sets {', '.join(ws)}: {why}" for why, ws in reasons.items()]
    found += [f"the plan's words replace choices of {by}: {', '.join(own)}"] if own else []
    if base := family_table(software.family)["family"].get("based_on", ""):
        found.append(f"{by}: what {software.family} does not state is as in {base}")
    return tuple(found)


def _open(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    *,
    searched: bool,
    heads: Heads,
) -> dict[str, object]:
    """Choices that the software states and the plan's words leave open."""
    tried = BATCH_FIELDS if searched else ()
    choices = stated_fields(software, architecture, plan, heads, searched=searched)
    found = {n: v for n, v in choices.items() if n not in named and n not in tried}
    if not found.get("flash", plan.flash):
        found.pop("attention", None)
    return found


def _choices(plan: Plan, software: Software, architecture: str, heads: Heads) -> dict[str, object]:
    """All that the software states, of attention only where the plan's is fused."""
    found = stated_fields(software, architecture, plan, heads)
    return found if plan.flash else {n: v for n, v in found.items() if n != "attention"}


def _word(name: str, value: object) -> str:
    """A choice as a word of a plan."""
    if name in SWITCHES:
        return name if value else f"no-{name}"
    if name in DEGREES.values():
        return f"{next(word for word, field in DEGREES.items() if field == name)}{value}"
    return f"{name}={value}"
