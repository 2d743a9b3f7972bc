"""From the parallelism cells of a run to a job and a plan, blank cells filled by stated rules.

tp, pp, cp, ep     1; a model that one chip cannot hold, of which no split is printed: tp fills the fast
                   domain up to 8, pp the fewest stages whose states fit
dp                 chips / (tp pp cp)
sequence           2,048, or 1,024 in tables of 2020 and before
micro-batch        global batch / (dp x accumulation); else 1 with pp > 1, or with a width above 6,000 and
                   ZeRO below 3; else up to 16,384 tokens
global batch       what step time and rate imply; else dp x micro-batch x accumulation
recompute          none (where flash attention keeps no scores, selective is nothing more)
fused attention    as the framework's generation has it
sp                 with tp > 1 where the framework's generation has it
vpp                Megatron-Core and what is not named, dense, pp > 1: layers per stage up to 8, else 5 or 4
                   where they divide
zero               0; with pp > 1 gradients are sent once a step
"""

import re

from foretell.catalog.software import software as catalogued
from foretell.catalog.software import software_names
from foretell.lab.validate.training_model import UnsupportedRun
from foretell.lab.validate.training_recipes import (
    expert_ranks,
    expert_words,
    recomputed_modules,
    whole_step,
)
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.chip import Chip
from foretell.specs.job import Job
from foretell.specs.plan import WIDE_PRECISIONS, Plan, parse_plan
from foretell.specs.plan_words import GENERIC
from foretell.specs.software import HOPPER_ON, Software

SEQ_LEN, OLD_SEQ_LEN = 2048, 1024
"""Tokens per sequence where nothing is said; GPT-2's in the tables of 2020."""
MICRO_TOKENS, WIDE = 16_384, 6000
"""Most tokens of a micro-batch that is not printed, and the width above which it is one sequence."""
FEW_LAYERS = 8
"""Layers of a stage up to which each is a virtual stage by itself."""
STATE_BYTES, STATE_SHARE, MOST_TP = 18.0, 0.7, 8
"""Bytes per weight and share of the memory by which a split that is not printed is chosen."""
PRECISIONS = ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4")
"""What precision_id may be beside bf16-pure."""
KEEPS_PRODUCTS = re.compile(r"minimal|save.?dot|dots", re.IGNORECASE)
"""Names of JAX's policies that compute no product again."""
BLACKWELL_ON = ("blackwell", "blackwell-ultra", "rubin")
"""Architectures that torchtitan's runs of since 2025 are on."""
LORA_RANK = 16
"""Rank of adapters that is not printed."""
FRAMEWORK_IDS = {"other": "generic", "pytorch": "pytorch-eager", "maxtext": "jax", "": "generic"}
"""framework_id of the tables -> generation, where they are not called the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayout:
    """A run as a job and a plan."""

    job: Job
    """Chips, batch and sequence."""
    plan: Plan
    """The plan."""
    software: Software
    """Its framework."""
    said: tuple[str, ...]
    """A sentence for each cell that was filled."""


def seq_len_of(row: TrainingRow) -> tuple[int, tuple[str, ...]]:
    """Tokens per sequence, and what was filled."""
    if row.seq_len:
        return row.seq_len, ()
    old = any(year in f"{row.framework} {row.source}" for year in ("2019", "2020"))
    length = OLD_SEQ_LEN if old else SEQ_LEN
    return length, (f"sequence length {length}: not printed",)


def framework_of(row: TrainingRow, architecture: str) -> tuple[str, tuple[str, ...]]:
    """The word for a row's framework; compiled, eager and overlap settings are in its words."""
    name = FRAMEWORK_IDS.get(row.framework_id, row.framework_id)
    engine = re.search(r"\bTE\b|transformer.?engine", row.framework)
    if name == "megatron":
        name = _megatron(row, modern=bool(engine) or architecture in HOPPER_ON)
    if name == "megatron-core" and whole_step(row, architecture):
        name = "megatron-graphs"
    if name == "fsdp":
        name = _fsdp(row)
    since = re.search(r"202[5-9]", f"{row.framework} {row.source}")
    if name == "torchtitan" and architecture not in BLACKWELL_ON and not since:
        # Its loss has been compiled since 2025; runs that do not tell when they ran tell by their chips.
        name = "torchtitan-2024"
    if name == "generic" and row.framework.lower().startswith("flash-attn"):
        name = "flash-attn"
    if name == "generic" and architecture.startswith("trainium"):
        name = "neuronx"
    if name.partition("@")[0] in software_names():
        return name, ()
    return GENERIC, (f"framework {name}: as any of today",)


def _megatron(row: TrainingRow, *, modern: bool) -> str:
    """Megatron-LM of before Transformer Engine, or as its scripts run it since, unless overlap is off."""
    if not modern:
        return "megatron@2022"
    off = re.search(r"overlap[^;,.]{0,12}(disabled|off)|no overlap", row.notes.lower())
    return "megatron-te" if off else "megatron"


def _fsdp(row: TrainingRow) -> str:
    """FSDP by its trainer and its year: DeepSpeed's ZeRO is of the same kind in the tables."""
    told = row.framework.lower()
    if "deepspeed" in told:
        return "deepspeed"
    if "compile" in told:
        return "fsdp-compiled"
    years = re.findall(r"20(?:19|2\d)", f"{row.framework} {row.source}")
    late = "megatron-core" in told or (bool(years) and max(years) >= "2024")
    return "fsdp" if late else "fsdp@2023"


def layout_of(row: TrainingRow, chip: Chip, layers: int, left_out: str = "") -> RunLayout:
    """Job and plan of a row; Unsupported where its numbers contradict each other."""
    if not row.gpus:
        raise UnsupportedRun("the number of chips is blank")
    seq_len, said = seq_len_of(row)
    word, more = framework_of(row, chip.architecture)
    software = catalogued(word, (left_out,) if left_out else ())
    said += more
    tp, pp, cp, dp, more = _degrees(row, chip)
    said += more
    micro_batch, global_batch, more = _batches(row, dp, pp, seq_len)
    said += more
    vpp, more = _virtual(row, software, pp, layers, global_batch / (dp * micro_batch))
    said += more
    recipe, more = _recipe(row, word, software, chip, tp, dp, -(-layers // pp))
    said += more
    ep, more = expert_ranks(row, tp * cp * dp)
    said += more
    experts = expert_words(row, software, chip, tp, tp * cp * dp)
    said += (f"experts {' '.join(experts)}: as the recipe",) if experts else ()
    degrees = f"tp{tp} pp{pp} vpp{vpp} dp{dp} cp{cp} ep{ep} mbs{micro_batch}"
    # Stages of a pipeline send gradients once a step, whatever they share (torchtitan, Llama 3).
    once = ["reduce=step"] if (row.zero_stage or 0) >= 2 and pp > 1 else []
    plan = parse_plan(f"{degrees} {' '.join([*recipe, *once, *experts])}", row.gpus)
    job = Job(gpus=row.gpus, global_batch=global_batch, seq_len=seq_len)
    return RunLayout(job=job, plan=plan, software=software, said=said)


def _degrees(row: TrainingRow, chip: Chip) -> tuple[int, int, int, int, tuple[str, ...]]:
    """tp, pp, cp and dp."""
    gpus = row.gpus or 1
    said: tuple[str, ...] = ()
    tp, pp, cp = row.tp or 1, row.pp or 1, row.cp or 1
    if row.tp is None and row.pp is None and row.zero_stage != 3:
        tp, pp = _split(row, chip)
        said += (f"tp{tp} pp{pp}: no split is printed, the fewest ranks that hold the states",)
    if gpus % (tp * pp * cp):
        raise UnsupportedRun(f"tp x pp x cp = {tp * pp * cp} does not divide {gpus} chips")
    dp = gpus // (tp * pp * cp)
    if row.dp != dp:
        what = "not printed" if row.dp is None else f"{row.dp} in print does not fit the chips"
        said += (f"dp {dp}: {what}",)
    return tp, pp, cp, dp, said


def _split(row: TrainingRow, chip: Chip) -> tuple[int, int]:
    """The fewest ranks that hold a model's states: tp within the fast domain first."""
    gpus = row.gpus or 1
    need = STATE_BYTES * (row.params_b or 0.0) * 1e9 / (STATE_SHARE * float(chip.memory_bytes))
    tp = pp = 1
    while tp * pp < need:
        inside = tp < min(MOST_TP, row.domain or MOST_TP) and gpus % (2 * tp * pp) == 0
        if inside:
            tp *= 2
            continue
        more = [p for p in range(pp + 1, gpus // tp + 1) if gpus % (tp * p) == 0]
        fits = [p for p in more if not (row.layers or p) % p]
        if not fits:
            break
        pp = fits[0]
    return tp, pp


def _batches(row: TrainingRow, dp: int, pp: int, seq_len: int) -> tuple[int, int, tuple[str, ...]]:
    """Sequences per micro-batch and per step."""
    said: tuple[str, ...] = ()
    gpus = row.gpus or 1
    batch = row.global_batch
    if batch is None and row.step_s and row.rate:
        batch = max(round(row.step_s * row.rate * gpus / seq_len), 1)
        said += (f"global batch {batch}: what step time and rate imply",)
    micro = row.micro_batch
    if micro is None and batch and row.grad_accum and batch % (dp * row.grad_accum) == 0:
        micro = batch // (dp * row.grad_accum)
        said += (f"micro-batch {micro}: global batch over dp x accumulation",)
    if micro is None:
        # ZeRO 3 gathers all weights for every micro-batch: nobody makes these smaller than they must be.
        single = pp > 1 or ((row.hidden or 0) > WIDE and row.zero_stage != 3)
        room = 1 if single else max(MICRO_TOKENS // seq_len, 1)
        share = max(batch // dp, 1) if batch else room
        micro = max(m for m in range(1, min(room, share) + 1) if share % m == 0)
        said += (f"micro-batch {micro}: not printed",)
    if batch is None:
        batch = dp * micro * (row.grad_accum or 1)
        said += (f"global batch {batch}: dp x micro-batch x accumulation",)
    if batch < dp * micro:
        micro = max(batch // dp, 1)
        said += (f"micro-batch {micro}: the global batch allows no more",)
    return micro, batch, said


def _virtual(
    row: TrainingRow, software: Software, pp: int, layers: int, micro_batches: float
) -> tuple[int, tuple[str, ...]]:
    """Virtual stages per rank."""
    if row.vpp:
        return (row.vpp if pp > 1 else 1), ()
    usual = software.interleaves and not row.experts and not row.lora
    # Two layers fewer where embedding and head take the place of one each, as in Llama 3.
    stage = -(-layers // pp)
    even = stage * pp in (layers, layers + 2)
    if pp == 1 or not usual or not even or micro_batches % pp:
        return 1, ()
    options = (stage,) if stage <= FEW_LAYERS else tuple(v for v in (5, 4) if stage % v == 0)
    vpp = options[0] if options else 1
    return vpp, (f"vpp{vpp}: not printed",)


def _recipe(
    row: TrainingRow, word: str, software: Software, chip: Chip, tp: int, dp: int, stage_layers: int
) -> tuple[list[str], tuple[str, ...]]:
    """Words for everything but the degrees."""
    words = [f"zero{row.zero_stage or 0}", f"framework={word}"]
    said: tuple[str, ...] = ()
    shared = row.zero_group if row.zero_stage and row.zero_group else 0
    words += [f"shard={shared}"] if 0 < shared < dp else []
    flash = row.flash.lower()
    fused_attention = not flash.startswith("no") if flash else software.flash
    if not flash:
        said += (f"fused attention {'on' if fused_attention else 'off'}: as {software.name}",)
    words += [] if fused_attention else ["no-flash"]
    told_library = flash[:3] in ("fa1", "fa2", "fa3")
    library = flash[:3] if told_library else software.attention_on(chip.architecture)
    words += [f"attention={library}"] if library != "auto" and fused_attention else []
    told = f"{row.framework} {row.notes}".lower()
    words += [] if software.fused and "eager" not in told else ["no-fused"]
    if tp > 1:
        on = row.sp == "yes" if row.sp else software.sequence_parallel
        said += () if row.sp else (f"sequence parallelism {'on' if on else 'off'}: not printed",)
        words += ["sp" if on else "no-sp"]
        # Asynchronous tensor parallelism is not a generation's but an option's of torchtitan.
        words += ["tp_overlap=on"] if on and re.search(r"async ?tp", row.notes.lower()) else []
    again, more = _recompute(row, word, software, chip, stage_layers)
    words += [f"recompute={again}", *_dtypes(row, software, chip)]
    if row.lora:
        words += [f"lora={LORA_RANK}", "adapters=qkv"]
        more += (f"adapters of rank {LORA_RANK} on queries, keys and values: not printed",)
    return words, said + more


def _recompute(
    row: TrainingRow, word: str, software: Software, chip: Chip, stage_layers: int
) -> tuple[str, tuple[str, ...]]:
    """What is computed again; PyTorch's selective saves every second product: half of the layers' work."""
    chosen: str = row.recompute
    said: tuple[str, ...] = ()
    if not chosen:
        modules = recomputed_modules(row, chip)
        if modules is not None:
            return modules, (f"recompute {modules}: not printed, as the recipe",)
        chosen = software.recompute
        said = (f"recompute {chosen}: not printed, as {word}",)
    if chosen != "selective" or software.selective == "selective":
        return chosen, said
    if software.selective == "products":
        return "products", (
            *said,
            "selective recomputation: by operation, every second product kept",
        )
    if software.selective == "layers":
        share, why = _repeated(row)
        many = round(share * stage_layers)
        said = (*said, f"selective recomputation: {why}")
        return ("none" if many == 0 else f"full:{many}"), said
    if KEEPS_PRODUCTS.search(row.notes):
        return chosen, said
    # Of JAX's policies the usual ones keep queries, keys and values, `minimal` every product.
    return software.selective, (f"selective recomputation: {software.selective}",)


def _repeated(row: TrainingRow) -> tuple[float, str]:
    """Share of the layers' forward work that is done again, and why: where hardware and model utilisation
    are both printed their ratio tells, 4/3 for all of it."""
    printed = re.search(r"HFU\s*=\s*([\d.]+)", row.notes)
    if printed is None or not row.mfu:
        return 0.5, "half of the layers' work"
    share = 3.0 * (float(printed.group(1)) / row.mfu - 1.0)
    return min(max(share, 0.0), 1.0), "what hardware and model utilisation tell"


def _dtypes(row: TrainingRow, software: Software, chip: Chip) -> list[str]:
    """Precision, and what weights, gradients and states are kept in; fp16 where the chip has no bf16."""
    half = "bf16" if "bf16" in chip.matrix_flop_per_s else "fp16"
    if row.precision_id == "bf16-pure":
        return ["precision=bf16", "gradients=bf16", "master=none", "states=bf16"]
    precision = row.precision_id if row.precision_id in PRECISIONS else half
    words = [f"precision={precision}"]
    if precision == "fp8" and "row" in row.precision.lower():
        words += ["scaling=row"]
    if software.gradients != "bf16" or precision in WIDE_PRECISIONS:
        return words
    return [*words, f"gradients={'fp16' if precision == 'fp16' else 'bf16'}"]
