"""What is worth showing of each verb's answer."""

from collections.abc import Callable, Mapping

from foretell.records import with_values
from foretell.report.presentation.numbers import (
    Presentation,
    ShownNumber,
    Told,
    bars_of,
    children,
    fact_of,
    facts_of,
    table_of,
    value_text,
)
from foretell.specs.outputs import OUTPUTS
from foretell.units import format as with_unit

NO_ANSWER = {"fits", "problems", "hint_on_request"}
"""Keys of an answer that is no and has nothing besides."""
_FIRST = (
    "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "mfu_causal",
    "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes", "energy_joules",
)  # fmt: skip
TRAINED = (*_FIRST, *(name for name in OUTPUTS if name not in _FIRST))
"""Numbers of a training step: those that people look for, then every other output."""
SERVED = (
    "ttft_ms", "tpot_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user", "requests_per_s", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens", "joules_per_token", "limited_by",
)  # fmt: skip
"""Main numbers of a service."""


def place(told: Told) -> str:
    """The model, the GPUs and the system."""
    return f"{told['model']} on {told['gpus']:,} x {told['system']}"


def fits_words(told: Told) -> str:
    """Whether it fits, in words."""
    words = {"yes": "fits", "no": "does not fit", "too_close": "borderline"}
    return words.get(str(told.get("fits")), "")


def largest_part(told: Told) -> ShownNumber:
    """The largest share of a step by its name."""
    return ShownNumber(name="limited_by", label="largest part", text=str(told["limited_by"]))


def estimate_card(told: Told) -> Presentation:
    """A training step: time, throughput, memory, where the time goes."""
    run = told.get("run")
    lines = [] if not run else [f"whole run: {run['days']:.3g} days for {run['tokens']:.3g} tokens"]
    return Presentation(
        title=f"{place(told)}: {told['plan']} ({fits_words(told)})",
        lines=tuple(lines),
        facts=(*facts_of(told, *TRAINED), largest_part(told)),
        bars=bars_of(children(told.get("breakdown"))),
        bar_title="step time",
    )


def search_card(told: Told) -> Presentation:
    """The plans of a search."""
    plans = told["plans"]
    names = ("plan", "step_s", "tokens_per_s_per_gpu", "mfu", "peak_memory_bytes", "fits")
    head = f"{place(plans[0])}: " if plans else ""
    return Presentation(
        title=f"{head}{told['plans_feasible']:,} of {told['plans_evaluated']:,} plans fit",
        facts=facts_of(plans[0], "plan", "step_s", "mfu", "peak_memory_bytes") if plans else (),
        **table_of(plans, *names),
    )


def explain_card(told: Told) -> Presentation:
    """Where time goes, in sentences and parts."""
    return Presentation(
        title=f"{place(told)}: {told['plan']}",
        lines=tuple(told["conclusions"]),
        facts=(*facts_of(told, "step_s", "peak_memory_bytes"), largest_part(told)),
        bars=bars_of({part["name"]: part["value"] for part in told["time"]}),
        bar_title="step time",
    )


def memory_card(told: Told) -> Presentation:
    """Memory of each stage."""
    names = ("stage", "allocated_bytes", "reserved_bytes", "framework_bytes", "total_bytes")
    fullest = next(s for s in told["stages"] if s["stage"] == told["fullest_stage"])
    return Presentation(
        title=f"{place(told)}: {told['plan']} ({fits_words(told)})",
        facts=facts_of(
            told, "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes"
        ),
        **table_of(told["stages"], *names),
        bars=bars_of(fullest["at_peak"]),
        bar_title="memory of the fullest stage",
    )


def simulate_card(told: Told) -> Presentation:
    """A simulated step beside the closed form."""
    return Presentation(
        title=f"{place(told)}: {told['plan']}, simulated",
        facts=facts_of(told, "step_s", "closed_step_s", "difference", "mfu", "peak_memory_bytes"),
        bars=bars_of({part["name"]: part["simulated_s"] for part in told["shares"]}),
        bar_title="step time",
    )


def sensitivity_card(told: Told) -> Presentation:
    """What would move a result."""
    if "elasticities" in told:  # of one result of an estimate
        title = f"{told['result']} = {value_text(told['result'], told['value'])}: {told['plan']}"
        return Presentation(
            title=title, **table_of(told["elasticities"], "path", "words", "elasticity")
        )
    first = next(iter(told["results"]))
    rows = [{**n, "elasticity": n["elasticities"][first]} for n in told["numbers"]]
    facts = [fact_of(name, value, None) for name, value in told["results"].items()]
    return Presentation(
        title=f"{place(told)}: {told['plan']}",
        facts=tuple(facts),
        **table_of(rows, "path", "words", "elasticity"),
    )


def plans_card(told: Told) -> Presentation:
    """Two plans beside each other."""
    rows = [
        {"part": leaf["name"], "A": leaf["a"], "B": leaf["b"], "B - A": leaf["difference"]}
        for leaf in told["time"]
    ]
    shown = [
        {name: one if name == "part" else with_unit(one, "s") for name, one in row.items()}
        for row in rows
    ]
    return Presentation(
        title=f"A: {told['a']['plan']}; B: {told['b']['plan']}",
        lines=tuple(told["conclusions"]),
        **table_of(shown, "part", "A", "B", "B - A"),
    )


def diagnose_card(told: Told) -> Presentation:
    """Measured runs beside their prediction."""
    causes = [cause["mechanism"] for run in told["runs"] for cause in run["causes"]]
    told_of = [name for run in told["runs"] for name in run]
    measured = (
        ("measured_s", "predicted_s")
        if "measured_s" in told_of
        else ("metric", "measured", "predicted")
    )
    names = ("source", "plan", *measured, "gap")
    return Presentation(
        title=f"{told['model']} on {told['system']}: {len(told['runs'])} measured runs",
        lines=tuple(f"likely cause: {cause}" for cause in dict.fromkeys(causes))[:3],
        **table_of(told["runs"], *names),
    )


def serve_card(told: Told) -> Presentation:
    """A service under load."""
    load = f"{told['isl']:g} tokens in, {told['osl']:g} out"
    return Presentation(
        title=f"{place(told)}: {told['plan']}, {load}",
        facts=facts_of(told, *SERVED),
        bars=bars_of(told["step_ms"]),
        bar_title="decode step",
    )


def fleet_card(told: Told) -> Presentation:
    """Several models on one fleet."""
    names = ("name", "rate", "ttft_ms", "tpot_ms", "pool", "stretch")
    return Presentation(
        title=f"{told['gpus']:,} GPUs serve {len(told['models'])} models",
        lines=(f"each on its own: {told['gpus_apart']:,} GPUs",),
        facts=facts_of(told, "gpus", "usd_per_hour", "gpus_apart", "usd_per_hour_apart"),
        **table_of(told["models"], *names),
    )


def size_card(told: Told) -> Presentation:
    """The cheapest ways to serve a rate."""
    best, targets = (
        told["best"],
        f"TTFT {told['ttft_target_ms']:g}, TPOT {told['tpot_target_ms']:g} ms",
    )
    met = "meets" if best["meets"] else "misses"
    head = (
        f"{told['gpus']:,} x {told['system']} serve {told['rate']:g} requests/s of {told['model']}"
    )
    names = (
        "name", "usd_per_hour", "usd_per_million_input_tokens", "usd_per_million_output_tokens", "gpus",
        "ttft_ms", "tpot_ms", "headroom",
    )  # fmt: skip
    return Presentation(
        title=head,
        lines=(f"{best['name']} {met} {targets} at {told['percentile']}",),
        facts=facts_of(best, "gpus", "usd_per_hour", "ttft_ms", "tpot_ms", "headroom"),
        **table_of(told["options"], *names),
    )


def post_train_card(told: Told) -> Presentation:
    """A step of fine-tuning or reinforcement learning."""
    known = {**told, "intervals": {"step_s": told["interval"]}}
    return Presentation(
        title=f"{told['algorithm']} of {told['model']} on {told['gpus']:,} GPUs ({fits_words(told)})",
        facts=facts_of(
            known,
            "step_s",
            "tokens_per_s_per_gpu",
            "idle_share",
            "tail_share",
            "usd_per_step",
            "run_s",
            "usd_per_run",
        ),
        bars=bars_of({phase["name"]: phase["exposed"] for phase in told["phases"]}),
        bar_title="step time",
    )


def compare_card(told: Told) -> Presentation:
    """Systems by cost."""
    names = (
        "system", "usd_per_million_tokens", "usd_per_run", "usd_per_request", "tokens_per_s", "gpus", "usd",
        "paid",
    )  # fmt: skip
    first = told["systems"][0]
    return Presentation(
        title=told["conclusions"][0],
        lines=tuple(told["conclusions"][1:]),
        facts=facts_of(first, "system", "usd_per_million_tokens", "tokens_per_s"),
        **table_of(told["systems"], *names),
        bars=bars_of(first["total_cost"] or {}),
        bar_title=f"total cost of {first['system']}",
    )


def buy_card(told: Told) -> Presentation:
    """What to get for a budget and a deadline."""
    names = ("name", "usd", "days", "sure", "price", "within")
    return Presentation(
        title=told["headline"][0],
        lines=tuple(told["headline"][1:]),
        facts=facts_of(told["options"][0], "gpus", "usd", "days", "sure"),
        **table_of(told["options"], *names),
    )


def cost_card(told: Told) -> Presentation:
    """Money by part."""
    names = ("usd", "usd_per_million_tokens", "usd_per_gpu_hour", "tco_usd", "days", "energy_mwh")
    what = "a million tokens" if told["what"] == "token" else f"a {told['what']}"
    return Presentation(
        title=f"cost of {what}: {told['name']}",
        facts=facts_of(told, *names),
        bars=bars_of(children(told["breakdown"])),
        bar_title="cost",
    )


def network_card(told: Told) -> Presentation:
    """A collective over sizes."""
    return Presentation(
        title=f"{told['collective']} among {told['group']:,} of {told['system']}: {told['algorithm']}",
        facts=facts_of(told, "size_bytes", "seconds", "bus_bytes_per_s"),
        **table_of(told["sizes"], "size_bytes", "seconds", "bus_bytes_per_s", "algorithm"),
    )


def scaling_card(told: Told) -> Presentation:
    """Strategies over GPUs."""
    names = ("model", "strategy", "fits_from", "scales_to", "best_gpus", "why")
    return Presentation(
        title=f"{told['mode']} scaling on {told['system']}", **table_of(told["curves"], *names)
    )


def codesign_card(told: Told) -> Presentation:
    """Designs, those on the front."""
    rows = [{**one["values"], **one["mix"]} for one in told["front"]]
    varied = dict.fromkeys(name for one in told["front"] for name in one["values"])
    names = (*varied, *told["objectives"])
    possible = f"{told['possible']:,} of {told['points']:,} designs possible"
    return Presentation(
        title=f"{possible}, {len(rows)} on the Pareto front", **table_of(rows, *names)
    )


def sweep_card(told: Told) -> Presentation:
    """How far a sweep is."""
    state = "complete" if told["complete"] else "running" if told["running"] else "incomplete"
    done = f"{told['points_done']:,} of {told['points']:,} points"
    return Presentation(title=f"sweep in {told['folder']}: {state}, {done}")


def improve_card(told: Told) -> Presentation:
    """A launch, and a faster one."""
    return Presentation(
        title=f"{told['model']} on {told['gpus']:,} x {told['system']}: {told['plan_after']}",
        lines=tuple(told["conclusions"]),
        **table_of(told["changes"], "flag", "before", "after"),
    )


def trace_card(told: Told) -> Presentation:
    """A measured trace beside its prediction."""
    return Presentation(
        title=f"{len(told['ranks'])} ranks, {len(told['steps'])} steps",
        lines=tuple(told["notes"]),
        bars=bars_of(
            {k: v for k, v in told["ranks"][0]["mean"].items() if k != "step_s"}
            if told["ranks"] else {}
        ),
        bar_title="measured step",
    )  # fmt: skip


def changed_card(told: Told) -> Presentation:
    """Predictions that moved between two versions."""
    names = ("name", "metric", "before", "after", "change", "cause")
    return Presentation(
        title=told["title"], lines=tuple(told["conclusions"]), **table_of(told["moved"], *names)
    )


CARDS: Mapping[str, Callable[[Told], Presentation]] = {
    "estimate": estimate_card,
    "search": search_card,
    "explain": explain_card,
    "memory": memory_card,
    "simulate": simulate_card,
    "sensitivity": sensitivity_card,
    "compare-plans": plans_card,
    "diagnose": diagnose_card,
    "serve": serve_card,
    "size": size_card,
    "fleet": fleet_card,
    "post-train": post_train_card,
    "compare": compare_card,
    "buy": buy_card,
    "cost": cost_card,
    "network": network_card,
    "scaling": scaling_card,
    "codesign": codesign_card,
    "optimise": codesign_card,
    "sweep": sweep_card,
    "improve": improve_card,
    "characterize": trace_card,
    "changed": changed_card,
}
"""Verb -> what is shown of its answer."""


def presentation(verb: str, told: Told) -> Presentation:
    """What is shown of a verb's answer; of a no without numbers why it is none."""
    verb = "cost" if verb.startswith("cost ") else verb
    reasons = tuple(
        ": ".join(one[key] for key in ("path", "message") if one.get(key))
        for one in told.get("problems") or ()
        if isinstance(one, Mapping)
    )
    if reasons and len(told) <= len(NO_ANSWER & set(told)):
        return Presentation(title="No", verdict="no", reasons=reasons)
    made = CARDS[verb](told)
    sure = told.get("interval_reason")
    return with_values(
        made,
        verdict=fits_words(told),
        reasons=reasons,
        notes=(f"how sure: {sure}",) if sure else (),
        assumptions=tuple(told.get("assumptions") or ()),
    )
