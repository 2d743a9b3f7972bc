"""What a cluster does with the work: each workload's speed, price, plan, and what may be wrong with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from foretell.api import training as api
from foretell.api.cost import estimate_bill, service_bill
from foretell.api.measured_files import read_measured
from foretell.api.serving import closed_forms
from foretell.economics.answer import CostAnswer
from foretell.economics.owning import CHIP, NODE
from foretell.economics.work import HOURS_OF_WORK, RENT_PATH
from foretell.errors import BadInput, Infeasible, Problem, wrong
from foretell.search.ranking import SERVED, TRAINED, SystemWorkload
from foretell.serving.serve import ServeQuestion
from foretell.specs.cost import CostLeaf
from foretell.specs.measurement import SERVED as SERVED_VALUES
from foretell.specs.measurement import Measurement
from foretell.specs.service import ServiceEstimate
from foretell.specs.study import Axis, Study, Workload
from foretell.studies.axes import RUN
from foretell.studies.procurement.clusters import Given, name_of
from foretell.studies.sweep.columns import bill_row
from foretell.studies.sweep.questions import (
    PointQuestion,
    load_question,
    question,
    service_question,
)
from foretell.uncertainty.intervals import request_time

PER_GPU = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Requests in flight for each chip that are tried where none are given."""
TOLD = (
    "work_tokens_per_s_per_gpu", "usd_per_million_work_tokens", "usd_per_gpu_hour",
    "joules_per_work_token", "carbon_g_per_million_work_tokens",
)  # fmt: skip
"""Columns of a bill that are stated of each workload."""
PRICE_ERROR = 0.1
"""How far a published price without a range may be from what is paid; judged."""
TPOT_MS = 50.0
"""Longest time of a token where a service says nothing of it: twenty a second, faster than one reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTargets:
    """What a service must keep."""

    tpot_ms: float = TPOT_MS
    """Mean time of a token after the first."""
    ttft_ms: float = math.inf
    """Mean time to the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """One workload on one cluster."""

    part: SystemWorkload
    """Its speed and price with what may be wrong with them."""
    architecture: str
    """Of the chip."""
    facts: dict[str, Any]
    """What else is stated."""
    assumptions: tuple[str, ...]
    """What it rests on."""


def run_workload(
    study: Study,
    workload: Workload | None,
    system: Given,
    gpus: int,
    share: float,
    levels: LatencyTargets,
    measured: Sequence[Measurement] = (),
) -> WorkloadResult:
    """A workload on so many chips of a system, given what was measured; Infeasible where it does not fit."""
    chosen = [(Axis(path="system"), system), (Axis(path="gpus"), gpus)]
    asked = question(study, workload, chosen)
    name = "" if workload is None else workload.name
    if asked.verb == "estimate":
        return _trained(asked, name, share, training_rows(measured))
    return _served(asked, name, share, gpus, levels, serving_rows(measured))


def _trained(
    asked: PointQuestion, name: str, share: float, measured: Sequence[Measurement]
) -> WorkloadResult:
    assert asked.payment is not None
    run = {flag: asked.flags[flag] for flag in RUN if flag in asked.flags}
    given: Any = measured
    result = api.estimate(
        **asked.place, **run, plan=asked.words or None, set=asked.speed, measured=given
    )
    bill = estimate_bill(result, asked.payment)
    low, high = (result.interval or {}).get("p90", (result.step_s, result.step_s))
    facts = {
        "plan": str(result.plan), "fits": result.fits, "step_s": result.step_s, "mfu": result.mfu,
        "tokens_per_s": result.tokens_per_s, "limited_by": result.limited_by,
    }  # fmt: skip
    if measured:
        facts |= {"prior": result.prior, "posterior_factors": result.posterior_factors}
    if result.run is not None:
        facts |= {
            "run_days": result.run.days, "run_usd": bill.usd, "usd_per_run": bill.usd,
            "tokens": result.run.tokens,
        }  # fmt: skip
    ends = (low / result.step_s, high / result.step_s)
    assert result.scenario is not None
    return _done(bill, name, share, 1.0, ends, facts, result.scenario.system.chip.architecture)


def _served(
    asked: PointQuestion,
    name: str,
    share: float,
    gpus: int,
    levels: LatencyTargets,
    measured: Sequence[Measurement],
) -> WorkloadResult:
    """A service at the load that it bears: the fastest of all that keep its levels, or the one given."""
    assert asked.payment is not None
    given = any(flag in asked.flags for flag in ("concurrency", "rate"))
    loads = [None] if given else [max(gpus * each, 1.0) for each in PER_GPU]
    tried = [{} if load is None else {"concurrency": load} for load in dict.fromkeys(loads)]
    questions = [load_question(_with(asked, load), price=1.0) for load in tried]
    best: tuple[Any, ServiceEstimate] | None = None
    least = math.inf
    for (one, _), served in zip(
        questions, _under_loads(asked, tried, questions, measured), strict=True
    ):
        if isinstance(served, Infeasible):
            if best is not None:
                break
            if one is questions[-1][0]:
                raise served
            continue
        least = min(least, served.tpot_ms.mean)
        keeps = served.tpot_ms.mean <= levels.tpot_ms and served.ttft_ms.mean <= levels.ttft_ms
        faster = best is None or served.output_tokens_per_s > best[1].output_tokens_per_s
        if (given or keeps) and faster:
            best = one, served
    if best is None:
        message = f"no concurrency meets the latency targets: a token takes at least {least:.3g} ms"
        raise Infeasible([wrong(f"tpot ({name})", levels.tpot_ms, message)])
    one, served = best
    bill = service_bill(served, one, asked.payment)
    ends = request_time(served)["p90"]
    facts = {
        "plan": served.plan, "fits": "yes", "replicas": served.replicas,
        "concurrency": served.concurrency, "ttft_ms": served.ttft_ms.mean,
        "tpot_ms": served.tpot_ms.mean, "output_tokens_per_s": served.output_tokens_per_s,
        "limited_by": served.limited_by,
        **({"prior": served.prior, "posterior_factors": served.posterior_factors} if measured else {}),
        **{n: bill.facts[n] for n in ("usd_per_million_input_tokens", "usd_per_million_output_tokens")},
    }  # fmt: skip
    written = served.osl / (served.isl + served.osl)
    facts["usd_per_request"] = 1e-6 * bill.facts["usd_per_million_tokens"] * served.osl
    return _done(bill, name, share, written, ends, facts, one.system.chip.architecture)


def _under_loads(
    asked: PointQuestion,
    loads: Sequence[dict[str, Any]],
    questions: Sequence[tuple[ServeQuestion, bool]],
    measured: Sequence[Measurement],
) -> list[ServiceEstimate | Infeasible]:
    """A service at every load, all of them as one batch; given what was measured, one by one."""
    if not measured:
        return closed_forms([one for one, _ in questions], questions[0][1])
    from foretell.api.measured_serving import condition_service

    found: list[ServiceEstimate | Infeasible] = []
    for load, (one, fixed) in zip(loads, questions, strict=True):
        known, _ = condition_service(service_question(_with(asked, load), price=1.0), measured)
        try:
            found.append(known.served(one, fixed))
        except Infeasible as error:
            found.append(error)
    return found


def without_money(done: WorkloadResult) -> WorkloadResult:
    """A result without a known price: its speed, and a price above every other."""
    facts = {name: None if "usd" in name else value for name, value in done.facts.items()}
    said = tuple(text for text in done.assumptions if "rent" not in text and "USD" not in text)
    part = replace(done.part, usd=math.inf, figures={})
    return replace(done, part=part, facts=facts, assumptions=said)


def _own_price(bill: CostAnswer) -> dict[str, tuple[float, float]]:
    """What the price of the hardware changes where it has no range: a tenth either way, judged."""
    known = {one.path for one in bill.drivers}
    if bill.facts["paid"] != "own":
        return {} if RENT_PATH in known else {RENT_PATH: (-PRICE_ERROR, PRICE_ERROR)}
    if known & {NODE, CHIP} or any(path.startswith("processes.") for path in known):
        return {}
    by = PRICE_ERROR * _share(bill.breakdown, "servers and storage") / bill.usd
    return {NODE: (-by, by)}


def _share(leaf: CostLeaf, name: str) -> float:
    """What a part of a tree is worth; 0 where it is not there."""
    if leaf.name == name:
        return leaf.value
    return sum(_share(child, name) for child in leaf.children)


def _with(asked: PointQuestion, more: dict[str, Any]) -> PointQuestion:
    return replace(asked, flags={**asked.flags, **more})


def _done(
    bill: CostAnswer,
    name: str,
    share: float,
    written: float,
    ends: tuple[float, float],
    facts: dict[str, Any],
    architecture: str,
) -> WorkloadResult:
    """Speed and price by the work token, and by how much either may be off."""
    row = bill_row(bill, written)
    figures = {
        one.path: (one.usd_at_low / bill.usd - 1.0, one.usd_at_high / bill.usd - 1.0)
        for one in bill.drivers
        if one.path != HOURS_OF_WORK
    } | _own_price(bill)
    part = SystemWorkload(
        workload=name,
        share=share,
        seconds=1.0 / row["work_tokens_per_s_per_gpu"],
        usd=row["usd_per_million_work_tokens"] / 1e6,
        less=math.log(max(ends[0], 1e-3)),
        more=math.log(max(ends[1], 1.0)),
        shared=TRAINED if bill.what == "run" else SERVED,
        figures=figures,
    )
    facts = {**facts, **{column: row[column] for column in TOLD}}
    return WorkloadResult(
        part=part, architecture=architecture, facts=facts, assumptions=tuple(bill.assumptions)
    )


def rows_of(
    measured: Any, systems: Sequence[Given], gpus: int | None, problems: list[Problem]
) -> tuple[Measurement, ...]:
    """The measured runs, each with its system (else the first one) and its chips (else those that every
    cluster is given)."""
    if not measured:
        return ()
    try:
        rows = read_measured(measured)
    except BadInput as error:
        problems += error.problems
        return ()
    found = []
    for number, one in enumerate(rows, start=1):
        told = {"system": name_of(systems[0]), **one.asked} if systems else dict(one.asked)
        if gpus is None and "gpus" not in told:
            message = (
                "a budget buys another number of chips on every system: say how many were measured"
            )
            path = f"measured {number}: gpus"
            problems.append(wrong(path, None, message, '"gpus=8 tp8: 15.2 s"'))
        found.append(replace(one, asked=told))
    return tuple(found)


def notes_of(rows: Sequence[Measurement]) -> tuple[str, ...]:
    """Where each run was measured, and what was stated on the way of reading it."""
    places = dict.fromkeys(str(one.asked.get("system", "")) for one in rows)
    said = [f"measured: {one.source}: {note}" for one in rows for note in one.notes]
    told = f"measured runs of {', '.join(places)} bear on every system, less on another chip"
    return (told, *said) if rows else ()


def training_rows(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Those of a training step."""
    return tuple(one for one in rows if not any(name in SERVED_VALUES for name in one.values))


def serving_rows(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Those of a service."""
    return tuple(one for one in rows if any(name in SERVED_VALUES for name in one.values))
