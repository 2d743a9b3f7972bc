"""What is asked of a service: its load, layout, engine and prices, and what was taken as known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from foretell import units
from foretell.api.adapters import said_of_adapters, with_adapters
from foretell.api.prefill import decode_gpus, prefill_pool
from foretell.catalog.engines import knows_kind, profiles_named, release_of_profile
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.model_names import find_model, stand_in, states_size
from foretell.catalog.models import is_catalogue_model
from foretell.catalog.names import exists
from foretell.catalog.prices import price as catalogue_price
from foretell.catalog.prices import rent_in
from foretell.errors import BadInput, Problem, wrong
from foretell.inputs.overrides import apply_settings, parse_settings
from foretell.inputs.question import ask, collect, settings_of
from foretell.inputs.system import of_system
from foretell.network.library_catalog import inner_tiers
from foretell.network.tier_checks import network_assumptions, network_problems
from foretell.serving.disaggregation import PrefillPool
from foretell.serving.encoders import encoded_input, said_of_input
from foretell.serving.engine_options import (
    adapter_load_s,
    with_acceptance,
    with_options,
    with_speculative,
)
from foretell.serving.formats import (
    cache_format,
    checkpoint_formats,
    mixture_of,
    stored_formats,
)
from foretell.serving.serve import ServeQuestion
from foretell.serving.tuned import Tuning, for_full_cards, tuned
from foretell.specs.cost import Prices
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.deployment_text import deployment_problems, parse_deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.questions.serving import (
    ServiceQuestion,
)
from foretell.specs.scenario import Scenario

DEFAULT_ENGINE = "vllm"
"""Engine where none is named: the newest profile of it for the chip."""
OF_VENDOR: Mapping[str, str] = {"Apple": "llamacpp"}
"""The same for chips that it has no kernels for."""
DEFAULT_CONCURRENCY = 32.0
"""Requests in flight where neither a concurrency nor a rate is given."""


NO_LOAD = f"{DEFAULT_CONCURRENCY:g} concurrent requests: neither a concurrency nor a rate was given"
"""What is assumed there."""


STEADY = 1e12
"""Waves of requests: so many that how the first one began does not show."""


LARGEST = 1e7
"""Lengths and loads above this are a typing error."""


def domain_of(question: ServeQuestion) -> int:
    """Chips of one domain of fast links."""
    tiers = question.system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    return round(prod(float(tier.size) for tier in tiers[:inner]))


def question_of(asked: ServiceQuestion) -> tuple[ServeQuestion, bool]:
    """The question, and whether its layout was given; every problem of the load is reported at once."""
    problems, settings = load_problems(asked), settings_of(asked)
    plan = asked.plan
    said_of_model: list[str] = []
    if isinstance(asked.model, str) and "/" in asked.model and states_size(asked.model):
        asked = replace(asked, model=model_or_stand_in(asked.model, said_of_model))
    problems += settings_without_effect(settings)
    scenario = _scenario_of(asked, problems)
    engine = asked.engine or OF_VENDOR.get(scenario.system.chip.vendor, DEFAULT_ENGINE)
    if scenario.model.kind == "encoder" and asked.osl != 1:
        said_of_model.append(
            f"{scenario.model.id} writes no answers: a request ends with its prompt"
        )
        asked = replace(asked, osl=1)
    gpus = decode_gpus(asked, scenario, problems)
    drafts = collect(lambda: with_speculative(asked.speculative, Deployment()), problems)
    if asked.speculative is None:
        drafts = None
    profile, deployment, given = choices_of(scenario, plan, engine, problems, gpus, drafts)
    own_rate = isinstance(plan, Deployment) or "accepted=" in (plan or "")
    deployment, said_of_drafts = with_acceptance(scenario.model, deployment, given=own_rate)
    deployment = with_adapters(asked, deployment, problems)
    said_of_tuning: list[str] = []
    tuning = _tuning_of(asked, scenario, profile, given=given) if asked.tuned else None
    if tuning is not None:
        deployment, said_of_tuning = tuned(deployment, tuning)
    profile = with_options(profile, deployment)
    seen = collect(
        lambda: encoded_input(scenario.model, float(asked.isl), asked.images, asked.audio),
        problems,
    )
    if problems or seen is None:
        raise BadInput(problems)
    loaded_s = adapter_load_s(scenario.model, scenario.system, deployment)
    profile = replace(profile, latency_s=profile.latency_s + loaded_s, encoders=seen.loads)
    pool, said_of_pool = prefill_pool(asked, scenario, (profile, deployment), engine)
    if pool is not None:
        pool = _priced_and_tuned(pool, asked, settings, tuning)
    rate, at_once = asked.rate, asked.concurrency
    chip = scenario.system.chip
    said = [
        *said_of_model,
        *_said_of_scenario(scenario, settings),
        *profile_assumptions(profile, chip.architecture, mixture=mixture_of(scenario.model)),
        *said_of_pool,
        *said_of_drafts,
        *said_of_tuning,
        *said_of_input(seen, scenario.model, scenario.system, deployment, profile),
        *said_of_adapters(deployment),
    ]
    if rate is None and at_once is None:
        at_once = DEFAULT_CONCURRENCY
        said.append(NO_LOAD)
    said += unused_words(scenario.model, deployment, seen.prompt + float(asked.osl))
    said += _said_of_formats(plan, deployment)
    prices = rent_of(chip.id, asked.price, settings, asked.prices)
    traffic = Traffic(
        isl=seen.prompt, osl=float(asked.osl), concurrency=float(at_once or 1.0),
        least=float(asked.spread), waves=STEADY, cached=float(asked.prefix_hit),
    )  # fmt: skip
    return ServeQuestion(
        model=scenario.model,
        system=scenario.system,
        gpus=gpus,
        deployment=deployment,
        profile=profile,
        traffic=traffic,
        rate=None if rate is None else float(rate),
        prices=prices,
        assumptions=tuple(said),
        overrides=tuple(scenario.overrides.items()),
        prefill=pool,
        warnings=(*asked.warnings, *not_made_for(profile, chip.vendor)),
        targets_ms=(asked.ttft, asked.tpot),
        named=repository_named(asked.model),
    ), given


def settings_without_effect(settings: Sequence[str]) -> list[Problem]:
    """Problems of settings that serving does not read."""
    flags = {"plan": "--plan", "job": "--plan", "software": "--engine"}
    roots = [(text, flags.get(text.split(".", 1)[0].strip())) for text in settings]
    return [
        wrong("--set", text, f"has no effect on serving: use {flag}")
        for text, flag in roots
        if flag is not None
    ]


def _scenario_of(asked: ServiceQuestion, problems: list[Problem]) -> Scenario:
    """The model on its system; what is wrong with it is raised with the problems of everything else."""
    try:
        return ask(asked.model, system=asked.system, gpus=asked.gpus, set=settings_of(asked))
    except BadInput as error:
        problems = [*error.problems, *problems]
        plan = asked.plan
        collect(lambda: profiles_named(asked.engine or DEFAULT_ENGINE), problems)
        collect(lambda: parse_deployment(plan if isinstance(plan, str) else ""), problems)
        raise BadInput(problems) from None


def _tuning_of(
    asked: ServiceQuestion, scenario: Scenario, profile: EngineProfile, *, given: bool
) -> Tuning:
    """What a layout is tuned for."""
    at_once = float(asked.concurrency or DEFAULT_CONCURRENCY)
    load = Traffic(isl=float(asked.isl), osl=float(asked.osl), concurrency=at_once)
    return Tuning(
        model=scenario.model, system=scenario.system, profile=profile, load=load, layout_given=given
    )


def _priced_and_tuned(
    pool: PrefillPool, asked: ServiceQuestion, settings: Sequence[str], tuning: Tuning | None
) -> PrefillPool:
    """Prefill instances at their own rent, with what full cards want where the service is tuned."""
    own = rent_of(pool.system.chip.id, asked.price, settings, asked.prices)
    pool = replace(pool, usd_per_chip_hour=float(own.usd_per_chip_hour))
    if tuning is None:
        return pool
    front, here = pool.deployment, replace(tuning, system=pool.system, profile=pool.profile)
    return replace(pool, deployment=replace(front, **for_full_cards(front, front, here)))


def _said_of_scenario(scenario: Scenario, settings: Sequence[str]) -> list[str]:
    """What is assumed of the model and of the network."""
    before = of_system(scenario.system, parse_settings(settings))
    network = network_assumptions(scenario.system, before, scenario.overrides)
    return [*scenario.model.assumptions, *network]


def _said_of_formats(plan: str | Deployment | None, deployment: Deployment) -> list[str]:
    """What is assumed of the formats of weights and cache where the plan does not state them."""
    said = []
    if not isinstance(plan, str) or not names_word(plan, "weights"):
        said.append(f"weights as published: {deployment.weights}, experts {deployment.experts}")
    if not isinstance(plan, Deployment) and not names_word(plan, "kv") and deployment.kv != "bf16":
        said.append(f"cache in {deployment.kv}, as the weights are narrow; kv= says otherwise")
    return said


def model_or_stand_in(given: Any, said: list[str]) -> Any:
    """The model that is named, or one of the catalogue that has its shape, which is reported."""
    shape = stand_in(given) if isinstance(given, str) else None
    if shape is None:
        return given
    said.append(f"{given} is not in the catalogue: {shape.id} of its family and size is taken")
    return shape.id


def repository_named(given: object) -> str:
    """The repository of a hub that a question names, with its owner or without; empty where it names none."""
    if not isinstance(given, str) or not is_catalogue_model(given):
        return ""
    if given.count("/") == 1:
        return given
    entry, plain = find_model(given), given.lower()
    names = () if entry is None else entry.aliases
    return next((name for name in names if name.lower().partition("/")[2] == plain), "")


def choices_of(
    scenario: Scenario,
    plan: str | Deployment | None,
    engine: str,
    problems: list[Problem],
    gpus: int,
    drafts: Deployment | None = None,
) -> tuple[EngineProfile, Deployment, bool]:
    """Profile, deployment, and whether its layout was given; BadInput with all problems so far.

    `gpus` are the chips that decode; `drafts` has the drafter asked for by name.
    """
    parts: list[Any] = []
    chip = scenario.system.chip
    problems += network_problems(scenario.system, scenario.overrides)
    mixture = mixture_of(scenario.model)
    for make in (
        lambda: profile_for(engine, chip, mixture=mixture),
        lambda: deployment_of(scenario.model, plan),
    ):
        try:
            parts.append(make())
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    profile, deployment = parts
    if drafts is not None:
        deployment = replace(deployment, drafter=drafts.drafter, draft_tokens=drafts.draft_tokens)
    if not isinstance(plan, Deployment) and not names_word(plan, "kv"):
        own = cache_format(deployment.weights, deployment.experts, profile.engine, chip)
        deployment = replace(deployment, kv=own)
    given = plan is not None and (isinstance(plan, Deployment) or names_layout(plan))
    if given:
        problems += deployment_problems(deployment, gpus)
    if problems:
        raise BadInput(problems)
    return profile, deployment, given


def deployment_of(model: Model, plan: str | Deployment | None) -> Deployment:
    """The plan on top of the checkpoint's own formats."""
    if isinstance(plan, Deployment):
        return plan
    weights, experts = stored_formats(model)
    found = parse_deployment(plan or "", Deployment(weights=weights, experts=experts))
    if not names_word(plan, "weights") or names_word(plan, "experts"):
        return found
    # A precision alone is that of a checkpoint: mixtures in 4 bits keep what is not experts in 16.
    weights, experts = checkpoint_formats(model, found.weights)
    return replace(found, weights=weights, experts=experts)


def names_word(plan: str | None, name: str) -> bool:
    """Whether a plan has a value for a name."""
    return any(word.startswith(f"{name}=") for word in (plan or "").split())


def names_layout(plan: str) -> bool:
    """Whether a plan's words fix the layout: any degree is named."""
    return any(word.rstrip("0123456789") in ("tp", "pp", "dp", "ep", "cp") for word in plan.split())


def unused_words(model: Model, d: Deployment, longest: float) -> list[str]:
    """Words that say nothing of this model, and requests beyond what it was made for."""
    said = []
    if not mixture_of(model) and (d.ep > 1 or d.experts != d.weights):
        said.append(f"{model.id} has no experts: ep and experts= change nothing")
    if model.kind == "encoder":
        longest -= 1.0  # a request ends with its prompt
    if model.kind != "encoder-decoder" and longest > model.max_positions:
        said.append(
            f"requests of {longest:.0f} tokens are beyond the model's own {model.max_positions}"
        )
    return said


def not_made_for(profile: EngineProfile, vendor: str) -> tuple[str, ...]:
    """A warning where the engine does not run on the chips of a vendor."""
    made_for = release_of_profile(profile).vendors
    if not made_for or vendor in made_for:
        return ()
    return (f"{profile.engine} runs on chips of {', '.join(made_for)} alone, not of {vendor}",)


def profile_assumptions(profile: EngineProfile, architecture: str, *, mixture: bool) -> list[str]:
    """What is to be known of the profile."""
    said = [f"engine profile {profile.id}"]
    if profile.architectures and architecture not in profile.architectures:
        said.append(
            f"{profile.id} was fitted on {', '.join(profile.architectures)}, not on {architecture}"
        )
    if not knows_kind(profile, mixture=mixture):
        kind = "a mixture of experts" if mixture else "a dense one"
        said.append(
            f"{profile.id} was fitted on {' and '.join(profile.families)} models, not on {kind}"
        )
    return said


def rent_of(
    chip: str, given: float | None, settings: Sequence[str] = (), listed: str | Path = ""
) -> Prices:
    """The catalogue's rent, a price list's, or the one given by hand; chips of one's own have none."""
    found = Prices(source=f"no rent of {chip} is known")
    if exists(chip, ("chip",)):
        offers = rent_in(listed, chip) if listed and given is None else None
        found = catalogue_price(chip, listed=offers)
    alone: dict[str, Any] = {"low_usd_per_chip_hour": 0.0, "high_usd_per_chip_hour": 0.0}
    if given is not None:
        return replace(found, usd_per_chip_hour=float(given), source="given by hand", **alone)
    held = apply_settings(found, parse_settings(settings), "prices")
    by_hand = held.usd_per_chip_hour != found.usd_per_chip_hour
    return replace(held, **alone) if by_hand else held


def load_problems(load: ServiceQuestion) -> list[Problem]:
    """Numbers that are none, or out of range; two loads at once."""
    problems = []
    limits = {
        "isl": (1.0, LARGEST), "osl": (1.0, LARGEST), "concurrency": (1.0, LARGEST),
        "rate": (1e-9, LARGEST), "price": (0.0, LARGEST), "spread": (0.01, 1.0),
        "prefix_hit": (0.0, 1.0),
        "ttft": (1e-3, 1e12),
        "tpot": (1e-3, 1e12),
        "audio": (0.0, LARGEST),
    }  # fmt: skip
    for name, (low, high) in limits.items():
        value = getattr(load, name)
        if value is None:
            continue
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not low <= value <= high:
            problems.append(
                wrong(
                    name,
                    value,
                    "not a usable number",
                    f"a number from {low:g} to {high:g}",
                    units.plain_number(value),
                )
            )
    if load.concurrency is not None and load.rate is not None:
        problems.append(
            wrong("rate", load.rate, "given beside a concurrency", "one of --concurrency and --rate")
        )  # fmt: skip
    return problems
