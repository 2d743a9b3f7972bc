"""What an engine holds beside weights and cache when it starts, by the rules of its release.

vLLM profiles one step: the larger of a forward pass over the tokens of a step, and of the sampler over
the sequences of a batch, whose scores are there several times in fp32. What communicators and libraries
hold comes on top, from 0.20 on the graphs too.
SGLang profiles nothing: a share of the memory is for weights and cache, graphs and steps have the rest.
TensorRT-LLM profiles a step as vLLM does and gives the cache a share of what is left.
llama.cpp reserves a compute buffer with the scores of a physical batch.
"""

import numpy as np

from foretell.catalog.engines import release_of_profile
from foretell.serving.engine_options import step_tokens
from foretell.serving.step_costs import kinds_of
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, EngineRelease
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Layer, Model

GIB, MIB = 2.0**30, 2.0**20
DRIVER_SHARE, DRIVER_BYTES = 0.0025, 0.25 * GIB
"""What a driver keeps of a card for itself: cudaMemGetInfo has 178.35 GiB of a B200's 179.06 (TensorRT-LLM's
log), 139.8 of an H200's 140.4, 79.2 of an H100's 79.65, 23.69 of an RTX 3090's 24 (vLLM's logs)."""
UNPROFILED_TOKENS, UNPROFILED_ROWS = 8192.0, 64.0
"""Tokens and sequences of a step that a loop without an engine is taken to have room for."""
FIRST_CHUNK, LONGEST_WHOLE = 512.0, 32768
"""vLLM's first engine cut prompts of longer models into chunks of so many tokens (arg_utils.py of 0.6)."""
GRAPHS, GRAPH_TOKENS = 86.0, 512.0
"""Graphs that vLLM captures by default (51 piecewise, 35 of whole decode steps), and tokens of the largest
(config/vllm.py of 0.11 on: max_cudagraph_capture_size)."""
GRAPH_BYTES, GRAPH_LAYER_BYTES = 0.25 * GIB, 0.1 * MIB
"""A pool, and what a driver keeps for each layer of each graph (recalled: start-up logs of vLLM have 0.5 GiB
for 32 layers and 0.9 for 80)."""
LATENT_TOKENS = 65536.0
"""Tokens of that workspace at most."""
SGLANG_SHARES = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
"""Tensor-parallel ranks from which on SGLang's share was so much (server_args.py of 0.4)."""
NVLS = ("hopper", "blackwell", "blackwell-ultra", "rubin")
"""Generations whose switches multicast."""


def seen_bytes(chip: Chip) -> Num:
    """Memory of a card that software can allocate."""
    return np.maximum((1.0 - DRIVER_SHARE) * chip.memory_bytes - DRIVER_BYTES, 0.0)


def profiled_bytes(model: Model, d: Deployment, p: EngineProfile) -> float:
    """Activations of the largest step, and the scores of all sequences: the larger of both."""
    release = release_of_profile(p)
    tokens, rows = profiled_tokens(model, d, p, release), float(d.max_batch or p.max_batch)
    if p.memory_rule == "none":
        # Nothing is profiled: a loop allocates as its prompts come.
        tokens, rows = min(tokens, UNPROFILED_TOKENS), min(rows, UNPROFILED_ROWS)
    rows = min(rows, tokens)
    widest = max(inner_width(layer, d, model.stack.hidden) for layer, _ in kinds_of(model.stack))
    forward = 2.0 * tokens * (2.0 * model.stack.hidden + widest)
    if p.engine == "vllm" and not release.whole_prompts:
        forward = max(forward, latent_bytes(model, d, rows))
    scores = 4.0 * model.head.outputs
    if p.engine == "llamacpp":
        return tokens * (scores / d.tp + 4.0 * model.stack.hidden)
    if not release.sampler_copies:
        return forward + 2.5 * rows * scores / d.tp
    # The forward pass leaves its output; that of an encoder of images waits in its cache.
    outputs = 2.0 * tokens * model.stack.hidden * (2.0 if model.towers else 1.0)
    sampler = (release.sampler_copies * rows + release.sampler_rows) * scores + outputs
    return max(forward, sampler)


def profiled_tokens(model: Model, d: Deployment, p: EngineProfile, release: EngineRelease) -> float:
    """Tokens of the profiled step."""
    if d.max_tokens or not release.whole_prompts:
        return step_tokens(p, d)
    longest = d.max_context or model.max_positions
    return float(longest) if longest <= LONGEST_WHOLE else FIRST_CHUNK


def inner_width(layer: Layer, d: Deployment, hidden: int) -> float:
    """Elements of a token on the wider side of a feed-forward part on one rank."""
    match layer.ffn:
        case Dense(width=width, gated=gated):
            return width * (3.0 if gated else 2.0) / d.tp
        case Experts(width=width, top_k=top_k):
            # Rows of all experts of a token: gate and up, or their outputs, and what is between
            # (vllm/model_executor/layers/fused_moe/modular_kernel.py: workspace13, workspace2).
            own = width / max(d.stage / d.ep, 1.0)
            return top_k * (max(2.0 * own, hidden) + own)
        case _:
            return 0.0


def latent_bytes(model: Model, d: Deployment, rows: float) -> float:
    """Keys and values of earlier tokens that latent attention makes of a prompt's chunk, which vLLM profiles
    (model_executor/layers/attention/mla_attention.py: determine_chunked_prefill_workspace_size)."""
    block, longest = 16.0, float(d.max_context or model.max_positions)
    tokens = max(min(max(8.0 * longest, 4.0 * rows * block), LATENT_TOKENS), rows * block)
    wide = max(
        (
            mixer.heads / d.tp * (mixer.nope_dim + mixer.value_dim)
            for layer, _ in kinds_of(model.stack)
            for mixer in layer.mixers
            if isinstance(mixer, LatentAttention)
        ),
        default=0.0,
    )
    return 2.0 * tokens * wide


def held_bytes(model: Model, chip: Chip, d: Deployment, p: EngineProfile) -> float:
    """What is held outside of PyTorch: libraries, communicators and, where they come before, graphs."""
    release = release_of_profile(p)
    held = release.library_bytes
    if d.gpus > 1:
        held += release.communicator_bytes
        held += release.nvls_bytes if chip.architecture in NVLS else 0.0
    if release.graph_memory == "before" and d.graph:
        held += graph_bytes(model, d)
    return held


def graph_bytes(model: Model, d: Deployment) -> float:
    """Memory of captured graphs: a pool, activations of the largest, and what each of them has."""
    layers = len(model.stack.layers) / d.pp
    widest = max(inner_width(layer, d, model.stack.hidden) for layer, _ in kinds_of(model.stack))
    step = 2.0 * GRAPH_TOKENS * (2.0 * model.stack.hidden + widest)
    return GRAPH_BYTES + step + GRAPHS * layers * GRAPH_LAYER_BYTES


def default_fraction(model: Model, chip: Chip, d: Deployment, p: EngineProfile) -> Num:
    """Share of the memory that an engine takes where none is given."""
    release = release_of_profile(p)
    if p.memory_fraction is not None:
        return p.memory_fraction
    match release.share:
        case "by-ranks":
            ranks = d.tp * d.dp
            share: Num = next(share for least, share in SGLANG_SHARES if ranks >= least)
        case "reserved":
            share = reserved_share(chip, d, p)
        case _:
            return release.memory_fraction
    return share * (0.95 if model.towers else 1.0)


def reserved_share(chip: Chip, d: Deployment, p: EngineProfile) -> Num:
    """SGLang's mem_fraction_static from 0.4.8 on: what a reserve for activations and graphs leaves (MB)."""
    whole = np.asarray(chip.memory_bytes) / MIB
    ranks = d.tp * d.dp * d.cp
    wide = 512.0 if ranks >= 4 else 256.0
    graph = np.where(whole < 60 * 1024, 160.0 if ranks >= 4 else 32.0, wide)
    graph = np.where(whole < 20 * 1024, 8.0, graph)
    # Wide deployments set chunk and graphs for each rank, and the share with them.
    parts = 1 if d.is_wide else d.dp
    reserve = 512.0 + 1.5 * max(step_tokens(p, d) * parts, 2048.0) + 2.0 * graph
    reserve = reserve + min(d.gpus, 8 if d.is_wide else d.gpus) / 8.0 * 1024.0
    if parts > 1:
        reserve = reserve + graph * parts * np.where(graph > 300.0, 4.5, 3.0)
    reserve = np.where(whole > 60 * 1024, np.maximum(reserve, 10.0 * 1024), reserve)
    if d.draft_tokens and d.drafter != "ngram":
        reserve = reserve + (6144.0 if d.drafter == "model" else 2048.0)
    return np.maximum(1.0 - reserve / whole, 0.05)


def rotary_bytes(model: Model, p: EngineProfile) -> float:
    """The table of rotary angles: a row for each position that the model knows."""
    wide = 0
    for layer, _ in kinds_of(model.stack):
        for mixer in layer.mixers:
            match mixer:
                case LatentAttention():
                    wide = max(wide, mixer.rope_dim)
                case Attention():
                    wide = max(wide, mixer.head_dim)
                case _:
                    pass
    return release_of_profile(p).rotary_bytes * wide * model.max_positions


def expert_padding(model: Model, d: Deployment, p: EngineProfile) -> float:
    """Bytes of experts in mxfp4 over what they have unpadded: width to 128 on a rank, input to 256."""
    if d.experts != "mxfp4" or not release_of_profile(p).padded_experts:
        return 1.0
    for layer, _ in kinds_of(model.stack):
        if isinstance(layer.ffn, Experts):
            cut = layer.ffn.width / max(d.stage / d.ep, 1.0)
            return up(cut, 128) / cut * up(model.stack.hidden, 256) / model.stack.hidden
    return 1.0


def up(size: float, multiple: int) -> float:
    """The next multiple."""
    return float(-(-size // multiple) * multiple)
