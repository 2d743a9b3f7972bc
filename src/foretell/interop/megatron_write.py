"""A plan as Megatron-LM's arguments, which megatron.py reads back."""

from foretell.interop.kept_flags import with_own
from foretell.interop.launch import ToolArguments, Training
from foretell.interop.launchers import LaunchJob, wrapped
from foretell.interop.layouts import megatron_text
from foretell.interop.megatron_shape import shape_flags
from foretell.interop.tool_tables import table_of
from foretell.specs.plan import WIDE_PRECISIONS
from foretell.specs.plan_forms import EVEN, offloads, recompute_layers, recompute_modules

MODES = {"ring": "p2p", "allgather": "all_gather", "ulysses": "a2a"}
"""Our cp_mode and their cp_comm_type."""
BENCHMARK = (
    "--mock-data --split 99,1,0 --train-iters 20 --lr 1.0e-4 --log-interval 1 --log-throughput",
    "--eval-interval 1000 --eval-iters 0",
)
"""What it takes to run twenty steps on made-up data and print their rate."""
BALANCE_FLAGS = {
    "batch": ["--moe-router-load-balancing-type aux_loss"],
    "sequence": ["--moe-router-load-balancing-type seq_aux_loss"],
    "bias": ["--moe-router-enable-expert-bias"],
}
"""How the router is balanced. Random routing is for benchmarks, and never written into a launch."""
PLACEHOLDERS = ("--mock-data", "--train-iters 20", "--lr 1.0e-4")
"""What of it stands for a run's own."""
NO_DROPOUT = "--attention-dropout 0.0 --hidden-dropout 0.0"
"""What is computed; Megatron's own of both is 0.1 (TransformerConfig of Core 0.14 to 0.16)."""


def write(run: Training) -> ToolArguments:
    """`pretrain_gpt.py` with the flags of model and plan, as its launcher starts it."""
    shape, notes = shape_flags(run.model, run.plan.tp, run.repository)
    flags = with_own([*shape, *plan_flags(run), NO_DROPOUT, *BENCHMARK], run.own)
    nodes, each = run.places
    job = LaunchJob(
        name=job_name(run.model.id),
        program=" \\\n  ".join(["pretrain_gpt.py", *flags]),
        nodes=nodes,
        each=each,
        chip=run.chip,
        environment=_environment(run),
        files={},
    )
    if any(text in line for text in PLACEHOLDERS for line in flags):
        notes = [*notes, "data, learning rate and number of steps are placeholders of a benchmark"]
    return ToolArguments(
        tool="megatron", text=wrapped(job, run.launcher or "torchrun"), notes=tuple(notes)
    )


def job_name(model: str) -> str:
    """A name that Slurm and Kubernetes take."""
    plain = "".join(c if c.isalnum() else "-" for c in model.lower())
    return "-".join(part for part in plain.split("-") if part)[:50] or "foretell"


def _environment(run: Training) -> dict[str, str]:
    """One connection to the device where exchanges of tensor or context parallelism are to run behind
    products, which Megatron insists on; not with FSDP, which it forbids (arguments.py, validate_args)."""
    plan = run.plan
    sharp = (plan.tp > 1 or plan.cp > 1) and plan.zero < 2
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if sharp else {}


def plan_flags(run: Training) -> list[str]:
    """The flags of the plan and the job."""
    plan = run.plan
    words = [f"--tensor-model-parallel-size {plan.tp}", f"--pipeline-model-parallel-size {plan.pp}"]
    if plan.layout != EVEN and plan.pp > 1:
        words.append(f"--pipeline-model-parallel-layout '{megatron_text(plan.layout)}'")
    elif plan.vpp > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {plan.vpp}")
    words += [f"--context-parallel-size {plan.cp}"] if plan.cp > 1 else []
    words += (
        [f"--cp-comm-type {MODES[plan.cp_mode]}"] if plan.cp > 1 and plan.cp_mode != "ring" else []
    )
    if plan.ep > 1:
        words.append(
            f"--expert-model-parallel-size {plan.ep} --expert-tensor-parallel-size {plan.etp}"
        )
        words += ["--moe-token-dispatcher-type flex"] if plan.dispatch != "alltoall" else []
        words += ["--moe-enable-deepep"] if plan.dispatch == "deepep" else []
        words += ["--overlap-moe-expert-parallel-comm"] if plan.ep_overlap == "on" else []
        words += ["--moe-shared-expert-overlap"] if plan.ep_overlap == "shared" else []
        words += BALANCE_FLAGS.get(plan.routing, [])
    words += [f"--moe-expert-capacity-factor {plan.capacity:g}"] if plan.capacity else []
    words += ["--sequence-parallel"] if plan.sp and plan.tp > 1 else []
    behind = plan.sp and plan.tp > 1 and plan.tp_overlap != "off" and not _plain(run)
    words += ["--tp-comm-overlap"] if behind else []
    words += [f"--micro-batch-size {plan.micro_batch} --global-batch-size {run.global_batch}"]
    words += [f"--seq-length {run.seq_len} --max-position-embeddings {run.seq_len}"]
    words += [*_zero_flags(run), *_precision_flags(run), *_recompute_flags(run), *_other_flags(run)]
    return words


def _plain(run: Training) -> bool:
    """Whether gradients are reduced after the passes: Megatron without its overlaps."""
    off = run.plan.grad_overlap == "off"
    own = run.software.overlap_stage > run.plan.zero and run.plan.grad_overlap == "auto"
    return run.software.sums_fused and (off or own) and run.plan.zero < 2


def _zero_flags(run: Training) -> list[str]:
    plan = run.plan
    if _plain(run):
        return (["--use-distributed-optimizer"] if plan.zero else []) + _instances(run)
    flags = {
        0: ["--overlap-grad-reduce"],
        1: ["--use-distributed-optimizer --overlap-grad-reduce"],
    }.get(plan.zero)
    if plan.zero == 1 and plan.param_overlap != "off":
        flags = [f"{flags[0] if flags else ''} --overlap-param-gather"]
    if flags is None:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[plan.zero]
        flags = [f"--use-megatron-fsdp --data-parallel-sharding-strategy {strategy}"]
        flags += ["--use-distributed-optimizer"]
        flags += [
            "--no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor --overlap-grad-reduce"
        ]
    return flags + _instances(run)


def _instances(run: Training) -> list[str]:
    """Copies of what data- and context-parallel ranks share."""
    plan, ranks = run.plan, run.plan.dp * run.plan.cp
    if not plan.zero or not plan.shard or ranks % plan.shard or plan.shard == ranks:
        return []
    return [f"--num-distributed-optimizer-instances {ranks // plan.shard}"]


def _precision_flags(run: Training) -> list[str]:
    plan = run.plan
    if plan.precision in WIDE_PRECISIONS:  # what Megatron does where nothing is said
        flags = ["--transformer-impl local"] if plan.precision == "fp32" else []
    else:
        flags = ["--fp16" if plan.precision == "fp16" else "--bf16"]
    if plan.precision == "fp8":
        recipe = "blockwise" if plan.scaling == "block" else "tensorwise"
        flags.append(f"--fp8-format hybrid --fp8-recipe {recipe}")
    elif plan.precision == "mxfp8":
        flags.append("--fp8-format e4m3 --fp8-recipe mxfp8")
    elif plan.precision == "nvfp4":
        flags.append("--fp4-format e2m1")
    if plan.wide_layers:
        first = plan.wide_layers // 2
        flags.append(
            f"--first-last-layers-bf16 --num-layers-at-start-in-bf16 {first}"
            f" --num-layers-at-end-in-bf16 {plan.wide_layers - first}"
        )
    flags += ["--fp8-param-gather"] if plan.gather == "fp8" else []
    flags += ["--grad-reduce-in-bf16"] if plan.gradients == "bf16" else []
    if plan.master == "bf16" or plan.states in ("bf16", "fp8"):
        master = "fp16" if plan.master == "bf16" else "fp32"
        states = "fp16" if plan.states == "bf16" else plan.states
        flags.append(f"--use-precision-aware-optimizer --main-params-dtype {master}")
        flags.append(f"--exp-avg-dtype {states} --exp-avg-sq-dtype {states}")
    return flags


def _recompute_flags(run: Training) -> list[str]:
    plan = run.plan
    if plan.recompute == "full":
        return ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"]
    count = recompute_layers(plan.recompute)
    if count:
        each = max(count // plan.vpp, 1)
        return [
            f"--recompute-granularity full --recompute-method block --recompute-num-layers {each}"
        ]
    modules = recompute_modules(plan.recompute)
    theirs = [
        name for name, ours in table_of("megatron").words["modules"].items() if ours in modules
    ]
    if not theirs:
        return []
    named = "" if modules == ("core",) else " --recompute-modules " + " ".join(theirs)
    return [f"--recompute-granularity selective{named}"]


def _other_flags(run: Training) -> list[str]:
    plan = run.plan
    host = offloads(plan.offload)
    flags = []
    if "optimizer" in host:  # which Megatron runs by the code path of the second flag alone
        own = plan.master == "bf16" or plan.states in ("bf16", "fp8")
        flags.append(
            "--optimizer-cpu-offload" + ("" if own else " --use-precision-aware-optimizer")
        )
    flags += [f"--cpu-offloading-num-layers {run.layers}"] if "activations" in host else []
    flags += [f"--optimizer {plan.optimizer}"] if plan.optimizer in ("sgd", "muon") else []
    flags += ["--attention-backend unfused"] if not plan.flash else []
    flags += ["--attention-backend fused"] if plan.flash and plan.attention == "cudnn" else []
    flags += (
        ["--cuda-graph-impl local --cuda-graph-scope full_iteration"] if plan.graphs == "on" else []
    )
    flags += ["--use-tp-pp-dp-mapping"] if plan.order == ("tp", "cp", "pp", "dp") else []
    return flags
