"""What a tool was asked to run: model, job and plan, read from its arguments; and a plan written as such.

A reader turns text into a `Launch`, a writer turns a plan into a `ToolArguments`; neither opens a file.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from foretell.interop.tool_tables import table_of
from foretell.records import as_json, dataclass
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.software import Software

Tool = str
"""A program whose arguments are read, by its name."""
TRAINING: tuple[Tool, ...] = ("megatron", "torchtitan", "deepspeed")
"""Those that train and that plans are written for."""
SERVING: tuple[Tool, ...] = ("vllm", "sglang", "trtllm")
"""Those that serve and that deployments are written for."""
NO_TOOL = "is no tool that this can be written for"
"""What is wrong with a tool that does something else, or none at all."""
Origin = Literal["file", "flag", "tool default", "assumed"]
"""Where a value of a question comes from: the launch, a flag given beside it, what the tool does where
nothing is stated, or what Foretell takes for granted."""
JOB = ("gpus", "global_batch", "seq_len", "target_len")
"""What of a launch is the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadValue:
    """One value of the question that a launch asks."""

    name: str
    """The field: model, gpus, global_batch, seq_len, or one of the plan's."""
    value: str
    """What it is, as a flag or word of a plan would say it."""
    origin: Origin
    """Where it comes from."""
    key: str = ""
    """The argument or arguments of the tool."""
    line: int | None = None
    """Line of the text, counted from 1."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file with further arguments that a launch names."""

    key: str
    """The argument that names it."""
    name: str
    """Its name there."""
    content: str
    """What is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside a text when it is read: the flags given by hand, and the model."""

    layers: int | None = None
    """Layers of the model, where the text does not describe it."""
    gpus: int | None = None
    """Chips, which count before those that the text names."""
    degrees: Mapping[str, int] = field(default_factory=dict)
    """Degrees of the plan that are given by hand: tp, pp, cp, dp, micro_batch."""

    files: tuple[NamedFile, ...] = ()
    """Files with further arguments that the text names, opened."""

    def over(self, name: str, told: int) -> int:
        """A degree by hand, else that of the text."""
        return self.degrees.get(name, told)


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
    prefill_gpus: int | None = None
    """Of a disaggregated service, chips that do prefill alone; `gpus` counts them too."""
    prefill_plan: str | None = None
    """Their layout."""
    version: str | None = None
    """The tool's release, where the text says it or its keys are of one alone."""
    accelerator: str | None = None
    """The chip that a batch system or cloud is asked for, as it spells it."""
    values: tuple[ReadValue, ...] = ()
    """Every value that was read, and where."""
    post_training: Mapping[str, Any] | None = None
    """Of fine-tuning and reinforcement learning, what goes beyond a step: method, adapters, generations."""
    notes: tuple[str, ...] = ()
    """What was converted or taken for granted, a sentence each."""
    doubts: tuple[str, ...] = ()
    """What may change the answer and is not understood, a sentence each."""
    asks: tuple[str, ...] = ()
    """Values that the text needs and does not contain, a sentence each with the flag that says it."""
    ignored: tuple[str, ...] = ()
    """Arguments that are known and change no answer."""
    unmodelled: tuple[str, ...] = ()
    """Arguments that bear on latency or memory and are not modelled."""
    unknown: tuple[str, ...] = ()
    """Arguments that are not known here."""
    named: str = ""
    """The model as the text names it: a repository or a folder."""
    flags: tuple[tuple[str, str], ...] = ()
    """As the text spells them with their values: of a server every flag, of Megatron those without effect."""

    @property
    def serves(self) -> bool:
        """Whether it is a deployment rather than a training run."""
        return table_of(self.tool).family == "service"

    @property
    def generates(self) -> bool:
        """Whether its tool alternates between generating and training."""
        return table_of(self.tool).family == "policy"

    @property
    def engine(self) -> str:
        """The engine whose profile a deployment is computed with."""
        return str(table_of(self.tool).options.get("engine", "vllm"))

    @property
    def not_understood(self) -> tuple[str, ...]:
        """Everything that stops an import unless it is accepted, a sentence each."""
        return self.doubts

    def arguments(self) -> dict[str, Any]:
        """Arguments of `foretell.estimate`, or of `foretell.serve`, that it gives."""
        found: dict[str, Any] = {"model": self.models[0] if self.models else self.table}
        if self.serves:
            found |= {"gpus": self.gpus, "engine": self.engine, "plan": self.plan}
            found |= {"prefill_gpus": self.prefill_gpus, "prefill_plan": self.prefill_plan}
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
        told += [f"{self.tool} arguments, not understood: {text}" for text in self.doubts]
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
    called: str = ""
    """The tool with its release, as in megatron-core@0.16."""
    text: str
    """What to paste."""
    notes: tuple[str, ...] = ()
    """What the tool cannot be given this way, a sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """As an answer's JSON carries it."""
        told = {"export": self.text, "export_notes": list(self.notes)}
        return told | {"export_tool": self.called or self.tool}


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
    version: str = ""
    """Release of the tool; empty: the newest that is written."""
    node: int = 8
    """GPUs of a node."""
    chip: str = ""
    """The chip's id."""
    repository: str | None = None
    """The model's repository, where one is known."""
    own: tuple[tuple[str, str], ...] = ()
    """Flags of the launch that it comes from, which change no answer and are kept."""
    launcher: str = ""
    """What starts it on its nodes (interop/launchers.py); empty: the configuration alone, or torchrun's
    command."""

    @property
    def places(self) -> tuple[int, int]:
        """(nodes, GPUs of each): whole nodes where the chips are a multiple of one, else one of all of
        them."""
        whole = self.gpus > self.node and self.gpus % self.node == 0
        return (self.gpus // self.node, self.node) if whole else (1, self.gpus)

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
