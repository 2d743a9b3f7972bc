"""What every number of an answer is called, once, on every output."""

from collections.abc import Mapping

from foretell.specs.outputs import OUTPUTS
from foretell.units import field_unit

LABELS: Mapping[str, str] = {
    **{name: output.label for name, output in OUTPUTS.items()},
    "closed_step_s": "closed form",
    "name": "option",
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
    "usd_per_hour_apart": "USD per hour apart",
    "carbon_g_per_million_work_tokens": "g CO2e per million tokens",
    "joules_per_token": "energy of a token",
    "energy_mwh": "energy, MWh",
    "carbon_kg": "carbon, kg CO2e",
    "seconds": "time",
    "bus_bytes_per_s": "bus bandwidth",
    "algorithm_bytes_per_s": "algorithm bandwidth",
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
}
"""Fields whose own words, in snake case, would not read well."""


def words_of(field: str) -> str:
    """What a field or a `--set` path is called, without its unit."""
    if field in LABELS:
        return LABELS[field]
    name = field.rsplit(".", 1)[-1]
    unit = field_unit(name)
    bare = name.removesuffix(unit).rstrip("_") if unit else name
    above = " ".join(field.split(".")[1:-1])
    return " ".join(part for part in (above, bare.replace("_", " ")) if part) or field
