"""Options that public recipes of an engine set and its defaults do not (`--tuned`; catalog/tuned.toml)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass
from foretell.serving.memory import memory_of
from foretell.specs.chip import Chip
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

FILE = ROOT / "tuned.toml"
"""Engine, generation of chips and family of models -> options; of a full card by engine alone."""
BLOCK = 64
"""Blocks of tokens that a limit made for one prompt is rounded to."""
SHORT, MANY_RANKS = 1024.0, 8
"""Prompts and answers, and ranks, below which recipes let prompts wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What is started, on what, and for which load."""

    model: Model
    """What is served."""
    system: System
    """Where it runs."""
    profile: EngineProfile
    """Its engine."""
    load: Traffic
    """What is asked of it."""
    layout_given: bool
    """Whether the layout is known: only then is it known how much of a card the weights take."""


@lru_cache(maxsize=1)
def recipes() -> tuple[Mapping[str, Any], ...]:
    """Every entry of the file, in its order."""
    return tuple(read_table(FILE)["tuned"])


def recipe_of(model: Model, chip: Chip, engine: str) -> Mapping[str, Any]:
    """The first entry that names an engine, a chip's generation and a model's family; empty: none."""
    for entry in recipes():
        where = entry.get("architectures", (chip.architecture,))
        families = tuple(entry.get("families", (model.family,)))
        alike = entry["engine"] == engine and chip.architecture in where
        if alike and model.family.startswith(families):
            return entry
    return {}


def for_full_cards(d: Deployment, found: Deployment, question: Tuning) -> dict[str, Any]:
    """What recipes set where weights leave the usual share of the memory nothing for a cache.

    `found` is the deployment with its usual options, `d` what was asked, which stays. Empty where the usual
    ones leave a cache, and where these leave none either.
    """
    model, system, p = question.model, question.system, question.profile
    entry = next((one for one in read_table(FILE)["full_card"] if one["engine"] == p.engine), None)
    if entry is None or memory_of(model, system, found, p).fits:
        return {}
    own = Deployment()
    options = {
        name: value
        for name, value in entry.items()
        if name not in ("engine", "source") and getattr(d, name) == getattr(own, name)
    }
    return options if memory_of(model, system, replace(found, **options), p).fits else {}


def tuned(d: Deployment, question: Tuning) -> tuple[Deployment, list[str]]:
    """The deployment with its engine's tuned options where it has none of its own, and what was set."""
    model, p, load = question.model, question.profile, question.load
    entry = recipe_of(model, question.system.chip, p.engine)
    found: dict[str, Any] = {}
    asked = float(np.max(np.asarray(load.concurrency)))
    isl, osl = (float(np.max(np.asarray(one))) for one in (load.isl, load.osl))
    if d.receive_steps == 1 and "receive_steps" in entry:
        found["receive_steps"] = [to for first, to in entry["receive_steps"] if asked >= first][-1]
    if d.overlap is None and entry.get("overlap") and not p.overlapped:
        found["overlap"] = True
    if d.max_tokens is None and "prompt_tokens" in entry:
        wanted = (d.draft_tokens + 1) * asked + isl + entry["prompt_tokens"]
        found["max_tokens"] = int(np.ceil(wanted / BLOCK)) * BLOCK
    elif d.max_tokens is None and "max_tokens" in entry:
        found["max_tokens"] = entry["max_tokens"]
    if d.memory_fraction is None and "memory_fraction" in entry:
        found["memory_fraction"] = entry["memory_fraction"]
    short = isl == osl == SHORT and d.tp < MANY_RANKS
    if d.wait_steps is None and short and "short_wait_steps" in entry:
        found["wait_steps"] = float(entry["short_wait_steps"])
    if question.layout_given:
        found |= for_full_cards(d, replace(d, **found), question)
    words = " ".join(n if v is True else f"{n}={v:g}" for n, v in found.items())
    said = [f"tuned as public recipes are: {words}"] if found else []
    return replace(d, **found), said
