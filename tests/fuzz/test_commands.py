"""Changed commands and questions of `python -m tests.fuzz`, a few of each, and commands that faulted."""

import shlex
import warnings

import pytest

from foretell.cli.dispatch import BAD_INPUT, run
from tests.fuzz.__main__ import ROOT, fuzz_commands, fuzz_web


def test_changed_commands_answer_or_say_what_is_wrong() -> None:
    found = list(fuzz_commands(30, 5))
    assert not [text for kind, text in found if kind == "fault"]
    assert {kind for kind, _ in found} == {"answers", "refused"}


@pytest.mark.full
def test_many_questions_to_a_server_leave_its_workers_as_they_are() -> None:
    assert not [text for kind, text in fuzz_web(10_000, 6) if kind == "fault"]


@pytest.mark.full
def test_many_changed_commands() -> None:
    assert not [text for kind, text in fuzz_commands(3000, 7) if kind == "fault"]


@pytest.mark.parametrize(
    "command",
    [
        "fleet examples/fleet.toml --system h100-sxm --available 2M",
        "fleet examples/fleet.toml --system h100-sxm --available 1.5",
        "post-train qwen2.5-7b --algorithm grpo --gpus 32xH100 --samples 16 --osl inf",
        "post-train qwen2.5-7b --algorithm grpo --gpus 32xH100 --samples 16 --price 1e400",
        "post-train qwen2.5-7b --algorithm grpo --gpus 32xH100 --samples 16 --filtered x",
        "post-train qwen2.5-7b --algorithm grpo --gpus 32xH100 --samples 16 --tool-time nan:3",
        "cost run llama-3.1-8b --gpus 64xH100 --tokens 1T --rent own --storage-bandwidth 3",
    ],
)
def test_commands_that_faulted(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = run(shlex.split(command))
    found = capsys.readouterr()
    assert (code, found.out) == (1 if "cost run" in command else BAD_INPUT, "")
    assert found.err.startswith("error: ")
