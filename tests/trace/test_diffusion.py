"""Models of diffusers by their configs, and samples of traced modules."""

import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.traced_models import trace_question
from foretell.errors import BadInput, Infeasible
from foretell.specs.questions.tracing import TraceModuleQuestion
from foretell.trace.graph import TracedGraph, TracedModel

torch = pytest.importorskip("torch")

HEADS = {"num_attention_heads": 2, "attention_head_dim": 32, "num_layers": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "DiTTransformer2DModel": {
        **HEADS, "in_channels": 4, "sample_size": 16, "patch_size": 2, "num_embeds_ada_norm": 10,
        "activation_fn": "gelu-approximate", "norm_type": "ada_norm_zero",
        "norm_elementwise_affine": False,
    },
    "SD3Transformer2DModel": {
        **HEADS, "sample_size": 16, "joint_attention_dim": 48, "caption_projection_dim": 64,
        "pooled_projection_dim": 40, "pos_embed_max_size": 32,
    },
    "FluxTransformer2DModel": {
        **HEADS, "num_single_layers": 2, "joint_attention_dim": 48, "pooled_projection_dim": 40,
        "axes_dims_rope": [8, 12, 12], "guidance_embeds": True, "in_channels": 16,
    },
    "WanTransformer3DModel": {**HEADS, "text_dim": 48, "freq_dim": 32, "ffn_dim": 128},
    "LTXVideoTransformer3DModel": {
        **HEADS, "in_channels": 16, "out_channels": 16, "cross_attention_dim": 64, "caption_channels": 48,
    },
    "CogVideoXTransformer3DModel": {
        **HEADS, "text_embed_dim": 48, "time_embed_dim": 32, "use_rotary_positional_embeddings": True,
    },
    "HunyuanVideoTransformer3DModel": {
        **HEADS, "num_single_layers": 2, "num_refiner_layers": 1, "text_embed_dim": 48,
        "pooled_projection_dim": 40, "rope_axes_dim": [8, 12, 12],
    },
    "UNet2DConditionModel": {
        "sample_size": 16, "cross_attention_dim": 48, "attention_head_dim": 8, "norm_num_groups": 8,
        "block_out_channels": [32, 64], "layers_per_block": 1,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    },
    "AutoencoderKL": {
        "block_out_channels": [32, 64], "latent_channels": 4, "norm_num_groups": 8, "layers_per_block": 1,
        "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
    },
}  # fmt: skip
SIZES = {"1": "128x128", "4": "9x64x64", "8": "17x64x64"}
MOVING = {"WanTransformer3DModel": "4", "LTXVideoTransformer3DModel": "8",
          "CogVideoXTransformer3DModel": "4", "HunyuanVideoTransformer3DModel": "4"}  # fmt: skip


def written(folder: Path, name: str) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({"_class_name": name, **CONFIGS[name]}), encoding="utf-8")
    return str(file)


def traced(place: str, **given: Any) -> TracedModel:
    return trace_question(TraceModuleQuestion(module=place, **given))


def products(graph: TracedGraph) -> float:
    """Operations of matrix products and convolutions: attention's backward pass has more than two."""
    kinds = [graph.ops[n] for n in graph.op if graph.ops[n].kind in ("gemm", "conv")]
    return sum(op.flops for op in kinds)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_diffusers_trains_and_samples(name: str, tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    size = SIZES[MOVING.get(name, "1")]
    found = traced(written(tmp_path, name), size=size, batch=2)
    assert found.batch == 2
    if name != "AutoencoderKL":
        with torch.device("meta"):
            module = getattr(diffusers, name).from_config(CONFIGS[name])
        assert found.summary()["parameters"] == sum(p.numel() for p in module.parameters())
        assert not any("no loss" in note for note in found.graphs["as-is"].notes)
    flops = {form: products(graph) for form, graph in found.graphs.items()}
    assert flops["cast"] == flops["as-is"]
    # Gradients of inputs are not asked for: less than thrice the forward pass.
    assert 2.0 * flops["inference"] < flops["as-is"] <= 3.0 * flops["inference"]
    file = str(found.save(tmp_path / "model.foretell.json"))
    assert foretell.estimate(file, gpus="1xH100", plan="precision=bf16 weights=bf16").step_s > 0.0
    assert foretell.serve(file, gpus="1xH100", steps=28).images_per_s > 0.0


def test_latents_are_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    flux = written(tmp_path, "FluxTransformer2DModel")
    shapes = {t.name: t.shape for t in traced(flux, size="256x512", seq_len=40).of_kind("input")}
    assert shapes["hidden_states"] == (1, 16 * 32, 16)
    assert shapes["encoder_hidden_states"] == (1, 40, 48)
    wan = written(tmp_path, "WanTransformer3DModel")
    shapes = {t.name: t.shape for t in traced(wan, size="9x64x96").of_kind("input")}
    assert shapes["hidden_states"] == (1, 16, 3, 12, 8)
    with pytest.raises(BadInput, match="no size of its images"):
        traced(written(tmp_path, "FluxTransformer2DModel"), size="9x64x96")


def test_what_is_not_known_says_so(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"_class_name": "Never2DModel"}), encoding="utf-8")
    with pytest.raises(BadInput, match="inputs are not known"):
        traced(str(file))


class Net(torch.nn.Module):
    def __init__(self, width: int = 2048) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8)))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.layers(x))


def net(width: int = 2048, batch: int = 4096) -> TracedModel:
    return foretell.trace(lambda: (Net(width), (torch.empty(batch, width, device="meta"),)))


def test_a_pass_without_gradients_keeps_nothing() -> None:
    model = net()
    graph = model.graphs["inference"]
    assert not graph.gradient.any()
    # Dropout is off, and two activations are alive at once.
    assert not any("dropout" in op.name for op in graph.ops)
    assert graph.summary()["live_bytes"] == 2 * 4096 * 2048 * 2
    assert graph.summary()["flops"] == 8 * 2.0 * 4096 * 2048**2
    found = foretell.serve(model, gpus="1xH200")
    assert found.allocated_bytes < foretell.estimate(model, gpus="1xH200").allocated_bytes / 4


def test_samples_are_passes_and_what_runs_once() -> None:
    model, other = net(), net(1024)
    one = foretell.serve(model, gpus="2xH200")
    many = foretell.serve(model, gpus="2xH200", steps=28, passes=2, once=[other], images_per_s=1e6)
    assert many.pass_s == pytest.approx(one.latency_s)
    assert many.latency_s == pytest.approx(56 * one.latency_s + many.once_s)
    assert many.images_per_s == pytest.approx(2 * 4096 / many.latency_s)
    assert (many.gpus_needed - 1) * many.images_per_s_per_gpu < 1e6
    assert many.gpus_needed * many.images_per_s_per_gpu >= 1e6
    halved = foretell.serve(model, gpus="2xH200", rows=2)
    assert halved.images_per_s == pytest.approx(one.images_per_s / 2)
    assert many.interval["p90"][0] < many.latency_s < many.interval["p90"][1]
    assert sum(one.breakdown.values()) >= 0.99 * one.pass_s


def test_passes_are_asked_of_traces_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is of a traced module"):
        foretell.serve("llama-3.1-8b", gpus="1xH200", steps=28)
    model = net()
    with pytest.raises(BadInput, match="cannot write tokens from its trace"):
        foretell.serve(model, gpus="1xH200", isl=100)
    with pytest.raises(BadInput, match="no word of a traced module"):
        foretell.serve(model, gpus="1xH200", plan="tp2")
    with pytest.raises(Infeasible, match="does not fit"):
        foretell.serve(net(32768, 1), gpus="1xT4")
