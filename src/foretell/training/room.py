"""Room in memory: what a run does where its plan does not say and what it would hold does not fit.

A plan leaves recomputation open when no word of it names one, and the sharing of the optimizer's states when
no word names a ZeRO stage. Its software then keeps what its record says (`Software.recompute`), and every
replica has all states; where that does not fit the chip, people turn something on, and a published run that
says nothing has done so. Taken is what costs least of what the software has and fits:

    micro-batch   fewer sequences, where its recipes fill the memory (`Software.micro_tokens`)
    ZeRO 1        states shared among the replicas: the distributed optimizer
    offload       activations handed to the host, where its recipes do so (`Software.host_activations`)
    modules       norms, activations, dense parts, experts, attention, where it has them by name
                  (`Software.selective`)
    full:N        some layers of each stage computed again, in eighths, where it counts layers
    full          all of them

Whether a plan fits is the verdict of training/feasibility.py, which is no only where its tensors do not fit:
what the allocator loses beside them never changes a plan. Where nothing fits the plan stays as it is, and the
answer is no. What the framework itself refuses to start is not tried. ZeRO 2 and 3, which are other ways to
train, are never filled in; without a framework nothing says how activations are kept, and only states are
shared.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from foretell.specs.plan import BLANK, Plan, batch_of
from foretell.specs.plan_forms import MODULES as ALL_MODULES
from foretell.specs.plan_forms import join_names, recompute_modules
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.training.feasibility import NO, verdict_codes
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of

PARTS = 8
"""Parts of a stage's layers that are tried to be computed again."""
MODULES = ("norm", "act+norm", "mlp", "mlp+act+norm", "moe", "attention")
"""Modules that are tried to be computed again, beside those that the plan names already."""
OPEN = {
    "zero": "zero",
    "vpp": "vpp",
    "micro_batch": "mbs",
    "recompute": "recompute=",
    "offload": "offload=",
}
"""Fields that are filled in from what recipes do and what fits, and how a plan writes them."""
Refusals = Callable[[Scenario, Plan], Collection[str]]
"""What the framework of a plan has against it (search/frameworks.py)."""


def make_room(
    scenario: Scenario, plan: Plan, named: Collection[str], refusals: Refusals
) -> tuple[Scenario, Plan]:
    """The plan as its software makes it fit, and the scenario that states so; `named`: given fields."""
    ways = ways_of(scenario, plan, named)
    filled = "micro_batch" not in named and bool(scenario.software.micro_tokens)
    if not (ways or filled) or _fits(scenario, plan):
        return scenario, plan
    refused = {*refusals(scenario, plan)}
    for plans in (fewer_sequences(scenario, plan, named), ways):
        runs = [one for one in plans if refused >= {*refusals(scenario, one)}]
        fitting = [one for one in runs if _fits(scenario, one)]
        if fitting:
            least = min(fitting, key=lambda one: float(_ledger(scenario, one).step_s[0]))
            return replace(scenario, assumptions=(*scenario.assumptions, _said(plan, least))), least
    return scenario, plan


def fewer_sequences(scenario: Scenario, plan: Plan, named: Collection[str]) -> list[Plan]:
    """The largest smaller micro-batch that fits, of recipes that fill the memory."""
    if "micro_batch" in named or not scenario.software.micro_tokens:
        return []
    smaller = [n for n in range(plan.micro_batch - 1, 0, -1) if plan.micro_batch % n == 0]
    found = (replace(plan, micro_batch=n) for n in smaller)
    return [one for one in found if _fits(scenario, one)][:1]


def ways_of(scenario: Scenario, plan: Plan, named: Collection[str]) -> list[Plan]:
    """Plans that hold less, by what the software has and as far as the plan leaves it open."""
    ways = [plan]
    if "zero" not in named and plan.zero == 0 and plan.dp * plan.cp > 1:
        ways.append(replace(plan, zero=1))
    if "recompute" in named or not scenario.software.selective:
        return ways[1:]
    less = recomputations(scenario, plan)
    ways += [replace(one, recompute=text) for one in ways for text in less]
    software, chip = scenario.software, scenario.system.chip
    if software.host_activations and "offload" not in named and chip.host_bytes_per_s:
        ways += [replace(one, offload="activations") for one in ways if one.offload == "none"]
    return ways[1:]


def recomputations(scenario: Scenario, plan: Plan) -> list[str]:
    """Values of recompute that keep less than the plan's."""
    if plan.recompute == "full":
        return []
    software, now = scenario.software, recompute_modules(plan.recompute)
    layers = -(-len(scenario.model.stack.layers) // plan.pp)
    found = []
    if software.selective == "modules" and "products" not in now:
        more = ({*now, *text.split("+")} for text in MODULES)
        found += [join_names("+".join(one), ALL_MODULES) or "" for one in more]
    if _counts_layers(software) and plan.recompute in ("none", "selective"):
        some = sorted({-(-layers * part // PARTS) for part in range(1, PARTS)})
        found += [f"full:{n}" for n in some if n < layers]
    return [*dict.fromkeys(text for text in found if text != plan.recompute), "full"]


def filled_words(plan: Plan, named: Collection[str]) -> tuple[str, ...]:
    """Words of a plan that its text, which names some fields, did not give: from recipes, or to fit."""
    return tuple(
        f"{word}{getattr(plan, name)}"
        for name, word in OPEN.items()
        if name not in named and getattr(plan, name) != getattr(BLANK, name)
    )


def _counts_layers(software: Software) -> bool:
    """Whether a number of layers can be computed again: Megatron's block method, or a share of the layers."""
    return software.selective in ("selective", "modules", "layers") and not software.modules


def _ledger(scenario: Scenario, plan: Plan) -> Ledger:
    """One plan, evaluated."""
    plans = batch_of([plan])
    return evaluate_rows(scenario, plans, tables_of(scenario, plans))


def _fits(scenario: Scenario, plan: Plan) -> bool:
    """Whether the verdict on a plan's memory is not no."""
    codes = verdict_codes(_ledger(scenario, plan).held, scenario.system.chip.memory_bytes)
    return bool(codes[0] != NO)


def _said(plan: Plan, least: Plan) -> str:
    """What was done, as a sentence."""
    words = " ".join(_words(plan, least))
    return f"{words}: the plan does not say, and would not fit otherwise"


def _words(plan: Plan, now: Plan) -> list[str]:
    """Words for open fields that are other than they were."""
    return [
        f"{word}{getattr(now, name)}"
        for name, word in OPEN.items()
        if getattr(now, name) != getattr(plan, name)
    ]
