"""Which layouts an engine's release launches: rules that its own code has, over what its file says.

Every rule names what it refuses in the engine's words; `tests/serving/test_launch_rules.py` has the same
rules with their sources, on the flags of exported scripts.
"""

from collections.abc import Iterator
from typing import Literal

from foretell.catalog.engines import release_of_profile
from foretell.serving.formats import stored_formats
from foretell.serving.step_costs import kinds_of
from foretell.serving.wide_experts import REDUNDANT
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, EngineRelease
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2
from foretell.specs.model import Model

InstanceRole = Literal["both", "prefill", "decode"]
"""What an instance does."""
RULED = ("vllm", "sglang", "trtllm")
"""Engines whose rules are known; others launch what is asked."""
BLOCKS: dict[str, int] = {"fp8-block": 128, "int4": 128, "nvfp4": 16}
"""Format of weights -> elements that share a scale, which no cut may part."""


def launch_refusal(
    model: Model, d: Deployment, p: EngineProfile, role: InstanceRole = "both"
) -> str:
    """Why an engine's release does not launch a layout; empty where it does."""
    if p.engine not in RULED:
        return ""
    release = release_of_profile(p)
    found = next(_refusals(model, d, release, role), "")
    return f"{p.engine} {release.release}+: {found}" if found else ""


def _refusals(
    model: Model, d: Deployment, release: EngineRelease, role: InstanceRole
) -> Iterator[str]:
    yield from _degrees(model, d, release)
    yield from _heads(model, d)
    yield from _blocks(model, d)
    if role != "both":
        yield from _apart(model, d, release, role)


def _degrees(model: Model, d: Deployment, release: EngineRelease) -> Iterator[str]:
    """Degrees that do not go together."""
    if d.pp > 1 and d.dp > 1 and not release.staged_ranks:
        yield "no data-parallel attention on pipeline stages"
    if d.pp > 1 and d.ep > 1 and not release.staged_experts:
        yield "no expert parallelism on pipeline stages"
    if d.pp > 1 and d.draft_tokens and not release.staged_drafts:
        yield "no drafts on pipeline stages"
    if d.dp > 1 and d.tp > 1 and not release.cut_ranks:
        yield "attention is data parallel over all ranks, or over none"
    experts = next(
        (one.ffn.experts for one, _ in kinds_of(model.stack) if isinstance(one.ffn, Experts)), 1
    )
    unspread = {d.experts, stored_formats(model)[1]} & set(release.unspread_formats)
    if d.ep > 1 and unspread:
        yield f"no expert parallelism with experts in {unspread.pop()}"
    even = experts % d.ep == 0 or (d.is_wide and (experts + REDUNDANT) % d.ep == 0)
    if d.ep > 1 and not even and not release.uneven_experts:
        yield f"{experts} experts do not divide by ep{d.ep}"


def _heads(model: Model, d: Deployment) -> Iterator[str]:
    """Heads that tensor parallelism cannot cut."""
    for layer, _ in kinds_of(model.stack):
        for mixer in layer.mixers:
            match mixer:
                case Attention() | LatentAttention() if mixer.heads % d.tp:
                    yield f"{mixer.heads} heads do not divide by tp{d.tp}"
                case Attention() if mixer.kv_heads % d.tp and d.tp % mixer.kv_heads:
                    yield f"{mixer.kv_heads} key heads neither divide by tp{d.tp} nor it by them"
                case Mamba2() if mixer.heads % d.tp:
                    yield f"{mixer.heads} heads of the recurrence do not divide by tp{d.tp}"
                case DeltaNet() if mixer.value_heads % d.tp or mixer.key_heads % d.tp:
                    yield f"{mixer.key_heads} heads of the recurrence do not divide by tp{d.tp}"
                case _:
                    pass


def _blocks(model: Model, d: Deployment) -> Iterator[str]:
    """Widths that a cut would part inside of a block with one scale."""
    for layer, _ in kinds_of(model.stack):
        match layer.ffn:
            case Dense(width=width):
                yield from _cut(width, d.tp, d.weights, "the feed-forward part")
            case Experts(width=width):
                yield from _cut(width, max(d.stage // d.ep, 1), d.experts, "experts")
            case _:
                pass
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                queries = mixer.heads * mixer.head_dim
                keys = max(mixer.kv_heads, d.tp) * mixer.head_dim
                yield from _cut(queries, d.tp, d.weights, "queries")
                yield from _cut(keys, d.tp, d.weights, "keys")


def _cut(width: int, parts: int, form: str, what: str) -> Iterator[str]:
    size = BLOCKS.get(form)
    if size is not None and parts > 1 and (width % parts or width // parts % size):
        yield f"{width} of {what} in {parts} parts are no whole blocks of {size} ({form})"


def _apart(
    model: Model, d: Deployment, release: EngineRelease, role: InstanceRole
) -> Iterator[str]:
    """Instances that hand over, or receive, caches."""
    if not release.connector:
        yield "no connector hands caches over"
    if d.pp > 1 and role == "prefill" and not release.prefill_stages:
        yield f"{release.connector} hands no cache over from pipeline stages"
    if d.pp > 1 and role == "decode" and not release.decode_stages:
        yield f"{release.connector} hands no cache over to pipeline stages"
    recurrent = any(
        isinstance(mixer, Mamba2 | DeltaNet)
        for layer in model.stack.layers
        for mixer in layer.mixers
    )
    if recurrent and not release.moved_states:
        yield f"{release.connector} hands over no states of recurrences"
