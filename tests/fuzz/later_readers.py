"""Readers of launch files, logs, benchmarks, fleets and stored answers, with inputs that are right."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.readers import Reader, in_file
from tests.lab.characterize.test_logs import DEEPSPEED, MEGATRON

ROOT = Path(__file__).parents[2]
LAUNCHES = ROOT / "tests" / "interop" / "launches"
EXAMPLES = ROOT / "examples"
MOONCAKE = "\n".join(
    json.dumps({"timestamp": 500 * i, "input_length": 900 + i, "output_length": 20, "hash_ids": [0, i]})
    for i in range(3)
)  # fmt: skip
BAILIAN = "\n".join(
    json.dumps({"timestamp": 0.5 * i, "input_length": 90, "output_length": 20, "hash_ids": [0, i],
                "chat_id": i, "parent_chat_id": i - 1, "type": "text", "turn": 1})
    for i in range(3)
)  # fmt: skip
BENCHMARK = json.dumps(
    {"backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 64, "max_concurrency": 8,
     "duration": 12.5, "completed": 64, "total_input_tokens": 64000, "total_output_tokens": 6400,
     "request_throughput": 5.1, "output_throughput": 512.0, "mean_ttft_ms": 80.5, "p99_ttft_ms": 140.0,
     "mean_tpot_ms": 9.1, "p99_tpot_ms": 12.0, "input_lens": [1000] * 4, "output_lens": [100] * 4,
     "ttfts": [0.08, 0.09], "itls": [[0.01, 0.02], [0.03]], "errors": ["", ""]},
)  # fmt: skip
INLINE = (
    "tp8 pp4 zero1 mbs1: 15.2 s, 61 GiB",
    "c64 tp4: ttft 310 ms, tpot 18 ms, 1200 tok/s",
    "55 % MFU",
)


def later_readers(folder: Path) -> list[Reader]:
    """Every launch file that a test has the truth of, and everything else that a user may hand over."""
    return [*launch_readers(folder), *measured_readers(folder), *stored_readers(folder)]


def launch_readers(folder: Path) -> list[Reader]:
    """One reader a file: each tool, wrapper and ending."""
    from foretell.api.launches import read_question
    from foretell.api.post_training_launches import read_post_training

    truths: dict[str, Any] = tomllib.loads(
        (LAUNCHES.parent / "launch_truths.toml").read_text(encoding="utf-8")
    )

    def asks(truth: dict[str, Any]) -> Callable[[Path], object]:
        given = {"model": None, "plan": None, **truth.get("beside", {})}
        post = {"model": None, "plan": None, "system": "h100-sxm", **truth.get("beside", {})}

        def read(path: Path) -> object:
            if "post" in truth:
                read_post_training(path, post)
            return read_question(path, given, serving=truth["kind"] == "serving")

        return read

    return [
        Reader(
            name=f"launch file {name}",
            seeds=((LAUNCHES / name).read_bytes(),),
            read=in_file(folder, f"launches/{name}", asks(truth)),
        )
        for name, truth in truths.items()
    ]


def measured_readers(folder: Path) -> list[Reader]:
    """Logs of training and of RL, benchmarks of services, traces of requests, inline words."""
    from foretell.api.measured_files import read_measured
    from foretell.lab.characterize.traces.logs import read_log
    from foretell.serving.requests.traces import read_trace

    bench = (EXAMPLES / "vllm_bench.json").read_bytes()
    names = ("megatron_run.log", "megatron_timers.log", "vllm_boot.log")
    logs = [(EXAMPLES / name).read_bytes() for name in names]
    phases = ["\n".join(lines).encode() for lines in (DEEPSPEED, MEGATRON)]
    found: list[tuple[str, list[bytes], Callable[[bytes], object]]] = [
        ("benchmark JSON", [bench, BENCHMARK.encode()], in_file(folder, "b.json", read_measured)),
        ("log", logs, in_file(folder, "run.log", read_measured)),
        ("log of phases", phases, in_file(folder, "phases.log", read_log)),
        ("Mooncake trace", [MOONCAKE.encode()], in_file(folder, "mooncake.jsonl", read_trace)),
        ("Bailian trace", [BAILIAN.encode()], in_file(folder, "bailian.jsonl", read_trace)),
        ("inline measurement", [text.encode() for text in INLINE], _inline),
    ]
    return [Reader(name=name, seeds=tuple(seeds), read=read) for name, seeds, read in found]


def _inline(content: bytes) -> object:
    from foretell.api.measured_files import read_measured

    return read_measured(content.decode("utf-8", "surrogateescape"))


def stored_readers(folder: Path) -> list[Reader]:
    """Fleets, and answers that were stored to be compared with later ones."""
    from foretell.api.fleet import read_fleet
    from foretell.lab.versions.changes import read_snapshot, take_snapshot
    from foretell.specs.questions import question_type

    question = ("estimate", {"model": "gpt2", "system": "h100-sxm", "gpus": 8, "plan": "mbs1"})
    stored = json.dumps(take_snapshot([question]).to_dict()).encode()

    def fleet(path: Path) -> object:
        return read_fleet(question_type("fleet")(str(path), system="h100-sxm"))

    return [
        Reader(
            name="fleet TOML",
            seeds=((EXAMPLES / "fleet.toml").read_bytes(),),
            read=in_file(folder, "fleet.toml", fleet),
        ),
        Reader(
            name="stored answers",
            seeds=(stored,),
            read=in_file(folder, "stored.json", read_snapshot),
        ),
    ]


def calibration_readers(folder: Path, data: Path) -> list[Reader]:
    """Readers of tables that `calibrate` and `validate post-training` take, with their first rows."""
    from foretell.lab.calibrate.collectives_rows import read_rows as collectives
    from foretell.lab.calibrate.dispatch_rows import is_dispatch_table, read_dispatches
    from foretell.lab.calibrate.kernel_files import read_kernels
    from foretell.lab.calibrate.serving_rows import read_rows as serving
    from foretell.lab.validate.post_training import read_cells
    from tests.fuzz.readers import _first_rows

    kinds: list[tuple[str, str, Callable[[Path], object]]] = [
        ("kernel rows", "kernels/*.csv*", read_kernels),
        ("dispatch rows", "kernels/*.csv*", lambda p: is_dispatch_table(p) and read_dispatches(p)),
        ("collective rows", "network/*.csv*", collectives),
        ("serving rows", "inference/*.csv*", serving),
        ("post-training rows", "*/*.csv*", read_cells),
    ]
    found: list[Reader] = []
    for name, pattern, read in kinds:
        seen: set[bytes] = set()
        for path in sorted(data.glob(pattern)):
            head = _first_rows(path)
            columns = head.partition(b"\n")[0]
            reader = in_file(folder, f"{name}/{path.name.removesuffix('.gz')}", read)
            if columns in seen or not _reads(reader, head):
                continue
            seen.add(columns)
            found.append(Reader(name=f"{name} {path.name}", seeds=(head,), read=reader))
    return found


def _reads(read: Callable[[bytes], object], head: bytes) -> bool:
    """Whether a table is of this reader's kind."""
    from foretell.errors import BadInput

    try:
        return bool(read(head))
    except (BadInput, KeyError, ValueError):
        return False
