"""What is shown of each verb's answer, made once: terminal, page, notebook, assistants, reports draw it."""

from collections.abc import Callable, Mapping

from foretell.records import with_values
from foretell.report.presentation.catalogue_cards import catalogue_card, doctor_card
from foretell.report.presentation.diagnosis_cards import diagnose_card
from foretell.report.presentation.lab_cards import (
    sampled_card,
    scores_card,
    trace_card,
    traced_card,
)
from foretell.report.presentation.money_cards import (
    buy_card,
    compare_card,
    cost_card,
    cost_sweep_card,
)
from foretell.report.presentation.numbers import Presentation, Told
from foretell.report.presentation.service_cards import (
    fleet_card,
    network_card,
    post_train_card,
    serve_card,
    size_card,
)
from foretell.report.presentation.step_cards import (
    estimate_card,
    explain_card,
    fits_words,
    memory_card,
    simulate_card,
)
from foretell.report.presentation.study_cards import codesign_card, scaling_card, sweep_card
from foretell.report.presentation.training_cards import (
    changed_card,
    improve_card,
    plans_card,
    search_card,
    sensitivity_card,
)

NO_ANSWER = {"fits", "problems", "hint_on_request"}
"""Keys of an answer that is no and has nothing besides."""
CARDS: Mapping[str, Callable[[Told], Presentation]] = {
    "estimate": estimate_card,
    "search": search_card,
    "explain": explain_card,
    "memory": memory_card,
    "simulate": simulate_card,
    "sensitivity": sensitivity_card,
    "compare-plans": plans_card,
    "diagnose": diagnose_card,
    "serve": serve_card,
    "size": size_card,
    "fleet": fleet_card,
    "post-train": post_train_card,
    "compare": compare_card,
    "buy": buy_card,
    "cost": cost_card,
    "network": network_card,
    "scaling": scaling_card,
    "codesign": codesign_card,
    "optimise": codesign_card,
    "sweep": sweep_card,
    "improve": improve_card,
    "characterize": trace_card,
    "changed": changed_card,
    "trace": traced_card,
    "validate": scores_card,
    "catalog": catalogue_card,
    "doctor": doctor_card,
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
        card = cost_sweep_card
    elif verb == "serve" and "pass_s" in told:
        card = sampled_card
    made = card(told)
    sure = told.get("interval_reason")
    return with_values(
        made,
        verdict=fits_words(told),
        reasons=reasons,
        notes=(*((f"how sure: {sure}",) if sure else ()), *made.notes),
        assumptions=(*(told.get("assumptions") or ()), *made.assumptions),
    )
