"""The user's own file with the keys of a better plan: for trainers whose launch is a file of theirs."""

from collections.abc import Sequence
from pathlib import Path

from foretell.api.answers import Estimate
from foretell.api.flag_changes import FlagChange, value_changes
from foretell.api.launch_files import files_beside
from foretell.api.launches import launch_text, read_launch
from foretell.errors import ProblemsError
from foretell.interop.edited_launch import edited_launch, has_key
from foretell.interop.launch import Launch, NamedFile, ToolArguments
from foretell.interop.trainer_keys import trainer_keys
from foretell.interop.user_files import are_read

ELSEWHERE = ("zero_optimization.stage",)
"""Keys of files that a launch names and that are not its own."""


def edited_file(
    given: str | Path, launch: Launch, before: Estimate | None, best: Estimate
) -> tuple[ToolArguments, tuple[FlagChange, ...]]:
    """The launch with the better plan's keys, read again to see that it says it; and what changes.

    Where a key is in a file that the launch only names, or the changed text does not read back as the plan,
    the changes stand alone and a note says so.
    """
    ones = [
        {} if one is None else trainer_keys(launch, one.plan, one.global_batch)
        for one in (before, best)
    ]
    changes = value_changes(*ones)
    text = launch_text(given, are_read())
    files = files_beside(text, Path(given)) if text != str(given) else ()
    places = {one.flag: _place(one.flag, text, files) for one in changes}
    wanted = {one.flag: one.after for one in changes if not places[one.flag]}
    notes = [f"{key} is in {place}: change it there" for key, place in places.items() if place]
    said = [key for row in launch.values for key in row.key.split(", ") if key]
    text = edited_launch(text, wanted, said) or ""
    if not text or not _says(text, launch, best, wanted):
        notes.append(f"the file of {launch.tool} is not changed here: set these keys in yours")
        text = ""
    written = ToolArguments(tool=launch.tool, text=text, notes=tuple(notes), called=launch.tool)
    return written, changes


def _place(key: str, text: str, files: Sequence[NamedFile]) -> str:
    """The other file that a key is to be changed in; empty: in the launch itself."""
    if key in ELSEWHERE:
        own = next((one.name for one in files if has_key(one.content, "stage")), "")
        return own or "the DeepSpeed file that the launch names"
    if has_key(text, key):
        return ""
    return next((one.name for one in files if has_key(one.content, key)), "")


def _says(text: str, launch: Launch, best: Estimate, wanted: dict[str, str | None]) -> bool:
    """Whether a changed text, read as any other, has the values that were put into it."""
    try:
        again = read_launch(text, tool=launch.tool, gpus=launch.gpus or best.gpus, files=False)
    except ProblemsError:
        return False
    rows = {row.name: row.value for row in again.values}
    plan = best.plan
    told = {"micro_batch": str(plan.micro_batch), "global_batch": str(best.global_batch)}
    if any("checkpointing" in key or "checkpoint" in key for key in wanted):
        told["recompute"] = "none" if plan.recompute == "none" else "full"
    return all(rows.get(name, value) == value for name, value in told.items())
