"""What a tool was told to run: model, job and plan, read from its arguments; and a plan written as such.

A reader turns text into a `Launch`, a writer turns a plan into a `ToolArguments`; neither opens a file.
"""

from collections.abc import Mapping
from typing import Any, Literal

from foretell.records import dataclass
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.software import Software

Tool = Literal["megatron", "torchtitan", "deepspeed", "vllm", "sglang", "trtllm"]
"""Programs whose arguments are read and written."""
TRAINING: tuple[Tool, ...] = ("megatron", "torchtitan", "deepspeed")
"""Those that train."""
SERVING: tuple[Tool, ...] = ("vllm", "sglang", "trtllm")
"""Those that serve."""
TOOLS: tuple[Tool, ...] = (*TRAINING, *SERVING)
"""All of them."""
JOB = ("gpus", "global_batch", "seq_len", "target_len")
"""What of a launch is the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the arguments of a tool say."""

    tool: Tool
    """Whose arguments they are."""
    models: tuple[str, ...] = ()
    """Names or paths that may be the model's, the likeliest first."""
    table: Mapping[str, Any] | None = None
    """The model in our own form, where arguments describe it rather than name it."""
    gpus: int | None = None
    """Chips, where the text says so."""
    global_batch: int | None = None
    """Sequences per step."""
    seq_len: int | None = None
    """Tokens per sequence."""
    target_len: int | None = None
    """Target tokens of an encoder-decoder."""
    plan: str = ""
    """Words of the plan, or of the deployment."""
    notes: tuple[str, ...] = ()
    """What was converted or taken for granted, a sentence each."""
    ignored: tuple[str, ...] = ()
    """Arguments that are known and change no answer."""
    unmodelled: tuple[str, ...] = ()
    """Arguments that bear on latency or memory and are not modelled."""
    unknown: tuple[str, ...] = ()
    """Arguments that are not known here."""

    @property
    def serves(self) -> bool:
        """Whether it is a deployment rather than a training run."""
        return self.tool in SERVING

    def arguments(self) -> dict[str, Any]:
        """Arguments of `foretell.estimate`, or of `foretell.serve`, that it gives."""
        found: dict[str, Any] = {"model": self.models[0] if self.models else self.table}
        if self.serves:
            found |= {"gpus": self.gpus, "engine": self.tool, "plan": self.plan}
        else:
            found |= {name: getattr(self, name) for name in (*JOB, "plan")}
        return {name: value for name, value in found.items() if value is not None}

    def warnings(self) -> tuple[str, ...]:
        """What of the arguments bears on the answer and is not in it, as sentences."""
        if not self.unmodelled:
            return ()
        some = _some(self.unmodelled)
        return (
            f"{self.tool} arguments that bear on latency or memory and are not modelled: {some}",
        )

    def said(self) -> tuple[str, ...]:
        """Everything that a user should know of the reading, as sentences."""
        told = [f"read from {self.tool} arguments: {text}" for text in self.notes]
        if self.unknown:
            told.append(f"{self.tool} arguments not known here: {_some(self.unknown)}")
        if self.ignored:
            told.append(f"{self.tool} arguments without effect here: {_some(self.ignored)}")
        return tuple(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments:
    """A plan or deployment as text for a tool."""

    tool: Tool
    """For whom."""
    text: str
    """What to paste."""
    notes: tuple[str, ...] = ()
    """What the tool cannot be told this way, a sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """As an answer's JSON carries it."""
        return {"export": self.text, "export_notes": list(self.notes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training step to be written: the plan with what it was made for."""

    model: Model
    """What is trained."""
    plan: Plan
    """How."""
    software: Software
    """What the plan's framework does by itself."""
    gpus: int
    """On how many chips."""
    global_batch: int
    """Sequences per step."""
    seq_len: int
    """Tokens per sequence."""

    @property
    def layers(self) -> int:
        """Layers of the main stack."""
        return len(self.model.stack.layers)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step and replica."""
        return max(self.global_batch // (self.plan.dp * self.plan.micro_batch), 1)


def _some(names: tuple[str, ...], most: int = 24) -> str:
    """Names joined by commas, of very many the first."""
    more = len(names) - most
    shown = ", ".join(name[:60] for name in names[:most])
    return f"{shown} and {more} more" if more > 0 else shown
