"""`foretell.cost`: what a chip, a package, a system, a training run or a million tokens cost."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from foretell.api.cost import RunQuestion, TokenQuestion, run_cost, token_cost
from foretell.economics.answer import CostAnswer
from foretell.economics.ask import PackageQuestion, chip_cost, package_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.errors import BadInput, unknown

Priced = Literal["chip", "package", "system", "run", "token"]
"""What can be priced."""
VERBS: Mapping[str, tuple[str, Callable[..., Any], Callable[[Any], CostAnswer]]] = {
    "chip": ("name", PackageQuestion, chip_cost),
    "package": ("name", PackageQuestion, package_cost),
    "system": ("system", SystemQuestion, system_cost),
    "run": ("model", RunQuestion, run_cost),
    "token": ("model", TokenQuestion, token_cost),
}
"""What is priced -> the field that names it, its question, and who answers."""


def cost(what: Priced, about: Any = "", /, **question: Any) -> CostAnswer:
    """The cost of a chip, a package, a system, a training run or a million tokens, part by part.

    `about` is the chip, the system or the model: an id, a file or a table. The other arguments are the flags
    of `foretell cost WHAT` in snake case: `foretell.cost("system", "dgx-h200", gpus=64, years=4)`,
    `foretell.cost("run", "llama-3.1-70b", system="h100-sxm", gpus=512, tokens="15T")`,
    `foretell.cost("token", "llama-3.1-8b", system="h100-sxm", gpus=1, isl=1024, osl=256)`.
    """
    if what not in VERBS:
        raise BadInput([unknown("what", what, tuple(VERBS))])
    name, record, answer = VERBS[what]
    given = {name: about} if about != "" else {}
    return answer(record(**given, **question))
