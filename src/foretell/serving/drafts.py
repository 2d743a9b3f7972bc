"""Drafts of a deployment: how many of them are kept, where nobody says so."""

from dataclasses import replace

from foretell.catalog.acceptance import acceptance_curve, read_speculative
from foretell.specs.deployment import Deployment
from foretell.specs.model import Model

NGRAM_KEPT = 0.3
"""Share of tokens copied from the prompt that are kept, where nothing is known of the text (recalled: code
and summaries keep more, free answers hardly any)."""


def with_speculative(text: str | None, d: Deployment) -> Deployment:
    """A deployment with the drafter and the number of drafts of a text such as mtp:3."""
    if text is None:
        return d
    found = read_speculative(text)
    if found is None:
        return replace(d, draft_tokens=0, accepted=0.0)
    drafter, drafts = found
    return replace(d, drafter=drafter, draft_tokens=drafts)


def with_acceptance(
    model: Model, d: Deployment, *, given: bool = False, random: bool = False
) -> tuple[Deployment, list[str]]:
    """A deployment with the drafts that its drafter keeps on such a model, and a sentence about it.

    `given`: the number kept is the user's own. `random`: prompts are random tokens.
    """
    if not d.draft_tokens or given:
        return d, []
    if d.drafter == "ngram":
        kept, source = NGRAM_KEPT * d.draft_tokens, "no curve of n-gram drafts is known"
    else:
        curve = acceptance_curve(model.id, d.drafter, random=random)
        kept = curve.kept(float(d.draft_tokens))
        on = "" if model.id in curve.models else "other models: "
        source = f"{on}{curve.source}"
    kept = round(min(kept, float(d.draft_tokens)), 4)
    said = (
        f"{d.drafter} drafts {d.draft_tokens} tokens and keeps {kept:.2f} of them ({source}); "
        "accepted= in --plan says otherwise"
    )
    return replace(d, accepted=kept), [said]
