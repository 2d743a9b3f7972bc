"""Readers of configs beside the classes that they describe: traced, a class has the reader's work."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.api.traced_models import trace_question
from foretell.interop.huggingface import read_model
from foretell.specs.questions.tracing import TraceModuleQuestion
from foretell.trace.graph import TracedGraph
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore, Gemm, Op

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

TABLE = Path(__file__).parents[1] / "interop" / "oracle_counts.toml"
CASES = {
    (config := json.loads(row["config"]))["model_type"]: (config, row["module"])
    for row in tomllib.loads(TABLE.read_text("utf-8"))["case"]
}
"""Family -> the last of its small configs, and the class that is counted there."""
TOKENS = 64
SCANS = "the class computes its scan as the library without kernels does, chunk by chunk in 32 bits"
OTHERWISE = {
    "mamba2": SCANS, "bamba": SCANS, "falcon_h1": SCANS,
}  # fmt: skip
"""Families whose class has other products than a GPU's kernels, and why."""
CLASS_TOKEN = "the reader embeds the class's own tokens as patches: 2 of 17 of these small images"
NEARLY = {
    "vit": CLASS_TOKEN, "deit": CLASS_TOKEN, "dinov2": CLASS_TOKEN,
    "whisper": "the first convolution runs over twice the frames that the reader counts",
}  # fmt: skip
"""Families whose products are the reader's within 5 %, and why no nearer."""


def class_of(config: dict[str, Any], module: str) -> str:
    """The class that an automatic one makes of a config."""
    made = transformers.AutoConfig.for_model(**config)
    found = getattr(transformers, module)
    mapping = getattr(found, "_model_mapping", None)
    return found.__name__ if mapping is None else mapping[type(made)].__name__


def reader_ops(config: dict[str, Any], target: float | None) -> Iterator[Op]:
    """Operations of two sequences by the reader, each layer's."""
    model = read_model(config)
    length = float(model.max_positions if not model.embedding.vocab else TOKENS)
    if model.encoder_embedding is not None and model.encoder_embedding.projections:
        length = float(model.encoder_embedding.positions)
    graph = build(model, batch=2.0, seq_len=length, target_len=target)
    for part in (*(graph.kinds[kind] for kind in graph.order), graph.embedding, graph.head):
        yield from part.ops


def forward_flops(graph: TracedGraph, *kinds: str) -> float:
    """Operations of a trace's forward pass by family of kernels."""
    rows = [graph.ops[n] for n in graph.op[graph.phase == 0]]
    return sum(op.flops for op in rows if op.kind in kinds)


@pytest.mark.parametrize("family", CASES)
def test_the_reader_has_the_products_of_the_class(family: str, tmp_path: Path) -> None:
    config, module = CASES[family]
    name = class_of(config, module)
    table = {**config, "architectures": [name], "dtype": "float32", "decoder_start_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(table), encoding="utf-8")
    question = TraceModuleQuestion(module=str(tmp_path), batch=2, seq_len=TOKENS)
    found = trace_question(question)
    graph = found.graphs["as-is"]
    both = read_model(table).kind == "encoder-decoder"
    target = float(min(TOKENS, config.get("max_target_positions", TOKENS)))
    ops = [*reader_ops(table, target if both else None)]
    products = sum(float(op.forward().matrix_flop) for op in ops if isinstance(op, Gemm))
    cores = [op for op in ops if isinstance(op, AttentionCore)]
    square = sum(
        2.0 * op.batch * op.heads * op.q_len * op.kv_len * (op.qk_dim + op.v_dim) for op in cores
    )
    seen = sum(float(op.forward().matrix_flop) for op in cores)
    traced, fused = forward_flops(graph, "gemm", "conv"), forward_flops(graph, "attention")
    if family in OTHERWISE:
        assert traced >= products, OTHERWISE[family]
        return
    # Without a fused kernel attention is two products over the whole square.
    bound = 0.05 if family in NEARLY else 1e-9
    kernels = sum(graph.ops[n].kind == "attention" for n in graph.op[graph.phase == 0])
    apart = square - fused if kernels < len(cores) else 0.0
    assert traced == pytest.approx(products + float(apart), rel=bound)
    # A mask that is a tensor has the whole square computed.
    assert kernels < len(cores) or fused in (pytest.approx(seen), pytest.approx(float(square)))
