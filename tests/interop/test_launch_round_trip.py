"""Plan -> a tool's arguments -> plan: equal on what the tool can be told, and a note for the rest."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from foretell.api.training import estimate
from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog.software import software, software_names
from foretell.errors import BadInput, Infeasible
from foretell.interop.launch import SERVING, TRAINING, Tool, Training
from foretell.interop.service_write import Serving, write_serving
from foretell.interop.tools import read_arguments
from foretell.interop.training_write import write_training
from foretell.search import instead
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.plan import AXES, Plan, default_plan, parse_plan
from foretell.specs.plan_words import CHOICES

LAYERS = 64
"""Layers of the model below; stages and virtual stages divide them."""
MODEL = catalog_model("qwen3-32b")
EXPERTS = catalog_model("qwen3-30b-a3b")
H200 = catalog_system("h200-sxm")
LARGE = replace(H200, chip=replace(H200.chip, memory_bytes=1e14))
"""Whatever the plan, it fits."""
FREE = tuple(
    key for key in CHOICES if key not in ("precision", "scaling", "adapters", "schedule", "tp_mode")
)
"""Keys of a plan whose values go with all others."""
DEGREE = st.sampled_from([1, 2, 4, 8])

TELLS: dict[Tool, frozenset[str]] = {
    "megatron": frozenset(
        """dp tp pp vpp cp ep etp cp_mode dispatch ep_overlap capacity zero micro_batch sp flash recompute
        schedule precision scaling shard gradients master states""".split()
    ),
    "torchtitan": frozenset(
        "dp tp pp vpp cp ep zero micro_batch sp fused reshard recompute schedule shard".split()
    ),
    "deepspeed": frozenset(
        """dp tp pp cp ep etp zero micro_batch precision gradients optimizer offload secondary wire
        bucket""".split()
    ),
}
"""Fields that each tool can be told, within the values drawn below: written down here apart from the code."""


@st.composite
def plans(draw: st.DrawFn, tool: Tool) -> Plan:
    """Plans whose told fields have values that the tool has."""
    tp, cp, ep = draw(DEGREE), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    pp = draw(st.sampled_from([1, 2, 4]))
    vpp = draw(st.sampled_from([1, 2, 4])) if pp > 1 and tool != "deepspeed" else 1
    dp = draw(st.sampled_from([4, 8, 16]))
    values: dict[str, object] = {
        "tp": tp, "cp": cp, "ep": ep, "pp": pp, "vpp": vpp, "dp": dp,
        "micro_batch": draw(st.sampled_from([1, 2, 4])),
        "schedule": "interleaved" if vpp > 1 else "1f1b",
        "sp": tp > 1 and tool != "deepspeed" and draw(st.booleans()),
        "recompute": draw(st.sampled_from(["none", "full"])),
        "gradients": draw(st.sampled_from(["fp32", "bf16"])),
    }  # fmt: skip
    if tool == "megatron":
        values |= {
            "zero": draw(st.integers(0, 3)),
            "etp": draw(st.sampled_from([1, 2])) if ep > 1 else 1,
            "cp_mode": draw(st.sampled_from(["ring", "allgather", "ulysses"])) if cp > 1 else "ring",
            "flash": draw(st.booleans()),
            "master": draw(st.sampled_from(["fp32", "bf16"])),
            "states": draw(st.sampled_from(["fp32", "bf16", "fp8"])),
            "recompute": draw(
                st.sampled_from(["none", "selective", "full", f"full:{3 * vpp}", "core+norm", "up+moe"])
            ),
        }  # fmt: skip
        precision = draw(st.sampled_from(["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]))
        values |= {"precision": precision, "weights": "fp16" if precision == "fp16" else "bf16"}
        values["scaling"] = (
            draw(st.sampled_from(["tensor", "block"])) if precision == "fp8" else "tensor"
        )
        if ep > 1:
            values |= {
                "dispatch": draw(st.sampled_from(["alltoall", "dedup", "deepep"])),
                "ep_overlap": draw(st.sampled_from(["off", "on"])),
                "capacity": draw(st.sampled_from([0.0, 1.25, 2.0])),
            }
        if values["zero"]:
            values["shard"] = draw(st.sampled_from([0, 2]))
    if tool == "torchtitan":
        # Context-parallel ranks share as FSDP's do.
        values["zero"] = 3 if cp > 1 else draw(st.sampled_from([0, 3]))
        values["fused"] = draw(st.booleans())
        values |= {
            "recompute": draw(st.sampled_from(["none", "products", "full"])),
            "cp_mode": "allgather",
        }
        if values["zero"]:
            values |= {"reshard": draw(st.booleans()), "shard": draw(st.sampled_from([0, 2 * cp]))}
    if tool == "deepspeed":
        values |= {"zero": draw(st.integers(0, 3)), "cp_mode": "ulysses" if cp > 1 else "ring"}
        values["precision"] = draw(st.sampled_from(["bf16", "fp16"]))
        values["weights"] = values["precision"]
        values["etp"] = draw(st.sampled_from([1, 2])) if ep > 1 else 1
        values["optimizer"] = draw(st.sampled_from(["adam", "muon", "sgd", "adafactor"]))
        values["offload"] = draw(
            st.sampled_from(["none", "optimizer", "optimizer+activations", "weights"])
        )
        values["wire"] = draw(st.sampled_from(["auto", "fp32", "bf16", "fp16"]))
        values["secondary"] = draw(st.sampled_from([0, 8])) if values["zero"] == 3 else 0
        values["bucket"] = draw(st.sampled_from([0, 50, 500])) if values["zero"] else 0
    return Plan(**values)  # type: ignore[arg-type]


def training(plan: Plan) -> Training:
    batch = plan.dp * plan.micro_batch * 8
    return Training(
        model=MODEL,
        plan=plan,
        software=software(plan.framework),
        gpus=plan.gpus,
        global_batch=batch,
        seq_len=4096,
    )


@pytest.mark.parametrize("tool", TRAINING)
@settings(max_examples=100)
@given(data=st.data())
def test_plans(tool: Tool, data: st.DataObject) -> None:
    plan = data.draw(plans(tool))
    run = training(plan)
    written = write_training(tool, run)
    launch = read_arguments(written.text, LAYERS)
    assert launch.tool == tool
    assert launch.unknown == ()
    assert (launch.gpus, launch.global_batch) == (run.gpus, run.global_batch)
    assert launch.seq_len == (None if tool == "deepspeed" else 4096)
    back = parse_plan(launch.plan, run.gpus)
    for name in TELLS[tool]:
        assert getattr(back, name) == getattr(plan, name), f"{name}\n{written.text}"
    assert not any(f" {name}=" in note for note in written.notes for name in TELLS[tool])


@st.composite
def any_plans(draw: st.DrawFn) -> Plan:
    """Plans of any words, whether a tool has them or not."""
    some = {
        key: draw(st.sampled_from(CHOICES[key]))
        for key in draw(st.sets(st.sampled_from(FREE), max_size=6))
    }
    tp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    dp, cp = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([1, 1, 2]))
    ep = draw(st.sampled_from([1, 1, 2]))
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    precision = draw(st.sampled_from(["bf16", "bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8"]))
    base = default_plan(vpp=vpp, precision=precision)
    lora = draw(st.sampled_from([0, 0, 0, 8]))
    more: dict[str, Any] = {
        "dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "lora": lora,
        "framework": draw(st.sampled_from(software_names())),
        "etp": draw(st.sampled_from([1, 2])) if ep > 1 and tp > 1 else 1,
        "zero": draw(st.integers(0, 3)), "micro_batch": draw(st.sampled_from([1, 2])),
        "sp": tp > 1 and draw(st.booleans()), "fused": draw(st.booleans()), "flash": draw(st.booleans()),
        "reshard": draw(st.booleans()), "capacity": draw(st.sampled_from([0.0, 1.25])),
        "imbalance": draw(st.sampled_from([1.0, 1.5])), "bucket": draw(st.sampled_from([0, 50])),
        "scaling": draw(st.sampled_from(CHOICES["scaling"])) if precision == "fp8" else "tensor",
        "adapters": draw(st.sampled_from(["all", "attention", "qkv", "qv"])) if lora else "all",
        "recompute": draw(st.sampled_from(["none", "selective", "full", "full:3", "norm+moe", "products"])),
        "offload": draw(st.sampled_from(["none", "none", "optimizer", "activations", "optimizer+weights"])),
        "order": draw(st.sampled_from([AXES, ("tp", "cp", "pp", "dp"), ("dp", "tp", "cp", "pp")])),
    }  # fmt: skip
    if more["zero"]:
        more["shard"] = draw(st.sampled_from([0, 0, 2, dp, dp * cp]))
    return replace(base, **some, **more)


@pytest.fixture
def without_advice() -> Iterator[None]:
    """Errors name no nearest plan: to look for one takes a hundred times as long as the answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instead, "nearest_plan", lambda scenario, plan: None)
        yield


def asked(plan: Plan) -> tuple[float, float] | None:
    """What is answered of a plan; None where it is none for this model and system."""
    batch = plan.dp * plan.micro_batch * 8
    try:
        found = estimate(
            EXPERTS, system=LARGE, gpus=plan.gpus, plan=plan, global_batch=batch, seq_len=2048
        )
    except (BadInput, Infeasible):
        return None
    return found.step_s, found.peak_memory_bytes


@pytest.mark.usefixtures("without_advice")
@pytest.mark.parametrize("tool", TRAINING)
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(plan=any_plans())
def test_whatever_comes_back_otherwise_is_said(tool: Tool, plan: Plan) -> None:
    """Read back, with the words put right that were reported lost, a plan has the same answer."""
    told = asked(plan)
    assume(told is not None)
    run = replace(training(plan), model=EXPERTS, seq_len=2048)
    written = write_training(tool, run)
    back = parse_plan(read_arguments(written.text, run.layers, tool).plan, run.gpus)
    said = {name for note in written.notes for name in re.findall(r"(\w+)=\S+ \(comes back", note)}
    assert asked(replace(back, **{name: getattr(plan, name) for name in said})) == told, str(plan)
    # Nothing is said without cause.
    assert all(getattr(back, name) != getattr(plan, name) for name in said)


@pytest.mark.parametrize(
    ("tool", "framework"),
    [
        ("megatron", "megatron-core"),
        ("megatron", "megatron-te"),
        ("torchtitan", "torchtitan"),
        ("deepspeed", "generic"),
    ],
)
def test_a_plan_of_the_tools_own_comes_back_the_same(tool: Tool, framework: str) -> None:
    plan = Plan(tp=2, sp=tool != "deepspeed", pp=2, dp=4, zero=1, framework=framework)
    plan = replace(plan, zero=3) if tool == "torchtitan" else plan
    written = write_training(tool, training(plan))
    assert not [note for note in written.notes if "comes back" in note]
    other = write_training(tool, training(replace(plan, framework="jax")))
    assert any("framework=jax (comes back as" in note for note in other.notes)


ODD = {
    "megatron": {"order": ("pp", "tp", "cp", "dp"), "lora": 16, "optimizer": "adafactor", "schedule": "zb-h1",
                 "recompute": "attention", "offload": "weights", "wire": "fp16", "fused": False},
    "torchtitan": {"zero": 1, "schedule": "dualpipe", "recompute": "full:3", "precision": "fp8", "lora": 8,
                   "order": ("pp", "tp", "cp", "dp"), "states": "fp8"},
    "deepspeed": {"sp": True, "recompute": "selective", "precision": "fp8", "flash": False, "vpp": 2,
                  "schedule": "interleaved", "optimizer": "adam8bit", "attention": "fa3"},
}  # fmt: skip
"""Values that a tool has no word for."""


@pytest.mark.parametrize(("tool", "name"), [(t, n) for t, odd in ODD.items() for n in odd])
def test_what_a_tool_cannot_be_told_is_said(tool: Tool, name: str) -> None:
    plan = replace(Plan(tp=2, sp=tool != "deepspeed", pp=2, dp=4), **{name: ODD[tool][name]})
    if name == "vpp":
        plan = replace(plan, schedule="interleaved")
    notes = write_training(tool, training(plan)).notes
    assert any(f" {name}=" in note for note in notes), notes


@st.composite
def deployments(draw: st.DrawFn, tool: Tool) -> Deployment:
    """Deployments that the engine can be told in full."""
    tp, dp = draw(DEGREE), draw(st.sampled_from([1, 2, 8]))
    if tool == "trtllm" and dp > 1:
        tp = 1
    cp = draw(st.sampled_from([1, 2])) if not (tool == "trtllm" and dp > 1) else 1
    ep = draw(st.sampled_from([1, tp * dp * cp])) if tool == "vllm" else draw(DEGREE)
    weights = draw(st.sampled_from(["bf16", "fp8"])) if tool != "trtllm" else "bf16"
    return Deployment(
        tp=tp, dp=dp, cp=cp, ep=ep, pp=draw(DEGREE), weights=weights, experts=weights,
        kv=draw(st.sampled_from(["bf16", "fp8"])), graph=draw(st.booleans()),
        max_batch=draw(st.none() | st.sampled_from([64, 256])),
        max_tokens=draw(st.none() | st.integers(1, 65536)),
        memory_fraction=draw(st.none() | st.integers(1, 100).map(lambda n: n / 100)),
        stream_interval=draw(st.sampled_from([1, 10])),
        draft_tokens=draw(st.integers(0, 4)),
        wait_steps=draw(st.none() | st.sampled_from([4.0, 50.0])) if tool == "trtllm" else None,
    )  # fmt: skip


@pytest.mark.parametrize("tool", SERVING)
@settings(max_examples=100)
@given(data=st.data())
def test_deployments(tool: Tool, data: st.DataObject) -> None:
    deployment = data.draw(deployments(tool))
    written = write_serving(tool, Serving(model="meta-llama/Llama-3.1-8B", deployment=deployment))
    launch = read_arguments(written.text)
    assert (launch.tool, launch.models, launch.unknown) == (tool, ("meta-llama/Llama-3.1-8B",), ())
    assert launch.gpus == deployment.gpus
    assert parse_deployment(launch.plan) == deployment, written.text
    assert written.notes == ()


@pytest.mark.parametrize(
    ("tool", "odd", "said"),
    [
        ("vllm", {"tp": 4, "ep": 2}, "ep=4, not 2"),
        ("vllm", {"weights": "nvfp4", "experts": "nvfp4"}, "weights=nvfp4"),
        ("vllm", {"wait_steps": 4.0}, "wait_steps"),
        ("sglang", {"kv": "int8"}, "kv=bf16, not int8"),
        ("trtllm", {"tp": 4, "dp": 2}, "tp=1, not 4"),
        ("trtllm", {"weights": "fp8", "experts": "fp8"}, "weights=fp8"),
    ],
)
def test_what_an_engine_cannot_be_told_is_said(
    tool: Tool, odd: dict[str, object], said: str
) -> None:
    deployment = replace(Deployment(), **odd)  # type: ignore[arg-type]
    notes = write_serving(tool, Serving(model="m", deployment=deployment)).notes
    assert any(said in note for note in notes), notes


def test_every_field_is_told_or_left_to_a_note() -> None:
    names = {field.name for field in fields(Plan)}
    assert all(told <= names for told in TELLS.values())
    with pytest.raises(BadInput, match="export"):
        write_training("vllm", training(Plan(dp=4)))
    with pytest.raises(BadInput, match="export"):
        write_serving("megatron", Serving(model="m", deployment=Deployment()))
