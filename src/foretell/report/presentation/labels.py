"""What every number of an answer is called, once, on every output."""

from collections.abc import Mapping

from foretell.specs.result import OUTPUTS
from foretell.units import field_unit

LABELS: Mapping[str, str] = {
    **{name: output.label for name, output in OUTPUTS.items()},
    "closed_step_s": "closed form",
    "name": "name",
    "gpus": "GPUs",
    "isl": "prompt",
    "osl": "answer",
    "seq_len": "sequence length",
    "global_batch": "global batch",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "tokens_per_s_per_user": "tokens/s per user",
    "output_tokens_per_s": "output tokens/s",
    "output_tokens_per_s_per_gpu": "output tokens/s per GPU",
    "output_tokens_per_s_per_user": "output tokens/s per user",
    "requests_per_s": "requests/s",
    "work_tokens_per_s_per_gpu": "tokens/s per GPU",
    "usd": "cost",
    "tco_usd": "total cost of ownership",
    "usd_per_million_tokens": "USD per million tokens",
    "usd_per_million_work_tokens": "USD per million tokens",
    "usd_per_million_input_tokens": "USD per million input tokens",
    "usd_per_million_output_tokens": "USD per million output tokens",
    "usd_per_request": "USD per request",
    "usd_per_run": "USD per run",
    "usd_per_step": "USD per step",
    "usd_per_hour": "USD per hour",
    "usd_per_gpu_hour": "USD per GPU-hour",
    "carbon_g_per_million_work_tokens": "g CO2e per million tokens",
    "joules_per_token": "energy of a token",
    "energy_mwh": "energy",
    "carbon_kg": "carbon",
    "seconds": "time",
    "bus_bytes_per_s": "bus bandwidth",
    "algorithm_bytes_per_s": "algorithm bandwidth",
    "images_per_s": "samples/s",
    "images_per_s_per_gpu": "samples/s per GPU",
    "listed": "listed on",
    "limited_by": "largest part",
    "idle_share": "idle",
    "tail_share": "tail of the generation",
    "kv_bytes": "KV cache",
    "days": "days",
    "goodput": "goodput",
    "predicted_s": "predicted",
    "measured_s": "measured",
    "sure": "sure by the deadline",
    "within": "within the budget",
    "place": "#",
    "compute_s": "compute",
    "exposed_communication_s": "exposed",
    "hidden_communication_s": "hidden",
    "fits_from": "fits from",
    "best_gpus": "best on",
    "rate": "requests/s",
    "gpus_apart": "GPUs, each on its own",
    "usd_per_hour_apart": "USD per hour, each on its own",
    "difference_s": "B - A",
    "only_here": "only here",
    "fits": "fits",
    "share": "share",
    "bound": "follows",
    "op": "operation",
    "count": "runs",
    "words": "number",
    "what_if": "twice as good",
    "meets": "meets",
    "simulated": "simulated",
    "ttft_target_ms": "TTFT target",
    "tpot_target_ms": "TPOT target",
    "cut_share": "answers cut at the limit",
    "micro_tokens": "tokens of a micro-batch",
    "rollout_plan": "rollout plan",
    "total_bytes": "total",
    "capacity_bytes": "of",
    "largest": "largest parts",
    "run_s": "whole run",
    "run_days": "days of the run",
    "run_usd": "cost of the run",
    "trainer_gpus": "trainer GPUs",
    "rollout_gpus": "rollout GPUs",
    "gpu_hours": "GPU-hours",
    "peak_watts": "peak power",
    "own_over_rent": "own over rent",
    "break_even_years": "buying pays after",
    "break_even_utilisation": "from a use of",
    "usd_at_low": "cost at the low end",
    "usd_at_high": "cost at the high end",
    "value": "taken as",
    "source": "listed by",
    "path": "figure",
}
"""Fields whose own words, in snake case, would not read well."""


PARTS: Mapping[str, str] = {
    "lost": "fragmentation",
    "exchanges": "communication",
    "matrices": "matrix multiplications",
    "head": "output head",
    "adv": "advantages",
    "logprob": "log-probabilities",
    "old_logprob": "log-probabilities",
    "ref_logprob": "reference log-probabilities",
    "weight_sync": "weight synchronisation",
}
"""Parts and phases whose names are no words."""


def part_words(name: str) -> str:
    """What a part or phase is called."""
    return PARTS.get(name, name.replace("_", " "))


def words_of(field: str) -> str:
    """What a field or a `--set` path is called, without its unit."""
    if field in LABELS:
        return LABELS[field]
    name = field.rsplit(".", 1)[-1]
    unit = field_unit(name)
    bare = name.removesuffix(unit).rstrip("_") if unit else name
    above = " ".join(field.split(".")[1:-1])
    return " ".join(part for part in (above, bare.replace("_", " ")) if part) or field
