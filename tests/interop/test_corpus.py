"""Public launch files as people write them, where they are at hand: how many are read, and that no key is
lost."""

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.api.launches import read_launch
from foretell.errors import BadInput
from foretell.interop.launch import Launch

DATA = Path(os.environ.get("FORETELL_DATA") or Path(__file__).parents[3] / "shared" / "data")
CORPUS = DATA / "launches"
pytestmark = pytest.mark.skipif(
    not (CORPUS / "index.csv").is_file(), reason="shared/data/launches is not here"
)
PLANTED, WRONG = "flux_capacitor_rule", 60
"""A key that no tool has, and files that it is planted in."""


def launches() -> Iterator[tuple[Path, Launch | None, bool]]:
    """Every file, what was read of it, and whether it launches a language model."""
    with (CORPUS / "index.csv").open(newline="") as rows:
        for row in csv.DictReader(rows):
            path = CORPUS / row["file"]
            try:
                yield path, read_launch(path), "not an LLM launch" not in row["launches"]
            except BadInput:
                yield path, None, "not an LLM launch" not in row["launches"]


def test_most_files_are_read_or_ask_for_what_they_lack() -> None:
    every = [(launch, model) for _, launch, model in launches()]
    wanted = [launch for launch, model in every if model]
    good = [one for one in wanted if one and not one.not_understood and len(one.asks) <= 5]
    assert len(good) >= 0.75 * len(wanted), len(good) / len(wanted)
    assert not any(
        one is not None and not one.not_understood and not one.asks
        for one, model in every
        if not model
    )


def misspelt(key: str) -> str:
    """A key with two letters exchanged."""
    front, dot, last = key.rpartition(".")
    at = len(last) // 2
    return front + dot + last[:at] + last[at + 1] + last[at] + last[at + 2 :]


def with_key(text: str, key: str, line: int, new: str, *, python: bool) -> str | None:
    """A text with another key before one that it has, in the form that this has; None where it has
    another."""
    lines = text.splitlines()
    here, last = lines[line - 1], key.rpartition(".")[2]
    spelt = re.escape(last).replace("_", "[-_]")
    name = new.rpartition(".")[2]
    forms = (
        (rf"--({re.escape(key).replace('_', '[-_]')})(?=[ =])", f"--{new} 3 "),
        (rf"(?<![\w.]){re.escape(key)}\s*=", f"{new}=3, " if python else f"{new}=3 "),
        (rf'"{spelt}"\s*:', f'"{name}": 3, '),
    )
    for pattern, added in forms:
        match = re.search(pattern, here)
        if match:
            lines[line - 1] = here[: match.start()] + added + here[match.start() :]
            return "\n".join(lines)
    match = re.match(rf"(\s*){spelt}\s*:", here)
    if match:
        lines.insert(line - 1, f"{match[1]}{name}: 3")
        return "\n".join(lines)
    return None


def named(launch: Launch, key: str) -> bool:
    """Whether a key is named as unknown, and not as of no bearing."""
    last = key.rpartition(".")[2]
    told = any(one.rpartition(".")[2] == last for one in launch.unknown)
    quiet = any(one.rpartition(".")[2] == last for one in (*launch.ignored, *launch.unmodelled))
    return (told or any(last in text for text in launch.not_understood)) and not quiet


def test_planted_and_misspelt_keys_are_named(tmp_path: Path) -> None:
    tried, lost = 0, []
    for path, launch, _ in launches():
        if launch is None or tried >= WRONG:
            continue
        rows = [
            row
            for row in launch.values
            if row.line
            and row.origin == "file"
            and row.name not in ("model", "gpus")
            and len(row.key.split(", ")[0].rpartition(".")[2]) > 7
        ]
        text = path.read_text(errors="replace")
        for row in rows:
            key = row.key.split(", ")[0]
            front = key.rpartition(".")[0]
            new = f"{front}.{PLANTED}" if front else PLANTED
            news = (new, misspelt(key))
            changed = [
                with_key(text, key, row.line or 1, one, python=path.suffix == ".py") for one in news
            ]
            if None in changed:
                continue
            tried += 1
            for one, told in zip(news, changed, strict=True):
                file = tmp_path / path.name
                file.write_text(told or "")
                try:
                    if not named(read_launch(file), one):
                        lost.append((path.name, one))
                except BadInput as error:
                    if one.rpartition(".")[2] not in str(error):
                        lost.append((path.name, one))
            break
    assert tried >= WRONG
    assert not lost
