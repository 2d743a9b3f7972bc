"""Why an interval is as wide as it is, in one sentence, and which mechanism a measured gap is likely due to.

A run is the sum of its slopes times each mechanism's own log-factor, of what all mechanisms share, and of a
rest that no mechanism explains. Given what was measured, all of these are normal in each case of the
posterior; draws from them count in how many worlds each part is the largest.
"""

import math
from collections.abc import Mapping

import numpy as np

from foretell.catalog.error_models import ErrorModel, QuestionFacts, error_model
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.result import StepEstimate
from foretell.uncertainty.novelty import novelty_of, training_facts
from foretell.uncertainty.posterior import Posterior, nearness, same_runs, scale_of

ONCE = 0.5
"""Value of a feature of what was seen in one world alone."""
NINETY = 1.645
"""Standard deviations at which nine tenths of normal errors end."""
NEVER: Mapping[str, str] = {
    "together": "no run of {software} with a {model} model on {generation} chips was ever seen",
    "software": "no run of {software} was ever seen",
    "unnamed": "no software is named",
    "generation": "no run on {generation} chips was ever seen",
    "model": "no run of any {model} model was ever seen",
    "precision": "no run of {software} in {precision} was ever seen",
    "layout": "no run with this kind of layout was ever seen",
    "fabric": "no run over the links between nodes of {fabric} was ever seen",
    "scale": "no run of {software} was as large",
    "length": "no run of {software} had sequences of such a length",
}
"""Feature -> what it means where it is 1."""
SELDOM: Mapping[str, str] = {
    "together": "{software} with a {model} model on {generation} chips was seen in one place alone",
    "software": "{software} was seen in one place alone",
    "generation": "{generation} chips were seen in one place alone",
    "precision": "{software} in {precision} was seen in one place alone",
    "layout": "this kind of layout was seen in one place alone",
}
"""Feature -> what it means where it is a half."""


def interval_reason(result: StepEstimate) -> str:
    """Why the interval of a training step is as wide as it is."""
    if result.posterior_factors is not None:
        return "given what was measured"
    if result.interval_words:
        return result.interval_words
    scenario = result.scenario
    if scenario is None or result.interval is None:
        return ""
    if scenario.system.step_spread:
        return "as far as measured runs on this system were from each other"
    facts = training_facts(scenario, result.plan)
    low, high = (end / result.step_s for end in result.interval["p90"])
    return reason_of(error_model("training"), facts, novelty_of("training", facts), low, high)


def reason_of(
    model: ErrorModel,
    facts: QuestionFacts,
    novelty: Mapping[str, float],
    low: float,
    high: float,
) -> str:
    """What of a question is new, what to expect, and what a measured run would make of it."""
    after = math.expm1(width_after_one(model, novelty) / 2.0)
    return (
        f"{what_is_new(model, facts, novelty)}: expect {low:.2g} to {high:.2g} times this; "
        f"one measured run narrows it to about {after:.0%} (--measured)"
    )


def what_is_new(model: ErrorModel, facts: QuestionFacts, novelty: Mapping[str, float]) -> str:
    """The feature that widens the interval most, in words."""
    named = facts.software not in ("", "generic")
    words = {
        "software": facts.software if named else "software that is not named",
        "model": facts.model,
        "generation": facts.generation,
        "precision": "16 bits" if facts.precision == "wide" else facts.precision,
        "fabric": facts.fabric,
    }
    for texts, least in ((NEVER, 1.0), (SELDOM, ONCE)):
        some = {name: model.novelty[name] * x for name, x in novelty.items()
                if name in texts and x >= least and model.novelty.get(name, 0.0) > 0.0}  # fmt: skip
        if some:
            most = max(some, key=lambda name: some[name])
            most = "unnamed" if most == "software" and texts is NEVER and not named else most
            return texts[most].format(**words)
    return "similar runs, unseen before, were off by as much"


def width_after_one(model: ErrorModel, novelty: Mapping[str, float]) -> float:
    """About ln(high / low) of the 90 % interval after one measured run like it: both runs' own parts."""
    own = model.own * math.sqrt(sum(share * factor**2 for factor, share in model.own_kinds[:2]))
    return 2.0 * NINETY * math.sqrt(2.0) * own * scale_of(model, novelty) * model.after


DRAWS, SEED = 4000, 0
SHARED, REST = "everything", "unexplained"
"""Parts beside the mechanisms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCauses:
    """The parts of one run's gap."""

    names: tuple[str, ...]
    """Mechanisms, then what they share, then the rest."""
    probability: Array
    """Of each part, that it is the largest in the gap's direction."""
    share: Array
    """Mean log-contribution of each part."""
    if_largest: Array
    """Mean log-contribution of each part in the worlds in which it is the largest; 0 where there are none."""
    deviation: Array
    """Standard deviation of it there."""
    correlation: Array
    """Between the contributions of the parts: near -1, one could stand for the other."""


def causes_of(posterior: Posterior, number: int) -> RunCauses:
    """The parts of one of the posterior's runs."""
    model, names, runs = posterior.model, posterior.mechanisms, posterior.runs
    random = np.random.default_rng(SEED)
    run = runs[number]
    scales = np.array([scale_of(model, one.novelty) for one in runs])
    slopes = np.array([one.slopes for one in runs]) * scales[:, None]
    here, every = slopes[number], slopes.sum(axis=1)
    spread = np.array([model.mechanisms[name] for name in names]) ** 2
    near = model.alike**2 * nearness(model, [run], runs)[0] * every[number] * every
    again = same_runs([run], runs)[0]
    again[number] = 1.0
    drawn = []
    counts = random.multinomial(DRAWS, posterior.weights)
    for case, count in zip(posterior.cases, counts, strict=True):
        if count == 0:
            continue
        own = float(case.own[number])
        shared = case.tail * model.common**2 * every[number] * every
        rest = case.tail * near + np.sqrt(own * case.own) * again
        seen = np.vstack([case.tail * (here * spread * slopes).T, shared, rest])
        before = np.append(
            case.tail * here**2 * spread, [shared[number], case.tail * near[number] + own]
        )
        after = np.diag(before) - seen @ case.precision @ seen.T
        root = np.linalg.cholesky(after + 1e-10 * np.eye(len(after)))
        drawn.append(seen @ case.pulls + random.standard_normal((count, len(after))) @ root.T)
    parts, many = np.concatenate(drawn), len(names)
    gap = run.log_ratio - model.mean * float(run.slopes.sum())
    sign = 1.0 if gap >= 0.0 else -1.0
    first = (sign * parts).argmax(axis=1)
    largest = np.bincount(first, minlength=many + 2) / len(parts)
    there = [parts[first == i, i] for i in range(many + 2)]
    spreads = parts.std(axis=0)
    scaled = (parts - parts.mean(axis=0)) / np.maximum(spreads, 1e-12)
    return RunCauses(
        names=(*names, SHARED, REST),
        probability=largest,
        share=parts.mean(axis=0),
        if_largest=np.array([one.mean() if len(one) else 0.0 for one in there]),
        deviation=np.array([one.std() if len(one) else 0.0 for one in there]),
        correlation=scaled.T @ scaled / len(parts),
    )
