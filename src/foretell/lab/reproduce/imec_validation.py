"""Published times of training and inference, and what attention and a mixture take, on several sides."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.api.serving import serve
from foretell.api.training import estimate
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Infeasible
from foretell.lab.reproduce.ladder import Ladder, ladder_of
from foretell.lab.reproduce.records import ours, plain_estimate
from foretell.records import dataclass
from foretell.search.explain import ends


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronRun:
    """One published iteration of Megatron-LM on A100, eight to a node."""

    name: str
    """As tables call it."""
    model: str
    """Our model of it."""
    words: str
    """Its plan."""
    batch: int
    """Sequences of a step."""
    measured_s: float
    """As published."""
    published_s: float
    """As arXiv 2407.14645's line of work predicts it."""


FILE = read_table(Path(__file__).with_suffix(".toml"))
RUNS = tuple(MegatronRun(**run) for run in FILE["run"])
"""Runs with a published prediction."""
PEERS = ("genz_s", "llmcompass_s", "vidur_s")
"""Columns of other models' predictions of a request's latency."""


def training_rows() -> list[dict[str, Any]]:
    """Every run on three sides."""
    rows = []
    for run in RUNS:
        degrees = [
            int(word.strip("tpd")) for word in run.words.split() if word[:2] in ("tp", "pp", "dp")
        ]
        gpus = degrees[0] * degrees[1] * degrees[2]
        words = f"{run.words} framework=megatron@{'2022-05' if gpus < 1000 else '2021-04'}"
        asked = {"gpus": gpus, "global_batch": run.batch, "seq_len": 2048, "plan": words}
        found = plain_estimate(run.model, system="dgx-a100", **asked)
        published = {"measured_s": run.measured_s, "published_s": run.published_s}
        rows.append({"run": run.name, "gpus": gpus, "plan": words, **published, **ours(found)})
    return rows


def inference_rows() -> list[dict[str, Any]]:
    """End-to-end latency of one request at a time, by the engine that was measured."""
    rows = []
    for cell in FILE["latency"]:
        model, tp = cell["model"], cell["tp"]
        system = cell.get("system", "dgx-a100")
        load: dict[str, Any] = {"isl": 200, "osl": 200, "concurrency": 1, "engine": "nemo@2023"}
        found = serve(model, system=system, gpus=tp, plan=f"tp{tp}", **load).to_dict()
        span = (found.get("intervals") or {}).get("e2e_ms") or {}
        low, high = span.get("p90") or (found["e2e_ms"]["mean"], found["e2e_ms"]["mean"])
        rows.append(
            {
                "run": f"{system[-4:].upper()}, {model} tp{tp}",
                "chip": system[-4:].upper(),
                "model": model,
                "tp": tp,
                "measured_s": cell["measured_s"],
                **{name: cell.get(name) for name in PEERS},
                "ours_s": found["e2e_ms"]["mean"] / 1e3,
                "ours_low_s": low / 1e3,
                "ours_high_s": high / 1e3,
            }
        )
    return rows


A100_MATRIX, A100_BANDWIDTH, A100_VECTOR = 312e12, 2.039e12, 78e12
"""Peaks of the A100 80 GB in fp16 (NVIDIA's datasheet), for the additive form."""
UNITS_SHARE = 0.25
"""Share of the units that the open equivalent's inner products reach (RAPID-LLM, train_timing.py)."""
SOFTMAX_FLOP = 10.0
"""Vector operations for each score: scale, exponential, maximum, sum."""
LAYERS = 32.0
"""Of Llama-2-7B."""


def attention_rows() -> list[dict[str, Any]]:
    """Attention of one layer of Llama-2-7B, forward and backward, over lengths, in three ways."""
    rows = []
    for seq_len in (1024, 2048, 4096, 8192, 16384, 32768):
        heads, dim = 32, 128
        pairs = seq_len * (seq_len + 1) / 2.0
        product_s = 3.5 * 4.0 * heads * dim * pairs / (UNITS_SHARE * A100_MATRIX)
        vector_s = 2.5 * SOFTMAX_FLOP * heads * pairs / A100_VECTOR
        memory_s = 3.0 * 8.0 * seq_len * heads * dim * 2.0 / A100_BANDWIDTH
        row: dict[str, Any] = {
            "seq_len": seq_len,
            "additive_ms": 1e3 * (product_s + vector_s + memory_s),
            "overlapped_ms": 1e3 * max(product_s, vector_s, memory_s),
        }
        for name, word in (("flash", "flash"), ("stored", "no-flash")):
            try:
                found = estimate(
                    "llama-2-7b",
                    system="dgx-a100",
                    gpus=1,
                    global_batch=1,
                    seq_len=seq_len,
                    plan=f"mbs1 {word} no-fused",
                    set=("chip.memory_bytes=1e13", "model.max_positions=65536"),
                )
            except (BadInput, Infeasible):
                continue
            assert found.breakdown is not None
            leaves = [
                one for path, one in ends(found.breakdown).items() if path.endswith("attention")
            ]
            spans = [one.interval["p90"] for one in leaves if one.interval]
            row[f"{name}_ms"] = 1e3 * sum(one.value for one in leaves) / LAYERS
            for column, edges in zip(("low", "high"), zip(*spans, strict=True), strict=True):
                row[f"{name}_{column}_ms"] = 1e3 * sum(edges) / LAYERS
        rows.append(row)
    return rows


def flash_ladder(row: Mapping[str, Any]) -> Ladder:
    """Milliseconds of attention from the additive form to ours."""
    return ladder_of(
        {
            "published": row["additive_ms"],
            "overlap of GEMMs, exponentials and loads": row["overlapped_ms"],
            "kernels' measured rates": row["flash_ms"],
        }
    )


def expert_rows() -> list[dict[str, Any]]:
    """Mixtral-8x22B on 512 H100: plans with and without each kind of parallelism."""
    rows = []
    for words in (
        "tp8 pp4 dp16 zero1",
        "tp4 pp8 dp16 zero1",
        "tp2 pp8 dp32 ep8 zero1",
        "tp4 pp4 dp32 ep8 zero1",
        "tp1 pp8 dp64 ep8 zero1",
        "tp2 cp2 pp8 dp16 ep8 zero1",
        "tp2 cp4 pp4 dp16 ep8 zero1",
    ):
        row: dict[str, Any] = {"plan": words, "ep": 8 if "ep8" in words else 1, "days": None}
        asked = {"gpus": 512, "global_batch": 1024, "seq_len": 8192, "plan": f"{words} mbs1"}
        found = plain_estimate("mixtral-8x22b", system="dgx-h100", **asked)
        if found is None:
            continue
        answer = found.to_dict()
        low, high = answer["interval"]["p90"]
        row |= {
            "days": answer["step_s"] * 1e12 / (1024 * 8192) / 86400.0,
            "fits": answer["fits"],
            "step_s": answer["step_s"],
            "low_s": low,
            "high_s": high,
        }
        row |= {leaf["name"]: leaf["value"] for leaf in answer["breakdown"]["children"]}
        rows.append(row)
    return rows
