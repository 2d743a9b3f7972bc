"""Many inputs of a seed of one's own: `python -m tests.fuzz readers|commands|web --inputs N --seed S`.

readers    mutated files and texts through every reader, as tests/fuzz/test_readers.py does
commands   the example of each verb with words changed, doubled, gone or odd, run in this process
web        questions to every operation of the server, whose worker processes must stay the same

Prints what was answered and refused and every fault, and exits 1 where there is one.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretell.cli.app import EXAMPLES
from foretell.cli.dispatch import ANSWERED, BAD_INPUT, FAULT, NO, run
from foretell.specs.questions import QUESTIONS, question_type
from foretell.specs.questions.flags import QuestionField, edges_of, fields_of
from tests.fuzz.harness import KILLED_S, Hang, fuzz
from tests.fuzz.later_readers import calibration_readers, later_readers
from tests.fuzz.mutate import ODD
from tests.fuzz.readers import Reader, own_readers, table_readers

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
SLOW = (
    "calibrate measure",
    "reproduce",
    "translate",
    "codesign",
    "optimise",
    "sweep",
    "changed",
    "trace",
)
"""Verbs that measure, train or run for minutes: their readers are among `readers`."""
NO_NUMBER = re.compile(r"(?<![\w./-])[-+]?(?:nan|inf)(?![\w.-])", re.IGNORECASE)
"""What no answer shows."""
NUMBERS = (
    "0", "1", "2", "3", "7", "8", "16", "64", "1000", "0.5", "1.5", "1e-9", "-1", "1e6", "1e12",
    "99999999999", "1e308", "1e400", "nan", "inf", "1k", "2M", "10%", "x", "",
)  # fmt: skip
"""Values of flags that take a number."""
PLANS = (
    "tp8 pp4 zero1 mbs1", "tp2", "zero3 mbs1", "tp1 pp2 schedule=zb-h1", "lora=16 mbs2", "ep8 zero1",
    "tp8 dp0", "cp2 recompute=full", "offload=optimizer zero3", "precision=fp8 tp4", "weights=fp8 kv=fp8 tp4",
    "tp2 ep2", "max_batch=1 tp2", "memory_fraction=0.01", "vpp9 pp2", "layout=1,2", "tp", "=",
)  # fmt: skip
SETTINGS = """
chip.memory_bytes=0 chip.memory_bytes=1GB network.node.latency_s=nan network.node.size=1 plan.tp=1e9 x=1
chip.matrix_flop_per_s.bf16=1e30 chip.memory_bandwidth_bytes_per_s=1e-30 job.seq_len=1 model.hidden_size=7
model.num_hidden_layers=1 prices.pue=0 host.step_s=1e9 chip.tdp_watts=1 chip.mtbf_s=1e-3 engine.host_s=1e9
""".split()
TEXTS = (
    """
tp2 pp2: 3.1 s|tp8: 0 s|c64 tp4: ttft 310 ms, tpot 18 ms|55 % MFU|h100-sxm|tpu-v5p|b200-sxm|gpt2|deepseek-v3
mamba2-1.3b|vllm|sglang|poisson|burst|lognormal|spot|own|turns=8 pause=5 new=500|host:1TB@50GB/s|min=1 max=4
60s|2x1280x720|mtp:3|gpus=8,16|adamw|p99|all-to-all|1 MiB|../x|/dev/null|grpo|dpo|sft
""".strip()
    .replace("\n", "|")
    .split("|")
)
"""Values of all others."""


def readers(folder: Path) -> list[Reader]:
    """Every reader; those of published tables where these are at hand."""
    found = [*own_readers(folder), *later_readers(folder)]
    if DATA.is_dir():
        found += [*table_readers(folder, DATA), *calibration_readers(folder, DATA)]
    return found


def fuzz_readers(inputs: int, seed: int) -> Iterator[tuple[str, str]]:
    """What became of inputs shared among all readers, and the faults of each."""
    with tempfile.TemporaryDirectory() as folder:
        every = readers(Path(folder))
        for reader in every:
            try:
                told = fuzz(reader.name, reader.read, reader.seeds, -(-inputs // len(every)), seed)
            except AssertionError as error:
                yield "fault", str(error)
                continue
            yield from ((kind, "") for kind, many in told.items() for _ in range(many))


def changed_words(chance: random.Random, verb: str, words: list[str]) -> list[str]:
    """A command with flags of its verb beside its own, or a word or two otherwise."""
    words = [*words]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.random()
        numbers = [i for i, word in enumerate(words) if word[:1].isdigit()]
        if kind < 0.7 and verb in QUESTIONS:
            record = question_type(verb)
            field = chance.choice([*fields_of(record), *edges_of(record)])
            if field.on("command") and not field.positional and field.flag.names_file != "always":
                words += flag_words(chance, field)
        elif kind < 0.85 and numbers:
            words[chance.choice(numbers)] = chance.choice(NUMBERS)
        elif words:
            odd = chance.choice(ODD).decode("utf-8", "replace").replace("\x00", "")[:400]
            words[chance.randrange(len(words))] = chance.choice((odd, *TEXTS))
    return [*verb.split(), *words]


def flag_words(chance: random.Random, field: QuestionField) -> list[str]:
    """A flag with a value that it may take, or may not."""
    name = f"--{field.called.replace('_', '-')}"
    match field.flag.kind:
        case "switch":
            return [name]
        case "whole" | "count" | "decimal" | "amount" | "price":
            return [name, chance.choice((*NUMBERS[:11], *NUMBERS))]
        case "settings":
            return [name, chance.choice(SETTINGS)]
        case "words":
            return [name, chance.choice(PLANS)]
    return [name, chance.choice((*TEXTS, *TEXTS, *NUMBERS, *PLANS))]


def fuzz_commands(inputs: int, seed: int) -> Iterator[tuple[str, str]]:
    """What became of changed commands; a fault is exit code 70, another code than those of the help, a number
    that is none, or no answer in time."""
    chance = random.Random(seed)
    known = [verb for verb in EXAMPLES if not verb.startswith(SLOW)]
    signal.signal(signal.SIGVTALRM, _too_long)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(ROOT / "examples")
        for number in range(inputs):
            verb = known[number % len(known)]
            words = changed_words(chance, verb, shlex.split(EXAMPLES[verb]))
            yield _ran(words)


def _too_long(*_: object) -> None:
    raise Hang


def _ran(words: list[str]) -> tuple[str, str]:
    """What became of one command."""
    out, err = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_VIRTUAL, 6 * KILLED_S)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            code = run(words)
    except (Hang, SystemExit, Exception) as error:  # noqa: BLE001 - whatever it is, it is a fault
        return "fault", f"{shlex.join(words)}: {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if code not in (ANSWERED, NO, BAD_INPUT) or code == FAULT:
        return "fault", f"{shlex.join(words)}: exit {code}: {err.getvalue()[-300:]}"
    if code == BAD_INPUT and (out.getvalue() or not err.getvalue().startswith("error: ")):
        return "fault", f"{shlex.join(words)}: exit 2 with {out.getvalue()[:100]!r}"
    if code == ANSWERED and (hit := NO_NUMBER.search(out.getvalue())):
        return "fault", f"{shlex.join(words)}: shows {hit[0]!r}"
    return "answers" if code != BAD_INPUT else "refused", ""


def children() -> set[int]:
    """Processes that this one started."""
    return {
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    }


def fuzz_web(inputs: int, seed: int) -> Iterator[tuple[str, str]]:
    """What became of questions to the server; another status than those described, a number that is none, or
    a worker that is not the one of before is a fault."""
    from tests.web.client import client
    from tests.web.test_schema import DESCRIBED, ENOUGH, OF, PLACE, PLAUSIBLE, quick

    chance = random.Random(seed)
    with client(processes=True) as made:
        paths = made.get("/openapi.json").json()["paths"]
        posts = [path for path, methods in paths.items() if "post" in methods]
        made.post("/api/estimate", json=PLACE)
        workers = children()
        for number in range(inputs):
            path = posts[number % len(posts)]
            name = path.split("/")[-1]
            body: dict[str, Any] = dict(ENOUGH.get(OF.get(name, name), PLACE))
            for field in chance.sample([*PLAUSIBLE], chance.choice((0, 1, 2, 3))):
                odd = chance.random() < 0.3
                body[field] = chance.choice((None, "", -1, 1e308, [], {}, "x" * 999, True)) if odd else (
                    chance.choice(PLAUSIBLE[field])
                )  # fmt: skip
            if body and chance.random() < 0.1:
                body.pop(chance.choice([*body]))
            reply = made.post(path, json=quick(body))
            text = f"{path} {json.dumps(body)[:400]}: {reply.status_code} {reply.text[:200]}"
            wrong = reply.status_code not in DESCRIBED | {404}
            bare = "json" in reply.headers["content-type"] and re.search(
                r"[:\[,] ?-?(NaN|Infinity)\b", reply.text
            )
            if wrong or bare:
                yield "fault", text
            elif children() != workers:
                yield "fault", f"a worker ended: {text}"
                workers = children()
            else:
                yield "answers" if reply.status_code == 200 else "refused", ""


KINDS = {"readers": fuzz_readers, "commands": fuzz_commands, "web": fuzz_web}


def main(arguments: list[str]) -> int:
    """Run one kind; a line for each fault as it is found, then the counts."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    given = parser.parse_args(arguments)
    told: Counter[str] = Counter()
    for kind, text in KINDS[given.kind](given.inputs, given.seed):
        told[kind] += 1
        if text:
            print(text, flush=True)
    print(f"{given.kind} --seed {given.seed}: {dict(told)}")
    return 1 if told["fault"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
