"""Flags of each verb that a study can give, from their questions, and the verb of a kind of question."""

from collections.abc import Iterable, Mapping

from foretell.specs.questions.cost import (
    PackageQuestion,
    Payment,
    RunQuestion,
    SystemQuestion,
    TokenQuestion,
)
from foretell.specs.questions.flags import QuestionField, fields_of
from foretell.specs.questions.serving import ServingQuestion
from foretell.specs.questions.sizing import SizeQuestion
from foretell.specs.questions.training import RunConditions, TrainingQuestion
from foretell.specs.study import Verb

RECORDS: Mapping[Verb, tuple[type, ...]] = {
    "estimate": (TrainingQuestion, Payment),
    "serve": (ServingQuestion, Payment),
    "size": (SizeQuestion,),
    "cost chip": (PackageQuestion,),
    "cost package": (PackageQuestion,),
    "cost system": (SystemQuestion,),
    "cost run": (RunQuestion,),
    "cost token": (TokenQuestion,),
}
"""The questions of each verb; of work that is paid for, its money, energy and carbon are columns."""


def study_fields(*records: type) -> dict[str, QuestionField]:
    """The fields of questions that a study can give, by their names there."""
    return {
        field.called: field
        for record in reversed(records)
        for field in fields_of(record)
        if field.on("study")
    }


FLAGS: Mapping[Verb, tuple[str, ...]] = {
    verb: tuple(dict.fromkeys(name for one in records for name in study_fields(one)))
    for verb, records in RECORDS.items()
}
"""Flags of each verb that a study can give."""
FIELDS: Mapping[str, QuestionField] = {
    name: field for records in RECORDS.values() for name, field in study_fields(*records).items()
}
"""Every such flag."""
RUN = tuple(study_fields(RunConditions))
"""Flags of a whole run."""
PAID = tuple(name for name in study_fields(Payment) if name not in ("price", "set"))
"""Flags that say how work is paid for; with one of them, its money, energy and carbon are columns."""
LEVELS = tuple(
    name
    for name, field in study_fields(SizeQuestion).items()
    if name not in FLAGS["serve"] and field.flag.kind != "switch"
)
"""Flags of `size` that make a question of serving one of size."""
TARGETS = ("ttft", "tpot")
"""Latency targets: of a service to be sized, unless its concurrency is given."""
TEXTS = tuple(name for name, field in FIELDS.items() if field.flag.kind == "text")
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
            sized = names & {*LEVELS, *TARGETS} and "concurrency" not in names
            return "size" if sized else "serve"
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
        return path in FIELDS and FIELDS[path].flag.kind in ("whole", "count")
    return last in (DEGREES if root == "plan" else COUNTS)
