"""Traces a PyTorch module: forward, loss and backward under fake tensors, without weights or a GPU."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.trace.build import Built, Faker, built, load_factory, read_inputs
from foretell.trace.configs import config_factory
from foretell.trace.graph import TracedGraph, TracedModel, TracedTensor
from foretell.trace.layers import kernels_of
from foretell.trace.recorder import NAMES, StepRecorder
from foretell.trace.target import AUTOCAST, COMPILED, DeviceMode, gpu_ways
from foretell.trace.values import Values

LONG_S = 12.0
"""Seconds of a first trace from which on the form under autocast is left out."""
FORMS = ("as-is", "autocast", "cast", "inference", "inference-as-is")
"""Forms that are traced: as given, under autocast in bf16, all in bf16, these forward alone, and where that
fails, forward as given."""
LABELS = frozenset(("labels", "start_positions", "end_positions", "return_loss"))
"""Inputs of transformers' classes that are of their loss alone."""
Loss = Callable[..., Any] | str | None


def trace(
    module: Any, *example_inputs: Any, loss: Loss = None, name: str | None = None, **inputs: Any
) -> TracedModel:
    """A module as a graph of operations, which every verb takes as a model.

    `module` is a module, or a function that builds one: then the weights are never allocated. Inputs are
    tensors, real or meta; `loss` a function of the module and them, "sum" or "mean". A module is given back
    with its weights as they were, on fake tensors where it was built here.
    """
    if isinstance(module, torch.nn.Module):
        found = Built(module=module)
        own = module.__class__.__name__
    else:
        found = built(module)
        own = getattr(module, "__name__", type(module).__name__)
    given: Any = inputs or (example_inputs if example_inputs else found.inputs)
    return _traced(found, given, loss if loss is not None else found.loss, name or own)


def trace_file(
    place: str,
    inputs: str | Sequence[str] = (),
    loss: str | None = None,
    name: str | None = None,
    *,
    config: Path | None = None,
    batch: int = 1,
    tokens: int | None = None,
    size: str | None = None,
) -> TracedModel:
    """The module of a factory, `FILE.py:FUNCTION`, or of a config; `batch`, `tokens` and `size` are of its
    inputs."""
    del COMPILED[:]
    with gpu_ways({}):
        factory = config_factory(config, batch, tokens, size) if config else load_factory(place)
        found = built(factory)
    given: Any = found.inputs
    if inputs:
        given = read_inputs(inputs)
        if all(one.isdigit() for one in given):
            given = tuple(given.values())
    chosen = loss if loss is not None else found.loss
    if isinstance(chosen, str) and chosen not in ("sum", "mean"):
        if config:
            raise BadInput([Problem(path="loss", value=loss, message="a config has no functions",
                                    allowed="sum, mean, or none: the model's own")])  # fmt: skip
        chosen = load_factory(f"{place.rpartition(':')[0]}:{chosen}")
    own = place.removesuffix("/config.json") if config else place.rpartition(":")[2] or place
    return _traced(found, given, chosen, name or own, source=place)


def _traced(found: Built, inputs: Any, loss: Loss, name: str, source: str = "") -> TracedModel:
    if inputs is None:
        message = "no inputs: the factory gives none"
        allowed = 'inputs beside the module, or --inputs "ids:int64[4,2048]"'
        raise bad_input("inputs", None, message, allowed)
    if isinstance(inputs, (torch.Tensor, list)):
        inputs = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    values = Values()
    faker = Faker(mode, values)
    module = found.module
    before = _tensors_of(module)
    faker.module(module)
    module.train(module.training)
    inputs = faker.tree(inputs)
    session = _Session(module, inputs, loss, mode, values)
    start = perf_counter()
    del AUTOCAST[:]
    graphs = {"as-is": session.run()}
    took = perf_counter() - start
    tensors = session.tensors()
    asked = bool(AUTOCAST)
    wide = any(t.dtype == "fp32" for t in tensors if t.kind == "parameter")
    narrow = () if not wide or asked else FORMS[1:3] if took < LONG_S else FORMS[2:3]
    for form in (*narrow, FORMS[3]):
        try:
            graphs[form] = session.run(form)
        except (RuntimeError, TypeError, ValueError) as error:
            graphs["as-is"] = _noted(graphs["as-is"], f"{form}: not traced: {error}"[:300])
    if FORMS[3] not in graphs:
        with suppress(RuntimeError, TypeError, ValueError):
            graphs[FORMS[4]] = session.run(FORMS[4])
    _restore(module, before)
    leaves = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.dim()]
    batch = leaves[0].shape[0] if leaves else 1
    indices = [t for t in leaves if not t.is_floating_point() and t.dim() == 2]
    return TracedModel(
        id=name,
        tensors=tensors,
        batch=int(batch),
        tokens=int(indices[0].shape[1]) if indices else 1,
        layers=tuple(session.layers),
        graphs=graphs,
        compiled=bool(COMPILED),
        source=source,
    )


def _noted(graph: TracedGraph, note: str) -> TracedGraph:
    return replace(graph, notes=(*graph.notes, note))


def _tensors_of(module: torch.nn.Module) -> list[tuple[Any, str, str, Any]]:
    """Every parameter and buffer with its place."""
    return [
        (one, table, name, tensor)
        for one in module.modules()
        for table in ("_parameters", "_buffers")
        for name, tensor in getattr(one, table).items()
    ]


def _required(module: torch.nn.Module) -> set[str]:
    """Arguments that a module's forward cannot be called without."""
    given = inspect.signature(module.forward).parameters.values()
    return {one.name for one in given if one.default is one.empty}


def _taken(module: torch.nn.Module) -> int | None:
    """Arguments by place that a module's forward takes; none: any number. Others are of the loss alone."""
    given = inspect.signature(module.forward).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in given):
        return None
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in given)


def _restore(module: torch.nn.Module, before: Sequence[tuple[Any, str, str, Any]]) -> None:
    """Put a module's own tensors back."""
    for one, table, name, tensor in before:
        getattr(one, table)[name] = tensor


class _Session:
    """One module and its inputs, traced in several forms."""

    def __init__(
        self, module: torch.nn.Module, inputs: Any, loss: Loss, mode: FakeTensorMode, values: Values
    ) -> None:
        self.module, self.inputs, self.loss = module, inputs, loss
        self.mode, self.values = mode, values
        self.names = {id(one): path for path, one in module.named_modules()}
        self.layers = repeated(module)
        self.summed = self.forward_only = False

    def tensors(self) -> tuple[TracedTensor, ...]:
        """Parameters, buffers and inputs, each once."""
        found: dict[int, TracedTensor] = {}
        groups = (
            ("parameter", self.module.named_parameters()),
            ("buffer", self.module.named_buffers()),
            ("input", self._named_inputs()),
        )
        for kind, tensors in groups:
            for name, one in tensors:
                key = one.untyped_storage()._cdata
                if key in found:
                    continue
                found[key] = TracedTensor(
                    name=name,
                    shape=tuple(one.shape),
                    dtype=NAMES.get(one.dtype, "fp32"),
                    trained=kind == "parameter" and one.requires_grad,
                    kind=kind,
                )
        return tuple(found.values())

    def _named_inputs(self) -> Iterator[tuple[str, torch.Tensor]]:
        pairs = self.inputs.items() if isinstance(self.inputs, Mapping) else enumerate(self.inputs)
        for name, value in pairs:
            for one in tree_flatten(value)[0]:
                if isinstance(one, torch.Tensor):
                    yield str(name), one

    def run(self, form: str = "as-is") -> TracedGraph:
        """The rows of one step in a form."""
        inputs = self.inputs
        before = _tensors_of(self.module)
        if form in ("cast", "inference"):
            inputs = self._narrow()
        try:
            return self._run(inputs, form)
        finally:
            for _, table, _, tensor in before:
                if table == "_parameters" and tensor is not None:
                    tensor.grad = None
            _restore(self.module, before)

    def _narrow(self) -> Any:
        """Inputs in bf16, and the module's tensors likewise."""
        made: dict[int, Any] = {}

        def narrow(one: Any) -> Any:
            if not isinstance(one, torch.Tensor) or one.dtype != torch.float32:
                return one
            if id(one) not in made:
                with self.mode, torch.no_grad():
                    new = torch.empty_strided(one.shape, one.stride(), dtype=torch.bfloat16)
                if isinstance(one, torch.nn.Parameter):
                    new = torch.nn.Parameter(new, requires_grad=one.requires_grad)
                made[id(one)] = new
            return made[id(one)]

        for one, table, name, tensor in _tensors_of(self.module):
            getattr(one, table)[name] = narrow(tensor)
            if hasattr(one, "_flat_weights"):
                one._flat_weights = [narrow(w) for w in one._flat_weights]  # type: ignore[assignment, union-attr]
        return tree_map(narrow, self.inputs)

    def _run(self, inputs: Any, form: str) -> TracedGraph:
        keys: dict[int, int] = {}
        for one in self.module.parameters():  # places in `tensors`, which has each storage once
            keys.setdefault(one.untyped_storage()._cdata, len(keys))
        static = [one for one in tree_flatten(inputs)[0] if isinstance(one, torch.Tensor)]
        for one in (*self.module.buffers(), *static):
            keys.setdefault(one.untyped_storage()._cdata, -1)
        recorder = StepRecorder(self.values, keys)
        with ExitStack() as stack:
            stack.enter_context(gpu_ways(kernels_of(recorder)))
            stack.enter_context(DeviceMode())
            stack.enter_context(self._paths(recorder))
            stack.enter_context(self.mode)
            stack.enter_context(recorder)
            try:
                if form in FORMS[3:]:
                    self._pass(inputs)
                else:
                    self._step(inputs, form)
            except BadInput:
                raise
            except Exception as error:
                if form != "as-is":
                    raise RuntimeError(str(error)) from error
                raise BadInput([_failed(error, recorder.stack[-1])]) from error
        grads = [one.grad for one in self.module.parameters() if one.grad is not None]
        return recorder.graph({one.untyped_storage()._cdata for one in grads}, self._notes())

    def _notes(self) -> list[str]:
        many, self.values.guessed = self.values.guessed, 0
        said = [f"{many} numbers that depend on data were guessed"] if many else []
        if self.summed:
            said.append("no loss is given: the sum of the output is taken")
        if self.forward_only:
            said.append("the loss has no gradient: there is no backward pass")
        return said

    def _pass(self, inputs: Any) -> None:
        """A forward pass without gradients, as who serves the module runs it."""
        training = {one: one.training for one in self.module.modules()}
        try:
            self.module.eval()
            with torch.no_grad():
                if isinstance(inputs, Mapping):
                    of_loss = LABELS - _required(self.module)
                    self.module(**{n: one for n, one in inputs.items() if n not in of_loss})
                else:
                    self.module(*inputs[: _taken(self.module)])
        finally:
            for one, before in training.items():
                one.training = before

    def _step(self, inputs: Any, form: str) -> None:
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            if form == "autocast":
                stack.enter_context(torch.autocast("cuda", torch.bfloat16))
            value = self._loss(inputs)
        if not isinstance(value, torch.Tensor):
            allowed = "a loss, loss(module, **inputs), that is a scalar"
            raise bad_input("loss", type(value).__name__, "the output has no tensor", allowed)
        self.forward_only = not value.requires_grad
        if not self.forward_only:
            value.backward()

    def _loss(self, inputs: Any) -> Any:
        """The scalar that is minimised: the loss's, the output's own, or the sum of the output."""
        named = isinstance(inputs, Mapping)
        if callable(self.loss):
            args, kwargs = ((), inputs) if named else (inputs, {})
            return _scalar(self.loss(self.module, *args, **kwargs))
        output = self.module(**inputs) if named else self.module(*inputs)
        own = getattr(output, "loss", None)
        if own is None and isinstance(output, Mapping):
            own = output.get("loss")
        if self.loss is None and isinstance(own, torch.Tensor):
            return _scalar(own)
        self.summed = self.loss is None
        return _scalar(output, mean=self.loss == "mean")

    @contextmanager
    def _paths(self, recorder: StepRecorder) -> Iterator[None]:
        """Keep the path of the module that runs on the recorder's stack."""
        hooks = torch.nn.modules.module

        def enter(module: torch.nn.Module, _: Any) -> None:
            recorder.stack.append(self.names.get(id(module), recorder.stack[-1]))

        def leave(module: torch.nn.Module, *_: Any) -> None:
            del module
            if len(recorder.stack) > 1:
                recorder.stack.pop()

        first = hooks.register_module_forward_pre_hook(enter)
        last = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            first.remove()
            last.remove()


def _scalar(output: Any, *, mean: bool = False) -> Any:
    """A tensor as it is where it is a scalar; else the sum of all that have a gradient."""
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    leaves = [t for t in tree_flatten(output)[0] if isinstance(t, torch.Tensor)]
    leaves = [t for t in leaves if t.requires_grad] or leaves[:1]
    total: Any = None
    for one in leaves:
        part = one if one.dim() == 0 else one.mean() if mean else one.sum()
        total = part if total is None else total + part
    return total


def _failed(error: Exception, path: str) -> Problem:
    where = f" in {path}" if path else ""
    first = str(error).strip().split("\n")[0]
    message = f"the module failed{where}: {type(error).__name__}: {first}"[:600]
    hint = next((hint for sign, hint in HINTS.items() if sign in message), None)
    return wrong("trace", None, message, hint)


HINTS = {
    "DynamicOutputShape": "a result of a fixed size: a trace has no numbers that say how large this one is",
    "DataDependentOutput": "code that reads no activations: a trace has their shapes, and no numbers",
    ".numpy()": "operations of PyTorch: a trace has shapes, and no numbers for NumPy",
}
"""What an error of a module has in it -> what would trace."""


def repeated(module: torch.nn.Module) -> list[str]:
    """Paths of blocks in lists of their like: the layers, outermost first."""
    found: list[str] = []
    for path, one in module.named_modules():
        if any(path == done or path.startswith(f"{done}.") for done in found):
            continue
        if not isinstance(one, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            continue
        children = list(one.named_children())
        kinds = {type(child) for _, child in children}
        alike = len(kinds) == 1
        if isinstance(one, torch.nn.ModuleList):  # hybrids have layers of a few classes in turn
            alike = 2 * len(kinds) <= len(children) or alike
        weighty = all(any(True for _ in child.parameters()) for _, child in children)
        leaves = [not any(True for _ in child.children()) for _, child in children]
        leaf = any(leaves) if len(kinds) > 1 else all(leaves)
        if len(children) > 1 and alike and weighty and not leaf:
            found += [f"{path}.{name}" if path else name for name, _ in children]
    return found
