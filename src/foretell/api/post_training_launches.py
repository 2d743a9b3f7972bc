"""A launch of fine-tuning or reinforcement learning as a post-training question: `read_post_training`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from foretell.api.launches import (
    LaunchQuestion,
    on_one_node,
    read_launch,
    refuse_unknown,
    serving_only,
    system_of,
)
from foretell.catalog import model as catalog_model
from foretell.errors import bad_input
from foretell.interop.launch import Launch, ReadValue
from foretell.interop.policy_step import ONE_UPDATE
from foretell.specs.plan_words import read_words
from foretell.workload.parameters import count

POOLS = ("gpus", "trainer_gpus", "rollout_gpus")
"""Fields that share out the chips: one by hand takes the place of the launch's."""


def read_post_training(
    given: str | Path,
    beside: Mapping[str, Any],
    *,
    accept_unknown: bool = False,
    hub: bool = False,
    files: bool = True,
) -> LaunchQuestion:
    """A launch and the flags beside it as one post-training question, every value with where it comes from.

    What the launch says is below what is given by hand; words of `plan` by hand replace those of the same
    field. What may change the answer and is not understood is BadInput, unless it is accepted.
    """
    model = beside.get("model") or None
    read = partial(read_launch, given, model=model, hub=hub, files=files)
    launch = read(gpus=beside.get("gpus"))
    launch = replace(launch, notes=tuple(one for one in launch.notes if one != ONE_UPDATE))
    serving_only(launch, wanted=False)
    if not accept_unknown:
        refuse_unknown(launch)
    by_hand = {name: value for name, value in beside.items() if value is not None}
    by_hand |= system_of(launch, by_hand)
    if launch.gpus is None and not any(name in by_hand for name in POOLS):
        launch = on_one_node(read, launch, by_hand.get("system"))
    told = dict(launch.post_training or _one_update(launch))
    named = model or (launch.models[0] if launch.models else launch.table)
    if not named:
        message = f"the {launch.tool} arguments name no model that is known here"
        allowed = "MODEL, or --hub for a repository of the Hugging Face hub"
        raise bad_input("model", None, message, allowed)
    if any(name in by_hand for name in POOLS):
        told = {name: value for name, value in told.items() if name not in POOLS}
    arguments = {**told, **by_hand, "model": named}
    mine = by_hand.get("plan")
    if mine is None or isinstance(mine, str):
        arguments["plan"] = _joined(str(told.get("plan") or ""), mine or "")
    if not arguments["plan"]:
        del arguments["plan"]
    return LaunchQuestion(
        launch=launch, arguments=arguments, rows=_rows(launch, arguments, by_hand)
    )


def _one_update(launch: Launch) -> dict[str, Any]:
    """A training run as fine-tuning: its batch is a step's sequences."""
    found = {
        "algorithm": "sft",
        "gpus": launch.gpus,
        "prompts": launch.global_batch,
        "isl": launch.seq_len,
        "plan": " ".join(word for word in launch.plan.split() if not _is_field(word, "dp")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _joined(theirs: str, mine: str) -> str:
    """Words by hand, then those of the launch whose fields they leave open."""
    taken = set(read_words(mine)[0])
    kept = [word for word in theirs.split() if not any(_is_field(word, name) for name in taken)]
    return " ".join([*mine.split(), *kept])


def _is_field(word: str, name: str) -> bool:
    return name in read_words(word)[0]


def _rows(
    launch: Launch, arguments: Mapping[str, Any], by_hand: Mapping[str, Any]
) -> tuple[ReadValue, ...]:
    """The read-back table: the model, what a flag says, then what the launch says."""
    record = catalog_model(arguments["model"])
    where = next((row for row in launch.values if row.name == "model"), None)
    from_flag = where is None or "model" in by_hand
    rows = [
        ReadValue(
            name="model",
            value=record.id,
            origin="flag" if from_flag else "file",
            key="" if where is None or from_flag else where.key,
            line=None if where is None or from_flag else where.line,
        ),
        ReadValue(name="parameters", value=f"{count(record).total:,}", origin="file", key="model"),
    ]
    rows += [
        ReadValue(name=name, value=str(value), origin="flag")
        for name, value in by_hand.items()
        if name not in ("model", "set") and value not in ((), "", False)
    ]
    mine = read_words(str(by_hand.get("plan") or ""))[0]
    update_alone = ("model", "global_batch", "dp") if launch.post_training else ("model", "dp")
    limits: tuple[str, ...] = ("seq_len",) if "max_osl" in arguments else ()
    limits += ("micro_batch",) if "micro_tokens" in arguments else ()
    for row in launch.values:
        pool = row.name == "gpus" and any(name in by_hand for name in POOLS)
        if row.name in by_hand or row.name in mine or pool or row.name in (*update_alone, *limits):
            continue
        if row.name == "framework" and "plan" in arguments:
            word = read_words(str(arguments["plan"]))[0].get("framework")
            row = replace(row, value=str(word or row.value))
        rows.append(row)
    return tuple(rows)
