"""Does `improve` return the user's own file with the printed lines changed, and does the tool take it?

`python tools/check_improve.py CORPUS [OUT]` runs `foretell improve` on every launch of a folder (index.csv
with a column `file`), on H100s where the file names no chip, with 8 GPUs, a model and a length where it asks.
Printed for each: whether the lines that differ are those of the table of changes and no others, and what the
tool's own parser says of the result where the tool is installed. OUT is a folder that keeps the edited files.
"""

import csv
import difflib
import json
import re
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import foretell
from foretell.api.improvement import FlagChange
from foretell.interop.arguments import parse_arguments
from foretell.interop.launch import Launch

SECONDS = 120
"""What one launch may take."""


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """(lines taken out, lines put in)."""
    rows = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return (
        [r[2:] for r in rows if r.startswith("- ")],
        [r[2:] for r in rows if r.startswith("+ ")],
    )


def equals_table(before: str, after: str, changes: Sequence[FlagChange]) -> bool:
    """Whether every line that differs has a flag of the table, its value, or the variable that it is."""

    def plain(text: str) -> str:
        return text.replace("-", "_")

    flags = {plain(part.lstrip("-")).rpartition(".")[2] for c in changes for part in c.flag.split()}
    values = {str(value) for c in changes for value in (c.before, c.after) if value}
    lines = [line for line in before.splitlines() if any(flag in plain(line) for flag in flags)]
    names = {name for line in lines for name in re.findall(r"\$\{?(\w+)", line)}
    return all(
        any(flag in plain(line) for flag in flags)
        or line.strip(" -\"',") in values
        or re.split(r"\s*=", line.strip().removeprefix("export "))[0] in names
        for part in changed_lines(before, after)
        for line in part
        if line.strip()
    )


def command_words(text: str) -> list[str]:
    """Flags of a command and their values as words."""
    pairs = [(k, v) for k, v in parse_arguments(text).pairs if not k.startswith("$")]
    values = {k: [] if v is True else v if isinstance(v, list) else [v] for k, v in pairs}
    return [word for key, held in values.items() for word in (f"--{key}", *map(str, held))]


def parse_transformers(launch: Launch, text: str) -> str:
    """What HfArgumentParser says of the flags of a trainer's command."""
    from transformers import HfArgumentParser, TrainingArguments

    kinds: list[Any] = [TrainingArguments]
    if launch.tool == "trl":
        import trl

        kinds = [trl.SFTConfig if "dpo" not in text.lower() else trl.DPOConfig, trl.ModelConfig]
    words = command_words(text)
    HfArgumentParser(kinds).parse_known_args(words)
    return "accepted"


def parse_axolotl(launch: Launch, text: str) -> str:
    """What axolotl's schema says of a configuration."""
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig  # type: ignore[import-not-found]

    AxolotlInputConfig(**yaml.safe_load(text))
    return "accepted"


def parse_llamafactory(launch: Launch, text: str) -> str:
    """What LLaMA-Factory's parser says of a configuration."""
    import yaml
    from llamafactory.hparams import parser  # type: ignore[import-not-found]

    parser.HfArgumentParser(parser._TRAIN_ARGS).parse_dict(
        yaml.safe_load(text), allow_extra_keys=False
    )
    return "accepted"


def parse_torchtitan(launch: Launch, text: str) -> str:
    """What torchtitan's configuration says of a TOML file."""
    import tomllib

    import tyro
    from torchtitan.config.job_config import JobConfig  # type: ignore[import-not-found]

    words = [
        f"--{section}.{key}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for section, held in tomllib.loads(text).items()
        for key, value in held.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    tyro.cli(JobConfig, args=words)
    return "accepted"


def parse_deepspeed(launch: Launch, text: str) -> str:
    """What DeepSpeed's configuration says of a JSON file."""
    from deepspeed.runtime.config import DeepSpeedConfig  # type: ignore[import-not-found]

    DeepSpeedConfig(json.loads(text))
    return "accepted"


def parse_engine(launch: Launch, text: str) -> str:
    """What an engine's own parser says of its command's flags."""
    words = [one.replace("_", "-") if one[:2] == "--" else one for one in command_words(text)]
    if launch.tool == "sglang":
        import argparse

        from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
    else:
        from vllm.engine.arg_utils import AsyncEngineArgs  # type: ignore[import-not-found]
        from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

        parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    _, left = parser.parse_known_args(words)
    return "accepted" if not left else f"accepted but for {left[:6]}"


PARSERS: dict[str, Callable[[Launch, str], str]] = {
    "trainer": parse_transformers, "trl": parse_transformers, "axolotl": parse_axolotl,
    "llamafactory": parse_llamafactory, "torchtitan": parse_torchtitan, "deepspeed": parse_deepspeed,
    "vllm": parse_engine, "sglang": parse_engine,
}  # fmt: skip
"""Tools whose own parser is asked."""


def parsed(launch: Launch, text: str) -> str:
    """What the tool's own parser says."""
    if launch.tool not in PARSERS:
        return "no parser"
    try:
        return PARSERS[launch.tool](launch, text)
    except ImportError as error:
        return f"not installed ({error.name})"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a parser raises is its refusal
        return f"REFUSED {type(error).__name__}: {str(error)[:300]}"


def beside(launch: Launch) -> dict[str, Any] | None:
    """What a user would add to a launch that asks for GPUs, a model or a length; None where it needs more."""
    answers: dict[str, dict[str, Any]] = {
        "--gpus": {"gpus": 8}, "MODEL": {"model": "llama-3.1-8b"}, "--seq-len": {"seq_len": 4096},
    }  # fmt: skip
    given: dict[str, Any] = {} if launch.accelerator else {"system": "h100-sxm"}
    for ask in launch.asks:
        found = next((value for name, value in answers.items() if name in ask), None)
        if found is None:
            return None
        given |= found
    named = launch.models or launch.table
    return None if launch.not_understood else given if named else {"model": "llama-3.1-8b", **given}


def main() -> None:
    """Run every launch and print the counts."""
    root = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    counts: Counter[str] = Counter()

    def ring(number: int, frame: types.FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    for row in csv.DictReader((root / "index.csv").open(newline="")):
        path = root / row["file"]
        try:
            launch = foretell.read_launch(path)
        except foretell.BadInput:
            continue
        try:
            post = (launch.post_training or {}).get("algorithm")
            given = beside(launch)
            if given is None or launch.generates or post in ("grpo", "ppo"):
                continue
            signal.alarm(SECONDS)
            found = foretell.improve(str(path), **given)
            text = path.read_text()
            flags = [change.flag for change in found.changes]
            exact = equals_table(text, found.export, found.changes)
            same = not found.export or (exact and bool(flags) == (found.export != text))
            kind = (
                "edited"
                if found.export and found.export != text
                else "best already"
                if not flags
                else "table alone"
            )
            told = parsed(launch, found.export) if kind == "edited" else ""
            if told.startswith("REFUSED") and parsed(launch, text) == told:
                told = f"as the file before: {told}"
            if not same:
                kind += ", diff is not the table"
            if out is not None and found.export:
                out.mkdir(exist_ok=True)
                (out / path.name).write_text(found.export)
        except foretell.BadInput as error:
            kind, told = "refused", str(error)[:160]
        except foretell.Infeasible as error:
            kind, told = "nothing runs", str(error)[:160]
        except TimeoutError:
            kind, told = "slow", ""
        finally:
            signal.alarm(0)
        counts[kind] += 1
        counts[f"parser: {told[:8]}"] += bool(told) and kind.startswith("edited")
        print(f"{kind:24s} {launch.tool:12s} {path.name[:90]}  {told[:300]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
