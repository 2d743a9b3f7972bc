"""Rules of training software: choices that it makes for some layouts alone.

A family's file has them as `[[rule]]`: `when` the facts of a question are such, `set` these words of the
plan, with a source and a sentence; `or` is what those do that do not follow it, for which intervals leave
room. `since` and `before` are releases of that file; a family that is
`based_on` another has its rules behind its own. Of the rules that set one word, the first that holds counts.
Of a model a rule may ask only what the framework's code asks.

    lora                  whether adapters are trained
    precision             format of the products
    schedule_plan         whether Megatron-Core can run two micro-batches in one pass: its GPTModel builds
                          such plans, its model of Mamba layers none
    cp_above, dp_above, ep_above, pp_above, tp_above, zero_above
                          more ranks, or a higher stage of ZeRO, than this; dp_above counts the ranks of
                          context parallelism too, which share states with the replicas
    domain_above          more chips that the fastest links join than this
    drops                 whether experts leave out tokens beyond their capacity
    etp_divides           whether tp ranks inside each expert divide the ranks of a stage
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from foretell.catalog.files import Table
from foretell.catalog.software import family_of, family_table, releases
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.records import dataclass
from foretell.specs.plan import Plan

FACTS = (
    "lora", "drops", "cp_above", "dp_above", "ep_above", "pp_above", "tp_above", "zero_above",
    "etp_divides", "precision", "schedule_plan", "domain_above",
)  # fmt: skip
"""What a rule may ask for."""
KEYS = frozenset({"since", "before", "when", "set", "or", "source", "why"})
"""What a rule's table may hold."""
AS_TP = "tp"
"""Value of etp that means as many ranks as tp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareRule:
    """One choice of a framework's recipes."""

    family: str
    """Family whose file has it."""
    since: str
    """Date of the first release that it holds for; empty: from the first on."""
    before: str
    """Date of the first release that it holds for no longer; empty: none."""
    when: Mapping[str, object]
    """QuestionFacts that must be so."""
    sets: Mapping[str, object]
    """Fields of the plan, and their values."""
    others: Mapping[str, object]
    """Fields, and what they are where a run does not follow it."""
    why: str
    """Why."""

    def holds_for(self, released: str) -> bool:
        """Whether it holds for a release of that date."""
        return self.since <= released and (not self.before or released < self.before)


def rules_of(word: str) -> tuple[SoftwareRule, ...]:
    """The rules of the software that a word of a plan names, in the order in which they count."""
    family, released = family_of(word)
    return tuple(rule for rule in family_rules(family) if rule.holds_for(released))


@lru_cache(maxsize=64)
def family_rules(family: str) -> tuple[SoftwareRule, ...]:
    """A family's rules, then those of the family that it is based on; BadInput where one is wrong."""
    table = family_table(family)
    problems: list[Problem] = []
    found = [_rule(family, raw, table["sources"], problems) for raw in table.get("rule", ())]
    if problems:
        raise BadInput(problems)
    base = table["family"].get("based_on", "")
    inherited = family_rules(family_of(base)[0]) if base else ()
    return (*(rule for rule in found if rule is not None), *inherited)


def _rule(
    family: str, raw: Table, sources: Mapping[str, str], problems: list[Problem]
) -> SoftwareRule | None:
    """A rule, or None with what is wrong with it."""
    path = f"software/{family}.rule"
    dates = {one.release: one.released for one in releases(family)}
    bad = [key for key in raw if key not in KEYS]
    bad += [key for key in ("when", "set", "source", "why") if key not in raw]
    bad += [key for key in ("since", "before") if key in raw and raw[key] not in dates]
    if bad or raw["source"] not in sources:
        message = "a rule has when, set, source and why; since and before are releases"
        problems.append(wrong(path, ", ".join(bad) or raw["source"], message))
        return None
    names = [field.name for field in fields(Plan)]
    unknown: list[tuple[str, tuple[str, ...]]] = [
        (key, FACTS) for key in raw["when"] if key not in FACTS
    ]
    others = raw.get("or", {})
    unknown += [(key, tuple(names)) for key in (*raw["set"], *others) if key not in names]
    problems += [
        wrong(path, key, "no such fact or word", nearest=nearest_name(key, ns))
        for key, ns in unknown
    ]
    return SoftwareRule(
        family=family,
        since=dates.get(raw.get("since", ""), ""),
        before=dates.get(raw.get("before", ""), ""),
        when=raw["when"],
        sets=raw["set"],
        others=others,
        why=raw["why"],
    )
