"""What fits of a post-training step: the nearest changes that make it fit, each tried, and `--fit`.

`--fit` answers with the longest sequence, the most sequences and the largest model that the chips can
tune.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from foretell.errors import Infeasible, ProblemsError
from foretell.records import later, with_values
from foretell.serving.fit import candidates, largest_where
from foretell.specs.plan_words import read_words
from foretell.specs.post_training import PostTrainingEstimate, TuningFit, find_algorithm
from foretell.specs.questions.post_training import PostTrainingQuestion

BUDGETS = (8192, 4096, 2048)
"""Tokens of a micro-batch that are tried."""
FRACTIONS = (0.5, 0.4, 0.3)
"""Shares of the memory for the engine that are tried where generation does not fit."""
TIMES = (2, 4, 8)
"""Multiples of the chips that are tried."""
MORE_TIMES = (*TIMES, 16, 32)
"""Those that are tried where the engine's weights alone do not fit."""
NARROWER = ("weights=fp8", "weights=int4")
"""Formats of the engine's weights that are tried."""
RANK = 32
"""Rank of the adapters that are tried."""
OTHER_TRAINING = ("adapters", "base", "adapters+base")
"""Kinds of changes that change what is trained, not only how."""
Answer = Callable[[PostTrainingQuestion], PostTrainingEstimate]


def ways_to_fit(
    question: PostTrainingQuestion, found: PostTrainingEstimate, answer: Answer
) -> tuple[str, ...]:
    """Changes of the question that fit, the least of each kind, as flags; `answer` answers a question.

    The cheapest step comes first, by chips and time; what changes what is trained comes last.
    """
    ways: list[tuple[bool, float, str]] = []
    done: set[str] = set()
    for kind, flags, change in _changes(question, found):
        if done & {*kind.split("+")}:
            continue
        try:
            tried = answer(replace(question, trace=None, **change))
        except ProblemsError:
            continue
        if tried.fits == "yes":  # what is advised is more than borderline
            done.add(kind)
            way = f"{flags} fits ({tried.step_s:,.{0 if tried.step_s >= 10.0 else 1}f} s a step)"
            ways.append((kind in OTHER_TRAINING, tried.gpus * tried.step_s, way))
    return tuple(way for _, _, way in sorted(ways))


def with_ways_out(error: Infeasible, question: PostTrainingQuestion, answer: Answer) -> Infeasible:
    """The refusal with the fewest chips of those tried, or the narrower weights, that hold the rollouts."""

    @cache
    def words() -> str:
        chips = ((flags, change) for _, flags, change in _more_chips(question, set(), MORE_TIMES))
        narrow = ((f'--rollout-plan "{text}"', {"rollout_plan": text}) for text in NARROWER)
        ways = []
        for some in (chips, narrow):
            for flags, change in some:
                try:
                    fits = answer(replace(question, trace=None, **change)).fits
                except ProblemsError:
                    continue
                if fits != "no":
                    ways.append(flags)
                    break
        return ", or ".join(ways)

    def allowed(text: str | None) -> Callable[[], str]:
        return lambda: "; ".join(part for part in (words(), text) if part)

    return Infeasible(
        with_values(one, allowed=later(allowed(one.allowed))) for one in error.problems
    )


def _changes(
    question: PostTrainingQuestion, found: PostTrainingEstimate
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Kind, flags and fields of what may help, the least change of a kind first; a kind of two parts is tried
    where neither part helps alone."""
    over = {one.phase for one in found.memory if one.fits == "no"}
    words = question.plan if isinstance(question.plan, str) else ""
    if "generate" in over and question.rollout_plan is None:
        for share in FRACTIONS:
            text = f"memory_fraction={share:g}"
            yield "engine", f'--rollout-plan "{text}"', {"rollout_plan": text}
    if over & {"logprob", "update_actor"}:
        for budget in BUDGETS:
            less = budget < (found.micro_tokens or 2 * BUDGETS[0])
            whole = budget >= found.max_answer_tokens
            if less and whole and " mbs" not in f" {words}":
                yield "tokens", f"--micro-tokens {budget}", {"micro_tokens": budget}
        for kind, text in _smaller_plans(words, found.plan):
            yield kind, f'--plan "{text}"', {"plan": text}
        if "lora=" not in words and (question.plan is None or words):
            text = f"{words} lora={RANK}".strip()
            yield "adapters", f'--plan "{text}"', {"plan": text}
            if "recompute=" not in words:
                text = f"{text} recompute=full"
                yield "adapters", f'--plan "{text}"', {"plan": text}
            if "weights=" not in words:
                text = f"{text} weights=nf4"
                yield "adapters+base", f'--plan "{text}"', {"plan": text}
        if "lora=" in words and "weights=" not in words:
            text = f"{words} weights=nf4"
            yield "base", f'--plan "{text}"', {"plan": text}
        if "offload=" not in words and (question.plan is None or words):
            kept = [w for w in words.split() if not w.startswith(("recompute=", "zero"))]
            text = " ".join([*kept, "zero3", "recompute=full", "offload=optimizer"])
            yield "host", f'--plan "{text}"', {"plan": text}
    yield from _more_chips(question, over)


def _more_chips(
    question: PostTrainingQuestion, over: set[str], several: Sequence[int] = TIMES
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Multiples of the chips; those of the trainer help where more than generation is `over`."""
    words = question.plan if isinstance(question.plan, str) else ""
    free = re.sub(r"\bdp\d+\s*", "", words).strip()
    for name in ("gpus", "trainer_gpus"):
        given = str(getattr(question, name) or "")
        count = re.match(r"(\d+)(.*)", given)
        if count is None or (name == "trainer_gpus" and over == {"generate"}):
            continue
        for times in several:
            text = f"{int(count[1]) * times}{count[2]}"
            value: int | str = text if count[2] else int(text)
            change: dict[str, Any] = {name: value}
            flags = f"--{name.replace('_', '-')} {text}"
            if free != words:
                change["plan"] = free
                flags += f' --plan "{free}"'
            yield "chips", flags, change


def _smaller_plans(words: str, plan: str) -> Iterator[tuple[str, str]]:
    """Kind and words of a plan that keeps fewer activations, or spreads weights and states, or both; `plan`
    is what the words were read as. None where no words are given: what is chosen then has tried them."""
    changes = {"recompute": "recompute=full", "zero3": "zero3"}
    missing = {kind: word for kind, word in changes.items() if word not in plan.split()}
    tries = [(kind,) for kind in missing] + ([(*missing,)] if len(missing) > 1 else [])
    for kinds in tries if words else ():
        kept = [w for w in words.split() if not any(_same_field(w, kind) for kind in kinds)]
        yield "+".join(kinds), " ".join([*kept, *(missing[kind] for kind in kinds)])


def _same_field(word: str, kind: str) -> bool:
    return word.startswith("recompute=" if kind == "recompute" else "zero")


WAYS = {
    "as asked": (),
    "full": ("recompute=full",),
    "lora": ("lora=16", "recompute=full"),
    "qlora": ("lora=16", "weights=nf4", "recompute=full"),
}
"""What is trained, and the words that say so."""
OF_METHOD = ("lora", "method", "adapters", "weights", "recompute", "micro_batch")
"""Fields that a way decides."""
LENGTH_STEP, LONGEST, MOST = 256, 2**20, 1024
"""Tokens between two lengths that are tried, the longest, and the most sequences of a micro-batch."""
LEAST_BITS = {"as asked": 4.0, "full": 16.0, "lora": 16.0, "qlora": 4.0}
"""Bits that a weight takes at least."""


def tuning_fits(question: PostTrainingQuestion, answer: Answer) -> tuple[TuningFit, ...]:
    """Every way to tune the model on the chips that train; `answer` answers a question."""
    form = find_algorithm(question.algorithm)
    if form is not None and form.generates:  # what the trainer holds, its cards to itself
        chips = question.trainer_gpus or question.gpus
        question = replace(
            question, algorithm="update", gpus=chips, trainer_gpus=None, rollout_gpus=None
        )
    plain = replace(question, fit=False, measured=(), trace=None, steps=None, lengths="fixed",
                    placement="colocated", packing="packed", micro_tokens=None)  # fmt: skip
    return tuple(one_way(plain, name, answer) for name in WAYS)


def one_way(question: PostTrainingQuestion, way: str, answer: Answer) -> TuningFit:
    """One way to tune."""
    found = answer(replace(question, plan=words_of(question, way, 1)))
    chips = found.gpus
    length = question.max_osl or round(found.tokens / max(found.trajectories, 1))

    def fits(sequences: int, tokens: int, model: str | None = None) -> bool:
        asked = replace(
            question,
            plan=words_of(question, way, sequences),
            model=model or question.model,
            prompts=chips * sequences,
            isl=0.0,
            osl=float(tokens),
            max_osl=tokens,
        )
        try:
            return answer(asked).fits == "yes"
        except ProblemsError:
            return False

    longest = (
        largest_where(lambda n: fits(1, n * LENGTH_STEP), LONGEST // LENGTH_STEP) * LENGTH_STEP
    )
    most = (
        chips * float(found.memory[-1].capacity_bytes) * 8.0 / LEAST_BITS[way]
        if found.memory
        else 0.0
    )
    models = candidates(most, tried=None)[::-1]
    largest = largest_where(lambda n: fits(1, length, models[n - 1]), len(models))
    return TuningFit(
        way=way,
        plan=words_of(question, way, 1),
        fits=fits(1, length),
        max_context=longest,
        max_sequences=largest_where(lambda n: fits(n, length), MOST),
        sequence_tokens=length,
        largest_model=models[largest - 1] if largest else "",
    )


def words_of(question: PostTrainingQuestion, way: str, sequences: int) -> str:
    """The question's plan with a way's words and so many sequences in a micro-batch."""
    words = question.plan.split() if isinstance(question.plan, str) else []
    decided = ("micro_batch",) if way == "as asked" else OF_METHOD
    kept = [word for word in words if not set(read_words(word)[0]) & {*decided}]
    return " ".join([f"mbs{sequences}", *WAYS[way], *kept])
