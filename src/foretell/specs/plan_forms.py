"""Words of a plan that are neither one of a few choices nor a degree: lists of modules, counted layers.

    recompute   none, selective, full, full:N (N layers of each stage), or modules joined by +
    offload     none, or what lives in the host's memory, joined by +
    shard, secondary, lora   whole numbers, 0 where there is none

A form is printed in one spelling only: modules in the order of `MODULES`, `core` alone as `selective`.
"""

from collections.abc import Callable, Mapping

MODULES = ("core", "attention", "up", "mlp", "act", "norm", "moe")
"""What can be computed again by itself: attention cores and scans, whole mixers, keys and values out of
their latent, dense feed-forward parts, activations, norms, mixtures of experts."""
OFFLOADS = ("optimizer", "activations", "weights")
"""What can live in the host's memory."""
NUMBERS = ("shard", "secondary", "lora")
"""Keys whose value is a whole number."""


def recompute_form(value: str) -> str | None:
    """The one spelling of a recomputation, or None where it is none."""
    if value in ("none", "selective", "full"):
        return value
    head, _, count = value.partition(":")
    if head == "full":
        digits = count.isascii() and count.isdigit() and len(count) < 7
        return f"full:{int(count)}" if digits and int(count) > 0 else None
    chosen = joined(value, MODULES)
    return "selective" if chosen == "core" else chosen


def offload_form(value: str) -> str | None:
    """The one spelling of what is offloaded, or None."""
    return value if value == "none" else joined(value, OFFLOADS)


def joined(value: str, names: tuple[str, ...]) -> str | None:
    """Names joined by +, each once and in their own order; None where one is unknown or doubled."""
    given = value.split("+")
    if len(set(given)) != len(given) or not set(given) <= set(names):
        return None
    return "+".join(name for name in names if name in given)


def recompute_modules(text: str) -> tuple[str, ...]:
    """Modules that a recomputation names; selective is the attention core, whole layers are none."""
    if text == "selective":
        return ("core",)
    named = text != "none" and not text.startswith("full")
    return tuple(text.split("+")) if named else ()


def recompute_layers(text: str) -> int:
    """N of full:N; 0 elsewhere."""
    return int(text.partition(":")[2] or 0)


def offloads(text: str) -> tuple[str, ...]:
    """What is in the host's memory."""
    return () if text == "none" else tuple(text.split("+"))


FORMS: Mapping[str, Callable[[str], str | None]] = {
    "recompute": recompute_form,
    "offload": offload_form,
}
"""Keys with a spelling of their own."""
FORM_ALLOWED: Mapping[str, str] = {
    "recompute": "none, selective, full, full:N, or some of " + "+".join(MODULES),
    "offload": "none, or some of " + "+".join(OFFLOADS),
}
"""What their values may be, in words."""
FORM_WORDS: Mapping[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "full", *MODULES),
    "offload": ("none", *OFFLOADS),
}
"""Words from which the nearest to a wrong value is taken."""
