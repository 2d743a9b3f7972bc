"""A plan in the own keys of a trainer: the inverse of its table, for keys to change in a user's file.

`sayable` has the fields of a plan that a tool's keys can say, `plan_keys` the keys and values that say one.
Of several keys for a field the one that the launch has it by is kept. Tools whose writer knows all of their
flags (training_write.py) are compared by what these write.
"""

from collections.abc import Mapping

from foretell.interop.edited_launch import has_block
from foretell.interop.launch import Launch
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.training_write import written_keys
from foretell.specs.plan import Plan
from foretell.specs.plan_words import read_words

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
"""Fields of a plan that a key says as its number."""
SHARING, SAVING = {"fsdp", "zero_stage"}, {"checkpointing", "no_checkpointing"}
"""Fields of trainers on Hugging Face transformers, one of which shares states or recomputes."""


def sayable(tool: str) -> tuple[str, ...]:
    """Fields of a plan that the keys of a tool can say."""
    table = table_of(tool)
    if table.options.get("style") == "transformers":
        needs = {"zero": SHARING, "micro_batch": {"micro_batch"}, "recompute": SAVING}
        return tuple(name for name, some in needs.items() if some & {*table.fields})
    of_table = {*table.fields, *table.products}
    worded = {
        name for values in table.plan.values() for words in values.values() for name in _read(words)
    }
    found = [name for name in DEGREES if name in of_table or name in worded]
    found += ["zero"] if "zero_stage" in of_table or "zero" in worded else []
    found += [name for name in ("recompute", "sp", "schedule") if name in worded]
    return (*found, "dp")


def can_say(tool: str, plan: Plan) -> bool:
    """Whether the keys of a tool have a word for the sharing of a plan: FSDP has none for stage 1, and keys
    with words have those stages alone."""
    table = table_of(tool)
    said, plain = _stages(table), table.options.get("style") != "transformers"
    if said:
        return plan.zero in said or (plain and "zero_stage" in table.fields)
    return plain or plan.framework.partition("@")[0] == "deepspeed" or plan.zero != 1


def _stages(table: ToolTable) -> set[object]:
    """Stages that words of a tool's keys stand for, with the one that it has where nothing is stated."""
    words = [words for values in table.plan.values() for words in values.values()]
    said = {_read(one).get("zero") for one in words} - {None}
    return said | {_read(str(table.defaults.get("plan", ""))).get("zero", 0)} if said else said


def plan_keys(launch: Launch, text: str, plan: Plan, global_batch: int) -> dict[str, str]:
    """Keys and values that say a plan: degrees, batch, accumulation, checkpointing, sharding."""
    table = table_of(launch.tool)
    said = {key for row in launch.values for key in row.key.split(", ")}
    if table.options.get("style") == "transformers":
        fields = _transformers(table, said, plan)
    else:
        fields = {name: f"{getattr(plan, name)}" for name in DEGREES if name in table.fields}
        stage = (
            {"zero_stage": f"{plan.zero}"} if said & {*table.fields.get("zero_stage", ())} else {}
        )
        fields |= stage | ({"dp": f"{plan.dp}"} if "dp" in table.fields else {})
    steps = max(global_batch // (plan.dp * plan.micro_batch), 1)
    if {"accumulation", "micro_batch"} <= {*table.fields} and not said & {
        *table.fields.get("global_batch", ())
    }:
        fields["accumulation"] = f"{steps}"
    if "device_batch" in table.fields:  # a chip's share of what a replica takes at a time
        ranks = plan.tp * plan.pp * plan.cp
        fields["device_batch"] = f"{plan.micro_batch / ranks:g}"
        fields |= {"accumulation": f"{steps}"} if steps > 1 else {}
    fields["micro_batch"] = f"{plan.micro_batch}"
    found = {
        _key(table.fields[name], said, text): value
        for name, value in fields.items()
        if name in table.fields
    }
    for name, factors in table.products.items():
        if name in DEGREES:
            found[factors[0].partition(":")[0]] = f"{getattr(plan, name)}"
    return found | _worded(table, said, plan)


def _key(names: tuple[str, ...], said: set[str], text: str) -> str:
    """The key of a field that the launch has, else one inside a block that it has, else the first."""
    inside = (one for one in names if "." in one and has_block(text, one.rpartition(".")[0]))
    return next((one for one in names if one in said), next(inside, names[0]))


def _worded(table: ToolTable, said: set[str], plan: Plan) -> dict[str, str]:
    """Keys whose words stand for fields of a plan, with the word for this one."""
    found, covered = dict[str, str](), set[str]()
    silent = _read(str(table.defaults.get("plan", "")))
    for key, values in table.plan.items():
        names = {name for words in values.values() for name in _read(words)} & {
            "recompute",
            "zero",
            "sp",
            "schedule",
        }
        if not names or (key not in said and names <= covered):
            continue
        fits = (
            word
            for word, words in values.items()
            if word not in ("*", "")
            and (key in said or not word.startswith("$"))
            and all({**silent, **_read(words)}.get(name) == getattr(plan, name) for name in names)
        )
        word = next(fits, None)
        if word is not None:
            found[key] = word
            covered |= names
    return found


def _read(words: str) -> Mapping[str, object]:
    return read_words(words)[0] if words else {}


def _transformers(table: ToolTable, said: set[str], plan: Plan) -> dict[str, str]:
    """Fields of trainers on Hugging Face transformers, which several keys decide together."""
    stated = {name for name, keys in table.fields.items() if said & {*keys}}
    inner = any("." in one for one in said & {*table.fields.get("inner_checkpointing", ())})
    if not inner or "gradient_checkpointing" in said:
        stated -= {"inner_checkpointing"}
    on, names = plan.recompute != "none", bool(table.options.get("names_sharing"))
    deepspeed = plan.framework.partition("@")[0] == "deepspeed"
    values: dict[str, object] = {
        **{f"said.{name}": name in stated for name in table.fields},
        "has.no_checkpointing": "no_checkpointing" in table.fields
        and table.defaults.get("checkpointing"),
        "on": f"{on}".lower(), "off": f"{not on}".lower(), "zero": plan.zero,
        "framework": plan.framework, "fsdp": not deepspeed and not _stages(table),
        "option.names_sharing": names, "named": names or "fsdp_strategy" in stated,
    }  # fmt: skip
    return {key: f"{value}" for key, value in written_keys("_transformers", values).items()}
