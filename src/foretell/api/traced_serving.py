"""`serve` of a model that was traced: forward passes, and the samples of diffusion models."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.api.traced_models import BAND, TracedPlace, native_format, place_of
from foretell.errors import Infeasible, Problem, bad_input, wrong
from foretell.inputs.software import framework_word
from foretell.records import JsonRecord, values_as_held
from foretell.serving.traced_passes import FORMS, SampledService, ServedPass, sampled, served_pass
from foretell.specs.cost import Prices
from foretell.specs.plan import parse_plan
from foretell.specs.questions.flags import given_of
from foretell.specs.questions.serving import ServingQuestion
from foretell.trace.graph import TracedModel, load_traced

KNOWN = frozenset(
    ("model", "system", "gpus", "plan", "price", "set", "steps", "passes", "rows", "once", "images_per_s",
     "progress")
)  # fmt: skip
"""What of a question says something of a traced module."""
PASSES = frozenset(("steps", "passes", "rows", "once", "images_per_s"))
"""What of it asks for whole passes, and not for tokens."""
WORDS = {"compile=on": True, "compile=off": False}
"""Words of its plan -> whether a compiler makes the kernels."""


class SampledAnswer(SampledService, JsonRecord):
    """What `serve` answers of a traced module."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {f.name: getattr(self, f.name) for f in fields(SampledService)}


def asks_passes(question: ServingQuestion) -> bool:
    """Whether a question about a traced module is of whole passes: it says so, or says nothing of tokens."""
    given = given_of(question)
    return bool(PASSES & given.keys()) or not given.keys() - KNOWN


def serve_traced(
    question: ServingQuestion, rent_of: Callable[[str, float | None], Prices]
) -> SampledAnswer:
    """Forward passes of a traced module, as many as a sample has."""
    given: Any = question.model
    model, problems = _served(given), list[Problem]()
    files = (question.once,) if isinstance(question.once, str) else question.once
    others = [_served(file) for file in files]
    for name, value in given_of(question).items():
        if name not in KNOWN:
            message = "says nothing of whole passes of a traced module"
            allowed = "--steps, --passes, --rows, --once, --images-per-s, --price; none of these for tokens"
            problems.append(wrong(name, value, message, allowed))
    word = "compile=on" if model.compiled else "compile=off"
    for one in str(question.plan or "").split():
        if one not in WORDS:
            message = "is no word of a traced module that is served: each GPU has all of it"
            problems.append(wrong("plan", one, message, ", ".join(WORDS)))
        word = one
    seen: dict[str, object] = {}
    place = place_of(question, seen, problems)
    software = place.software(framework_word(parse_plan("", 1)), seen)

    def passed(one: TracedModel) -> ServedPass:
        native = native_format(one)
        plan = parse_plan("", 1, "bf16" if native == "fp32" and FORMS[0] in one.graphs else native)
        return served_pass(one, place.system, software, plan, compiled=WORDS[word])

    main, once = passed(model), [passed(one) for one in others]
    notes = dict.fromkeys(note for one in (main, *once) for note in one.notes)
    said = [*place.said, *notes, *_said(question, model, word)]
    rent = float(rent_of(place.system.chip.id, question.price).usd_per_chip_hour)
    asked = {**_asked(question, model, place), "assumptions": tuple(said)}
    found = sampled(main, once, asked, rent / 3600.0)
    ends = {
        level: (low * BAND[level][0], high * BAND[level][1])
        for level, (low, high) in found.interval.items()
    }
    found = replace(found, interval=ends)
    answer = SampledAnswer(**values_as_held(found))
    if found.allocated_bytes > found.memory_capacity_bytes:
        message = f"does not fit: {found.allocated_bytes / 2**30:.1f} GiB of tensors"
        allowed = (
            f"{found.memory_capacity_bytes / 2**30:.1f} GiB of a GPU, which has all of the module"
        )
        raise Infeasible([wrong("gpus", question.gpus, message, allowed)], answer)
    return answer


def _served(file: Any) -> TracedModel:
    """A trace with a form that is served."""
    model = load_traced(file)
    if not set(FORMS) & model.graphs.keys():
        why = next((n for n in model.graphs["as-is"].notes if n.startswith(FORMS[0])), "")
        message = f"{model.id} has no pass without gradients in its trace"
        message += f" ({why})" if why else ""
        allowed = (
            "a module whose forward runs by itself, in eval(); traces of 0.11 are to be made anew"
        )
        raise bad_input("model", model.source or model.id, message, allowed)
    return model


def _said(question: ServingQuestion, model: TracedModel, word: str) -> list[str]:
    said = [
        f"batch {model.batch}: the traced inputs; every GPU is a replica, {word}",
        "the interval is that of training steps of modules; passes without gradients were not measured",
    ]
    if question.steps is None:
        said.append("one pass is a sample (--steps, of a diffusion model)")
    return said


def _asked(question: ServingQuestion, model: TracedModel, place: TracedPlace) -> dict[str, Any]:
    """What is asked: names, counts and capacity."""
    return {
        "model": model.id,
        "system": place.system.id,
        "gpus": place.gpus,
        "batch": model.batch,
        "steps": question.steps or 1,
        "passes": question.passes or 1,
        "rows": question.rows or 1,
        "wanted_per_s": question.images_per_s,
        "memory_capacity_bytes": float(np.ravel(place.system.chip.memory_bytes)[0]),
    }
