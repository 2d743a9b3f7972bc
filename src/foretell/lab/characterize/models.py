"""Sizes of the models that the runner trains, and the record that predictions take of the same model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretell.catalog.files import read_table
from foretell.errors import Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.specs.plan import Plan, named_fields, parse_plan

if TYPE_CHECKING:
    from foretell.specs.model import Layer, Model

Style = Literal["llama", "gpt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """A decoder that the runner can build."""

    style: Style = "llama"
    """llama: RMS norms, rotary positions, gated, no biases; gpt: layer norms, learned positions, GELU,
    biases. Table and head are two matrices in both."""
    hidden: int
    """Width."""
    layers: int
    """Layers."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    ffn: int
    """Width of the feed-forward part."""
    vocab: int
    """Rows of the token table, and scores."""
    positions: int = 0
    """Rows of the table of positions (gpt)."""

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads


def spec_of(sizes: DecoderSizes, name: str) -> "Model":
    """The model as predictions take it."""
    from foretell.specs.model import Embedding, Head, Model, Stack

    llama = sizes.style == "llama"
    return Model(
        id=name,
        family="llama" if llama else "gpt2",
        kind="decoder",
        stack=Stack(
            hidden=sizes.hidden,
            layers=(_layer(sizes),) * sizes.layers,
            final_norm="rms" if llama else "layer",
        ),
        embedding=Embedding(vocab=sizes.vocab, positions=sizes.positions),
        head=Head(outputs=sizes.vocab),
        max_positions=131072 if llama else sizes.positions,
    )


def _layer(sizes: DecoderSizes) -> "Layer":
    from foretell.specs.ffn import Dense
    from foretell.specs.mixers import Attention
    from foretell.specs.model import Layer

    llama = sizes.style == "llama"
    biases: dict[str, Any] = dict.fromkeys(("q_bias", "k_bias", "v_bias", "o_bias"), not llama)
    heads = {name: getattr(sizes, name) for name in ("heads", "kv_heads", "head_dim")}
    attention = Attention(**heads, **biases)
    ffn = Dense(
        width=sizes.ffn,
        gated=llama,
        activation="silu" if llama else "gelu_new",
        up_bias=not llama,
        down_bias=not llama,
    )
    return Layer(mixers=(attention,), ffn=ffn, norm_kind="rms" if llama else "layer")


def sizes_of(model: "Model") -> DecoderSizes | None:
    """The sizes of a model of the catalogue; None where it is more than the runner can build."""
    from foretell.specs.ffn import Dense
    from foretell.specs.mixers import Attention

    layer = model.stack.layers[0]
    mixer, ffn = layer.mixers[0] if layer.mixers else None, layer.ffn
    if not isinstance(mixer, Attention) or not isinstance(ffn, Dense):
        return None
    positions = model.embedding.positions
    sizes = DecoderSizes(
        style="gpt" if positions else "llama",
        hidden=model.stack.hidden,
        layers=len(model.stack.layers),
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        ffn=ffn.width,
        vocab=model.embedding.vocab,
        positions=positions,
    )
    made = spec_of(sizes, model.id)
    alike = replace(
        model,
        family=made.family,
        max_positions=made.max_positions,
        dtype=made.dtype,
        assumptions=(),
    )
    return sizes if alike == made else None


FRAMEWORK = "pytorch-eager"
"""What the runner is: one plain kernel after the other, launched by Python."""
_TABLES = read_table(Path(__file__).with_name("plans.toml"))
RUNS: Mapping[str, tuple[object, ...]] = {n: tuple(v) for n, v in _TABLES["runs"].items()}
"""Fields of a plan, and the values that the runner has."""
COMPUTES: Mapping[str, Sequence[str]] = _TABLES["computes"]
"""Precision of the products -> dtypes of the weights: their own, or wider ones that each use casts."""


def plan_of(text: str, processes: int, micro_batch: int | None) -> Plan:
    """The plan of a text: plain kernels, FlashAttention-2 as PyTorch has it, dp from the processes."""
    named = named_fields(text)
    if micro_batch is not None and "micro_batch" in named:
        raise bad_input("micro_batch", micro_batch, "is given in the plan too, as mbs")
    plan = parse_plan(text, processes)
    if "precision" not in named and plan.weights in COMPUTES:  # as the weights are
        plan = replace(plan, precision=plan.weights)  # type: ignore[arg-type]
    told = {"fused": False, "framework": FRAMEWORK, "attention": "fa2" if plan.flash else "auto"}
    if micro_batch is not None:
        told["micro_batch"] = micro_batch
    return replace(plan, **{n: v for n, v in told.items() if n not in named})  # type: ignore[arg-type]


def plan_problems(plan: Plan, sizes: DecoderSizes, processes: int, seq_len: int) -> list[Problem]:
    """What the runner lacks for a plan, and what does not divide."""
    message = "is not what the runner can run"
    found = [
        wrong(f"plan.{name}", getattr(plan, name), message, ", ".join(map(str, values)))
        for name, values in RUNS.items()
        if getattr(plan, name) not in values
    ]
    if plan.gpus != processes:
        message = f"dp{plan.dp} tp{plan.tp} pp{plan.pp} are not {processes} processes"
        found.append(wrong("plan", plan.gpus, message))
    if plan.weights in RUNS["weights"] and plan.weights not in COMPUTES.get(
        plan.precision, RUNS["weights"]
    ):
        message = f"GEMMs in {plan.precision} do not take weights in {plan.weights}"
        allowed = ", ".join(p for p, weights in COMPUTES.items() if plan.weights in weights)
        found.append(wrong("plan.precision", plan.precision, message, allowed))
    if plan.master == "none" and not plan.weights == plan.gradients == plan.states:
        message = "without a master copy weights, gradients and states have one dtype"
        found.append(wrong("plan.master", plan.master, message))
    if plan.master != "none" and plan.states != plan.master:
        found.append(wrong("plan.states", plan.states, "the states have the master copy's dtype"))
    cut = ("heads", "kv_heads", "ffn", "vocab")
    asked = [(name, getattr(sizes, name), plan.tp) for name in cut]
    asked += [("seq_len", seq_len, plan.tp if plan.tp > 1 else 1)]
    found += [
        wrong("plan.tp", by, f"does not divide {name} = {size}")
        for name, size, by in asked
        if size % by
    ]
    if plan.pp > sizes.layers:
        found.append(wrong("plan.pp", plan.pp, f"more stages than the {sizes.layers} layers"))
    if sizes.positions and seq_len > sizes.positions:
        message = f"the model has a table of {sizes.positions} positions"
        found.append(wrong("seq_len", seq_len, message))
    return found
