"""Speculative decoding: how many tokens a decode step gives, by drafter, model and number of drafts."""

from functools import lru_cache

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.errors import bad_input, nearest_name
from foretell.records import dataclass
from foretell.specs.deployment import DRAFTERS, Drafter

FILE = ROOT / "acceptance.toml"
"""Every curve that is known."""
WORDS: dict[str, Drafter] = {
    "mtp": "mtp", "nextn": "mtp", "deepseek_mtp": "mtp", "yes": "mtp", "qwen3_next_mtp": "mtp",
    "eagle": "eagle3", "eagle3": "eagle3", "eagle-3": "eagle3", "medusa": "eagle3",
    "dspark": "dspark", "ngram": "ngram", "lookahead": "ngram", "draft_model": "model",
    "draft-model": "model", "draft": "model", "standalone": "model", "model": "model",
    "draft_target": "model",
}  # fmt: skip
"""Names of drafters in engines and tables -> ours."""
OFF = ("", "no", "none", "off", "false", "0")
"""Words that say that nothing is drafted."""
USUAL_DRAFTS = 3
"""Drafts of a step where a text does not say how many (DeepSeek-V3's recipes of SGLang and TensorRT-LLM)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCurve:
    """Tokens of a decode step by the number of drafts, as measured."""

    drafter: str
    """Who drafts."""
    models: tuple[str, ...]
    """Catalogue ids of the models it was measured on; empty: stands for all others."""
    prompts: str
    """What was asked."""
    tokens: tuple[float, ...]
    """Mean tokens of a step with 1, 2, ... drafts, the model's own token included."""
    source: str
    """Where it is."""
    tokens_without_thinking: tuple[float, ...] = ()
    """The same of answers without a chain of thought; empty: not measured."""

    def kept(self, drafts: float) -> float:
        """Drafts kept of a step; beyond the last measured number, as many as there."""
        return (
            float(np.interp(drafts, np.arange(len(self.tokens) + 1.0), (1.0, *self.tokens))) - 1.0
        )


@lru_cache(maxsize=1)
def curves() -> tuple[AcceptanceCurve, ...]:
    """Every curve of the catalogue."""
    return tuple(
        AcceptanceCurve(
            drafter=entry["drafter"], models=tuple(entry["models"]), prompts=entry["prompts"],
            tokens=tuple(entry["tokens"]), source=entry["source"],
            tokens_without_thinking=tuple(entry.get("tokens_without_thinking", ())),
        )
        for entry in read_table(FILE)["curve"]
    )  # fmt: skip


def acceptance_curve(model_id: str, drafter: str, *, random: bool = False) -> AcceptanceCurve:
    """The curve of a drafter on a model; else the one that stands for other models, or other drafters.

    `random`: prompts of random tokens, as benchmarks send them, of which no drafter keeps as many.
    """
    every = [c for c in curves() if (c.prompts == "random") == random]
    if random:
        return every[0]
    own = [c for c in every if c.drafter == drafter and model_id in c.models]
    usual = [c for c in every if c.drafter == drafter and not c.models]
    other = [c for c in every if c.drafter == "eagle3" and not c.models]
    return (*own, *usual, *other)[0]


def read_speculative(text: str) -> tuple[Drafter, int] | None:
    """Drafter and drafts of a text such as mtp, mtp:3 or eagle3-5; None where it says that there are none."""
    plain = text.strip().lower()
    if plain in OFF:
        return None
    name, _, number = plain.replace("=", ":").partition(":")
    if not number and name not in WORDS and "-" in name:
        name, _, number = name.rpartition("-")
    drafter = WORDS.get(name)
    if drafter is None or not (number == "" or (number.isdigit() and 0 < int(number) < 100)):
        allowed = f"no, or one of {', '.join(DRAFTERS)} with the tokens drafted, such as mtp:3"
        raise bad_input(
            "speculative", text, "is no drafter", allowed, nearest_name(name, (*DRAFTERS, "no"))
        )
    return drafter, int(number) if number else USUAL_DRAFTS
