"""Plan text: what is printed parses back to the same plan; what is wrong is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.specs.plan import Plan, batch_of, default_plan, parse_plan
from foretell.specs.plan_words import AXES

DEGREE = st.integers(1, 10**6)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    vpp = draw(st.integers(1, 12))
    return Plan(
        dp=draw(DEGREE), tp=draw(DEGREE), pp=draw(DEGREE), cp=draw(DEGREE), ep=draw(DEGREE),
        etp=draw(DEGREE), zero=draw(st.integers(0, 3)), micro_batch=draw(DEGREE), vpp=vpp,
        sp=draw(st.booleans()), flash=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        schedule=draw(st.sampled_from(["1f1b", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe"])),
        precision=draw(st.sampled_from(["bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4"])),
        optimizer=draw(st.sampled_from(["adam", "sgd"])),
        weights=draw(st.sampled_from(["fp32", "bf16", "fp16", "fp8"])),
        gradients=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        master=draw(st.sampled_from(["fp32", "bf16", "none"])),
        states=draw(st.sampled_from(["fp32", "bf16", "fp8"])),
        order=tuple(draw(st.permutations(AXES))),
    )  # fmt: skip


@given(plans(), st.randoms())
def test_text_round_trips_in_any_order(plan: Plan, random: object) -> None:
    words = str(plan).split()
    random.shuffle(words)  # type: ignore[attr-defined]
    assert parse_plan(" ".join(words)) == plan


@given(st.lists(plans(), min_size=1, max_size=4))
def test_a_batch_gives_its_plans_back(some: list[Plan]) -> None:
    base = default_plan()
    same = [
        Plan(dp=p.dp, tp=p.tp, pp=p.pp, vpp=p.vpp, zero=p.zero, micro_batch=p.micro_batch, sp=p.sp,
             recompute=p.recompute, order=p.order,
             schedule="interleaved" if p.vpp > 1 else "1f1b")
        for p in some
    ]  # fmt: skip
    batch = batch_of(same)
    assert [batch.plan(i) for i in range(len(same))] == same
    assert base.weights == "bf16"


def test_what_is_left_out() -> None:
    plan = parse_plan("tp8 pp4 zero1", 512)
    assert plan == Plan(tp=8, pp=4, dp=16, zero=1, sp=True)
    assert parse_plan("", 8) == Plan(dp=8)
    assert parse_plan("vpp2 pp2").schedule == "interleaved"
    assert parse_plan("no-sp tp2").sp is False
    assert parse_plan("TP2 MBS4") == Plan(tp=2, micro_batch=4, sp=True)


@pytest.mark.parametrize(("text", "path", "nearest"), [
    ("tq8", "plan", "tp8"), ("tp8 tp4", "plan", None), ("recompute=fulll", "plan.recompute", "full"),
    ("recompue=full", "plan", "recompute"), ("zero4", "plan.zero", None), ("tp0", "plan.tp", None),
    ("tp-1", "plan", "tp1"), ("tp1.5", "plan", None), ("order=tp,dp", "plan.order", None),
    ("=", "plan", None), ("tp=8", "plan", "tp8"), ("micro_batch=2", "plan", "mbs2"),
    ("tp99999999999999999999", "plan.tp", None), ("no-tp", "plan", "no-sp"), ("tp²", "plan", "tp1"),
])  # fmt: skip
def test_wrong_words_are_named(text: str, path: str, nearest: str | None) -> None:
    with pytest.raises(BadInput) as error:
        parse_plan(text)
    assert error.value.problems[0].path == path
    if nearest is not None:
        assert error.value.problems[0].nearest == nearest


def test_all_wrong_words_at_once() -> None:
    with pytest.raises(BadInput) as error:
        parse_plan("tq8 zero9 recompute=x")
    assert len(error.value.problems) == 3
