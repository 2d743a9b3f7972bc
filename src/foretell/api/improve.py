"""`foretell.improve`: what a launch of another tool would gain from other flags, and which.

The launch is read and predicted as it is. Then the plans that its tool can run are searched, the recipe
(precision, optimizer, dtypes, framework) held and what may change freed. The answer is the user's own file
with the keys of the better plan (api/edited_files.py); with `export` it is written anew for another tool. The
gain has an interval of its own: errors that both plans share cancel (search/differences.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from foretell.api.answers import Estimate
from foretell.api.edited_files import (
    EditedFile,
    earlier_fields,
    edited_plan,
    edited_service,
    held_fields,
    written_by,
)
from foretell.api.exports import export_plan
from foretell.api.improvement import FlagChange, Improvement, improvement_of
from foretell.api.launches import (
    FREED,
    LaunchQuestion,
    noted_model,
    read_launch,
    read_question,
    serving_field,
    training_field,
)
from foretell.api.service_answers import ServeAnswer
from foretell.api.serving import serve
from foretell.api.serving_commands import instance_command, launch_command
from foretell.api.training import estimate, search
from foretell.errors import BadInput, Infeasible, Problem, bad_input, nearest_name
from foretell.interop.launch import SERVING, Launch
from foretell.interop.plan_keys import can_say, sayable
from foretell.interop.user_files import are_read
from foretell.search.choices import NAMES as STRUCTURAL
from foretell.search.differences import compare
from foretell.search.leading import NEAR
from foretell.search.ranking import SERVED
from foretell.specs.plan_words import DEGREES
from foretell.specs.questions.flags import asks
from foretell.specs.questions.improve import ImproveQuestion
from foretell.specs.questions.serving import ServingQuestion

TOP = 5
"""Plans that a search keeps."""
LEAST_GAIN = 1e-3
"""A gain below this is none."""


@asks(ImproveQuestion)
def improve(question: ImproveQuestion) -> Improvement:
    """What a launch of another tool gains from other flags.

    `launch` is its file or text; flags given beside it count first, and words of `plan` are held. `free`
    names the fields of the plan that may change. Raises as `estimate` does; Infeasible where nothing runs.
    """
    return improved(question)


def improved(
    question: ImproveQuestion,
    *,
    hub: bool = False,
    export: str | None = None,
    launcher: str | None = None,
) -> Improvement:
    """The same, with what only a command line offers."""
    launch = read_launch(
        question.launch, model=question.model, gpus=question.gpus, files=are_read(), hub=hub
    )
    _refuse_generation(launch)
    beside: dict[str, Any] = {
        name: getattr(question, name) for name in ("model", "system", "gpus", "plan", "set")
    }
    if not launch.serves:
        beside |= {"global_batch": question.global_batch, "seq_len": question.seq_len}
    asked = read_question(
        question.launch,
        beside,
        serving=launch.serves,
        accept_unknown=question.accept_unknown,
        hub=hub,
        files=are_read(),
    )
    try:
        if launch.serves:
            return _serving(question, asked, export)
        return _training(question, asked, export, launcher)
    except Infeasible as error:
        error.read_back = asked.rows
        raise


def _refuse_generation(launch: Launch) -> None:
    """BadInput where a launch alternates between generating and training: another command answers that."""
    algorithm = (launch.post_training or {}).get("algorithm")
    if launch.generates or algorithm in ("grpo", "ppo"):
        raise bad_input(
            "launch",
            launch.tool,
            "alternates between generating and training, which improve does not search",
            "a training run or a service; for this one, foretell post-train --import FILE",
        )


# ---- training -----------------------------------------------------------------------------------


def _training(
    question: ImproveQuestion, asked: LaunchQuestion, export: str | None, launcher: str | None
) -> Improvement:
    launch = asked.launch
    arguments = _with_notes(asked)
    own = export is None and launcher is None
    told: tuple[str, ...] = FREED
    if own:
        told = earlier_fields(launch) or (FREED if written_by(launch) else sayable(launch.tool))
        told = tuple(name for name in told if name not in held_fields(launch))
    plain = own and bool(earlier_fields(launch))
    free, over = freed_fields(question.free, told)
    before, refusal = _as_it_is(arguments)
    mine = (question.plan or "").split()
    held = [
        word
        for word in str(arguments["plan"]).split()
        if word in mine or training_field(word) not in (*free, *over)
    ]
    if plain and not any(training_field(word) == "sp" for word in str(arguments["plan"]).split()):
        held.append("no-sp")
    found = search(**{**arguments, "plan": " ".join(held)}, top=TOP, over=",".join(over))
    plans = [
        one
        for one in found.plans
        if not own or written_by(launch) or can_say(launch.tool, one.plan)
    ]
    best = plans[0] if plans else found.best
    if before is not None and before.fits != "no" and before.step_s <= best.step_s:
        # The simplest of equals may be the slower one: then the fastest counts, where it gains enough.
        clear = [one for one in plans if one.fits == "yes"]
        fastest = min(clear, key=lambda one: one.step_s, default=before)
        best = fastest if NEAR * fastest.step_s < before.step_s else before
    best, edited = _edited(question, launch, before, best, plans if own else [], plain=plain)
    written = edited.written
    if not own:
        written = export_plan(best, export or written_by(launch) or launch.tool, launcher, launch)
    gain = None if before is None else before.step_s / best.step_s - 1.0
    interval = None if before is None else _gain_interval(before, best)
    certain = interval is not None and interval["p90"][0] > 0.0
    runs = before is not None and before.fits != "no"
    return improvement_of(
        asked,
        before,
        best,
        written,
        metric="tokens_per_s",
        fits_before="no" if before is None else before.fits,
        gain=gain,
        gain_interval=interval,
        certain=certain or not runs,
        changes=edited.changes,
        launchable_with=_launchers(best),
        conclusions=_conclusions(
            launch, gain, interval, runs=runs, same=best is before, refusal=refusal
        ),
    )


def _edited(
    question: ImproveQuestion,
    launch: Launch,
    before: Estimate | None,
    best: Estimate,
    plans: Sequence[Estimate],
    *,
    plain: bool,
) -> tuple[Estimate, EditedFile]:
    """The best plan with the file that says it: of plans that gain, the first that the file can say, where
    `plain` by keys that it has."""

    def says(one: EditedFile) -> bool:
        added = any(change.before is None for change in one.changes)
        return bool(one.written.text) and not (plain and added)

    slow = None if before is None or before.fits == "no" else before.step_s
    gains = (
        one for one in plans if one.fits == "yes" and (slow is None or one.step_s < slow * NEAR)
    )
    found = edited_plan(question.launch, launch, before, best)
    if best is before or says(found):
        return best, found
    for one in gains:
        if one is not best:
            other = edited_plan(question.launch, launch, before, one)
            if says(other):
                return one, other
    if plain and slow is not None and before is not None:
        return before, edited_plan(question.launch, launch, before, before)
    return best, found


def _with_notes(asked: LaunchQuestion) -> dict[str, Any]:
    """The arguments, what the reading took for granted with the model."""
    record = noted_model(asked.arguments, asked.launch.said(), files=are_read())
    return dict(asked.arguments) if record is None else {**asked.arguments, "model": record}


def _as_it_is(arguments: dict[str, Any]) -> tuple[Estimate | None, str]:
    """The launch predicted, and why it does not run; with its numbers where it does not fit, none where a
    rule forbids it."""
    try:
        return estimate(**arguments), ""
    except Infeasible as error:
        answer = error.answer if isinstance(error.answer, Estimate) else None
        return answer, "" if answer is not None else str(error)


def _gain_interval(before: Estimate, after: Estimate) -> dict[str, tuple[float, float]]:
    """The interval of before / after - 1 from that of the steps' difference."""
    if before is after:
        return {"p50": (0.0, 0.0), "p90": (0.0, 0.0)}
    found = compare(before, after).interval
    least = {name: low for name, (low, _) in (after.interval or {}).items()}
    return {
        name: (
            before.step_s / (before.step_s + high) - 1.0,
            # No step is shorter than the low end of its own interval.
            before.step_s / max(before.step_s + low, least.get(name, 0.0), 1e-12) - 1.0,
        )
        for name, (low, high) in found.items()
    }


def _launchers(best: Estimate) -> tuple[str, ...]:
    from foretell.search.search import launchers_of

    return launchers_of(best)


# ---- serving ------------------------------------------------------------------------------------


def _serving(question: ImproveQuestion, asked: LaunchQuestion, export: str | None) -> Improvement:
    launch = asked.launch
    load = {"isl": question.isl, "osl": question.osl, "concurrency": question.concurrency}
    arguments = _with_notes(asked) | load
    before: ServeAnswer | None
    refusal = ""
    try:
        before = serve(**arguments)
    except Infeasible as error:
        memory = any("memory" in problem.path for problem in error.problems)
        before, refusal = None, "" if memory else str(error)
    mine = (question.plan or "").split()
    wanted = {SERVING_FREE.get(word, word) for word in question.free.replace(",", " ").split()}
    layout = {"tp", "pp", "dp", "ep", "cp"}
    freed = wanted or {*layout, "max_batch", "max_tokens"}
    held = [
        word
        for word in str(arguments["plan"]).split()
        if word in mine or serving_field(word) not in freed
    ]
    # A layout is chosen as a whole: where any of its degrees is held, the layout is.
    best = serve(**{**arguments, "plan": " ".join(held)})
    if before is not None and before.output_tokens_per_s >= best.output_tokens_per_s:
        best = before
    tool = launch.tool if launch.tool in SERVING else "vllm"
    load_question = ServingQuestion(**arguments)
    one = partial(instance_command, tool, asked=load_question)
    alone = None if before is None else one(launch.plan)
    edited = edited_service(question.launch, launch, alone, one(best.plan))
    written, changes = edited.written, edited.changes
    if export is not None:
        written = launch_command(export, best, load_question, launch=launch)
    if before is not None and before.replicas != best.replicas:
        copies = FlagChange(flag="instances", before=str(before.replicas), after=str(best.replicas))
        changes = (copies, *changes)
        if export is None:
            note = (
                f"{best.replicas} instances of it, each with GPUs and a port of its own, behind a router: "
                f"--export {tool} writes all of them"
            )
            written = replace(written, notes=(*written.notes, note))
    gain = None if before is None else best.output_tokens_per_s / before.output_tokens_per_s - 1.0
    interval = None if before is None else _service_interval(before, best)
    return improvement_of(
        asked,
        before,
        best,
        written,
        metric="output_tokens_per_s",
        fits_before="no" if before is None else "yes",
        gain=gain,
        gain_interval=interval,
        certain=interval is None or interval["p90"][0] > 0.0,
        changes=changes,
        launchable_with=(launch.engine,),
        conclusions=_conclusions(
            launch, gain, interval, runs=before is not None, same=best is before, refusal=refusal
        ),
    )


SERVING_FREE = {"mbs": "max_batch", "batch": "max_batch"}


def _service_interval(before: ServeAnswer, after: ServeAnswer) -> dict[str, tuple[float, float]]:
    """The interval of the gain of two layouts of one engine on one system.

    Their errors share SERVED of the variance, as services of one model on chips of one architecture do
    (search/ranking.py); half-widths of logarithms are subtracted so.
    """
    from math import exp, log

    found, shared = {}, sum(SERVED)
    middle = log(after.output_tokens_per_s / before.output_tokens_per_s)
    for name in ("p50", "p90"):
        ends = [one.intervals["output_tokens_per_s"][name] for one in (before, after)]
        wide = [0.5 * log(max(high, 1e-12) / max(low, 1e-12)) for low, high in ends]
        if before is after:
            half = 0.0
        else:
            both = wide[0] ** 2 + wide[1] ** 2 - 2.0 * shared * wide[0] * wide[1]
            half = max(both, 0.0) ** 0.5
        found[name] = (exp(middle - half) - 1.0, exp(middle + half) - 1.0)
    return found


# ---- what both have -----------------------------------------------------------------------------


def freed_fields(
    text: str, fields: tuple[str, ...] = FREED
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(fields of the layout, structural choices) that a text of words frees; nothing: the whole layout.

    `fields` are those that the tool has words for.
    """
    words = text.replace(",", " ").split()
    if not words:
        return fields, ()
    names = [DEGREES.get(word, word) for word in words]
    structural = STRUCTURAL if fields == FREED else ()
    known = (*fields, *structural, "all")
    wrong = [
        Problem(
            path="free",
            value=word,
            message="is no field of the plan that can be searched",
            allowed=", ".join(known),
            nearest=nearest_name(word, known),
        )
        for word, name in zip(words, names, strict=True)
        if name not in known
    ]
    if wrong:
        raise BadInput(wrong)
    if "all" in names:
        return fields, tuple(name for name in structural if name != "tp_mode")
    layout = tuple(name for name in names if name in fields)
    # Replicas are what the other degrees leave of the chips.
    more = ("dp",) if {"tp", "pp", "cp"} & {*layout} else ()
    chunks = ("vpp", "schedule", "layout") if {"pp", "vpp"} & {*layout} else ()
    over = tuple(name for name in names if name in STRUCTURAL)
    return (*layout, *more, *chunks), over


def _conclusions(
    launch: Launch,
    gain: float | None,
    interval: dict[str, tuple[float, float]] | None,
    *,
    runs: bool,
    same: bool,
    refusal: str = "",
) -> tuple[str, ...]:
    """What to think of it, a sentence each."""
    if same or (gain is not None and abs(gain) < LEAST_GAIN and runs):
        return (f"no plan that {launch.tool} can run is faster: the launch is as good as it gets",)
    if not runs:
        why = f"is refused as it is ({refusal})" if refusal else "does not fit in memory as it is"
        return (f"the launch {why}; the plan below runs",)
    assert gain is not None
    assert interval is not None
    low, high = interval["p90"]
    sure = "certain" if low > 0.0 else "not certain: nine in ten cases include none"
    return (f"{gain:+.1%} throughput (90%: {low:+.1%} to {high:+.1%}), {sure}",)
