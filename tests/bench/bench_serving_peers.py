"""How close Foretell and aiconfigurator are on the same measured services, in one run. Prints; never fails.

    PYTHONPATH=src:. python tests/bench/bench_serving_peers.py --peers-python PYTHON [--held-out] [FILE...]

PYTHON is an environment with aiconfigurator (`pip install aiconfigurator`). Rows are those of the tables with
both latencies at a fixed concurrency, one instance, no drafts, on systems that aiconfigurator has data of.
It is asked through its public `cli_estimate` in its aggregated mode: mean lengths of the benchmark (0.9 of
the nominal ones), the row's layout and formats, concurrency as its batch; measured tables first (SILICON),
where those lack a kernel with its own estimates beside them (HYBRID), on lines of their own. Foretell is
asked as `validate serving` asks it; `--held-out` predicts every row by profiles that were fitted without its
model. A row takes aiconfigurator about a second: `--every 4` asks a quarter of them, `--answers FILE` keeps
what it said.
"""

import argparse
import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from foretell.lab.calibrate.serving_cases import in_their_unit, predicted_all
from foretell.lab.calibrate.serving_fit import cases_of, left_out_profile_of
from foretell.lab.calibrate.serving_rows import read_rows

DATA = Path(__file__).parents[3] / "shared" / "data" / "inference"
TABLES = ("measured_serving.csv.gz", "measured_serving_2.csv.gz")
SYSTEMS = {"B200": "b200_sxm", "H200 SXM": "h200_sxm", "H100 SXM": "h100_sxm"}
"""Chip of a row -> aiconfigurator's name of it."""
MODELS = {
    "meta-llama/Llama-3.1-70B": "nvidia/Llama-3.1-70B-Instruct-FP8",
    "openai/gpt-oss-120b": "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
}
"""Model of a row -> the configuration that aiconfigurator ships. Llama's is NVIDIA's checkpoint in 8 bits,
which was served: its scales are static (`fp8_static`), its cache and its attention in 8 bits. Asked for `fp8`
of the base model, aiconfigurator adds a scaling pass to every product, half as long as a decode step."""
MEAN_LENGTH = 0.9
"""Mean length of the benchmark's requests over the nominal one: even between 0.8 and 1."""
PEER = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.ERROR)
from aiconfigurator.cli.api import cli_estimate
found = {}
for asked in json.load(sys.stdin):
    name = asked.pop("id")
    for mode in ("SILICON", "HYBRID"):
        try:
            told = cli_estimate(database_mode=mode, **asked)
            found[name] = [told.ttft, told.tpot, mode]
            break
        except Exception as error:
            found[name] = [None, None, type(error).__name__ + ": " + str(error)[:200]]
print("ANSWERS" + json.dumps(found))
"""


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Rows that both can be asked."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plain = row.get("speculative", "no") == "no" and row.get("disagg", "0") in ("", "0")
            known = row["model"] in MODELS and row["gpu"] in SYSTEMS
            if plain and known and row["kind"] == "online_concurrency" and row["ttft_ms"]:
                yield row


def question(row: dict[str, str]) -> dict[str, Any]:
    """A row as `cli_estimate` takes it."""
    told = row["dp_attn"].lower()
    tp, ep = int(row["tp"] or 1), int(row["ep"] or 1)
    # Tables count attention's ranks, 1 being plain tensor parallelism; some print them as tp as well.
    ranks = tp if told == "true" else int(told) if told.isdigit() else 1
    tp = 1 if ranks == tp else tp
    backend = row["framework"].split()[0].lower()
    asked: dict[str, Any] = {
        "id": row["id"], "model_path": MODELS[row["model"]], "system_name": SYSTEMS[row["gpu"]],
        "backend_name": backend,
        "isl": round(MEAN_LENGTH * float(row["isl"])), "osl": round(MEAN_LENGTH * float(row["osl"])),
        "batch_size": max(round(float(row["batch_or_concurrency"]) / ranks), 1),
        "tp_size": tp, "attention_dp_size": ranks,
    }  # fmt: skip
    if "Llama" in row["model"]:
        return asked | ({"gemm_quant_mode": "nvfp4"} if row["precision"] == "fp4" else {})
    if backend == "trtllm" and "DeepSeek" in row["model"]:
        asked["kvcache_quant_mode"] = (
            "fp8"  # as Foretell takes it, and the benchmark's scripts set it
        )
    return asked | {"moe_ep_size": ep, "moe_tp_size": max(tp * ranks // ep, 1)}


def peer_answers(python: str, rows: list[dict[str, str]]) -> dict[str, list[Any]]:
    """Both latencies of every row by aiconfigurator, or why not."""
    asked = json.dumps([question(row) for row in rows])
    done = subprocess.run(
        [python, "-c", PEER], input=asked, capture_output=True, text=True, check=True
    )
    line = next(text for text in done.stdout.splitlines() if text.startswith("ANSWERS"))
    found: dict[str, list[Any]] = json.loads(line.removeprefix("ANSWERS"))
    return found


def own_answers(path: Path, held_out: bool) -> dict[str, dict[str, float]]:
    """Both latencies of every row by Foretell."""
    cases = cases_of(read_rows(path))
    profile_of = left_out_profile_of() if held_out else lambda case: case.profile
    return {
        case.row.id: in_their_unit(case, figures)
        for case, figures in zip(cases, predicted_all(cases, profile_of), strict=True)
    }


def kept_answers(
    python: str, rows: list[dict[str, str]], file: Path | None
) -> dict[str, list[Any]]:
    """The same, with what a file has of an earlier run; the file is written where it lacks some."""
    known: dict[str, list[Any]] = json.loads(file.read_text()) if file and file.exists() else {}
    missing = [row for row in rows if row["id"] not in known]
    if missing:
        known |= peer_answers(python, missing)
    if file and missing:
        file.write_text(json.dumps(known))
    return known


def errors_of(
    row: dict[str, str], ours: dict[str, float], theirs: list[Any]
) -> tuple[float, float, float, float]:
    """TPOT and TTFT of Foretell, and of aiconfigurator; the median TTFT where a row has it."""
    seen = {"tpot": float(row["tpot_or_itl_ms"])}
    seen["ttft"] = float(row.get("ttft_median_ms") or row["ttft_ms"])
    said = (
        ("tpot", ours["tpot"]),
        ("ttft", ours["ttft"]),
        ("tpot", theirs[1]),
        ("ttft", theirs[0]),
    )
    first, second, third, fourth = (abs(value / seen[metric] - 1.0) for metric, value in said)
    return first, second, third, fourth


def main() -> None:
    """A line for each model, chip and engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers-python", required=True)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="every so many rows alone")
    parser.add_argument("--answers", type=Path, help="file that keeps what aiconfigurator answered")
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    errors: dict[str, list[tuple[float, float, float, float]]] = {}
    gone: dict[str, int] = {}
    for path in given.files or [DATA / name for name in TABLES]:
        rows = list(rows_of(path))[:: given.every]
        own = own_answers(path, given.held_out)
        peers = kept_answers(given.peers_python, rows, given.answers)
        for row in rows:
            kind = "dense" if "Llama" in row["model"] else "mixture"
            name = f"{kind} {row['model'].split('/')[-1]} {row['gpu']} {row['framework']}"
            theirs, ours = peers[row["id"]], own.get(row["id"], {})
            if theirs[0] is None or "ttft" not in ours or "tpot" not in ours:
                gone[f"{name}: {theirs[2]}"[:150]] = gone.get(f"{name}: {theirs[2]}"[:150], 0) + 1
                continue
            by = "" if theirs[2] == "SILICON" else " (without its tables)"
            for key in (name + by, f"all {kind}{by}"):
                errors.setdefault(key, []).append(errors_of(row, ours, theirs))
    print("median error, %: TPOT and TTFT of Foretell, TPOT and TTFT of aiconfigurator")
    for name in sorted(errors):
        shares = [100.0 * median(column) for column in zip(*errors[name], strict=True)]
        print(f"{name:65} {len(errors[name]):5} rows ", *(f"{share:7.1f}" for share in shares))
    for name, many in gone.items():
        print(f"not answered by both: {many} rows, {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
