"""`foretell.trace`, and `estimate` of a model that was traced."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.answers import Estimate, estimate_answer
from foretell.errors import BadInput, Infeasible, Problem, bad_input, wrong
from foretell.inputs.overrides import Setting, parse_settings
from foretell.inputs.question import as_texts, chips_given, collect
from foretell.inputs.software import framework_word, software_of
from foretell.inputs.system import of_system, system_of
from foretell.interop.huggingface.files import CONFIG
from foretell.interop.huggingface.hub import fetch_config, is_repository
from foretell.kernels.plan_kernels import required_dtypes
from foretell.records import dataclass, with_values
from foretell.specs.plan import Plan, named_fields, parse_plan
from foretell.specs.questions.serving import ServingQuestion
from foretell.specs.questions.tracing import TraceModuleQuestion
from foretell.specs.questions.training import PlaceQuestion, TrainingQuestion
from foretell.specs.result import StepEstimate
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.trace.graph import TracedModel, load_traced
from foretell.training.feasibility import memory_verdict
from foretell.training.traced_rows import TracedJob
from foretell.training.traced_step import UPDATES, ModuleStep, traced_step

ROOTS = ("model", "chip", "system", "network", "plan", "job", "software", "trace")
"""Where the path of a setting may begin."""
PARTS = ("transformer", "unet")
"""Folders of a pipeline of diffusers whose model runs at each of its steps."""
BAND = {"p50": (0.93, 1.08), "p90": (0.75, 1.35)}
"""Interval of a traced step over its value: modules measured on H200s (tools/modules/steps.jsonl)."""


def trace(module: Any, *example_inputs: Any, loss: Any = None, **inputs: Any) -> TracedModel:
    """A PyTorch module, or a function that builds one, as a model that every verb takes; needs torch."""
    return _tracer().trace(module, *example_inputs, loss=loss, **inputs)  # type: ignore[no-any-return]


def trace_place(
    place: str, inputs: str | Sequence[str] = (), loss: str | None = None, name: str | None = None
) -> TracedModel:
    """The module that a factory builds, `FILE.py:FUNCTION`; needs torch."""
    return _tracer().trace_file(place, inputs, loss, name)  # type: ignore[no-any-return]


def trace_question(question: TraceModuleQuestion, *, hub: bool = False) -> TracedModel:
    """What `foretell trace` answers: a factory's module, or the class of a config."""
    q = question
    inputs = (q.inputs,) if isinstance(q.inputs, str) else tuple(q.inputs)
    config = _config_file(q.module, hub=hub)
    of_config = {"batch": q.batch, "seq_len": q.seq_len, "size": q.size}
    if config is None and any(of_config.values()):
        message = "belongs to a config's inputs; a factory gives its own"
        raise BadInput([wrong(name, value, message, '--inputs "ids:int64[4,2048]"')
                        for name, value in of_config.items() if value])  # fmt: skip
    return _tracer().trace_file(  # type: ignore[no-any-return]
        q.module,
        inputs,
        q.loss,
        q.name,
        config=config,
        batch=q.batch or 1,
        tokens=q.seq_len,
        size=q.size,
    )


def _config_file(place: str, *, hub: bool) -> Path | None:
    """The config.json of a file, a folder, or a repository of the hub's local cache; None of a factory."""
    path = Path(place)
    if path.is_dir():
        found = [path / part / CONFIG for part in ("", *PARTS)]
        path = next((one for one in found if one.is_file()), found[0])
    if path.suffix == ".json":
        if path.is_file():
            return path
        raise bad_input("trace", place, f"no file {path}", "a config.json, or org/name")
    if ":" in place or not is_repository(place):
        return None
    if hub:
        return fetch_config(place) / CONFIG
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        cached: object = None
    else:
        cached = try_to_load_from_cache(place, CONFIG)
    if not isinstance(cached, str):
        message = "is not in the local cache of the hub"
        allowed = "--hub, which fetches its config.json, or the path of one"
        raise bad_input("trace", place, message, allowed)
    return Path(cached)


def _tracer() -> Any:
    try:
        from foretell.trace import capture
    except ImportError as error:
        message = f"PyTorch is not installed here: {error}. Run: pip install torch"
        raise bad_input("trace", None, message) from None
    return capture


def estimate_traced(question: TrainingQuestion) -> Estimate:
    """One training step of a traced model."""
    given: Any = question.model
    model = load_traced(given)
    seen: dict[str, object] = {}
    place = place_of(question, seen, [])
    plan, said = _plan(model, question.plan, place.gpus)
    word = framework_word(with_values(plan, compile="auto"))
    software = place.software(word, seen)
    job, more = _job(model, plan, place.system, software, question.global_batch, place.settings)
    found = traced_step(model, job)
    if "precision" not in named_fields(str(question.plan or "")) and plan.precision == "fp32":
        said.append(
            "fp32, as the module's tensors are: --precision bf16 is how most such runs train"
        )
    said = [*place.said, *said, *more, *found.notes]
    return _answer(model, job, found, place.gpus, said, seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPlace:
    """Where a traced module runs, and what a question sets."""

    system: System
    """The system."""
    gpus: int
    """How many GPUs are asked for; 1 where none are."""
    settings: Sequence[Setting]
    """All that `set` gives."""
    said: Sequence[str]
    """What was assumed of the system."""

    def software(self, word: str, seen: dict[str, object]) -> Software:
        """The software that a word of a plan names, with its settings."""
        return software_of(word, [s for s in self.settings if s.root == "software"], seen)


def place_of(
    question: PlaceQuestion | ServingQuestion, seen: dict[str, object], problems: list[Problem]
) -> TracedPlace:
    """The system, GPUs and settings of a question about a traced module; raises all problems at once."""
    chosen = collect(lambda: parse_settings(as_texts(question.set), ROOTS), problems) or ()
    count, named = chips_given(question.gpus, problems)
    place = question.system if question.system is not None else named
    if place is None:
        allowed = "a system, a chip, a TOML file, or --gpus 8xH100"
        problems.append(wrong("system", None, "missing", allowed))
        raise BadInput(problems)
    own = [s for s in chosen if s.root in ("chip", "system", "network")]
    system = collect(lambda: system_of(place, own, seen), problems)
    if problems or system is None:
        raise BadInput(problems)
    return TracedPlace(system=system, gpus=count or 1, settings=chosen, said=of_system(system, own))


def _plan(model: TracedModel, given: str | Plan | None, gpus: int) -> tuple[Plan, list[str]]:
    """The plan, its degrees checked, with the precision of the traced module where it names none."""
    native = native_format(model)
    words = given if isinstance(given, str) else ""
    named = set(named_fields(words))
    plan = given if isinstance(given, Plan) else parse_plan(words, gpus, native)
    wide = plan.weights if "weights" in named else "fp32" if native in ("fp32", "tf32") else native
    said: list[str] = []
    problems = []
    for degree in ("vpp", "cp", "ep"):
        if getattr(plan, degree) > 1:
            message = "a traced model is cut by tensor, pipeline and data parallelism and ZeRO"
            problems.append(wrong(f"plan.{degree}", getattr(plan, degree), message, "1"))
    if plan.pp > 1 and plan.schedule not in SCHEDULES:
        message = "a traced model runs whole backward passes of one chunk a rank"
        problems.append(wrong("plan.schedule", plan.schedule, message, ", ".join(SCHEDULES)))
    if plan.gpus != gpus and not problems:
        message = f"takes {plan.gpus} chips, not {gpus}"
        problems.append(wrong("plan.dp", plan.dp, message, str(gpus)))
    if plan.precision not in ("fp32", "tf32", "bf16", "fp16"):
        message = "a traced model runs in the formats of plain PyTorch"
        problems.append(wrong("plan.precision", plan.precision, message, "fp32, tf32, bf16, fp16"))
    if plan.recompute not in ("none", "full"):
        message = "a traced model is computed again by whole layers"
        problems.append(wrong("plan.recompute", plan.recompute, message, "none, full"))
    if plan.recompute == "full" and not model.layers:
        message = f"{model.id} has no list of equal blocks that could be computed again"
        problems.append(wrong("plan.recompute", "full", message, "none"))
    own = with_values(
        plan, weights=wide, master="none", states=wide, gradients=wide, micro_batch=model.batch
    )
    problems += _ignored(plan, own, parse_plan("", gpus, native), named)
    if problems:
        raise BadInput(problems)
    return plan if isinstance(given, Plan) else own, said


PLAN_WORDS = frozenset(
    "dp tp pp vpp cp ep sp schedule zero precision recompute weights autocast compile optimizer "
    "framework".split()
)
"""Fields of a plan that say something of a traced model; those refused above among them."""
SCHEDULES = ("1f1b", "gpipe")
"""Schedules of the pipeline of a traced model."""
FROM_PRECISION = frozenset(("master", "states", "gradients", "micro_batch", "scaling"))
"""Fields of a plan record that follow from its others."""


def _ignored(plan: Plan, own: Plan, plain: Plan, named: set[str]) -> list[Problem]:
    """Words of a plan that would change nothing, each a problem; `own` is how the module runs."""
    found = []
    for name in (f.name for f in fields(Plan)):
        value, usual = getattr(plan, name), getattr(plain, name)
        runs = getattr(own, name) if name in FROM_PRECISION else usual
        said = name in named or (not named and name not in FROM_PRECISION)
        if name in PLAN_WORDS or not said or value == runs:
            continue
        message = "says nothing of a traced model, whose module decides"
        if name == "micro_batch":
            message = "the batch of the traced inputs is the micro-batch"
        if name == "offload":
            message = "a traced model keeps all it has on the GPU"
        found.append(wrong(f"plan.{name}", value, message, f"{name}={runs}"))
    return found


def native_format(model: TracedModel) -> Any:
    """The format of most of a model's weights."""
    found: dict[str, float] = {}
    for tensor in model.of_kind("parameter"):
        found[tensor.dtype] = found.get(tensor.dtype, 0.0) + tensor.elements
    best = max(found, key=lambda name: found[name]) if found else "fp32"
    return best if best in ("fp32", "bf16", "fp16") else "fp32"


def _job(
    model: TracedModel, plan: Plan, system: System, software: Any, batch: int | None, settings: Any
) -> tuple[TracedJob, list[str]]:
    """What is asked of the model, and what was assumed."""
    native, form, said = native_format(model), "as-is", []
    if plan.precision in ("bf16", "fp16") and native == "fp32":
        form = "cast" if plan.weights == plan.precision else "autocast"
        words = {"cast": "all numbers in 16 bits", "autocast": "autocast over weights in 32 bits"}
        said.append(f"precision={plan.precision}: {words[form]}")
    if plan.autocast == "on" and native == "fp32":
        form = "autocast"
    if form not in model.graphs:
        nearest = "cast" if "cast" in model.graphs else "as-is"
        said.append(f"the trace has no form {form}: taken as {nearest}")
        form = nearest
    whole = model.batch * plan.dp
    micro = 1 if batch is None else max(round(batch / whole), 1)
    if batch is not None and micro * whole != batch:
        message = f"is no multiple of {model.batch} (the traced inputs) x dp{plan.dp}"
        raise bad_input("global_batch", batch, message, f"{whole}, {2 * whole}, {3 * whole}, ...")
    if batch is None:
        said.append(f"global batch {whole}: one micro-batch of the traced inputs on each rank")
    update = next((s.text for s in settings if s.path == "trace.update"), None)
    if update is None:
        update = "foreach"
        said.append(
            "the optimizer runs over lists of tensors, PyTorch's default on GPUs "
            "(--set trace.update=fused or loop)"
        )
    if update not in UPDATES:
        raise bad_input("trace.update", update, "not a choice", ", ".join(UPDATES))
    compiled = plan.compile == "on" or (model.compiled and plan.compile != "off")
    job = TracedJob(
        system=system,
        software=software,
        plan=plan,
        form=form,
        compiled=compiled,
        update=update,
        micro_batches=micro,
    )
    return job, said


def _why(found: ModuleStep) -> str:
    """Why the interval of a step is as wide as it is."""
    said = "as far as steps of 78 modules on H200s were from what was predicted, and room for another host"
    if not found.unknown_share:
        return said
    share = f"{100.0 * found.unknown_share:.2g} % of the GPU's time"
    return (
        f"{said}; {share} is of operations of which only the bytes are known (half to 16 times it)"
    )


def _answer(
    model: TracedModel,
    job: TracedJob,
    found: ModuleStep,
    gpus: int,
    said: Sequence[str],
    seen: dict[str, object],
) -> Estimate:
    """The step as an answer of `estimate`."""
    chip = job.system.chip
    capacity = float(np.ravel(chip.memory_bytes)[0])
    batch = model.batch * job.plan.dp * job.micro_batches
    peak = float(np.ravel(chip.matrix_flop_per_s[required_dtypes(job.plan)[-1]])[0])
    tokens = batch * model.tokens
    flop_per_s = found.flops / found.step_s
    bands = {
        level: (found.range_s[level][0] * low, found.range_s[level][1] * high)
        for level, (low, high) in BAND.items()
    }
    result = StepEstimate(
        model=model.id,
        system=job.system.id,
        gpus=gpus,
        global_batch=batch,
        seq_len=model.tokens,
        target_len=None,
        plan=job.plan,
        plan_chosen=False,
        fits=memory_verdict(found.held, capacity),
        step_s=found.step_s,
        tokens_per_s=tokens / found.step_s,
        tokens_per_s_per_gpu=tokens / found.step_s / gpus,
        tflops_per_gpu=flop_per_s / 1e12,
        mfu=flop_per_s / peak,
        hfu=found.hardware_flops / found.step_s / peak,
        mfu_causal=found.causal_flops / found.step_s / peak,
        allocated_bytes=float(found.held.allocated_bytes),
        reserved_bytes=float(found.held.reserved_bytes),
        peak_memory_bytes=float(found.held.peak_bytes),
        memory_capacity_bytes=capacity,
        energy_joules=None,
        joules_per_token=None,
        limited_by=max(found.time.children, key=lambda leaf: leaf.value).name,
        interval=bands,
        interval_words=_why(found),
        breakdown=found.time,
        memory=max(found.stages, key=lambda leaf: leaf.value),
        memory_by_stage=found.stages,
        assumptions=tuple(said),
        overrides=seen,
    )
    answer = estimate_answer(result)
    if answer.fits == "no":
        message = f"does not fit: {found.held.allocated_bytes / 2**30:.1f} GiB of tensors"
        allowed = f"{capacity / 2**30:.1f} GiB"
        raise Infeasible([wrong("plan", str(job.plan), message, allowed)], answer)
    return answer
