"""Options of software as words of a plan: each moves a step the way it should, and auto is the software's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog.attention import attention_libraries, library_for, widest_heads
from foretell.catalog.models import catalogue_model
from foretell.catalog.software import software
from foretell.inputs.plan_defaults import stated_fields
from foretell.inputs.software import with_software
from foretell.kernels.calls import STEP, calls_of
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.result import StepEstimate
from foretell.training.answer import answer_of
from foretell.training.data_parallel import message_count
from foretell.training.exposed_messages import exposure_of
from foretell.workload.ops import AttentionCore
from tests.builders import make_scenario


def asked(words: str, gpus: int = 16, kind: str = "dense") -> StepEstimate:
    plan = parse_plan(words, gpus)
    scenario = make_scenario(kind, gpus=gpus, batch=64)
    return answer_of(with_software(scenario, plan), plan, chosen=False)


BASES = [
    "zero0", "zero1", "zero2", "zero3", "zero1 pp2", "zero3 framework=torchtitan",
    "zero1 framework=megatron-te", "zero3 framework=deepspeed", "zero2 framework=deepspeed",
]  # fmt: skip


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("word", ["grad_overlap", "param_overlap"])
def test_overlap_never_costs_and_auto_stands_between(base: str, word: str) -> None:
    on, auto, off = (asked(f"{base} {word}={value}").step_s for value in ("on", "auto", "off"))
    assert on <= auto <= off
    shows = word == "grad_overlap" or not base.startswith("zero0")
    assert (on < off) == shows


@pytest.mark.parametrize("base", BASES)
def test_auto_is_one_of_both(base: str) -> None:
    """Software overlaps or it does not: what it does by itself can be said in words."""
    auto = asked(base).step_s
    said = [asked(f"{base} grad_overlap={g} param_overlap={p}").step_s for g in ("on", "off")
            for p in ("on", "off")]  # fmt: skip
    assert min(abs(one - auto) for one in said) == pytest.approx(0.0, abs=1e-12)


def test_graphs_leave_the_host_little() -> None:
    """Where the host is the slower one; software that has graphs is slower without."""
    small = "zero1 mbs1 framework=pytorch-eager"
    assert asked(f"{small} graphs=on").step_s < asked(f"{small} graphs=off").step_s
    assert asked(f"{small} graphs=off").step_s == asked(small).step_s
    own = "zero1 mbs1 framework=megatron-graphs"
    assert asked(f"{own} graphs=off").step_s >= asked(own).step_s
    assert asked(f"{own} graphs=on").step_s == asked(own).step_s


def test_deepspeed_overlaps_from_stage_3_on() -> None:
    by = software("deepspeed")
    for zero, share in ((0, 1.0), (1, 1.0), (2, 1.0), (3, 0.0)):
        shown = exposure_of(Plan(), by, float(zero))
        assert float(shown.reductions) == float(shown.gathers) == share
    apart = exposure_of(Plan(param_overlap="off"), by, np.array([[2.0], [3.0]]))
    assert apart.reductions.tolist() == [[1.0], [0.0]]  # type: ignore[union-attr]
    assert apart.gathers == apart.gathers_again == 1.0


def test_deepspeed_is_slower_than_what_prefetches_layers() -> None:
    """The same modules: hooks of the host, a message for each matrix, a copy of what arrives."""
    ours = asked("zero3 mbs1 no-fused framework=deepspeed").step_s
    plain = asked("zero3 mbs1 no-fused framework=pytorch-eager").step_s
    assert ours > plain
    below = [
        asked(f"zero1 mbs1 no-fused framework={n}").step_s for n in ("deepspeed", "pytorch-eager")
    ]
    assert below[0] > below[1]


@given(st.floats(1e6, 1e11), st.integers(1, 128), st.integers(1, 1000))
@settings(max_examples=100)
def test_a_smaller_window_has_no_fewer_messages(weights: float, layers: int, window: int) -> None:
    """At most one for each matrix; other stages and stated buckets are as without."""
    size, many = np.array([[weights]]), np.array([[float(layers)]])
    ranks = np.array([8.0])

    def count(zero: int, millions: float, bucket: float = 0.0) -> float:
        return float(
            message_count(ranks, np.array([float(zero)]), size, many, bucket, millions)[0, 0]
        )

    assert 1.0 <= count(3, 2.0 * window) <= count(3, window) <= 7.0 * layers
    assert count(1, window) == count(1, 0.0)
    assert count(3, window, 40.0) == count(3, 0.0, 40.0)


def test_a_window_below_a_layer_takes_longer() -> None:
    """More messages have more latency, where gathers are longer than what hides them."""
    many = {"system": "h100-sxm", "gpus": 32, "global_batch": 32, "seq_len": 2048}
    layer, parts = (
        foretell.estimate("llama-3.1-8b", plan=f"zero3 mbs1 prefetch={n}", **many).step_s  # type: ignore[arg-type]
        for n in (200, 5)
    )
    assert layer < parts


@pytest.mark.parametrize(("wanted", "chip", "heads", "found"), [
    ("fa1", "ampere", (128, 128), "fa1"), ("fa1", "ampere", (160, 160), "none"),
    ("fa2", "ampere", (256, 256), "fa2"), ("fa2", "ampere", (512, 512), "fa2"),
    ("fa3", "hopper", (128, 128), "fa3"), ("fa3", "ampere", (128, 128), "fa2"),
    ("fa3", "blackwell", (64, 64), "fa2"), ("cudnn", "hopper", (256, 256), "cudnn"),
    ("cudnn", "blackwell", (256, 256), "fa2"), ("cudnn", "blackwell", (192, 128), "cudnn"),
    ("cudnn", "blackwell", (128, 128), "cudnn"), ("auto", "hopper", (512, 512), "auto"),
])  # fmt: skip
def test_the_library_goes_by_chip_and_head_size(
    wanted: str, chip: str, heads: tuple[int, int], found: str
) -> None:
    assert library_for(wanted, chip, heads) == found


def test_every_library_has_a_source_and_an_heir() -> None:
    known = attention_libraries()
    assert {*known} == {"fa1", "fa2", "fa3", "cudnn", "cudnn8"}
    for one in known.values():
        assert one["why"].endswith(".")
        assert one["instead"] in {*known, "none"}


def test_completion_asks_the_model_for_its_heads() -> None:
    assert widest_heads(catalogue_model("llama-3.1-8b")) == (128, 128)
    assert widest_heads(catalogue_model("deepseek-v3")) == (192, 128)
    by = software("fsdp@2023")
    narrow = stated_fields(by, "ampere", Plan(), (128, 128))
    wide = stated_fields(by, "ampere", Plan(), (256, 256))
    assert (narrow["flash"], narrow["attention"]) == (True, "fa1")
    assert wide["flash"] is False
    assert "attention" not in wide
    core = software("megatron-core")
    assert stated_fields(core, "blackwell", Plan(), (256, 256))["attention"] == "fa2"
    assert stated_fields(core, "hopper", Plan(), (256, 256))["attention"] == "cudnn"


def test_the_library_follows_the_release() -> None:
    for word, library in (("fsdp@2023", "fa1"), ("fsdp", "fa2"), ("llm-foundry@2023-09", "fa1"),
                          ("llm-foundry", "fa2"), ("megatron", "cudnn"), ("primus", "fa2")):  # fmt: skip
        assert stated_fields(software(word), "hopper", Plan(), (128, 128))["attention"] == library
        # Volta has none of them.
        assert not stated_fields(software(word), "volta", Plan(), (128, 128))["flash"]


@given(st.integers(8, 256))
@settings(max_examples=60)
def test_stored_scores_take_whole_steps_of_a_head(width: int) -> None:
    """The first product is as long as at the next multiple of 64, never shorter than a narrower head's."""

    def steps(dim: int) -> float:
        op = AttentionCore(
            name="core", batch=1.0, heads=8.0, kv_heads=8.0, q_len=2048.0, kv_len=2048.0, qk_dim=float(dim),
            v_dim=float(dim), pairs=2048.0 * 2048.0, flash=False,
        )  # fmt: skip
        scores = next(c for c in calls_of(op, 0, backward=False) if c.family == "gemm")
        return float(np.asarray(scores.sizes["k"]))

    assert steps(width) == STEP * np.ceil(width / STEP) >= width
    assert steps(width + 1) >= steps(width)
