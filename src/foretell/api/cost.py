"""What a training run and an answered token cost: `run_cost`, `token_cost`.

Each asks its question of `estimate` or `serve`, and hands hours of chips, watts and tokens to
economics/work.py; figures of `prices.` are set there, everything else where speed is found.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell import units
from foretell.api.serving import closed_form
from foretell.api.serving_questions import question_of
from foretell.api.training import estimate
from foretell.catalog.money import Sheet, sheet
from foretell.economics.answer import CostAnswer
from foretell.economics.ask_system import OF_SPEED, RENT, with_flags
from foretell.economics.settings import set_prices
from foretell.economics.work import PaidWork, Paying, bill_work, check_way
from foretell.errors import BadInput, Infeasible, Problem, wrong
from foretell.inputs.overrides import ROOTS, parse_settings
from foretell.inputs.question import as_texts, collect
from foretell.serving.serve import ServeQuestion
from foretell.specs.cost import Driver
from foretell.specs.questions.common import Settings
from foretell.specs.questions.cost import Payment as Payment
from foretell.specs.questions.cost import RunQuestion as RunQuestion
from foretell.specs.questions.cost import TokenQuestion as TokenQuestion
from foretell.specs.questions.flags import check_sizes, part, values_of
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.training import TrainingQuestion
from foretell.specs.result import Run, StepEstimate
from foretell.specs.service import ServiceEstimate
from foretell.specs.system import System
from foretell.uncertainty.intervals import Intervals, of_estimate, of_served, request_time
from foretell.workload.parameters import count

WHOLE = ("gpus", "global_batch", "seq_len", "target_len")
"""Numbers of a training step that a sweep has as texts."""
MOST_RENT = 1e7
"""A higher rent is a typing error."""
LEAST_GOODPUT = 1e-3
"""Share of the time in steps that are kept below which a run makes no progress."""
OF_STEP = ("step_s", "mfu", "tokens_per_s")
"""Numbers of a step that the bill of a run tells."""
LOAD = ("isl", "osl", "concurrency", "rate", "spread")
"""Of a service, as `serve` takes them."""


def run_cost(question: RunQuestion) -> CostAnswer:
    """Money, energy and carbon of a training run to a number of tokens."""
    speed, money = _settings(question.set)
    tokens = "chinchilla" if question.tokens is None else question.tokens
    asked = values_of(part(TrainingQuestion, question, tokens=tokens, set=speed))
    asked |= {name: _whole(asked[name]) for name in WHOLE}
    problems: list[Problem] = []
    paid = collect(lambda: _payment(question, money, question.system), problems)
    try:
        result = collect(lambda: estimate(**asked), problems)
    except Infeasible:
        if problems:  # what cannot be read comes before what cannot be done
            raise BadInput(problems) from None
        raise
    if problems or paid is None or result is None or result.run is None:
        raise BadInput(problems)
    return _billed(paid, _work_of_run(result, result.run), result.overrides, result.assumptions)


def token_cost(question: TokenQuestion) -> CostAnswer:
    """Money, energy and carbon of a million tokens answered, at a steady load."""
    speed, money = _settings(question.set)
    load = {name: _decimal(getattr(question, name)) for name in LOAD}
    problems: list[Problem] = []
    paid = collect(lambda: _payment(question, money, question.system), problems)
    asked = collect(
        # Of a unit rent, tokens in and out show their shares.
        lambda: question_of(
            part(
                ServiceQuestion, question, **load, gpus=_whole(question.gpus), set=speed, price=1.0
            )
        ),
        problems,
    )
    if problems or paid is None or asked is None:
        raise BadInput(problems)
    served = closed_form(*asked)
    work = _work_of_tokens(served, asked[0].system, float(count(asked[0].model).active))
    return _billed(paid, work, served.overrides, served.assumptions)


def check_payment(question: Payment, system: Any = None) -> None:
    """Raise BadInput where a way to pay, a place or a figure is not known."""
    _payment(question, _settings(question.set)[1], system)


def estimate_bill(result: StepEstimate, paid: Payment) -> CostAnswer:
    """Money, energy and carbon of an estimate: of its whole run, or of a million tokens without one."""
    assert result.scenario is not None
    work = _work_of_step(result) if result.run is None else _work_of_run(result, result.run)
    payment = _payment(paid, _settings(paid.set)[1], result.scenario.system)
    return _billed(payment, work, result.overrides, result.assumptions)


def service_bill(served: ServiceEstimate, scenario: ServeQuestion, paid: Payment) -> CostAnswer:
    """Money, energy and carbon of a million tokens of a service, asked with a rent of 1."""
    work = _work_of_tokens(served, scenario.system, float(count(scenario.model).active))
    payment = _payment(paid, _settings(paid.set)[1], scenario.system)
    return _billed(payment, work, served.overrides, served.assumptions)


def speed_settings(texts: Settings) -> tuple[str, ...]:
    """Settings without those of money."""
    return _settings(texts)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidHour:
    """What an hour of a chip at work costs, by what it draws: base + per_watt x watts."""

    way: str
    """own, on-demand or another term."""
    base_usd: float
    """At no draw: all of a rent; capital, building and upkeep of what is owned."""
    usd_per_watt: float
    """For each watt that a chip draws on average; 0 where the chip is rented."""
    watts: float
    """The draw at which `slopes` hold."""
    slopes: Mapping[str, float]
    """Figure of the prices -> d ln(usd of an hour) / d ln(figure), over the figure's own range."""
    assumptions: tuple[str, ...]
    """Where the figures come from."""

    def usd(self, hours: float, watts: float) -> float:
        """So many hours of chips at a mean draw."""
        return hours * (self.base_usd + self.usd_per_watt * watts)


def paid_hour(payment: Payment, name: str, system: System, gpus: int, watts: float) -> PaidHour:
    """An hour of a chip of a cluster; money is linear in hours and in the draw, so two answers tell it."""
    money = _settings(payment.set)[1]
    paid = _payment(payment, money, name)

    def ask(draw: float) -> CostAnswer:
        work = PaidWork(
            what="run",
            name=name,
            system=system,
            gpus=gpus,
            gpu_hours=(1.0, 1.0, 1.0),
            watts_per_gpu=draw,
            shares={"steps": 1.0},
            tokens=1.0,
            flop=1.0,
        )
        return _billed(paid, work, {}, ())

    now, more = ask(watts), ask(2.0 * watts)
    per_watt = (more.usd - now.usd) / watts
    return PaidHour(
        way=str(now.facts["paid"]),
        base_usd=now.usd - per_watt * watts,
        usd_per_watt=per_watt,
        watts=watts,
        slopes={d.path: _driver_slope(d) for d in now.drivers if d.path.split(".")[0] != "work"},
        assumptions=now.assumptions,
    )


def _driver_slope(d: Driver) -> float:
    """The elasticity over a figure's range; 0 where it has none above zero."""
    if not 0.0 < d.low < d.high or min(d.usd_at_low, d.usd_at_high) <= 0.0:
        return 0.0
    return math.log(d.usd_at_high / d.usd_at_low) / math.log(d.high / d.low)


def _payment(
    question: Payment, money: Sequence[str], system: Any = None
) -> tuple[Sheet, Paying, dict[str, object]]:
    """Figures, how they are paid, and what was set; every problem at once."""
    check_sizes(question)
    problems: list[Problem] = []
    seen: dict[str, object] = {}
    settings = parse_settings(tuple(money))
    figures = collect(lambda: set_prices(sheet(), settings, seen, (RENT,)), problems) or sheet()
    flags = (question.years, question.utilisation)
    figures = collect(lambda: with_flags(figures, *flags), problems) or figures
    collect(lambda: figures.resolve("grids", question.region, "region"), problems)
    collect(lambda: check_way(question.rent), problems)
    texts = [question.price] if question.price != "" else []
    texts += [s.text for s in settings if s.path == f"prices.{RENT}"]
    price = collect(lambda: units.parse(texts[0], RENT, "price"), problems) if texts else None
    if price is not None and not 0.0 < price < MOST_RENT:
        problems.append(wrong("price", texts[0], "not a usable rent", "above 0"))
    if problems:
        raise BadInput(problems)
    name = system if isinstance(system, str) else ""
    paying = Paying(
        way=question.rent,
        price=price,
        region=question.region,
        name=name,
        listed=str(question.prices) if price is None else "",
    )
    return figures, paying, seen


def _billed(
    paid: tuple[Sheet, Paying, dict[str, object]],
    work: PaidWork,
    overrides: Mapping[str, object] | None,
    assumptions: Sequence[str],
) -> CostAnswer:
    """Work with its payment."""
    figures, paying, seen = paid
    said = [text for text in assumptions if not text.startswith(OF_SPEED)]
    return bill_work(work, paying, figures, {**(overrides or {}), **seen}, said)


def _work_of_run(result: StepEstimate, run: Run) -> PaidWork:
    """A run as work: kept steps, and what failures and checkpoints take."""
    assert result.scenario is not None
    low, high = run.interval["p90"] if run.interval else (run.days, run.days)
    if run.goodput < LEAST_GOODPUT or low <= 0.0:
        message = (
            f"the run never ends: saving and reading its {run.checkpoint_bytes / 1e9:.4g} GB at "
            f"{run.storage_bytes_per_s:.4g} B/s takes longer than the machine runs without a failure"
        )
        allowed = "a storage_bandwidth at which it does not"
        raise Infeasible([wrong("storage_bandwidth", run.storage_bytes_per_s, message, allowed)])
    ends = (run.gpu_hours * low / run.days, run.gpu_hours, run.gpu_hours * high / run.days)
    seconds = run.gpu_hours * 3600.0
    flop = result.tflops_per_gpu * 1e12 * result.step_s * result.gpus * run.steps
    return PaidWork(
        what="run",
        name=result.model,
        system=result.scenario.system,
        gpus=result.gpus,
        gpu_hours=ends,
        watts_per_gpu=None if run.energy_joules is None else run.energy_joules / seconds,
        shares=_lost_time(run),
        tokens=run.tokens,
        flop=flop,
        facts={
            "plan": str(result.plan),
            "plan_chosen": result.plan_chosen,
            "fits": result.fits,
            "tokens": run.tokens,
            "days": run.days,
            "goodput": run.goodput,
            "mfu": result.mfu,
            "step_s": result.step_s,
            "tokens_per_s": result.tokens_per_s,
            "model_flop": flop,
        },
        intervals={
            "days": run.intervals["days"],
            **{name: found for name, found in of_estimate(result).items() if name in OF_STEP},
        }
        if run.intervals
        else {},
    )


def _work_of_step(result: StepEstimate) -> PaidWork:
    """A million tokens of steps: nothing fails, nothing is saved."""
    assert result.scenario is not None
    seconds = 1e6 / result.tokens_per_s
    hours = result.gpus * seconds / 3600.0
    low, high = (result.interval or {}).get("p90", (result.step_s, result.step_s))
    flop = result.tflops_per_gpu * 1e12 * seconds * result.gpus
    joules = result.energy_joules
    return PaidWork(
        what="run",
        name=result.model,
        system=result.scenario.system,
        gpus=result.gpus,
        gpu_hours=(hours * low / result.step_s, hours, hours * high / result.step_s),
        watts_per_gpu=None if joules is None else joules / result.step_s / result.gpus,
        shares={"steps": 1.0},
        tokens=1e6,
        flop=flop,
        facts={"plan": str(result.plan), "mfu": result.mfu, "tokens_per_s": result.tokens_per_s},
        intervals={
            name: found for name, found in of_estimate(result).items() if name in OF_STEP[1:]
        },
    )


def _lost_time(run: Run) -> dict[str, float]:
    """Shares of the time: goodput is the product of what three losses leave, in this order."""
    left = run.restart_share
    waited = left * (1.0 - run.checkpoint_share)
    again = left * run.checkpoint_share * (1.0 - run.rework_share)
    return {
        "steps": 1.0 - (1.0 - left) - waited - again,
        "steps done again": again,
        "checkpoints": waited,
        "restarts": 1.0 - left,
    }


def _work_of_tokens(served: ServiceEstimate, system: Any, active: float) -> PaidWork:
    """A million answered tokens as work: reading prompts and writing answers."""
    per_s = served.output_tokens_per_s
    hours = served.gpus * 1e6 / per_s / 3600.0
    low, high = _slower_and_faster(served)
    prompts = _prompt_share(served)
    return PaidWork(
        what="token",
        name=served.model,
        system=system,
        gpus=served.gpus,
        gpu_hours=(hours * low, hours, hours * high),
        watts_per_gpu=served.joules_per_token * per_s / served.gpus,
        shares={"prompts": prompts, "answers": 1.0 - prompts},
        tokens=1e6,
        flop=2.0 * active * 1e6 * (1.0 + served.isl / served.osl),
        facts={
            "plan": served.plan,
            "plan_chosen": served.plan_chosen,
            "replicas": served.replicas,
            "profile": served.profile,
            "isl": served.isl,
            "osl": served.osl,
            "concurrency": served.concurrency,
            "rate": served.rate,
            "ttft_ms": served.ttft_ms.mean,
            "tpot_ms": served.tpot_ms.mean,
            "requests_per_s": served.requests_per_s,
            "tokens_per_s": per_s,
            "tokens_per_s_per_user": served.output_tokens_per_s_per_user,
            "prompt_share": prompts,
            "input_tokens_per_output_token": served.isl / served.osl,
        },
        intervals=_of_service(served),
    )


def _of_service(served: ServiceEstimate) -> Intervals:
    """Intervals of a service under the names that its bill has."""
    found = of_served(served)
    named = {
        "tokens_per_s": "output_tokens_per_s",
        "tokens_per_s_per_user": "output_tokens_per_s_per_user",
    }
    kept = {name: found[name] for name in ("ttft_ms", "tpot_ms", "requests_per_s") if name in found}
    return kept | {name: found[of] for name, of in named.items() if of in found}


def _prompt_share(served: ServiceEstimate) -> float:
    """Share of the chips' time in steps that read prompts, from what a unit rent gives them."""
    if served.usd_per_million_input_tokens is None:
        return 0.0
    read_per_hour = served.requests_per_s * served.isl * 3600.0 / 1e6
    share = served.usd_per_million_input_tokens * read_per_hour / served.gpus
    return min(max(share, 0.0), 1.0)


def _slower_and_faster(served: ServiceEstimate) -> tuple[float, float]:
    """Hours over the expected ones, nine times in ten: a given rate takes the same chips all the same."""
    return (1.0, 1.0) if served.rate is not None else request_time(served)["p90"]


def _settings(given: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Settings of speed, and those of money."""
    texts = as_texts(given)
    parse_settings(texts, ROOTS)
    money = tuple(text for text in texts if text.strip().startswith("prices."))
    return tuple(text for text in texts if text not in money), money


def _whole(value: Any) -> Any:
    """A whole number where a text is one: sweeps and flags give texts."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else value


def _decimal(value: Any) -> Any:
    """A number where a text is one, else the text for `serve` to complain of."""
    try:
        return value if value is None else float(value)
    except (TypeError, ValueError):
        return value
