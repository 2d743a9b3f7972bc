"""`post-train --fit`: the longest sequence, the most sequences and the largest model that chips can tune."""

from collections.abc import Callable
from dataclasses import replace

from foretell.errors import ProblemsError
from foretell.serving.fit import candidates, largest_where
from foretell.specs.plan_words import read_words
from foretell.specs.post_training import PostTrainingEstimate, TuningFit, find_algorithm
from foretell.specs.questions.post_training import PostTrainingQuestion

Answer = Callable[[PostTrainingQuestion], PostTrainingEstimate]
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
