"""What is shown of each verb's answer, made once: terminal, page, notebook, assistants, reports draw it."""

from collections.abc import Callable, Mapping

from foretell.records import with_values
from foretell.report.presentation import (
    catalogue_cards,
    diagnosis_cards,
    lab_cards,
    money_cards,
    service_cards,
    step_cards,
    study_cards,
    training_cards,
)
from foretell.report.presentation.numbers import Presentation, Told

NO_ANSWER = {"fits", "problems", "hint_on_request"}
"""Keys of an answer that is no and has nothing besides."""
CARDS: Mapping[str, Callable[[Told], Presentation]] = {
    "estimate": step_cards.estimate_card,
    "search": training_cards.search_card,
    "explain": step_cards.explain_card,
    "memory": step_cards.memory_card,
    "simulate": step_cards.simulate_card,
    "sensitivity": training_cards.sensitivity_card,
    "compare-plans": training_cards.plans_card,
    "diagnose": diagnosis_cards.diagnose_card,
    "serve": service_cards.serve_card,
    "size": service_cards.size_card,
    "fleet": service_cards.fleet_card,
    "post-train": service_cards.post_train_card,
    "compare": money_cards.compare_card,
    "buy": money_cards.buy_card,
    "cost": money_cards.cost_card,
    "network": service_cards.network_card,
    "scaling": study_cards.scaling_card,
    "codesign": study_cards.codesign_card,
    "optimise": study_cards.codesign_card,
    "sweep": study_cards.sweep_card,
    "improve": training_cards.improve_card,
    "characterize": lab_cards.trace_card,
    "changed": training_cards.changed_card,
    "trace": lab_cards.traced_card,
    "validate": lab_cards.scores_card,
    "catalog": catalogue_cards.catalogue_card,
    "doctor": catalogue_cards.doctor_card,
}
"""Verb -> what is shown of its answer."""


def presentation(verb: str, told: Told) -> Presentation:
    """What is shown of a verb's answer; of a no without numbers why it is none."""
    verb = "cost" if verb.startswith("cost ") else verb
    reasons = tuple(
        ": ".join(one[key] for key in ("path", "message") if one.get(key))
        for one in told.get("problems") or ()
        if isinstance(one, Mapping)
    )
    if reasons and len(told) <= len(NO_ANSWER & set(told)):
        return Presentation(title="No", verdict="no", reasons=reasons)
    card = CARDS[verb]
    if verb == "cost" and "sweep" in told:
        card = money_cards.cost_sweep_card
    elif verb == "serve" and "pass_s" in told:
        card = lab_cards.sampled_card
    made = card(told)
    sure = told.get("interval_reason")
    return with_values(
        made,
        verdict=step_cards.fits_words(told),
        reasons=reasons,
        notes=(*((f"how sure: {sure}",) if sure else ()), *made.notes),
        assumptions=(*(told.get("assumptions") or ()), *made.assumptions),
    )
