"""What tables leave out of mixtures of experts: dispatcher, overlap, dropping, modules computed again.

Published runs name a release and a model; how that release trains it stands in the public recipes:

capacity      1 where a run says that tokens are dropped; 1.25 in MaxText's tuned mixtures ("dropped",
              AI-Hypercomputer/tpu-recipes and maxtext/benchmarks); else none is dropped
dispatch      Megatron-Bridge, scripts/performance/configs: DeepSeek and Kimi by DeepEP or HybridEP (one copy
              to a node) in every dropless release, Qwen3 and later ones by HybridEP from 26.02.01 on, but for
              Qwen3-235B in domains of 8 chips; GPT-OSS by a plain all-to-all but in MXFP8 and NVFP4 from
              26.06 on; everything else a plain all-to-all
              DeepSeek's own framework: DeepEP behind the products (DeepSeek-V3 report, section 3.2)
ep_overlap    Megatron-Bridge from 26.04 on: where experts span nodes of Blackwell chips; from 26.06 on: MXFP8
              on Blackwell, whose whole step is one CUDA graph; Qwen3-235B on H100
recompute     Megatron-Bridge: DeepSeek and Kimi keep no expanded keys and values (mla_up_proj), on H100 no
              dense part either (mlp); GPT-OSS in 16 bits no activations and norms (moe_act, layernorm)
etp           1 in Megatron-Bridge and where experts are folded; else Megatron's default, tp
ep            no more than the ranks that a stage has
"""

import re

from foretell.lab.validate.training_rows import TrainingRow
from foretell.specs.chip import Chip
from foretell.specs.software import Software

RELEASE = re.compile(r"\b(\d\d)\.(\d\d)(?:\.(\d\d))?\b")
"""Year, month and patch of a NeMo container."""
LATENT_FAMILIES = re.compile(r"deepseek|kimi", re.IGNORECASE)
"""Families that DeepEP was written for."""
BIASED = re.compile(r"gpt.?oss", re.IGNORECASE)
"""The family whose experts have biases, which fused dispatch came to last."""
LARGE_QWEN = re.compile(r"qwen.?3.?235b", re.IGNORECASE)
"""The model whose recipes have a plain all-to-all in domains of 8 chips."""
SMALL_DOMAIN = 8
"""Chips of such a domain."""
DROPPED = re.compile(r"token.?drop|capacity.?factor 1\b", re.IGNORECASE)
"""Words of runs that drop tokens."""
TUNED_CAPACITY = 1.25
"""Capacity of MaxText's tuned mixtures."""
BLACKWELL = ("blackwell", "blackwell-ultra", "rubin")
"""Architectures whose recipes capture whole steps."""
WHOLE_STEP = ("mxfp8", "nvfp4")
"""Precisions that they do it in."""

Version = tuple[int, int, int]
NEVER: Version = (0, 0, 0)
"""Before every release: none is named."""
HYBRID_EP: Version = (26, 2, 1)
"""The release whose Qwen3 recipes have HybridEP."""
ACROSS_NODES: Version = (26, 4, 0)
"""The release from which experts over nodes are exchanged behind products."""
GRAPHS: Version = (26, 6, 0)
"""The release from which whole steps are graphs."""


def release_of(row: TrainingRow) -> Version | None:
    """The container's release that a row names."""
    found = RELEASE.search(row.notes)
    if found is None:
        return None
    year, month, patch = found.groups()
    return int(year), int(month), int(patch or 0)


def expert_ranks(row: TrainingRow, ranks: int) -> tuple[int, tuple[str, ...]]:
    """ep, which the ranks of a stage bound."""
    asked = row.ep or 1
    if asked <= ranks:
        return asked, ()
    fits = max(n for n in range(1, ranks + 1) if ranks % n == 0)
    return fits, (f"ep {fits}: {asked} in print are more than the ranks of a stage",)


def whole_step(row: TrainingRow, architecture: str) -> bool:
    """Whether a recipe captures whole steps with their experts in CUDA graphs."""
    release = release_of(row) or NEVER
    known = bool(row.experts) and "bridge" in row.framework.lower() and release >= GRAPHS
    return known and row.precision_id in WHOLE_STEP and architecture in BLACKWELL


def expert_words(
    row: TrainingRow, software: Software, chip: Chip, tp: int, ranks: int
) -> list[str]:
    """Plan words of a run with experts; none of any other."""
    if not row.experts:
        return []
    text = f"{row.model} {row.framework} {row.notes}"
    # A table's header says of all its rows that none is dropped; the model's own name knows better.
    if DROPPED.search(text):
        words = ["capacity=1"]
    else:
        words = [f"capacity={TUNED_CAPACITY}"] if software.family == "jax" else []
    bridge = "bridge" in row.framework.lower()
    ep = min(row.ep or 1, ranks)
    if ep > 1 and software.family == "generic" and LATENT_FAMILIES.search(row.model):
        return [*words, "dispatch=dedup", "ep_overlap=on"]
    if ep > 1 and tp > 1 and not bridge and "fold" not in row.framework.lower():
        words += (
            [f"etp{tp}"]
            if ranks % (ep * tp) == 0 and software.family.startswith("megatron")
            else []
        )
    if ep == 1 or not bridge or "capacity=1" in words:
        return words
    fused = fused_dispatch(row, chip.architecture)
    across = ep > (row.domain or ep) and chip.architecture in BLACKWELL
    late = fused and across and (release_of(row) or NEVER) >= ACROSS_NODES
    graphs = whole_step(row, chip.architecture) and row.precision_id == "mxfp8"
    large = LARGE_QWEN.search(row.model) and chip.architecture not in BLACKWELL
    words += ["dispatch=dedup"] if fused else []
    return words + (["ep_overlap=on"] if late or graphs or large else [])


def fused_dispatch(row: TrainingRow, architecture: str) -> bool:
    """Whether a Megatron-Bridge recipe sends one copy to a node, its sorting fused."""
    if LATENT_FAMILIES.search(row.model):
        return True
    if BIASED.search(row.model):
        return whole_step(row, architecture)
    if LARGE_QWEN.search(row.model) and (row.domain or SMALL_DOMAIN) <= SMALL_DOMAIN:
        return False
    return (release_of(row) or NEVER) >= HYBRID_EP


def recomputed_modules(row: TrainingRow, chip: Chip) -> str | None:
    """Modules that a Megatron-Bridge recipe computes again; None: nothing is known."""
    if not row.experts or "bridge" not in row.framework.lower():
        return None
    if LATENT_FAMILIES.search(row.model):
        return "up" if chip.architecture in BLACKWELL else "up+mlp"
    if BIASED.search(row.model) and row.precision_id == "bf16":
        return "act+norm"
    return None
