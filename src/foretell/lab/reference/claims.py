"""Claims: statements about the published study that can be checked, and those of the abstract.

Statements are those of the paper's abstract (C) and of a summary of the published outputs (G for
gpt3_1T, V for vit_era5, numbers in brackets for the weaknesses of docs/reference.md).
"""

from collections.abc import Iterable
from statistics import median

from foretell.lab.reference.study import STUDY_CHIPS, STUDY_GPUS
from foretell.lab.reference.tables import GPT, ORDER, SYSTEMS, VIT, BestPlans, span, system_name
from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement and what we find."""

    name: str
    """Short name, such as G1."""
    statement: str
    """What was said."""
    ours: str
    """Our numbers."""
    holds: bool
    """Whether the statement is what our numbers say."""


def percent(value: float) -> str:
    """A share as whole percent."""
    return f"{100 * value:.0f} %"


def names(systems: Iterable[tuple[str, int]]) -> str:
    """Systems by name, or a dash for none."""
    return ", ".join(system_name(*system) for system in systems) or "none"


def systems_led(best: BestPlans, model: str, strategy: str, gpus: int) -> list[tuple[str, int]]:
    """Systems on which the strategy is first at this GPU count."""
    return [s for s in SYSTEMS if (w := best.winner(model, *s, gpus)) and w[1] == strategy]


def gains(
    best: BestPlans, model: str, chip: str, domains: tuple[int, int], counts: Iterable[int]
) -> list[float]:
    """How many times faster the larger fast domain is, best strategy on either side."""
    small, large = domains
    return [best.best(model, chip, small, n) / best.best(model, chip, large, n) for n in counts]


def smallest(best: BestPlans, model: str, strategy: str, chip: str) -> set[int]:
    """Smallest GPU counts with a plan that fits, over the fast domains."""
    found = set()
    for name, domain in SYSTEMS:
        fits = [n for n in STUDY_GPUS if best.days(model, strategy, name, domain, n) is not None]
        if name == chip and fits:
            found.add(fits[0])
    return found


def smallest_claim(
    best: BestPlans, name: str, model: str, expected: dict[str, dict[str, int]], statement: str
) -> Claim:
    """Smallest feasible GPU counts of each strategy and chip."""
    parts, same = [], True
    for strategy, counts in expected.items():
        found = {chip: smallest(best, model, strategy, chip) for chip in STUDY_CHIPS}
        told = " / ".join(span(found[chip], "{:.0f}".format) for chip in STUDY_CHIPS)
        parts.append(f"{strategy} {told}")
        same = same and all(found[chip] == {count} for chip, count in counts.items())
    ours = f"A100 / H200 / B200: {'; '.join(parts)}"
    return Claim(name=name, statement=statement, ours=ours, holds=same)


def one_d_costs(best: BestPlans) -> dict[tuple[str, int, int], float]:
    """What staying with 1d costs GPT, as a share of the best strategy's days."""
    return {
        (chip, domain, n): value / best.best(GPT, chip, domain, n) - 1
        for chip, domain, n in best.places(GPT)
        if (value := best.days(GPT, "1d", chip, domain, n)) is not None
    }


def claim_c1(best: BestPlans) -> Claim:
    """Different transformers want different plans and systems."""
    gpt = [len(systems_led(best, GPT, s, 4096)) for s in ORDER]
    vit = [len(systems_led(best, VIT, s, 4096)) for s in ORDER]
    gpt_gain = gains(best, GPT, "B200", (4, 64), [1024])[0]
    vit_gain = gains(best, VIT, "B200", (4, 64), [1024])[0]
    ours = (
        f"at 4096 GPUs 1d / 2d / seqp are first on {gpt[0]} / {gpt[1]} / {gpt[2]} of 9 systems for "
        f"GPT and {vit[0]} / {vit[1]} / {vit[2]} for the ViT; NVS 4 to 64 on 1024 B200 gains "
        f"x{gpt_gain:.2f} and x{vit_gain:.2f}"
    )
    return Claim(
        name="C1",
        statement="different transformers want different parallelism and system features",
        ours=ours,
        holds=gpt != vit and vit_gain > 1.2 > 1.05 > gpt_gain,
    )


def claim_c2(best: BestPlans) -> Claim:
    """LLMs do well with 3D parallelism; the network matters at scale only."""
    cost = median(one_d_costs(best).values())
    early = gains(best, GPT, "B200", (4, 64), [n for n in STUDY_GPUS if 128 <= n <= 2048])
    late = gains(best, GPT, "B200", (4, 64), [16384])[0]
    return Claim(
        name="C2",
        statement="LLMs do well with DP x TP x PP; the network matters at pre-training scale only, "
        "memory little",
        ours=f"1d costs {percent(cost)} at the median; NVS 4 to 64 on B200 gains "
        f"x{span(early)} up to 2048 GPUs, x{late:.2f} at 16384; memory: see the sensitivities",
        holds=cost < 0.1 and max(early) < 1.05 < late,
    )


def claim_c3(best: BestPlans) -> Claim:
    """Long sequences need 2-D tensor parallelism and depend on network and capacity."""
    one_d = [key for key in best.rows if key[:2] == (VIT, "1d")]
    gain = gains(best, VIT, "B200", (4, 64), [n for n in STUDY_GPUS if n >= 256])
    return Claim(
        name="C3",
        statement="long-sequence transformers need 2-D tensor parallelism and depend on "
        "network and capacity alike",
        ours=f"the ViT has {len(one_d)} feasible 1d searches of {9 * len(STUDY_GPUS)}; "
        f"NVS 4 to 64 on B200 gains x{span(gain)} from 256 GPUs; capacity: see the sensitivities",
        holds=not one_d and min(gain) > 1.2,
    )


def abstract_claims(best: BestPlans) -> list[Claim]:
    """C1 to C3."""
    return [claim_c1(best), claim_c2(best), claim_c3(best)]
