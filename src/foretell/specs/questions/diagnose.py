"""The question about measured runs and services: what is wrong with them."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON, MODEL
from foretell.specs.questions.flags import Flag, flag
from foretell.specs.questions.plan_flags import PlanFlags
from foretell.specs.questions.training import PLAN, Place

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven, PlanGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class DiagnosedRuns:
    """Measured runs or services, and their model."""

    runs: Annotated[
        "str | Path | Sequence[str | Path | Mapping[str, Any]]",
        flag(
            "Logs (training, engines, benchmarks, nvidia-smi), CSV or JSONL files, or texts: "
            '"tp8 pp4 zero1 mbs1: 15.2 s", "c64 tp4: ttft 310 ms, tpot 18 ms".',
            "RUN...",
            "rows",
            names_file="always",
            inline="Measured runs: rows as objects, or the pasted text of a log. Nothing is stored.",
        ),
    ] = field(kw_only=False)
    model: Annotated[
        "ModelGiven | None",
        flag(
            "The model that was trained or served (default: what the log says).",
            "ID|PATH",
            "named",
            names_file="maybe",
            lists=MODEL.lists,
            inline=MODEL.inline,
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class DiagnoseQuestion(PlanFlags, Place, DiagnosedRuns):
    """What is wrong with a run: `foretell diagnose`."""

    plan: Annotated["PlanGiven | None", PLAN] = None
    edges: ClassVar[tuple[Flag, ...]] = (JSON,)
