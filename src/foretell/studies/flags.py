"""Flags of each verb that a study can give, and the verb that a kind of question comes to."""

from collections.abc import Iterable, Mapping

from foretell.specs.study import Verb

PLACE = ("model", "system", "gpus", "plan", "set")
LOAD = ("isl", "osl", "rate", "engine", "price")
LEVELS = ("ttft", "tpot", "headroom", "percentile")
"""Flags of `size` that make a question of serving one of size."""
RUN = (
    "tokens", "failures_per_gpu_day", "restart_s", "checkpoint", "checkpoint_interval",
    "checkpoint_wait_s", "storage_bandwidth",
)  # fmt: skip
"""Flags of a whole run."""
PAID = ("rent", "region", "years", "utilisation")
"""Flags that say how work is paid for; with one of them, its money, energy and carbon are columns."""
SILICON = ("name", "node", "area", "dies", "package", "die_to_die", "volume", "set")
STEP = (*PLACE, "global_batch", "seq_len", "target_len", *RUN)
SERVICE = (*PLACE, *LOAD, "concurrency", "spread")
FLAGS: Mapping[Verb, tuple[str, ...]] = {
    "estimate": (*STEP, *PAID, "price"),
    "serve": (*SERVICE, *PAID),
    "size": (*PLACE, *LOAD, *LEVELS, "simulate"),
    "cost chip": SILICON,
    "cost package": SILICON,
    "cost system": ("system", "gpus", "price", "years", "utilisation", "watts", "set"),
    "cost run": (*STEP, *PAID, "price"),
    "cost token": (*SERVICE, *PAID),
}
"""Flags of each verb that a study can give."""
WHOLE = ("gpus", "global_batch", "seq_len", "target_len", "dies")
"""Flags that are whole numbers."""
TEXTS = ("rent", "region", "engine", "percentile", "checkpoint", "name", "node", "package")
"""Flags that are words."""
COUNTS = ("compute_dies", "cores", "cores_built", "memory_stacks", "io_dies", "size")
"""Fields of a design or a tier that count things."""
DEGREES = ("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "zero", "micro_batch", "shard", "lora")
"""Fields of a plan that are whole numbers."""
PRICED = ("chip", "package", "system", "run", "token")
"""What a study of costs may be about."""


def verb_of(kind: object, what: object, given: Iterable[str]) -> Verb | None:
    """The verb that a kind, what it is about and the names given come to; none for what is no kind."""
    names = {*given}
    match kind:
        case "training":
            return "estimate"
        case "serving":
            return "size" if names & {*LEVELS} else "serve"
        case "cost" if what in ("chip", "run", "token"):
            return "cost chip" if what == "chip" else "cost run" if what == "run" else "cost token"
        case "cost" if what == "package" or (what is None and "system" not in names):
            return "cost package"
        case "cost":
            return "cost system"
        case _:
            return None


def is_whole(path: str) -> bool:
    """Whether a flag or path takes whole numbers alone."""
    root, _, last = path.rpartition(".")
    if not root:
        return path in WHOLE
    return last in (DEGREES if root == "plan" else COUNTS)
