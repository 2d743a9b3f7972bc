"""Weights of our modules in the layout of the authors' TensorFlow code: what an import must undo."""

from typing import Any

import numpy as np

from foretell.specs.model import Model


def keras_arrays(model: Model, state: dict[str, Any]) -> dict[str, Any]:
    """Keras's names and arrays, in Keras's order (layers by their order of use)."""
    out: dict[str, Any] = {}
    blocks = model.embedding.block is not None

    def named(kind: str, place: int) -> str:
        return kind if place == 0 else f"{kind}_{place}"

    def put(layer: str, name: str, array: Any) -> None:
        out[f"{layer}/{len(out)}_{name}:0"] = array

    def dense(layer: str, ours: str) -> None:
        put(layer, "kernel", state[f"{ours}.weight"].T)
        put(layer, "bias", state[f"{ours}.bias"])

    def mapping(layer: str, ours: str) -> None:
        if f"{ours}.weight" in state:
            dense(layer, ours)
            return
        for j in range(2):
            put(layer, f"core{j}", state[f"{ours}.weights.core{j}"])
        put(layer, "bias", state[f"{ours}.weights.bias"])

    if blocks:
        for side, prefix in enumerate(("encoder_inputs.block", "inputs.block")):
            put(named("embedding_layer", side), "embeddings", state[f"{prefix}.parts.table.weight"])
            kernel = state[f"{prefix}.parts.convolution1.weight"]
            put(named("conv1d", side), "kernel", kernel.T.reshape(3, -1, kernel.shape[0]))
            put(named("conv1d", side), "bias", state[f"{prefix}.parts.convolution1.bias"])
            for level in range(2):
                choice = state[f"{prefix}.weights.choice{level}"]
                put(named("soft_pos", 2 * side + level), "spos_0", choice)
    elif model.encoder_embedding is not None:
        put("embedding_layer", "embeddings", state["encoder_inputs.tokens.weight"])
        put("embedding_layer_1", "embeddings", state["inputs.tokens.weight"])
    else:
        put("embedding_layer", "embeddings", state["inputs.tokens.weight"])
    assert model.encoder is not None
    stacks = (("encoder_layer", model.encoder, "encoder"), ("decoder_layer", model.stack, "layers"))
    for kind, stack, prefix in stacks:
        for i, layer in enumerate(stack.layers):
            name, ours = named(kind, i), f"{prefix}.blocks.{i}"
            for j, _ in enumerate(layer.mixers):
                gated = f"{ours}.mixers.{j}.parts.o.weight" in state
                maps = (
                    ("parts.gate", "parts.q", "parts.v", "parts.o")
                    if gated
                    else ("q", "k", "v", "o")
                )
                for one in maps:
                    mapping(name, f"{ours}.mixers.{j}.{one}")
                put(name, "gamma", state[f"{ours}.norms.{j}.weight"])
                put(name, "beta", state[f"{ours}.norms.{j}.bias"])
            feed, last = f"{ours}.feeds.0", len(layer.mixers)
            if f"{feed}.ups.0.weights.core0" in state:
                for one in ("ups.0", "ups.1", "down"):
                    mapping(name, f"{feed}.{one}")
            else:
                many = 2 if getattr(layer.ffn, "gated", False) else 1
                halves = np.split(state[f"{feed}.up.weight"], many)
                biases = np.split(state[f"{feed}.up.bias"], many)
                for weight, bias in zip(halves, biases, strict=True):
                    put(name, "kernel", weight.T)
                    put(name, "bias", bias)
                dense(name, f"{feed}.down")
            put(name, "gamma", state[f"{ours}.norms.{last}.weight"])
            put(name, "beta", state[f"{ours}.norms.{last}.bias"])
    if not model.head.tied:
        dense("dense", "scores.scores")
    return {key.replace("/", "/", 1): value for key, value in out.items()}
