"""A log's steps beside their prediction, as text."""

from foretell.lab.characterize.traces.logs import PARTS, LogReport, StepSplit


def log_text(found: LogReport) -> str:
    """The mean step's split, the prediction's, and how far they are apart."""
    lines = [f"{found.file}: {len(found.steps)} steps", ""]
    head = f"{'':16}{'measured':>12}{'%':>7}"
    ours = found.predicted
    if ours is not None:
        head += f"{'predicted':>12}{'%':>7}{'off':>9}"
    lines += [head, *(_line(name, found.mean, ours) for name in ("step_s", *PARTS))]
    if found.interval_s is not None:
        low, high = found.interval_s
        inside = "inside" if low <= found.mean.step_s <= high else "outside"
        lines.append(
            f"90% interval of the step: {1e3 * low:,.1f} to {1e3 * high:,.1f} ms, measured is {inside}"
        )
    return "\n".join([*lines, "", *(f"note: {note}" for note in found.notes)])


def _line(name: str, mean: StepSplit, ours: StepSplit | None) -> str:
    words = name.removesuffix("_s")
    value = float(getattr(mean, name))
    text = f"{words:16}{1e3 * value:>9,.1f} ms{100 * value / mean.step_s:>6.1f}%"
    if ours is not None:
        other = float(getattr(ours, name))
        off = f"{100 * (other / value - 1):+.0f}%" if value > 0.0 else "-"
        text += f"{1e3 * other:>9,.1f} ms{100 * other / ours.step_s:>6.1f}%{off:>9}"
    return text
