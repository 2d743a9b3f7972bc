"""Engine profiles: overheads, limits and rules of serving engines, by version and chip generation."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.errors import bad_input, nearest_name
from foretell.specs._base import release_numbers
from foretell.specs.chip import Chip
from foretell.specs.engine import EngineProfile, EngineRelease, Fit

FILE = ROOT / "engines.toml"
"""Every profile that is known."""
LINES = (
    ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "rubin"),
    ("cdna2", "cdna3", "cdna4"),
)
"""Chip generations of each maker; the nearest one of its line stands for one that no profile names."""
WIDE_CARD_BYTES = 70.0 * 2**30
"""Memory from which vLLM's defaults are those of large cards (vllm/engine/arg_utils.py)."""
NARROW_BATCH, NARROW_TOKENS = 256, 2048
"""Sequences and tokens of a step that vLLM's server allows by default on other cards, and on every A100."""
CHUNKS, WIDEST_CHUNK = ((35.0, 2048), (60.0, 4096), (160.0, 8192)), 16384
"""Memory in gibibytes below which SGLang's chunked_prefill_size is so much, and what it is elsewhere
(sglang v0.5.9, server_args.py: _handle_gpu_memory_settings)."""
OVERHEADS = (
    "host_step_s", "host_sequence_s", "layer_s", "gap_s", "exchange_s", "prefill_factor",
    "prefill_exchange_factor", "launch_s", "prefill_step_s", "latency_s",
    "latency_s_per_token", "first_use_s",
)  # fmt: skip
"""What of a profile is fitted to rows under load."""
USUAL: Mapping[str, float] = {
    "host_step_s": 2.5e-4,
    "gap_s": 4.6e-7,
    "prefill_factor": 1.12,
    "prefill_exchange_factor": 1.3,
    "launch_s": 5e-5,
    "latency_s": 0.010,
    "latency_s_per_token": 2e-6,
    "first_use_s": 0.4,
}
"""What engines of 2025 and 2026 have about; the rest as a profile has it by default."""
IN_TURN_S = 6e-4
"""What a step takes longer where the host schedules between steps and not beside them: hiding it gives about
a tenth on H200 and B200, at gpt-oss-120b's steps of some 6 ms (vLLM's blog of 2026-02-01)."""
DECODE_HOST = ("host_step_s", "host_sequence_s")
"""What of the overheads is the host's alone, whatever the model."""
HOST_SPEED: Mapping[str, float] = {
    "hopper": 1.4, "blackwell": 1.4, "blackwell-ultra": 1.4, "rubin": 1.4,
}  # fmt: skip
"""Speed of one thread of a generation's usual hosts over that of A100 nodes (EPYC of 2019 beside Xeons of
2023), by which host-bound engines of 2023 are faster there."""
HOST_BOUND = ("eager_layer_s", "eager_kernel_s", "eager_sequence_s", "layer_s", "exchange_s")
"""What of a profile is launching, and ranks that launch at different times."""
DYNAMO = (((1, 0), "1.3"), ((0, 7), "1.2"), ((0, 0), "1.1"))
"""Releases of NVIDIA Dynamo from which an image has a release of TensorRT-LLM, the newest first (its release
notes, github.com/ai-dynamo/dynamo, recalled)."""
DATE = re.compile(r"20[0-9]{2}(-[0-9]{2}){0,2}")
"""A date in the place of an engine."""
ERAS: Mapping[int, str] = {2022: "nemo", 2023: "nemo"}
"""Year -> the engine that a date alone means: latencies that NVIDIA printed of Llama-2 in 2023, which models
of that time validate on, are NeMo's; vLLM from 2024 on."""
FIRST_YEAR = 2000
"""Numbers from here on are years, not versions."""
ENGINES: Mapping[str, str] = {
    "trtllm": "trtllm", "tensorrt": "trtllm", "vllm": "vllm", "sglang": "sglang",
    "nemo": "nemo", "fastertransformer": "nemo", "neuron": "neuron", "torch": "torch",
    "huggingface": "transformers", "transformers": "transformers", "tgi": "tgi",
    "textgenerationinference": "tgi", "llamacpp": "llamacpp", "llamaserver": "llamacpp",
    "ollama": "llamacpp", "mlx": "mlx", "trt": "trtllm", "nim": "trtllm",
    "deepseek": "sglang", "atom": "vllm", "hf": "transformers",
}  # fmt: skip
"""Words in names of engines, beside those of profiles. Neuron's graphs are no PyTorch, and have no profile.
AMD's ATOM has vLLM's scheduler over kernels of its own (github.com/ROCm/ATOM)."""


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, EngineProfile]:
    """Every profile by its id."""
    return {entry["id"]: profile_from(entry) for entry in read_table(FILE)["profile"]}


def profile_from(table: Mapping[str, Any]) -> EngineProfile:
    """A profile from its `[[profile]]` table."""
    values = {**table, "fit": Fit(**table["fit"])}
    names = "architectures software experts_software experts_others years families layouts".split()
    for name in names:
        values[name] = tuple(values.get(name, ()))
    return EngineProfile(**values)


def engine_named(text: str) -> str | None:
    """The engine that a text means; None where it means none known here."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    own = {re.sub(r"[^a-z0-9]", "", p.engine.lower()): p.engine for p in profiles().values()}
    return next((engine for word, engine in {**ENGINES, **own}.items() if word in plain), None)


def profile(
    name: str, chip: Chip, version: str = "", *, mixture: bool | None = None
) -> EngineProfile:
    """A profile by its id, or an engine's for a version and a chip.

    An engine's is as it holds on the chip and, where `mixture` tells, of the kind of model. Without a version
    the newest release is meant on every chip, and of its profiles the one fitted on the nearest generation.
    `NAME@VERSION` and `NAME@DATE` name a version, a date alone (`2023-07`) the engine of that time (ERAS).
    """
    if name in profiles():
        return profiles()[name]
    name, _, told = name.partition("@")
    version = version or told
    if DATE.fullmatch(name):
        name, version = ERAS.get(int(name[:4]), "vllm"), name
    mine = profiles_named(name)
    version = own_version(name, version or _version_in(name))
    best = min(
        mine,
        key=lambda p: (
            outside(p, version) if version else bool(p.until),
            generations_apart(p, chip),
            mixture is not None and not knows_kind(p, mixture=mixture),
            newest_first(p),
        ),
    )
    found = replace(on_card(best, chip), release=version)
    return found if mixture is None else on_model(found, mixture=mixture)


def profiles_named(name: str) -> list[EngineProfile]:
    """The profile of an id, or all of an engine; BadInput where a name is neither."""
    known = profiles()
    engine = engine_named(name)
    mine = [known[name]] if name in known else [p for p in known.values() if p.engine == engine]
    if not mine:
        names = [*known, *dict.fromkeys(p.engine for p in known.values())]
        raise bad_input(
            "engine",
            name,
            "is no engine or profile of the catalogue",
            ", ".join(names),
            nearest_name(name, names),
        )
    return mine


def on_card(p: EngineProfile, chip: Chip) -> EngineProfile:
    """A profile as it holds on a chip: its limits there, and its overheads where it was fitted to others."""
    if p.architectures and chip.architecture not in p.architectures:
        p = carried_over(p, chip)
    if p.limits_by_card and p.engine == "sglang":
        return replace(p, max_tokens=chunk_tokens(chip))
    if not p.limits_by_card or wide_card(chip):
        return p
    return replace(
        p, max_batch=min(p.max_batch, NARROW_BATCH), max_tokens=min(p.max_tokens, NARROW_TOKENS)
    )


def carried_over(p: EngineProfile, chip: Chip) -> EngineProfile:
    """A profile on a generation of chips that it was not fitted to: usual overheads in place of its own.

    What an engine loses on one generation says little of another, where its kernels are others: rows of
    TensorRT-LLM and vLLM on Hopper and Blackwell are met to 5.3 % (TPOT) and 18 % (TTFT) by what is usual, to
    6.5 and 24 % by the same engine's profile of the other generation. Without graphs the host is the engine,
    and only its speed differs.
    """
    if p.graph and p.fit.left_out_ttft_ape is not None:
        return usual(p)
    speed = HOST_SPEED.get(chip.architecture, 1.0) / HOST_SPEED.get(p.architectures[0], 1.0)
    return replace(p, **{name: getattr(p, name) / speed for name in HOST_BOUND})


def usual(p: EngineProfile) -> EngineProfile:
    """A profile with what is fitted under load at its usual values; rules and limits as they are."""
    values: dict[str, Any] = {f.name: f.default for f in fields(p) if f.name in OVERHEADS}
    values |= USUAL
    values["host_step_s"] += 0.0 if p.overlapped else IN_TURN_S
    if not p.first_use_s:  # vLLM compiles before it serves (model_executor/warmup/kernel_warmup.py)
        values["first_use_s"] = 0.0
    return replace(p, **values)


def on_model(p: EngineProfile, *, mixture: bool) -> EngineProfile:
    """A profile as it holds of dense models, or of mixtures of experts.

    Of a kind that it was not fitted on the host's time per decode step stays, and the rest is as usual.

    Steps with prompts differ by kind: TensorRT-LLM's profile of mixtures on H200 makes first tokens of
    Llama-3.1-70B on B200 37 % late (usual values 13 %), its profile of Llama those of gpt-oss-120b 33 % and
    of DeepSeek-R1 22 % early (14 and 15 %).
    """
    if knows_kind(p, mixture=mixture):
        return p
    kept: dict[str, Any] = {name: getattr(p, name) for name in DECODE_HOST}
    return replace(usual(p), **kept)


def knows_kind(p: EngineProfile, *, mixture: bool) -> bool:
    """Whether a profile was fitted on mixtures of experts, or on dense models."""
    return not p.families or ("mixture" if mixture else "dense") in p.families


def chunk_tokens(chip: Chip) -> int:
    """Tokens of a step that SGLang allows by default on a card."""
    held = float(chip.memory_bytes) / 2**30
    return next((tokens for below, tokens in CHUNKS if held < below), WIDEST_CHUNK)


def wide_card(chip: Chip) -> bool:
    """Whether vLLM's defaults take a chip for a large one."""
    return float(chip.memory_bytes) >= WIDE_CARD_BYTES and not chip.id.startswith("a100")


def own_version(name: str, version: str) -> str:
    """The engine's own version; empty where the text is that of a frontend around it.

    NVIDIA Dynamo's images have a TensorRT-LLM of another number (DYNAMO), whose own releases of 1.x are
    candidates (rc). The number of ROCm in images of AMD's ATOM is not the engine's.
    """
    numbers = release_numbers(version)
    if engine_named(name) == "vllm" and "atom" in name.lower():
        return ""
    wrapped = "dynamo" in name.lower() and engine_named(name) == "trtllm"
    if not wrapped or not numbers or numbers[0] >= FIRST_YEAR or "rc" in version:
        return version
    return next(own for since, own in DYNAMO if numbers >= since)


def _version_in(name: str) -> str:
    """The version that an engine's name ends with, as in vllm-0.6."""
    found = re.search(r"[0-9]+(\.[0-9]+)*$", name.strip())
    return found[0] if found else ""


def outside(p: EngineProfile, version: str) -> float:
    """How far a version, or a year in its place, lies outside a profile's range; 0 where none is stated."""
    numbers = release_numbers(version)
    if not numbers:
        return 0.0
    if numbers[0] >= FIRST_YEAR:
        first, last = p.years
        return max(first - numbers[0], numbers[0] - (last or 9999), 0)
    low = release_numbers(p.since) <= numbers
    high = not p.until or numbers[: len(release_numbers(p.until))] <= release_numbers(p.until)
    return 0.0 if low and high else 1.0


def generations_apart(p: EngineProfile, chip: Chip) -> float:
    """Generations between a chip and those that a profile was fitted on."""
    if not p.architectures:
        return 0.5
    if chip.architecture in p.architectures:
        return 0.0
    line = next((one for one in LINES if chip.architecture in one), ())
    here = line.index(chip.architecture) if line else 0
    apart = (abs(line.index(a) - here) for a in p.architectures if a in line)
    return float(min(apart, default=9))


def newest_first(p: EngineProfile) -> list[int]:
    """Sorts later versions first."""
    return [-n for n in release_numbers(p.since)]


FOLDER = ROOT / "engine_releases"
"""One file for each engine; `other` has those without a file."""
LISTS = ("unspread_formats", "vendors")
"""Fields that are lists."""


@lru_cache(maxsize=16)
def engine_releases(engine: str) -> tuple[EngineRelease, ...]:
    """All releases of an engine, the oldest first."""
    path = FOLDER / f"{engine}.toml"
    table = read_table(path if path.exists() else FOLDER / "other.toml")
    known: dict[str, Any] = {"engine": engine}
    found = []
    for entry in table["release"]:
        known |= {name: tuple(value) if name in LISTS else value for name, value in entry.items()}
        found.append(EngineRelease(**known))
    return tuple(found)


@lru_cache(maxsize=256)
def release_named(engine: str, version: str) -> EngineRelease:
    """The release that a version, or a date in its place, means; the newest where none is given."""
    every = engine_releases(engine)
    numbers = release_numbers(version)
    if not numbers:
        return every[-1]
    if numbers[0] >= FIRST_YEAR:
        year, month = numbers[0], numbers[1] if len(numbers) > 1 else 12
        past = [one for one in every if release_numbers(one.released) <= (year, month)]
    else:
        past = [one for one in every if release_numbers(one.release) <= numbers]
    return past[-1] if past else every[0]


def release_of_profile(p: EngineProfile) -> EngineRelease:
    """The release that a profile stands for: the one asked for, or the last that it was fitted to."""
    return release_named(p.engine, p.release or p.until)
