"""The user's own file with the keys of a better plan, and nothing else of it changed."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foretell.api.answers import Estimate
from foretell.api.exports import export_plan
from foretell.api.improvement import FlagChange
from foretell.api.launches import launch_text, read_launch
from foretell.errors import ProblemsError
from foretell.interop.arguments import parse_arguments
from foretell.interop.edited_launch import changed_keys, edited_launch, flag_name, has_key
from foretell.interop.launch import TRAINING, Launch, NamedFile, ToolArguments
from foretell.interop.named_files import files_beside
from foretell.interop.plan_keys import plan_keys
from foretell.interop.tool_tables import expand, table_of
from foretell.interop.user_files import are_read
from foretell.records import dataclass

ELSEWHERE = ("zero_optimization.stage",)
"""Keys of files that a launch names and that are not its own."""
CHUNK_LAYERS = "num_layers_per_virtual_pipeline_stage"
"""Megatron's layers of a virtual stage, which its writer gives as stages per rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedFile:
    """A launch file with other values of some keys."""

    written: ToolArguments
    """Its text; empty where it is not changed."""
    changes: tuple[FlagChange, ...]
    """The keys."""


def written_by(launch: Launch) -> str:
    """The tool whose writer says what a launch's own keys are compared by; empty: its table alone."""
    own = (launch.tool, table_of(launch.tool).family)
    return next((one for one in own if one in TRAINING), "")


def earlier_fields(launch: Launch) -> tuple[str, ...]:
    """Fields that a release or fork before the ones that are written can say, where a launch has keys of it;
    none where it has not."""
    rows = {key for row in launch.values for key in row.key.split(", ")}
    marks = {*str(table_of(launch.tool).options.get("earlier", "")).split()}
    if not marks & {*rows, *launch.ignored, *launch.unmodelled}:
        return ()
    saved = any(row.name == "recompute" and row.key for row in launch.values)
    return ("tp", "pp", "dp", "micro_batch", *(("recompute",) if saved else ()))


def held_fields(launch: Launch) -> tuple[str, ...]:
    """Fields that the tool lets no launch change that has a key which needs them (its table's `holds`)."""
    holds = table_of(launch.tool).options.get("holds", {})
    return tuple(field for key, field in holds.items() if key in launch.unmodelled)


def edited_plan(
    given: str | Path, launch: Launch, before: Estimate | None, best: Estimate
) -> EditedFile:
    """The launch of a training run with the better plan's keys, read again to see that it says it."""
    text = launch_text(given, are_read())
    writer = written_by(launch)
    beside = set(expand(table_of(writer).options.get("beside_plan", ""))) if writer else set()

    def keys(one: Estimate | None) -> dict[str, str]:
        if one is None:
            return {}
        if writer:
            written = flags_of(export_plan(one, _release(writer, text)).text)
            return {key: value for key, value in written.items() if key not in beside}
        return plan_keys(launch, text, one.plan, one.global_batch)

    told = {"micro_batch": str(best.plan.micro_batch), "global_batch": str(best.global_batch)}
    names = ("tp", "pp", "cp", "ep", "zero")
    told |= {name: str(getattr(best.plan, name)) for name in names}
    told["recompute"] = "none" if best.plan.recompute == "none" else "*"
    chips = launch if launch.gpus else replace(launch, gpus=best.gpus)
    pair = keys(before), keys(best)
    steps = table_of(launch.tool).fields.get("accumulation", ())
    if writer and (name := next((one for one in steps if has_key(text, one)), None)):
        for one, found in zip((before, best), pair, strict=True):
            if one is not None:
                found[name] = str(max(one.global_batch // (one.plan.dp * one.plan.micro_batch), 1))
    if (
        best.plan.recompute == "none"
    ):  # also by keys of older releases, which a writer does not have
        saved = next((row.key.split(", ") for row in launch.values if row.name == "recompute"), [])
        new = (key for key in saved if key and writer and key not in (*pair[0], *pair[1]))
        pair[0].update(dict.fromkeys(new, ""))
    if (
        writer == "megatron"
        and has_key(text, CHUNK_LAYERS)
        and (before is None or (before.plan.pp, before.plan.vpp) != (best.plan.pp, best.plan.vpp))
    ):
        # The writer has stages per rank instead; Megatron refuses both at once, and either at pp 1.
        pair[0].pop("num_virtual_stages_per_pipeline_rank", None)
        pair[0][CHUNK_LAYERS] = flags_of(text).get(CHUNK_LAYERS, "")
        told["vpp"] = str(best.plan.vpp)
    return _edited(given, text, chips, pair, lambda rows: _says(rows, told))


def _release(writer: str, text: str) -> str:
    """The release of a writer whose keys a launch has: torchtitan's are a file's up to 0.2."""
    newer = re.search(r"Config\(|--module|num_tokens_per|max_context_length", text)
    return "torchtitan@0.2" if writer == "torchtitan" and not newer else writer


def edited_service(
    given: str | Path, launch: Launch, before: ToolArguments | None, best: ToolArguments
) -> EditedFile:
    """The launch of a server with the better deployment's flags."""
    text = launch_text(given, are_read())
    pair = tuple({} if one is None else flags_of(one.text) for one in (before, best))
    meant = {row.name: row.value for row in read_launch(best.text).values}
    told = {name: meant.get(name, "1") for name in ("tp", "pp", "dp", "ep", "cp")}
    told |= {name: meant[name] for name in ("max_batch", "max_tokens") if name in meant}
    return _edited(given, text, launch, (pair[0], pair[1]), lambda rows: _says(rows, told, "1"))


def _edited(
    given: str | Path,
    text: str,
    launch: Launch,
    keys: tuple[Mapping[str, str], Mapping[str, str]],
    says: Callable[[Mapping[str, str]], bool],
) -> EditedFile:
    """The file with the keys that differ; where one is in a file that the launch only names, or the changed
    text does not read back as meant, the changes are alone and a note says so."""
    place = Path(given) if text != str(given) else None
    files = files_beside(text, place) if place else ()
    wanted = changed_keys(table_of(launch.tool), lambda key: has_key(text, key), *keys)
    rows = sorted(launch.values, key=lambda row: row.name != "micro_batch")
    said = [key for row in rows for key in row.key.split(", ") if key]
    lines = {row.key.split(", ")[0]: row.line for row in launch.values if row.line}
    # What the text says already, where the launch as it is was not predicted, is no change.
    wanted = {k: v for k, v in wanted.items() if edited_launch(text, {k: v}, said, lines) != text}
    changes = tuple(
        FlagChange(
            flag=_shown(key, text),
            before=next(
                (keys[0][one] for one in (key, *_alike(launch, key)) if one in keys[0]), None
            )
            if has_key(text, key) or _place(key, text, files)
            else None,
            after="on" if value == "" else value,
        )
        for key, value in wanted.items()
    )
    places = {key: _place(key, text, files) for key in wanted}
    here = {key: value for key, value in wanted.items() if not places[key]}
    notes = [f"{key} is in {place}: change it there" for key, place in places.items() if place]
    changed = edited_launch(text, here, said, lines) or ""
    if not changed or not _reads(changed, place, launch, says, whole=len(here) == len(wanted)):
        notes.append(f"the file of {launch.tool} is not changed here: set these keys in yours")
        changed = ""
    written = ToolArguments(tool=launch.tool, text=changed, notes=tuple(notes), called=launch.tool)
    return EditedFile(written=written, changes=changes)


def _alike(launch: Launch, key: str) -> list[str]:
    """Keys of the tool that say the same field."""
    return [one for names in table_of(launch.tool).fields.values() if key in names for one in names]


def flags_of(text: str) -> dict[str, str]:
    """Flags and keys of a written text with their values; "" stands for a flag alone."""
    return {key: _text(value) for key, value in parse_arguments(text).pairs if key not in STARTS}


STARTS = ("m", "model_path", "nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port")
"""What the start of a command says."""


def _text(value: Any) -> str:
    if value is True:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown(key: str, text: str) -> str:
    """A key as the text spells it, or as it would be added."""
    match = re.search(rf"--?{re.escape(key).replace('_', '[-_]')}(?![\w-])", text)
    if match:
        return match[0]
    flags = re.search(r"(?<![\w-])--\w", text) and not has_key(text, key) and "." not in key
    return flag_name(text, key) if flags else key


def _place(key: str, text: str, files: Sequence[NamedFile]) -> str:
    """The other file that a key is to be changed in; empty: in the launch itself."""
    if key in ELSEWHERE and not has_key(text, "zero_optimization"):
        own = next((one.name for one in files if has_key(one.content, "stage")), "")
        return own or "the DeepSpeed file that the launch names"
    if has_key(text, key):
        return ""
    return next((one.name for one in files if has_key(one.content, key)), "")


def _reads(
    text: str,
    given: Path | None,
    launch: Launch,
    says: Callable[[Mapping[str, str]], bool],
    *,
    whole: bool,
) -> bool:
    """Whether a changed text is read as the same tool's, with the values that were put into it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / (given.name if given else "launch")
        if given:  # what a file is, its ending says too
            path.write_text(text, encoding="utf-8")
        try:
            again = read_launch(path if given else text, tool=launch.tool, gpus=launch.gpus)
        except ProblemsError:
            return False
    return not whole or says({row.name: row.value for row in again.values})


def _says(rows: Mapping[str, str], told: Mapping[str, str], silent: str | None = None) -> bool:
    """Whether values that were read are those that were meant; `silent` is what no word says."""
    return all(
        rows.get(name, silent or value) == value or (value == "*" and rows[name] != "none")
        for name, value in told.items()
    )
