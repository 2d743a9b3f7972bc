"""What options of an engine do to its profile, to a step and to the memory, beside the kernels.

overlap      the host schedules the next step beside the running one, or between steps
decode_steps decode steps before the scheduler runs again: its time is shared among them
mixed        prompts beside the decoding sequences, or in steps of their own
adapters     low-rank adapters (LoRA): their weights, and in every step those of the adapters in the batch;
             with fewer slots than adapters a batch has no more different ones: requests of others are passed
             over, and an adapter that gets a slot is loaded first
offload_gb   weights that stay on the host: every step reads them over PCIe
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.catalog.acceptance import acceptance_curve, read_speculative
from foretell.catalog.engines import IN_TURN_S
from foretell.sharding.lora import has_adapter
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System
from foretell.workload.graph import Tokens
from foretell.workload.layer import layer_graph
from foretell.workload.ops import Gemm
from foretell.workload.roles import OpRole, Region

HOST_BYTES_PER_S = 50e9
"""Between chip and host, one way: PCIe 5 x16 as copies reach it."""
HOST_SHARE = 0.8
"""Share of the link to the host that copies reach."""
ADAPTER_LAYER_S = 2e-5
"""Launches of the two small products of a layer's adapters, in a captured graph: four pairs of kernels (vLLM:
queries with keys and values, output, gate with up, down; vllm/lora/layers), 2.5 us each (recalled)."""
READ_SHARE = 0.7
"""Share of the memory's bandwidth at which adapters are read."""


def with_options(p: EngineProfile, d: Deployment) -> EngineProfile:
    """A profile as the options of a deployment make it."""
    if d.overlap is not None and d.overlap != p.overlapped:
        shown = -IN_TURN_S if d.overlap else IN_TURN_S
        p = replace(
            p,
            overlapped=d.overlap,
            host_step_s=max(p.host_step_s + shown, 0.0),
            late_steps=max(p.late_steps, 1.0) if d.overlap else max(p.late_steps - 1.0, 0.0),
        )
    if d.decode_steps > 1:
        p = replace(p, host_step_s=p.host_step_s / d.decode_steps)
    if d.mixed is not None:
        p = replace(p, policy="mixed" if d.mixed else "prefill-first")
    return p


def step_tokens(p: EngineProfile, d: Deployment) -> float:
    """Tokens of a step of one data-parallel rank: as given, or the engine's own limit.

    Where ranks share that limit, wide deployments raise it to as much for each rank, as every one in print
    does (16,384 a rank at EP32: lmsys.org/blog/2025-05-05-large-scale-ep).
    """
    if d.max_tokens:
        return float(d.max_tokens)
    shares = p.shared_tokens and not d.is_wide
    return max(float(p.max_tokens) / (d.dp if shares else 1), 1.0)


def prompt_wait(p: EngineProfile, d: Deployment) -> tuple[float, float]:
    """Decode steps that new prompts wait for others at most, and prompts that end the wait before.

    All ranks of a mixture take part in a step with prompts, whether they have any or not. Engines therefore
    wait until every rank has one (TensorRT-LLM's attention_dp_config, SGLang's prefill delayer).
    """
    enough = float(d.dp) if d.dp > 1 else float("inf")
    if d.wait_steps is not None:
        return float(d.wait_steps), enough
    if d.dp == 1:
        return p.wait_steps, enough
    return max(p.dp_wait_steps, p.wide_wait_steps if d.is_wide else 0.0), enough


def option_notes(p: EngineProfile, d: Deployment, *, prompts: bool, answers: bool) -> list[str]:
    """What a wide deployment that has prompts, answers or both assumes of the engine's options, in words."""
    if not d.is_wide or not prompts:
        return []
    found = []
    if p.shared_tokens and not d.max_tokens:
        own = round(p.max_tokens / d.dp)
        found.append(
            f"prompts in chunks of {p.max_tokens:,} tokens a rank, as wide deployments set them "
            f"(the engine's default divides that by dp: max_tokens={own})"
        )
    longest, _ = prompt_wait(p, d)
    if answers and d.wait_steps is None and longest:
        found.append(
            f"prompts wait until every rank has one, at most {longest:g} decode steps "
            "(wait_steps=0 turns it off; SGLang: --enable-prefill-delayer, TensorRT-LLM: "
            "attention_dp_config)"
        )
    if answers and not longest:
        found.append(
            f"a prompt on any of the {d.dp} ranks stops all of them for its step: smaller chunks "
            "(max_tokens=), waits (wait_steps=30) or prefill apart (--prefill-gpus) make that rarer"
        )
    return found


def look_steps(d: Deployment) -> float:
    """Decode steps after which the engine looks for new requests."""
    return float(max(d.receive_steps, d.decode_steps, 1))


def held_adapters(d: Deployment) -> int:
    """Adapters that are on the chips at once."""
    return d.adapters if d.adapter_slots is None else min(d.adapter_slots, d.adapters)


def drawn_adapters(d: Deployment, requests: Num) -> Array:
    """Different adapters of so many requests on the mean, each of any adapter: A (1 - (1 - 1/A)^n)."""
    many, some = float(d.adapters), np.asarray(requests, float)
    if many <= 1.0:
        return np.asarray(np.minimum(some, many))
    return np.asarray(-many * np.expm1(some * np.log1p(-1.0 / many)))


def different_adapters(d: Deployment, sequences: Num) -> Array:
    """Different adapters of a batch of so many sequences on the mean; at most the slots."""
    return np.asarray(np.minimum(drawn_adapters(d, sequences), held_adapters(d)))


def batch_limit(d: Deployment, p: EngineProfile, in_flight: Num) -> Array:
    """Sequences at once of one data-parallel rank with so many requests in flight.

    A request whose adapter has no slot is passed over, and the next in the queue is looked at
    (vllm/v1/core/sched/scheduler.py: max_loras, skip_request; sglang scheduler.py: can_schedule_lora_req):
    those run whose adapters have the slots, a share slots / adapters of them of what is in flight.
    """
    limit = float(d.max_batch or p.max_batch)
    held = held_adapters(d)
    if not d.adapters or held >= d.adapters:
        return np.asarray(limit)
    some = np.maximum(np.asarray(in_flight, float), 1.0)
    runnable = some * np.minimum(held / np.maximum(drawn_adapters(d, some), 1e-9), 1.0)
    return np.asarray(np.minimum(limit, np.maximum(runnable, 1.0)))


def adapter_load_s(model: Model, system: System, d: Deployment) -> float:
    """Seconds that a request waits on the mean for its adapter to come from the host."""
    if not d.adapters:
        return 0.0
    missed = 1.0 - held_adapters(d) / d.adapters
    size = adapter_bytes(model, d.adapter_rank) / d.tp / d.pp
    return float(missed * size / np.max(host_rate(system)))


def host_rate(system: System) -> Array:
    """Bytes a second between a chip and its host."""
    known = HOST_SHARE * np.asarray(system.chip.host_bytes_per_s, float)
    return np.where(known > 0.0, known, HOST_BYTES_PER_S)


@lru_cache(maxsize=256)
def adapter_bytes(model: Model, rank: int) -> float:
    """Weights of one adapter of all linear maps but the routed experts', in 16 bits.

    Queries, keys and values, and gate and up, are read together and have an adapter each.
    """
    tokens = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="prefill")
    total = 0.0
    for layer in model.stack.layers:
        for op in layer_graph(layer, model.stack.hidden, tokens).ops:
            if isinstance(op, Gemm) and has_adapter(op) and op.region is not Region.EXPERTS:
                maps = 3.0 if op.role is OpRole.QKV else 2.0 if op.gated else 1.0
                total += rank * (maps * float(op.k) + float(op.n))
    return 2.0 * total


def option_parts_s(
    model: Model, system: System, d: Deployment, sequences: Num, layers: int
) -> dict[str, Array]:
    """Seconds of a step that options add, by what they are; `sequences` decode or read prompts in it."""
    found: dict[str, Array] = {}
    if d.adapters:
        distinct = different_adapters(d, sequences)
        size = adapter_bytes(model, d.adapter_rank) / d.tp / d.pp
        rate = READ_SHARE * system.chip.memory_bandwidth_bytes_per_s
        found["adapters"] = np.asarray(distinct * size / rate + layers * ADAPTER_LAYER_S)
    if d.offload_gb:
        found["weights from the host"] = np.asarray(1e9 * d.offload_gb / host_rate(system))
    return found


NGRAM_KEPT = 0.3
"""Share of tokens copied from the prompt that are kept, where nothing is known of the text (recalled: code
and summaries keep more, free answers hardly any)."""


def with_speculative(text: str | None, d: Deployment) -> Deployment:
    """A deployment with the drafter and the number of drafts of a text such as mtp:3."""
    if text is None:
        return d
    found = read_speculative(text)
    if found is None:
        return replace(d, draft_tokens=0, accepted=0.0)
    drafter, drafts = found
    return replace(d, drafter=drafter, draft_tokens=drafts)


def with_acceptance(
    model: Model, d: Deployment, *, given: bool = False, random: bool = False
) -> tuple[Deployment, list[str]]:
    """A deployment with the drafts that its drafter keeps on such a model, and a sentence about it.

    `given`: the number kept is the user's own. `random`: prompts are random tokens.
    """
    if not d.draft_tokens or given:
        return d, []
    if d.drafter == "ngram":
        kept, source = NGRAM_KEPT * d.draft_tokens, "no curve of n-gram drafts is known"
    else:
        curve = acceptance_curve(model.id, d.drafter, random=random)
        kept = curve.kept(float(d.draft_tokens))
        on = "" if model.id in curve.models else "other models: "
        source = f"{on}{curve.source}"
    kept = round(min(kept, float(d.draft_tokens)), 4)
    said = (
        f"{d.drafter} drafts {d.draft_tokens} tokens and keeps {kept:.2f} of them ({source}); "
        "accepted= in --plan says otherwise"
    )
    return replace(d, accepted=kept), [said]
