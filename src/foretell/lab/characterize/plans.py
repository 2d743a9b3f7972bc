"""Which plans the runner can run: the words it understands of a plan's text, and what they ask of a model."""

from dataclasses import replace

from foretell.errors import Problem, bad_input, wrong
from foretell.lab.characterize.models import DecoderSizes
from foretell.specs.plan import Plan, named_fields, parse_plan

FRAMEWORK = "pytorch-eager"
"""What the runner is: one plain kernel after the other, launched by Python."""
RUNS: dict[str, tuple[object, ...]] = {
    "tp_mode": ("1d",),
    "tp_overlap": ("auto", "off"),
    "vpp": (1,),
    "cp": (1,),
    "ep": (1,),
    "etp": (1,),
    "fused": (False,),
    "recompute": ("none", "full"),
    "schedule": ("1f1b", "gpipe"),
    "precision": ("bf16", "fp16", "fp32", "tf32"),
    "lora": (0,),
    "shard": (0,),
    "secondary": (0,),
    "bucket": (0,),
    "reshard": (True,),
    "reduce": ("auto",),
    "wire": ("auto",),
    "gather": ("auto",),
    "offload": ("none",),
    "optimizer": ("adam",),
    "attention": ("auto", "fa2", "cudnn"),
    "weights": ("fp32", "bf16", "fp16"),
    "gradients": ("fp32", "bf16", "fp16"),
    "master": ("fp32", "none"),
    "states": ("fp32", "bf16"),
    "framework": (FRAMEWORK,),
}
"""Fields of a plan, and the values that the runner has."""
COMPUTES = {
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp32": ("fp32",),
    "tf32": ("fp32",),
}
"""Precision of the products -> dtypes of the weights: their own, or wider ones that each use casts."""


def plan_of(text: str, processes: int, micro_batch: int | None) -> Plan:
    """The plan of a text: plain kernels, FlashAttention-2 as PyTorch has it, dp from the processes."""
    named = named_fields(text)
    if micro_batch is not None and "micro_batch" in named:
        raise bad_input("micro_batch", micro_batch, "is given in the plan too, as mbs")
    plan = parse_plan(text, processes)
    if "precision" not in named and plan.weights in COMPUTES:  # as the weights are
        plan = replace(plan, precision=plan.weights)  # type: ignore[arg-type]
    told = {"fused": False, "framework": FRAMEWORK, "attention": "fa2" if plan.flash else "auto"}
    if micro_batch is not None:
        told["micro_batch"] = micro_batch
    return replace(plan, **{n: v for n, v in told.items() if n not in named})  # type: ignore[arg-type]


def plan_problems(plan: Plan, sizes: DecoderSizes, processes: int, seq_len: int) -> list[Problem]:
    """What the runner lacks for a plan, and what does not divide."""
    found = [
        Problem(
            path=f"plan.{name}",
            value=getattr(plan, name),
            message="is not what the runner can run",
            allowed=", ".join(str(v) for v in values),
        )
        for name, values in RUNS.items()
        if getattr(plan, name) not in values
    ]
    if plan.gpus != processes:
        message = f"dp{plan.dp} tp{plan.tp} pp{plan.pp} are not {processes} processes"
        found.append(Problem(path="plan", value=plan.gpus, message=message))
    if plan.weights in RUNS["weights"] and plan.weights not in COMPUTES.get(
        plan.precision, RUNS["weights"]
    ):
        message = f"GEMMs in {plan.precision} do not take weights in {plan.weights}"
        allowed = ", ".join(p for p, weights in COMPUTES.items() if plan.weights in weights)
        found.append(
            Problem(path="plan.precision", value=plan.precision, message=message, allowed=allowed)
        )
    if plan.master == "none" and not plan.weights == plan.gradients == plan.states:
        message = "without a master copy weights, gradients and states have one dtype"
        found.append(Problem(path="plan.master", value=plan.master, message=message))
    if plan.master != "none" and plan.states != plan.master:
        found.append(wrong("plan.states", plan.states, "the states have the master copy's dtype"))
    cut = ("heads", "kv_heads", "ffn", "vocab")
    asked = [(name, getattr(sizes, name), plan.tp) for name in cut]
    asked += [("seq_len", seq_len, plan.tp if plan.tp > 1 else 1)]
    found += [
        Problem(path="plan.tp", value=by, message=f"does not divide {name} = {size}")
        for name, size, by in asked
        if size % by
    ]
    if plan.pp > sizes.layers:
        found.append(wrong("plan.pp", plan.pp, f"more stages than the {sizes.layers} layers"))
    if sizes.positions and seq_len > sizes.positions:
        message = f"the model has a table of {sizes.positions} positions"
        found.append(Problem(path="seq_len", value=seq_len, message=message))
    return found
