"""One feasibility: estimate, search and memory agree on whether a plan fits and what its framework can run.

Random questions: a model on chips, with a framework or none, and either what a search proposes or words that
a user might type.
"""

import random
from collections.abc import Iterator

import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.errors import BadInput, Infeasible
from foretell.search.frameworks import own_refusals
from foretell.search.search import search_plans
from foretell.specs.plan import BATCH_FIELDS

MODELS = (
    "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-0.6b", "qwen3-30b-a3b", "mixtral-8x7b",
)  # fmt: skip
SYSTEMS = ("h100-sxm", "a100-sxm-40gb", "h200-sxm", "b200-sxm", "rtx4090")
FRAMEWORKS = (
    "", "megatron-core", "megatron-core@0.14", "megatron-bridge", "nemo", "torchtitan", "deepspeed",
    "transformers", "nanotron", "fsdp", "pytorch",
)  # fmt: skip
FEW, MANY = 100, 1000
"""Questions of each of three kinds, by default and in full."""
ORDER = ("no", "too_close", "yes")
"""Verdicts, the worst first."""
Job = dict[str, object]


def jobs(many: int, seed: int) -> Iterator[tuple[random.Random, Job, str]]:
    """Random questions, each with the words of its framework."""
    rng = random.Random(seed)
    for _ in range(many):
        framework = rng.choice(FRAMEWORKS)
        job: Job = {
            "model": rng.choice(MODELS),
            "system": rng.choice(SYSTEMS),
            "gpus": rng.choice((1, 2, 4, 8, 16, 32, 64)),
            "global_batch": rng.choice((8, 32, 64, 256)),
            "seq_len": rng.choice((2048, 4096, 8192)),
        }
        yield rng, job, f"framework={framework}" if framework else ""


def typed_plan(rng: random.Random, gpus: int, framework: str) -> str:
    """Words that a user might type."""
    tp = rng.choice([d for d in (1, 2, 4, 8) if gpus % d == 0])
    pp = rng.choice([d for d in (1, 2, 4) if gpus // tp % d == 0])
    words = [f"tp{tp} pp{pp} mbs{rng.choice((1, 2, 4))} zero{rng.choice((0, 1, 2, 3))}"]
    words += [rng.choice(("", "recompute=none", "recompute=full")), framework]
    return " ".join(word for word in words if word)


def asked(job: Job, plan: str, **more: object) -> Estimate | None:
    """The estimate, fits or not; None where a rule of plans is broken."""
    try:
        return foretell.estimate(**job, plan=plan, **more)  # type: ignore[arg-type]
    except Infeasible as error:
        return error.answer if isinstance(error.answer, Estimate) else None


each = pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
"""A few questions by default, 3,000 in full."""


@each
def test_what_a_search_proposes_is_what_estimate_and_memory_answer(many: int) -> None:
    plans = 0
    for _, job, framework in jobs(many, seed=1):
        found = foretell.search(**job, plan=framework or None, top=3)  # type: ignore[arg-type]
        for one in found.plans:
            again = asked(job, str(one.plan))
            assert again is not None, (job, str(one.plan))
            assert again.plan == one.plan, (job, str(one.plan), str(again.plan))
            assert again.fits == one.fits != "no", (job, str(one.plan))
            assert again.step_s == pytest.approx(one.step_s, rel=1e-9)
            assert again.peak_memory_bytes == pytest.approx(one.peak_memory_bytes, rel=1e-9)
            assert again.refusals == ()
        if found.plans:
            words = str(found.plans[0].plan)
            held = foretell.memory(**job, plan=words)  # type: ignore[arg-type]
            assert held.estimate.fits == found.plans[0].fits, (job, words)
        plans += len(found.plans)
    assert plans > many


@each
def test_what_a_user_types_is_what_a_search_allows(many: int) -> None:
    """A plan that estimate says yes to is found by a search that all of its words fix; one that it says no
    to, or that the framework refuses, is not. More memory makes no answer worse, nor a higher ZeRO stage
    more tensors."""
    answers = dict.fromkeys(ORDER, 0)
    for rng, job, framework in jobs(many, seed=2):
        words = typed_plan(rng, int(str(job["gpus"])), framework)
        try:
            one = asked(job, words)
        except BadInput:
            continue
        if one is None or one.scenario is None:
            continue
        answers[one.fits] += 1
        assert one.refusals == own_refusals(one.scenario, one.plan)
        assert not one.refusals or "cannot run" in one.assumptions[0]
        found = search_plans(one.scenario, one.plan, top=1, fixed=BATCH_FIELDS)
        runs = one.fits != "no" and not one.refusals
        assert [p.plan for p in found.plans] == ([one.plan] if runs else []), (job, words)
        assert all(p.fits == one.fits for p in found.plans), (job, words)
        have = one.memory_capacity_bytes * rng.choice((1.02, 1.1, 1.3, 2.0, 5.0))
        more = asked(job, words, set=[f"chip.memory_bytes={have:.0f}"])
        assert more is not None
        assert more.fits != "no" or one.fits == "no", (job, words)
        if more.plan == one.plan:
            assert ORDER.index(more.fits) >= ORDER.index(one.fits), (job, words)
            assert (more.fit_probability or 0.0) >= (one.fit_probability or 0.0) - 1e-12
    assert all(count > many / 50 for count in answers.values()), answers


@each
def test_a_higher_zero_stage_allocates_no_more(many: int) -> None:
    for rng, job, framework in jobs(many, seed=3):
        words = typed_plan(rng, int(str(job["gpus"])), framework)
        words = " ".join(word for word in words.split() if not word.startswith("zero"))
        words = words if "recompute=" in words else f"{words} recompute=none"
        tensors = []
        for stage in (1, 2, 3):
            try:
                one = asked(job, f"{words} zero{stage}")
            except BadInput:
                one = None
            runs = one is not None and not (stage == 3 and one.refusals)
            tensors += [one.allocated_bytes] if one is not None and runs else []
        for less, more in zip(tensors[1:], tensors, strict=False):
            assert less <= more * (1.0 + 1e-12), (job, words, tensors)
