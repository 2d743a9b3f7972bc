"""LoRA adapters of a service: the flags beside its plan, and what is assumed of them."""

from dataclasses import replace

from foretell import units
from foretell.errors import Problem
from foretell.serving.engine_options import held_adapters
from foretell.specs.deployment import Deployment
from foretell.specs.questions.serving import ServiceQuestion

LARGEST = 10**6
"""More adapters, or a higher rank, are a typing error."""


def with_adapters(
    asked: ServiceQuestion, deployment: Deployment, problems: list[Problem]
) -> Deployment:
    """A deployment with the LoRA adapters that were asked for beside its plan."""
    names = ("adapters", "adapter_rank", "adapter_slots")
    given = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    for name, value in given.items():
        whole: object = value
        if not isinstance(whole, int) or isinstance(whole, bool) or not 1 <= whole <= LARGEST:
            problems.append(
                Problem(path=name, value=value, message="not a whole number",
                        allowed="a whole number from 1", nearest=units.plain_number(value))
            )  # fmt: skip
    made = replace(deployment, **given)
    if not problems and not made.adapters and (made.adapter_slots or "adapter_rank" in given):
        problems.append(
            Problem(path="adapters", value=None, message="missing beside their rank or slots",
                    allowed="--adapters N, how many requests choose among")
        )  # fmt: skip
    return deployment if problems else made


def said_of_adapters(d: Deployment) -> list[str]:
    """What is assumed of LoRA adapters."""
    if not d.adapters:
        return []
    held = held_adapters(d)
    said = [
        f"{d.adapters} LoRA adapters of rank {d.adapter_rank} on all linear layers but routed experts",
        f"requests choose any adapter alike; {held} of {d.adapters} are on the chips at once",
    ]
    if held < d.adapters:
        said.append(
            f"requests of other adapters wait until one of {held} slots is free; the engine passes over them"
        )
    return said
