"""Public launch files, where they are at hand: scripts start something, quickly, and lines are right."""

import csv
import re
import time
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.interop.forms import LaunchContents, read_form

SCRIPTS = (".sh", ".slurm", ".sbatch")


@pytest.fixture(scope="module")
def forms(data_dir: Path) -> dict[Path, tuple[LaunchContents | None, float]]:
    """Every file with its contents, None where they are refused, and the CPU seconds that it took."""
    corpus = data_dir / "launches"
    if not (corpus / "index.csv").is_file():
        pytest.skip(f"no launch files at {corpus}")
    found: dict[Path, tuple[LaunchContents | None, float]] = {}
    with (corpus / "index.csv").open(newline="") as rows:
        for row in csv.DictReader(rows):
            path, began = corpus / row["file"], time.process_time()
            try:
                contents: LaunchContents | None = read_form(path)
            except BadInput:
                contents = None
            found[path] = contents, time.process_time() - began
    return found


def test_scripts_start_something(
    forms: dict[Path, tuple[LaunchContents | None, float]],
) -> None:
    scripts = [one for path, (one, _) in forms.items() if path.suffix in SCRIPTS]
    started = [one for one in scripts if one is not None and one.processes]
    assert len(started) >= 0.97 * len(scripts)
    assert all(one is not None for one, _ in forms.values())


def test_reading_a_form_is_quick(
    forms: dict[Path, tuple[LaunchContents | None, float]],
) -> None:
    seconds = sorted(taken for _, taken in forms.values())
    assert seconds[len(seconds) // 2] < 0.02


def test_words_stand_on_their_lines(
    forms: dict[Path, tuple[LaunchContents | None, float]],
) -> None:
    """A flag is on the line that it says, but for those that a launcher's own file or a chart spells."""
    seen = wrong = 0
    for path, (contents, _) in forms.items():
        lines = path.read_text(errors="replace").splitlines()
        for process in contents.processes if contents else ():
            for word in process.argv:
                flag = re.match(r"--[\w.-]+", word.text)
                if flag is None or not word.line:
                    continue
                seen += 1
                near = "".join(lines[max(word.line - 1, 0) : word.line]).replace("-", "_")
                wrong += flag[0].lstrip("-").replace("-", "_") not in near
    assert seen > 3000
    assert wrong <= 0.005 * seen, wrong
