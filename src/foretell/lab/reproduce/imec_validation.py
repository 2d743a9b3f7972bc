"""Published times of training and inference, and what attention and a mixture take, on several sides."""

from typing import Any

from foretell.api.serving import serve
from foretell.api.training import estimate
from foretell.errors import BadInput, Infeasible
from foretell.records import dataclass


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
    """Korthikanti et al. 2022, Table 5; from 1,920 GPUs on Narayanan et al. 2021, Table 1 (from TFLOP/s)."""
    published_s: float
    """Stored by RAPID-LLM (imec_data/A100_train.csv): most likely predictions of arXiv 2407.14645."""


_FULL, _SELECTIVE = "no-sp recompute=full no-flash", "sp recompute=selective no-flash"
RUNS = (
    MegatronRun(
        name="22B, 8, full",
        model="gpt-22b",
        words=f"tp8 pp1 dp1 mbs4 {_FULL}",
        batch=4,
        measured_s=1.42,
        published_s=1.4,
    ),
    MegatronRun(
        name="22B, 8, selective",
        model="gpt-22b",
        words=f"tp8 pp1 dp1 mbs4 {_SELECTIVE}",
        batch=4,
        measured_s=1.10,
        published_s=1.1,
    ),
    MegatronRun(
        name="175B, 64, full",
        model="gpt3-175b",
        words=f"tp8 pp8 vpp3 dp1 mbs1 {_FULL}",
        batch=64,
        measured_s=18.13,
        published_s=16.9,
    ),
    MegatronRun(
        name="175B, 64, selective",
        model="gpt3-175b",
        words=f"tp8 pp8 vpp3 dp1 mbs1 {_SELECTIVE}",
        batch=64,
        measured_s=13.75,
        published_s=12.9,
    ),
    MegatronRun(
        name="530B, 280, full",
        model="mt-nlg-530b",
        words=f"tp8 pp35 vpp3 dp1 mbs1 {_FULL}",
        batch=280,
        measured_s=49.05,
        published_s=46.8,
    ),
    MegatronRun(
        name="530B, 280, selective",
        model="mt-nlg-530b",
        words=f"tp8 pp35 vpp3 dp1 mbs1 {_SELECTIVE}",
        batch=280,
        measured_s=37.83,
        published_s=35.5,
    ),
    MegatronRun(
        name="1T, 512, full",
        model="gpt3-1t",
        words=f"tp8 pp64 dp1 mbs1 {_FULL}",
        batch=512,
        measured_s=94.42,
        published_s=87.9,
    ),
    MegatronRun(
        name="1T, 512, selective",
        model="gpt3-1t",
        words=f"tp8 pp64 dp1 mbs1 {_SELECTIVE}",
        batch=512,
        measured_s=71.49,
        published_s=69.1,
    ),
    MegatronRun(
        name="310B, 1,920, full",
        model="gpt-310.1b",
        words=f"tp8 pp16 dp15 mbs1 {_FULL}",
        batch=2160,
        measured_s=37.61,
        published_s=34.1,
    ),
    MegatronRun(
        name="530B, 2,520, full",
        model="mt-nlg-530b",
        words=f"tp8 pp35 dp9 mbs1 {_FULL}",
        batch=2520,
        measured_s=54.08,
        published_s=51.2,
    ),
    MegatronRun(
        name="1008B, 3,072, full",
        model="gpt3-1t",
        words=f"tp8 pp64 dp6 mbs1 {_FULL}",
        batch=3072,
        measured_s=102.63,
        published_s=100.7,
    ),
)
"""Runs with a published prediction."""
LATENCIES: tuple[tuple[str, int, float, float, float, float | None], ...] = (
    ("llama-2-7b", 1, 2.19, 3.088, 3.314, 1.908),
    ("llama-2-7b", 2, 1.544, 1.644, 3.017, 2.016),
    ("llama-2-7b", 4, 1.28, 0.928, 2.696, None),
    ("llama-2-7b", 8, 1.187, 0.647, 2.536, 1.253),
    ("llama-2-13b", 1, 3.884, 5.987, 5.041, None),
    ("llama-2-13b", 2, 2.499, 3.12, 4.222, None),
    ("llama-2-13b", 4, 1.894, 1.694, 3.596, None),
    ("llama-2-13b", 8, 1.693, 1.079, 3.283, None),
    ("llama-2-70b", 2, 10.5, 16.085, 12.326, 11.432),
    ("llama-2-70b", 4, 6.403, 8.324, 9.137, None),
    ("llama-2-70b", 8, 4.735, 4.638, 7.543, 4.848),
)
"""Model, tensor ranks, seconds measured by NVIDIA (NeMo, as arXiv 2407.14645 uses them), predicted by GenZ,
LLMCompass and Vidur (RAPID-LLM's tables)."""


def training_rows() -> list[dict[str, Any]]:
    """Every run on three sides."""
    rows = []
    for run in RUNS:
        degrees = [
            int(word.strip("tpd")) for word in run.words.split() if word[:2] in ("tp", "pp", "dp")
        ]
        gpus = degrees[0] * degrees[1] * degrees[2]
        words = f"{run.words} framework=megatron@{'2022-05' if gpus < 1000 else '2021-04'}"
        try:
            found = estimate(
                run.model,
                system="dgx-a100",
                gpus=gpus,
                global_batch=run.batch,
                seq_len=2048,
                plan=words,
            )
        except Infeasible as error:
            answer: Any = error.answer
            if answer is None:
                raise
            found = answer
        low, high = found.to_dict()["interval"]["p90"]
        rows.append(
            {
                "run": run.name,
                "gpus": gpus,
                "plan": words,
                "measured_s": run.measured_s,
                "published_s": run.published_s,
                "ours_s": found.step_s,
                "ours_low_s": low,
                "ours_high_s": high,
            }
        )
    return rows


def inference_rows() -> list[dict[str, Any]]:
    """End-to-end latency of one request at a time."""
    rows = []
    for model, tp, measured, genz, compass, vidur in LATENCIES:
        found = serve(
            model,
            system="dgx-a100",
            gpus=tp,
            plan=f"tp{tp}",
            isl=200,
            osl=200,
            concurrency=1,
            engine="trtllm",
        ).to_dict()
        span = (found.get("intervals") or {}).get("e2e_ms") or {}
        low, high = span.get("p90") or (found["e2e_ms"]["mean"], found["e2e_ms"]["mean"])
        rows.append(
            {
                "run": f"{model} tp{tp}",
                "model": model,
                "tp": tp,
                "measured_s": measured,
                "genz_s": genz,
                "llmcompass_s": compass,
                "vidur_s": vidur,
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
                ).to_dict()
                row[f"{name}_ms"] = 1e3 * _attention_s(found["breakdown"]) / 32.0
            except (BadInput, Infeasible):
                row[f"{name}_ms"] = None
        rows.append(row)
    return rows


def _attention_s(tree: Any) -> float:
    """Seconds of every leaf of attention."""
    own = float(tree["value"]) if tree["name"] == "attention" and not tree["children"] else 0.0
    return own + sum(_attention_s(child) for child in tree["children"] or ())


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
        try:
            found = estimate(
                "mixtral-8x22b",
                system="dgx-h100",
                gpus=512,
                global_batch=1024,
                seq_len=8192,
                plan=f"{words} mbs1",
            )
            answer = found.to_dict()
        except Infeasible as error:
            kept: Any = error.answer
            if kept is None:
                continue
            answer = kept.to_dict()
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
