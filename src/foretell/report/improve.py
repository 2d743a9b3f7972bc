"""What a launch gains, as text: the gain, both plans, the flags to change, what was read from the launch."""

from typing import TYPE_CHECKING

from foretell.api.improvement import Improvement
from foretell.records import with_values
from foretell.report.console import table
from foretell.report.presentation.text import bullets, card_text, draw_table
from foretell.report.presentation.verbs import presentation
from foretell.report.read_back import read_back_text

if TYPE_CHECKING:
    from rich.console import RenderableType

UNITS = {"tokens_per_s": "tokens/s", "output_tokens_per_s": "output tokens/s"}


def improvement_text(found: Improvement) -> "RenderableType":
    """Everything but the launch itself, which is printed as it is: folded it could not be pasted."""
    unit = UNITS[found.metric]
    times = ("memory",) if found.load is None else ("TTFT ms", "TPOT ms")
    rates = table("", "plan", unit, *times, right=(unit, *times))
    known = "does not run" if found.before is None else f"{found.before:,.0f}"
    rates.add_row(
        "launch",
        found.plan_before,
        known + ("" if found.fits_before != "no" else " (does not fit)"),
        *_times(found, found.latency_before, found.memory_before),
    )
    if found.changes:
        last = _times(found, found.latency_after, found.memory_after)
        rates.add_row("better", found.plan_after, f"{found.after:,.0f}", *last)
    shown = presentation("improve", found.to_dict())
    load = [] if found.load is None else [_load(found.load)]
    beside: list[RenderableType] = [rates, *map(draw_table, shown.tables)]
    beside.append(read_back_text(found.read_back))
    if found.export_notes and found.changes:
        beside.append(bullets("Not expressed by it", list(found.export_notes)))
    return card_text(with_values(shown, lines=(*shown.lines, *load), tables=()), beside=beside)


def _load(load: dict[str, float]) -> str:
    """The load of a service as a sentence, and the flags that set it."""
    prompt, answer, many = (f"{load[name]:,g}" for name in ("isl", "osl", "concurrency"))
    return (
        f"load: prompts of {prompt} tokens, answers of {answer}, {many} requests at a time "
        "(--isl, --osl, --concurrency)"
    )


def _times(found: Improvement, latency: dict[str, float] | None, memory: float | None) -> list[str]:
    """Means of TTFT and TPOT of a service; of a training run the memory that a GPU holds."""
    if found.load is None:
        return ["-" if memory is None else f"{memory / 2**30:.1f} GiB"]
    if latency is None:
        return ["-", "-"]
    return [f"{latency['ttft_ms']:,.0f}", f"{latency['tpot_ms']:,.2f}"]
