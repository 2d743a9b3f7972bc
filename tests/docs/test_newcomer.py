"""Ten tasks of a newcomer, by commands of README.md: each is answered, in its first lines."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, TERMINAL, blocks, commands, workspace
from tests.surfaces.command import Outcome, foretell

N = r"\d[\d,]*(?:\.\d+)?"
"""A number above or at 0, as the terminal prints it."""
TASKS = {
    "time and memory of a training run": (
        "estimate llama-3.1-70b --system h100-sxm --gpus 64 --tokens 1T",
        18,
        rf"\A{N} days for 1T tokens .*^days +{N} days   90%: {N} to .*^step time +{N} s .*^peak memory +{N} ",
    ),
    "the best plan": ("search ", 1, rf"\A{N} s a step with tp\d+ pp\d+ "),
    "the fewest GPUs of a service": ("size ", 3, rf"\A{N} x h200-sxm serve .*^meets TTFT .* ms"),
    "what to get for 10 M dollars": (
        "buy llama-3.1-70b --budget 10M --tokens 3T",
        3,
        rf"\A(Rent|Buy) {N} .* \({N} GPUs\).*costs {N}M USD.*done in {N} days",
    ),
    "a better launch file": ("improve examples/launch_megatron.sh", 1, rf"\A[+]{N}% throughput"),
    "sharper by a measured run": (
        'estimate llama-3.1-70b --gpus 64xH100 --plan "tp8 pp2 zero1 mbs2" --measured ',
        1,
        rf"\A{N} s a step, fits: llama-3.1-70b on 64 x h100-sxm",
    ),
    "what is wrong with a run": (
        "diagnose examples/megatron_run.log",
        1,
        r"\Astep time \d+% (above|below) predicted, (in|out)side the 90 % interval",
    ),
    "a LoRA fine-tune": ("post-train llama-3.1-8b --gpus 8xH100 --algorithm sft", 1, rf"\A{N} s a step, "),
    "GRPO on 8 GPUs": ("post-train llama-3.1-8b --gpus 8xH100 --algorithm grpo", 1, rf"\A{N} s a step, "),
    "a module of one's own": ("trace examples/my_module.py:build", 1, rf"\Abuild  {N} parameters"),
    "a step of that module": ("estimate my.foretell.json", 1, rf"\A{N} ms a step, fits: "),
    "which of two clusters to rent": (
        "compare hgx-h100 dgx-b200",
        1,
        rf"\A[\w-]+ is cheapest, rented on-demand: {N} USD per million tokens, {N}% less than",
    ),
}  # fmt: skip
"""Task -> how its command begins, how many lines that are not blank the answer may take, what they say."""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What looks like a clone, where the commands run in the order of the page."""
    place = tmp_path_factory.mktemp("clone")
    workspace(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, value in TERMINAL.items():
            patch.setenv(name, value)
        yield place


def shown() -> list[str]:
    """What README.md types after ./foretell."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    typed = [
        one.text for block in blocks(page) if block.language == "console" for one in commands(block)
    ]
    return [text.removeprefix("./foretell ") for text in typed]  # fmt: skip


def answered(begins: str) -> Outcome:
    """The answer of the one command of the page that begins so."""
    found = [text for text in shown() if text.startswith(begins)]
    assert len(found) == 1, f"README.md has {len(found)} commands that begin with: {begins}"
    return foretell(*shlex.split(found[0], comments=True))


@pytest.mark.parametrize("task", TASKS)
def test_the_first_lines_are_the_answer(task: str) -> None:
    begins, many, says = TASKS[task]
    if "module" in task:
        pytest.importorskip("torch")
    if begins.startswith("estimate my.") and not Path("my.foretell.json").exists():
        answered(TASKS["a module of one's own"][0])
    done = answered(begins)
    assert (done.code, done.err) == (0, "")
    lines = [line.rstrip() for line in done.out.splitlines() if line.strip()]
    assert re.search(says, "\n".join(lines[:many]), re.MULTILINE | re.DOTALL), lines[:many]
    assert not re.search(r"\b(nan|inf|None|Traceback)\b", done.out)
