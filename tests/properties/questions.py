"""Random training questions, the same ones for the same seed: models, systems and plans of all words."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from foretell.errors import ProblemsError
from foretell.inputs.question import ask
from foretell.inputs.software import with_software
from foretell.schedules.rules import all_broken
from foretell.search.plan_checks import check_choices
from foretell.specs.plan import Plan, batch_of, plan_problems
from foretell.specs.scenario import Scenario
from tests.properties.test_all_words import WORDS

MODELS = (
    "gpt2", "gemma-2b", "llama-3.1-8b", "llama-2-13b", "qwen3-30b-a3b", "qwen3.6-35b-a3b",
    "mixtral-8x7b", "deepseek-v2-lite", "mamba2-1.3b", "nemotron-3-nano-30b-a3b", "gpt-oss-20b",
    "bert-large-uncased", "vit-huge-patch14-224", "gemma-3-4b-pt-text", "qwen3-next-80b-a3b",
)  # fmt: skip
SYSTEMS = (
    "h100-sxm", "eos", "dgx-h200", "dgx-a100", "dgx-b200", "gb200-nvl72", "perlmutter", "mi300x",
    "tpu-v5p", "v100-sxm-32gb", "gcp-a3-mega", "aws-trn2",
)  # fmt: skip
GPUS = (1, 2, 4, 8, 16, 32, 64)
USUAL = 0.8
"""Share of the words that a plan leaves at their defaults."""


def random_questions(seed: int, count: int) -> Iterator[tuple[Scenario, Plan]]:
    """`count` questions whose plans break no rule; memory is not looked at."""
    rng = np.random.default_rng(seed)
    while count > 0:
        found = random_question(rng)
        if found is not None:
            count -= 1
            yield found


def random_question(rng: np.random.Generator) -> tuple[Scenario, Plan] | None:
    """A scenario and a plan; None where the draw breaks a rule."""
    gpus = int(rng.choice(GPUS))
    degrees = random_degrees(rng, gpus)
    micro_batch = int(rng.choice((1, 1, 2, 4)))
    each = int(rng.choice((1, 2, 4, 8, 16)))
    try:
        scenario = ask(
            model=str(rng.choice(MODELS)),
            system=str(rng.choice(SYSTEMS)),
            gpus=gpus,
            global_batch=degrees["dp"] * micro_batch * each,
            seq_len=int(rng.choice((512, 2048, 4096))),
            plan=None,
            set=(),
        )
        plan = Plan(**degrees, micro_batch=micro_batch, **random_words(rng, degrees))
        if plan_problems(plan):
            return None
        scenario = with_software(scenario, plan)
        check_choices(scenario, plan)
    except ProblemsError:
        return None
    return None if all_broken(scenario, plan, batch_of([plan])) else (scenario, plan)


def random_degrees(rng: np.random.Generator, gpus: int) -> dict[str, int]:
    """tp, pp, cp and dp whose product is `gpus`; ep divides the ranks of a stage."""
    found, left = {}, gpus
    for name in rng.permutation(["tp", "pp", "cp"]):
        choices = [d for d in (1, 1, 2, 4, 8) if left % d == 0]
        found[str(name)] = int(rng.choice(choices if name != "cp" else [*choices, 1, 1, 1]))
        left //= found[str(name)]
    found["dp"] = left
    ranks = gpus // found["pp"]
    found["ep"] = int(rng.choice([d for d in (1, 1, 2, 4, 8) if ranks % d == 0]))
    return found


def random_words(rng: np.random.Generator, degrees: dict[str, int]) -> dict[str, Any]:
    """Every other word of a plan, most of them as usual."""
    words: dict[str, Any] = {
        "zero": int(rng.choice((0, 1, 1, 2, 3, 3))) if degrees["dp"] * degrees["cp"] > 1 else 0,
        "vpp": int(rng.choice((1, 1, 2))) if degrees["pp"] > 1 else 1,
        "recompute": str(rng.choice(("none", "none", "selective", "full"))),
        "sp": bool(rng.random() < 0.7) and degrees["tp"] > 1,
    }
    for name, values in WORDS.items():
        if rng.random() > USUAL:
            words[name] = values[int(rng.integers(len(values)))]
    if words.get("schedule") == "zb-v":
        words["vpp"] = 2
    elif words.get("schedule") not in (None, "1f1b"):
        words["vpp"] = 1
    return words
